"""CIFAR-10 from its official binary batches, or downloaded. The Python batches are pickles: not read."""

from __future__ import annotations

import io
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tesseract_fl.data import files
from tesseract_fl.data.augment import CropAndFlip
from tesseract_fl.data.base import Dataset, Reader, data_directory, standardise
from tesseract_fl.types import DataError

_ARCHIVE = "cifar-10-binary.tar.gz"
_FOLDER = "cifar-10-batches-bin"
_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes


@dataclass(frozen=True, kw_only=True)
class Cifar10(Reader):
    """CIFAR-10, 50,000 train and 10,000 test images of 10 things; from --data-dir, or downloaded.

    Each channel is normalised by its mean and standard deviation over the training set. `augment`: in training,
    images are shifted by up to 4 pixels and every other one mirrored. `verify=False` takes files of your own in
    this format.
    """

    verify: bool = True
    augment: bool = True

    url: ClassVar[str] = f"https://www.cs.toronto.edu/~kriz/{_ARCHIVE}"
    sha256: ClassVar[dict[str, str]] = {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    }

    def read(self, directory: Path | None = None) -> Dataset:
        *train, test = (parse_batch(content, file) for file, content in self._contents(directory).items())
        train_x, test_x = standardise(
            _scaled(np.concatenate([images for images, _ in train])), _scaled(test[0]), axis=(0, 2, 3)
        )
        return Dataset(
            name="cifar10",
            train_x=train_x,
            train_y=np.concatenate([labels for _, labels in train]),
            test_x=test_x,
            test_y=test[1],
            classes=10,
            augment=CropAndFlip() if self.augment else None,
        )

    def _contents(self, directory: Path | None) -> dict[str, bytes]:
        """The six batches: from files, else from the archive that they come in, else from the network."""
        root = data_directory(directory)
        folders = files.places(root, "cifar10", _FOLDER)
        found = {file: files.find(folders, file) for file in self.sha256}
        if any(found.values()):
            return {file: self._stored(path, file, folders) for file, path in found.items()}
        archive = files.find(folders, _ARCHIVE)
        if archive is not None:
            contents = self._unpacked(archive.read_bytes(), str(archive))
            for file, content in contents.items():
                self._check(archive / file, content)
            return contents
        if files.find(folders, "data_batch_1") or files.find(places_of_pickles(root), "data_batch_1"):
            raise DataError(
                f"the CIFAR-10 in {root} is the Python version, pickles, which are never read; "
                f"put the binary version into {root / 'cifar10'}: {self.url}"
            )
        wanted = f"{_ARCHIVE}, or the six .bin files that are in it,"
        contents = self._unpacked(files.download(self.url, name="cifar10", root=root, wanted=wanted), self.url)
        for file, content in contents.items():
            if not files.is_published(content, self.sha256[file]):
                raise files.not_published(file, "cifar10")
        for file, content in contents.items():
            files.keep(root, f"cifar10/{_FOLDER}", file, content)
        return contents

    def _stored(self, path: Path | None, file: str, folders: list[Path]) -> bytes:
        if path is None:
            raise DataError(f"{file} is missing in {folders[0]}, its companions are there: put all six next to them")
        content = files.content_of(path)
        self._check(path.with_name(file), content)
        return content

    def _check(self, path: Path, content: bytes) -> None:
        if self.verify:
            files.check_published(path, content, self.sha256[path.name], "cifar10")

    def _unpacked(self, packed: bytes, origin: str) -> dict[str, bytes]:
        contents = {}
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                for file in self.sha256:
                    member = archive.extractfile(f"{_FOLDER}/{file}")
                    contents[file] = member.read() if member else b""
        except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{origin} is damaged or is not {_ARCHIVE}: {error}") from error
        return contents


def places_of_pickles(root: Path) -> list[Path]:
    return files.places(root, "cifar10", "cifar-10-batches-py")


def parse_batch(content: bytes, name: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images and labels from a binary batch: records of a label byte and 3 × 32 × 32 pixels."""
    if not content or len(content) % _RECORD:
        raise DataError(f"{name} is damaged: {len(content)} bytes are not a whole number of records of {_RECORD}")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _scaled(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    return images.astype(np.float32) / np.float32(255)
