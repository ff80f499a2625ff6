"""Data sets in numpy's npz archives: FEMNIST and whatever stands in for it, and CH-MNIST's texture features."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, held_out, standardise
from tesseract_fl.data.idx import pixels
from tesseract_fl.types import DataError

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Femnist(Reader):
    """Characters by real writers: any npz with images, labels and writers, in DIR/femnist.

    FEMNIST has 62 classes, 28×28. `file` names the npz, where there are several. A stand-in keeps its own name:
    unipen62_28x28.npz is unipen62 in results. Of every writer a tenth is test set; one mean and one standard
    deviation over all training pixels normalise it.
    """

    file: str = ""

    ARRAYS = ("images", "labels", "writers")

    @property
    def partition(self) -> str:
        return "by_writer"

    def read(self, directory: Path | None = None) -> Dataset:
        path = self._path(data_directory(directory))
        images, labels, writers = read_npz(path, self.ARRAYS).values()
        if images.ndim != 3 or images.dtype != np.uint8 or not len(images) == len(labels) == len(writers):
            raise DataError(
                f"{path}: images must be n × height × width bytes with a label and a writer each, got "
                f"{images.dtype} {images.shape}, {labels.shape} and {writers.shape}"
            )
        name = re.sub(r"_\d+x\d+$", "", path.stem)
        writer = np.unique(writers, return_inverse=True)[1].astype(np.int64)
        test = held_out(writer, 10, name)
        train_x, test_x = standardise(pixels(images[~test]), pixels(images[test]))
        y = labels.astype(np.int64)
        return Dataset(
            name=name, train_x=train_x, train_y=y[~test], test_x=test_x, test_y=y[test],
            classes=int(y.max()) + 1, groups=writer[~test],
        )  # fmt: skip

    def _path(self, root: Path) -> Path:
        folders = files.places(root, "femnist")
        if self.file:
            named = next((folder / self.file for folder in folders if (folder / self.file).is_file()), None)
            if named is None:
                raise DataError(f"there is no {self.file} in {folders[0]} or {root}")
            return named
        found = [path for path in sorted(folders[0].glob("*.npz")) if set(self.ARRAYS) <= set(names_in(path))]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise DataError(f"{folders[0]} holds several data sets: {names}; choose with --set data.file=NAME")
        if not found:
            raise DataError(
                f"there is no npz with the arrays images (n × 28 × 28 bytes), labels and writers in {folders[0]}; "
                "FEMNIST has to be built from NIST SD19 or TensorFlow Federated's copy: docs/data.md shows how"
            )
        return found[0]


@dataclass(frozen=True, kw_only=True)
class ChMnistTexture(Reader):
    """CH-MNIST (colorectal histology, 8 classes) as its authors' 74 texture features, not pixels; from --data-dir.

    Any npz with X (n × features) and y, named by `file`, in DIR/ch_mnist; another file's data is called by its name
    in results. A fifth of every class is test set. Each feature is normalised by its mean and
    standard deviation over the training set.
    """

    file: str = "kather5000_texture74.npz"

    def read(self, directory: Path | None = None) -> Dataset:
        root = data_directory(directory)
        path = files.find(files.places(root, "ch_mnist"), self.file)
        if path is None:
            raise DataError(
                f"there is no {self.file} in {root / 'ch_mnist'}: it is an npz with X (5000 × 74 texture features of "
                "Kather et al. 2016) and y (0 … 7); docs/data.md shows how to make it, or name yours with data.file"
            )
        arrays = read_npz(path, ("X", "y"))
        x, y = arrays["X"].astype(np.float32), arrays["y"].astype(np.int64)
        if x.ndim != 2 or y.shape != x.shape[:1] or not np.isfinite(x).all():
            raise DataError(f"{path}: X must be finite, n × features, with a label y each, got {x.shape} and {y.shape}")
        name = "ch_mnist_texture" if self.file == type(self).file else path.stem
        test = held_out(y, 5, name)
        varies = np.ptp(x[~test], axis=0) > 0  # a feature that is the same everywhere says nothing
        train_x, test_x = standardise(x[~test][:, varies], x[test][:, varies], axis=0)
        return Dataset(
            name=name, train_x=train_x, train_y=y[~test], test_x=test_x, test_y=y[test],
            classes=int(y.max()) + 1,
        )  # fmt: skip


def names_in(path: Path) -> list[str]:
    """Which arrays an npz holds; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path} is damaged or not an npz: {error}") from error


def read_npz(path: Path, names: Sequence[str]) -> Arrays:
    """Some arrays of an npz; pickled objects are refused."""
    missing = set(names) - set(names_in(path))
    if missing:
        raise DataError(f"{path} has no array {', '.join(sorted(missing))}; it has {', '.join(names_in(path))}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}
    except (ValueError, zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read: {error}") from error
