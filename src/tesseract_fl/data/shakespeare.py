"""Shakespeare, character by character: the tiny-shakespeare text, or what each role says."""

from __future__ import annotations

import io
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, needs_extra
from tesseract_fl.types import ConfigError, DataError, Ints

SYMBOLS = string.printable  # 100 of them
_NUMBERS = np.full(256, -1, np.int64)
_NUMBERS[list(SYMBOLS.encode())] = np.arange(len(SYMBOLS))


@dataclass(frozen=True, kw_only=True)
class Shakespeare(Reader):
    """Shakespeare's characters, 100 symbols, each to be guessed from those before; from --data-dir, or downloaded.

    `source="text"`: tiny-shakespeare, of which the last tenth is the test set. `source="roles"`: LEAF's split by
    speaking role in TensorFlow Federated's HDF5 files (needs h5py); roles with less text than a chunk are left out.
    An input is `chunk` characters, its label the next one at every position. `verify=False` takes a text of your own.
    """

    source: str = "text"
    chunk: int = 200
    verify: bool = True

    text_file: ClassVar[str] = "tinyshakespeare.txt"
    text_url: ClassVar[str] = (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
    )
    text_sha256: ClassVar[str] = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    roles_files: ClassVar[tuple[str, str]] = ("shakespeare_train.h5", "shakespeare_test.h5")
    roles_url: ClassVar[str] = "https://storage.googleapis.com/tff-datasets-public/shakespeare.tar.bz2"
    roles_sha256: ClassVar[str] = "0285be9906cb5f268092eee4edeeacfc2af4574f2941f7cc2f08a321d7f5c707"

    def __post_init__(self) -> None:
        if self.source not in ("text", "roles"):
            raise ConfigError(f"shakespeare: source must be 'text' or 'roles', got {self.source!r}")
        if self.chunk < 1:
            raise ConfigError(f"shakespeare: chunk must be at least 1, got {self.chunk}")

    @property
    def partition(self) -> str:
        return "consecutive" if self.source == "text" else "by_writer"

    def read(self, directory: Path | None = None) -> Dataset:
        root = data_directory(directory)
        return self._from_text(root) if self.source == "text" else self._from_roles(root)

    def _from_text(self, root: Path) -> Dataset:
        text = encode(self._text(root), self.text_file)
        cut = len(text) * 9 // 10
        train, test = chunks(text[:cut], self.chunk), chunks(text[cut:], self.chunk)
        return self._dataset(train, test, None)

    def _from_roles(self, root: Path) -> Dataset:
        (train, groups), (test, _) = (
            _chunks_by_role(parse_roles(content, file), self.chunk)
            for content, file in zip(self._roles(root), self.roles_files, strict=True)
        )
        return self._dataset(train, test, groups)

    def _dataset(self, train: tuple[Ints, Ints], test: tuple[Ints, Ints], groups: Ints | None) -> Dataset:
        return Dataset(
            name="shakespeare" if self.source == "text" else "shakespeare_roles",
            train_x=train[0], train_y=train[1], test_x=test[0], test_y=test[1], classes=len(SYMBOLS), groups=groups,
        )  # fmt: skip

    def _text(self, root: Path) -> bytes:
        path = files.find(files.places(root, "shakespeare"), self.text_file)
        if path is not None:
            content = files.content_of(path)
            if self.verify:
                files.check_published(path, content, self.text_sha256, "tiny-shakespeare")
            return content
        content = files.download(self.text_url, name="shakespeare", root=root, wanted=self.text_file)
        if not files.is_published(content, self.text_sha256):
            raise files.not_published(self.text_file, "tiny-shakespeare")
        files.keep(root, "shakespeare", self.text_file, content)
        return content

    def _roles(self, root: Path) -> list[bytes]:
        found = [files.find(files.places(root, "shakespeare"), file) for file in self.roles_files]
        if all(found):
            return [files.content_of(path) for path in found if path]
        wanted = " and ".join(self.roles_files)
        packed = files.download(self.roles_url, name="shakespeare", root=root, wanted=wanted)
        if not files.is_published(packed, self.roles_sha256):
            raise files.not_published("shakespeare.tar.bz2", "Shakespeare by role")
        return [path.read_bytes() for path in files.unpack(packed, self.roles_files, root / "shakespeare")]


def encode(text: bytes, name: str) -> Ints:
    """The number of each character among the 100 printable ones."""
    numbers = _NUMBERS[np.frombuffer(text, np.uint8)]
    if (numbers < 0).any():
        where = int((numbers < 0).argmax())
        raise DataError(f"{name} has the byte {text[where]} at {where}, which is none of the 100 printable characters")
    return numbers


def chunks(text: Ints, size: int) -> tuple[Ints, Ints]:
    """Inputs and labels, count × size: each label is the character after its input. What is left over is dropped."""
    count = max(len(text) - 1, 0) // size
    return text[: count * size].reshape(count, size), text[1 : count * size + 1].reshape(-1, size)


def parse_roles(content: bytes, name: str) -> dict[str, bytes]:
    """What each role says, from HDF5: examples/<ROLE>/snippets."""
    try:
        import h5py
    except ImportError as error:
        raise needs_extra("h5py", "roles") from error
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            roles: Any = file["examples"]
            return {role: b"\n".join(roles[role]["snippets"][()].tolist()) for role in sorted(roles)}
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} is damaged or has no examples/<ROLE>/snippets: {error}") from error


def _chunks_by_role(roles: dict[str, bytes], size: int) -> tuple[tuple[Ints, Ints], Ints]:
    """The chunks of all roles, and the number of each chunk's role."""
    cut = [chunks(encode(text, role), size) for role, text in roles.items()]
    cut = [(x, y) for x, y in cut if len(x)]
    if not cut:
        raise DataError(f"no role says as much as {size + 1} characters; set a smaller data.chunk")
    groups = np.repeat(np.arange(len(cut)), [len(x) for x, _ in cut])
    return (np.concatenate([x for x, _ in cut]), np.concatenate([y for _, y in cut])), groups
