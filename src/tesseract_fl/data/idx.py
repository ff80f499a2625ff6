"""MNIST and Fashion-MNIST from their IDX files, plain or gzipped, downloaded if they are not there."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tesseract_fl.checkpoint import write_atomically
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
        train, test = standardise(_pixels(train_x), _pixels(test_x))
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
        content = _stored(root, self.name, file)
        if content is not None and self.verify and hashlib.sha256(content).hexdigest() != digest:
            raise DataError(
                f"{file} in {root} is not the published {self.name}: its checksum differs. "
                "To use files of your own in this format, set data.verify=false"
            )
        return content

    def _download(self, root: Path, file: str, digest: str) -> bytes:
        url = f"{os.environ.get('TESSERACT_FL_MIRROR', self.mirror).rstrip('/')}/{file}.gz"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (a fixed or user-set mirror)
                packed = answer.read()
            content = gzip.decompress(packed)
        except (urllib.error.URLError, OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{self.name} is not in {root} and {url} could not be fetched ({error}). Put {file}.gz and "
                f"its three companions into {root / self.name}, or name another folder with --data-dir"
            ) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"{url} is not the published {self.name}: its checksum differs; nothing was kept")
        target = root / self.name / f"{file}.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, packed)
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


def _pixels(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """n × 1 × height × width, from 0 to 1."""
    return images[:, None].astype(np.float32) / np.float32(255)


def _stored(root: Path, name: str, file: str) -> bytes | None:
    for folder in (root / name, root):
        if (folder / f"{file}.gz").is_file():
            try:
                return gzip.decompress((folder / f"{file}.gz").read_bytes())
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{folder / file}.gz is damaged: {error}") from error
        if (folder / file).is_file():
            return (folder / file).read_bytes()
    return None


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
