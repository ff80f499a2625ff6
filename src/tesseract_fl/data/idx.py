"""Images in IDX files, plain or gzipped: MNIST and Fashion-MNIST, downloaded if they are not there, and your own."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, standardise
from tesseract_fl.types import DataError

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, kw_only=True)
class Idx(Reader):
    """Four IDX files in `DIR/<name>/` or `DIR/`; `verify=False` takes files of your own in that format."""

    verify: bool = True

    name: ClassVar[str]
    mirror: ClassVar[str]
    sha256: ClassVar[tuple[str, ...]]  # of the four files, uncompressed

    def read(self, directory: Path | None = None) -> Dataset:
        root = data_directory(directory)
        train_x, train_y, test_x, test_y = (
            parse_idx(content, file) for content, file in zip(self._contents(root), _FILES, strict=True)
        )
        train, test = standardise(pixels(train_x), pixels(test_x))
        return Dataset(
            name=self.name,
            train_x=train,
            train_y=train_y.astype(np.int64),
            test_x=test,
            test_y=test_y.astype(np.int64),
            classes=10,
        )

    def _contents(self, root: Path) -> list[bytes]:
        return [
            self._find(root, file, digest) or self._download(root, file, digest)
            for file, digest in zip(_FILES, self.sha256, strict=True)
        ]

    def _find(self, root: Path, file: str, digest: str) -> bytes | None:
        path = files.find(files.places(root, self.name), file)
        if path is None:
            return None
        content = files.content_of(path)
        if self.verify:
            files.check_published(path, content, digest, self.name)
        return content

    def _download(self, root: Path, file: str, digest: str) -> bytes:
        wanted = f"{file}.gz and its three companions"
        packed = files.download(f"{self.mirror}/{file}.gz", name=self.name, root=root, wanted=wanted)
        try:
            content = gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):
            content = b""
        if not files.is_published(content, digest):
            raise files.not_published(file, self.name)
        files.keep(root, self.name, f"{file}.gz", packed)
        return content


@dataclass(frozen=True, kw_only=True)
class Mnist(Idx):
    """MNIST, 60,000 train and 10,000 test images of digits; from --data-dir, or downloaded."""

    name = "mnist"
    mirror = "https://ossci-datasets.s3.amazonaws.com/mnist"
    sha256 = (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    )


@dataclass(frozen=True, kw_only=True)
class FashionMnist(Idx):
    """Fashion-MNIST, 60,000 train and 10,000 test images of clothes; from --data-dir, or downloaded."""

    name = "fashion_mnist"
    mirror = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
    sha256 = (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    )


@dataclass(frozen=True, kw_only=True)
class IdxImages(Reader):
    """Images in four IDX files of your own, which stand in for CH-MNIST's (ch_mnist_tiles); from --data-dir.

    They are <folder>/<prefix>-{train,test}-{images-idx3,labels-idx1}-ubyte, plain or gzipped, and the prefix is what
    the data set is called in results. Without one: tissuemnist8, eight classes of kidney tissue from TissueMNIST. One
    mean and one standard deviation over all training pixels normalise it.
    """

    prefix: str = "tissuemnist8"
    folder: str = "ch_mnist"

    def read(self, directory: Path | None = None) -> Dataset:
        root = data_directory(directory)
        train_x, train_y, test_x, test_y = (
            parse_idx(self._content(root, f"{self.prefix}-{part}-{kind}-ubyte"), f"{self.prefix}-{part}-{kind}-ubyte")
            for part in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        )
        train, test = standardise(pixels(train_x), pixels(test_x))
        return Dataset(
            name=self.prefix, train_x=train, train_y=train_y.astype(np.int64), test_x=test,
            test_y=test_y.astype(np.int64), classes=int(train_y.max(initial=0)) + 1,
        )  # fmt: skip

    def _content(self, root: Path, file: str) -> bytes:
        path = files.find(files.places(root, self.folder), file)
        if path is None:
            raise DataError(
                f"there is no {file}, plain or gzipped, in {root / self.folder}: put it and its three companions "
                "there, or say what yours are called with data.prefix and data.folder"
            )
        return files.content_of(path)


def pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """n × 1 × height × width, from 0 to 1."""
    scaled = images[:, None].astype(np.float32)
    scaled /= 255
    return scaled


def parse_idx(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """An array of unsigned bytes from the IDX format: 0, 0, type 8, rank, sizes as big-endian uint32."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{name} is not an IDX file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if len(shape) != rank or len(content) - start != prod(shape):
        raise DataError(f"{name} is damaged: its header promises {shape}, {len(content) - start} bytes follow")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
