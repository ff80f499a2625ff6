"""FEMNIST, characters by real writers: TensorFlow Federated's files, LEAF's, or an npz of the same or of a stand-in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, held_out, needs_extra, standardise
from tesseract_fl.data.idx import pixels
from tesseract_fl.data.npz import names_in, read_npz
from tesseract_fl.types import DataError, Ints

Written: TypeAlias = tuple[str, npt.NDArray[np.uint8], Ints]  # a writer, the images and their labels
Characters: TypeAlias = tuple[npt.NDArray[np.float32], Ints, Ints]  # of everybody: images, labels, writers
CLASSES = 62  # digits, capitals, small letters; a small sample may lack some


@dataclass(frozen=True, kw_only=True)
class Femnist(Reader):
    """FEMNIST, characters by real writers, 62 classes, 28×28; from --data-dir, or downloaded.

    In DIR/femnist are TensorFlow Federated's fed_emnist_train.h5 and fed_emnist_test.h5 (needs h5py), or the folders
    train and test with LEAF's JSON, or an npz with images, labels and writers, of each of whom a tenth is test set.
    Where there are several, `file` says which: fed_emnist_train.h5, train, or the name of the npz. A stand-in keeps
    its own name: unipen62_28x28.npz is unipen62 in results. One mean and one standard deviation over all training
    pixels normalise it.
    """

    file: str = ""

    ARRAYS: ClassVar[tuple[str, ...]] = ("images", "labels", "writers")
    h5_files: ClassVar[tuple[str, str]] = ("fed_emnist_train.h5", "fed_emnist_test.h5")
    url: ClassVar[str] = "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"
    sha256: ClassVar[str] = "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0"

    @property
    def partition(self) -> str:
        return "by_writer"

    def read(self, directory: Path | None = None) -> Dataset:
        root = data_directory(directory)
        path = self._named(root) if self.file else self._found(root) or self._download(root)
        if path.is_dir():
            return _published("femnist_leaf", together(read_leaf(path)), together(read_leaf(path.with_name("test"))))
        if path.suffix == ".h5":
            test = path.with_name(self.h5_files[1])
            return _published("femnist", together(read_h5(path)), together(read_h5(test)))
        return self._from_npz(path)

    def _from_npz(self, path: Path) -> Dataset:
        images, labels, writers = read_npz(path, self.ARRAYS).values()
        count = images.shape[:1]
        right = images.ndim == 3 and images.dtype == np.uint8 and images.size > 0 and labels.dtype.kind in "iu"
        if not right or not labels.shape == writers.shape == count:
            raise DataError(
                f"{path}: images must be n × height × width bytes with a whole number as label and a writer each, got "
                f"{images.dtype} {images.shape}, {labels.dtype} {labels.shape} and {writers.shape}"
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

    def _named(self, root: Path) -> Path:
        folders = files.places(root, "femnist", "data")
        named = next((folder / self.file for folder in folders if (folder / self.file).exists()), None)
        if named is None:
            raise DataError(f"there is no {self.file} in {folders[0]} or {root}")
        if (named.is_dir() or named.suffix == ".h5") and named.name not in ("train", self.h5_files[0]):
            raise DataError(
                f"data.file is {self.file}, but must be an npz, {self.h5_files[0]} or train (LEAF's folder)"
            )
        return named

    def _found(self, root: Path) -> Path | None:
        folders = files.places(root, "femnist", "data")  # data: where LEAF's scripts leave train and test
        found = [path for path in sorted(folders[0].glob("*.npz")) if set(self.ARRAYS) <= set(names_in(path))]
        found += [folder / self.h5_files[0] for folder in folders if (folder / self.h5_files[0]).is_file()][:1]
        found += [folder / "train" for folder in folders if any(folder.glob("train/*.json"))][:1]
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise DataError(f"{root} holds several data sets: {names}; choose with --set data.file=NAME")
        return found[0] if found else None

    def _download(self, root: Path) -> Path:
        wanted = (
            f"{' and '.join(self.h5_files)}, or LEAF's folders train and test, or an npz with the arrays images "
            "(n × 28 × 28 bytes), labels and writers"
        )
        try:
            import h5py  # noqa: F401  (what is downloaded can't be read without it)
        except ImportError as error:
            raise DataError(
                f"femnist is not in {root}. Put {wanted} into {root / 'femnist'}, or have it downloaded, which needs "
                "h5py: pip install 'tesseract-fl[roles]'"
            ) from error
        packed = files.download(self.url, name="femnist", root=root, wanted=wanted)
        if not files.is_published(packed, self.sha256):
            raise files.not_published("fed_emnist.tar.bz2", "femnist")
        return files.unpack(packed, self.h5_files, root / "femnist")[0]


def read_h5(path: Path) -> list[Written]:
    """What each writer wrote, from HDF5: examples/<WRITER>/{pixels,label}."""
    try:
        import h5py
    except ImportError as error:
        raise needs_extra("h5py", "roles") from error
    if not path.is_file():
        raise DataError(f"{path.name} is missing in {path.parent}, its companion is there: put it next to it")
    try:
        with h5py.File(path, "r") as file:
            writers: Any = file["examples"]
            return [_written(writer, writers[writer]["pixels"][()], writers[writer]["label"][()]) for writer in writers]
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise DataError(f"{path} is damaged or has no examples/<WRITER>/pixels and label: {error}") from error


def read_leaf(folder: Path) -> list[Written]:
    """What each writer wrote, from LEAF's JSON files, each with user_data: {WRITER: {x: images, y: labels}}."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(
            f"there is no JSON in {folder}: LEAF's files are in two folders, train and test; put both there"
        )
    return [written for path in paths for written in _parse_leaf(path)]


