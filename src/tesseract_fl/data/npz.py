"""Numpy's npz archives, and CH-MNIST's texture features, which come in one."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, held_out, standardise
from tesseract_fl.types import DataError

Arrays = dict[str, np.ndarray[Any, Any]]


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
                f"there is no {self.file} in {root / 'ch_mnist'}: make an npz with X (n × features) and y (0 … 7) from "
                "the .mat files in datasets/PRIMARY of github.com/jnkather/histology-multiclass-texture, name one of "
                "your own with data.file, or read the images with --data ch_mnist_tiles"
            )
        arrays = read_npz(path, ("X", "y"))
        X, labels = arrays["X"], arrays["y"]
        if X.dtype.kind not in "fiub" or X.ndim != 2 or labels.shape != X.shape[:1] or not np.isfinite(X).all():
            raise DataError(
                f"{path}: X must be finite numbers, n × features, with a label y each, got {X.shape} and {labels.shape}"
            )
        y = labels.astype(np.int64) if labels.dtype.kind in "fiu" else np.full(len(labels), -1)
        if not len(y) or (y != labels).any() or set(y.tolist()) != set(range(int(y.max()) + 1)):
            raise DataError(f"{path}: y must be the classes 0, 1, …, each of them at least once")
        x = X.astype(np.float32)
        name = "ch_mnist_texture" if self.file == type(self).file else path.stem
        test = held_out(y, 5, name)
        varies = np.ptp(x[~test], axis=0) > 0  # a feature that is the same everywhere says nothing
        train_x, test_x = standardise(x[~test][:, varies], x[test][:, varies], axis=0)
        return Dataset(
            name=name, train_x=train_x, train_y=y[~test], test_x=test_x, test_y=y[test],
            classes=int(y.max()) + 1,
        )  # fmt: skip


def names_in(path: Path) -> list[str]:
    """Which arrays an npz holds."""
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