def _parse_leaf(path: Path) -> list[Written]:
    # Millions of numbers, but only 256 different ones: remembered, they take half the time and a quarter of the memory.
    number = lru_cache(maxsize=1024)(float)
    try:
        writers = json.loads(path.read_bytes(), parse_float=number)["user_data"]
        return [_written(writer, samples["x"], samples["y"]) for writer, samples in writers.items()]
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged or has no user_data with x and y of each writer: {error}") from error


def _written(writer: str, images: npt.ArrayLike, labels: npt.ArrayLike) -> Written:
    paper = np.asarray(images, np.float32)  # white is 1, ink 0; ours are 0 and 255
    given = np.asarray(labels).reshape(-1)
    y = given.astype(np.int64)
    if paper.size != len(y) * 784 or not ((paper >= 0) & (paper <= 1)).all() or (given != y).any():
        raise ValueError(
            f"{writer} must have images of 28 × 28 numbers from 0 to 1, each with a whole number as label, and has "
            f"numbers of shape {paper.shape} and {len(y)} labels"
        )
    return writer, np.rint(255 * (1 - paper)).astype(np.uint8).reshape(-1, 28, 28), y


def together(written: Iterable[Written]) -> Characters:
    """Images, labels and the number of each one's writer; in the order of writers, in whichever file they were."""
    some = sorted((one for one in written if len(one[2])), key=lambda one: one[0])
    if not some:
        raise DataError("FEMNIST's files are there, but nobody wrote anything in them")
    writers, images, labels = zip(*some, strict=True)
    x = np.concatenate(images, dtype=np.float32)[:, None]
    x /= 255
    numbers = np.unique(writers, return_inverse=True)[1].astype(np.int64)
    return x, np.concatenate(labels), np.repeat(numbers, [len(y) for y in labels])


def _published(name: str, train: Characters, test: Characters) -> Dataset:
    """A data set that brings its test set along. Who wrote that is of no use, so it may be others."""
    train_x, test_x = standardise(train[0], test[0])
    return Dataset(
        name=name, train_x=train_x, train_y=train[1], test_x=test_x, test_y=test[1], classes=CLASSES, groups=train[2]
    )
