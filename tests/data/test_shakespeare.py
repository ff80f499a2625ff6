"""Characters: how a text is cut, who said what, and what is not Shakespeare."""

from __future__ import annotations

import io
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tesseract_fl.data.shakespeare import SYMBOLS, Shakespeare, chunks, encode
from tesseract_fl.types import ConfigError, DataError

TEXT = b"To be, or not to be, that is the question.\n" * 100


def test_a_label_is_the_next_character() -> None:
    text = encode(TEXT, "a text")
    x, y = chunks(text, 7)
    assert x.shape == y.shape == ((len(TEXT) - 1) // 7, 7)
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    np.testing.assert_array_equal(x[1:, 0], y[:-1, -1])
    assert "".join(SYMBOLS[i] for i in x[0]) == "To be, "
    assert chunks(text[:7], 7)[0].shape == (0, 7)


def test_the_symbols_are_the_100_printable_ones() -> None:
    assert len(SYMBOLS) == 100
    with pytest.raises(DataError, match=r"mine has the byte 195 at 3"):
        encode("caché".encode()[:3] + "é".encode(), "mine")


def test_a_text_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "tinyshakespeare.txt").write_bytes(TEXT)
    data = Shakespeare(verify=False, chunk=20).read(tmp_path)
    assert (data.name, data.classes, data.shape) == ("shakespeare", 100, (20,))
    assert data.train_x.dtype == data.train_y.dtype == np.int64
    assert len(data.train_x) == (len(TEXT) * 9 // 10 - 1) // 20
    assert Shakespeare().partition == "consecutive"
    with pytest.raises(DataError, match=r"not the published tiny-shakespeare.*data.verify=false"):
        Shakespeare().read(tmp_path)
    with pytest.raises(DataError, match="0 test inputs"):
        Shakespeare(verify=False, chunk=1000).read(tmp_path)


def test_download_of_the_text(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (served / "shakespeare" / "input.txt").write_bytes(TEXT)
    with pytest.raises(DataError, match="checksum differs; nothing was kept"):
        Shakespeare().read(tmp_path)
    monkeypatch.setattr(Shakespeare, "text_sha256", sha256(TEXT).hexdigest())
    first = Shakespeare(chunk=50).read(tmp_path)
    (served / "shakespeare" / "input.txt").unlink()
    assert Shakespeare(chunk=50).read(tmp_path).checksum == first.checksum


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("source", "file"), [("text", "tinyshakespeare.txt"), ("roles", "shakespeare_train.h5 and")])
def test_no_files_and_no_network_says_what_to_do(tmp_path: Path, source: str, file: str) -> None:
    with pytest.raises(DataError, match=f"Put {file}.*--data-dir"):
        Shakespeare(source=source).read(tmp_path)


def roles(said: dict[str, list[bytes]]) -> bytes:
    h5py = pytest.importorskip("h5py")
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for role, snippets in said.items():
            file[f"examples/{role}/snippets"] = np.array(snippets)
    return content.getvalue()


PLAY = {
    "PLAY_HAMLET": [b"To be, or not to be", b"that is the question"],
    "PLAY_GHOST": [b"Ay"],
    "PLAY_OPHELIA": [b"Good my lord, how does your honour for this many a day?"],
}


def test_roles(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / f"shakespeare_{split}.h5").write_bytes(roles(PLAY))
    reader = Shakespeare(source="roles", chunk=10)
    data = reader.read(tmp_path)
    assert (data.name, reader.partition) == ("shakespeare_roles", "by_writer")
    assert data.groups is not None
    assert data.groups.tolist() == [0] * 3 + [1] * 5  # the ghost says too little
    said = ["".join(SYMBOLS[i] for i in row) for row in data.train_x]
    assert said[:3] == ["To be, or ", "not to be\n", "that is th"]
    with pytest.raises(DataError, match="no role says as much as 201 characters"):
        Shakespeare(source="roles").read(tmp_path)


def test_download_of_the_roles(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as tar:
        for split in ("train", "test"):
            content = roles(PLAY)
            member = tarfile.TarInfo(f"./shakespeare_{split}.h5")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    (served / "shakespeare" / "shakespeare.tar.bz2").write_bytes(packed.getvalue())
    with pytest.raises(DataError, match="checksum differs; nothing was kept"):
        Shakespeare(source="roles").read(tmp_path)
    monkeypatch.setattr(Shakespeare, "roles_sha256", sha256(packed.getvalue()).hexdigest())
    first = Shakespeare(source="roles", chunk=10).read(tmp_path)
    (served / "shakespeare" / "shakespeare.tar.bz2").unlink()
    assert Shakespeare(source="roles", chunk=10).read(tmp_path).checksum == first.checksum


@pytest.mark.parametrize("content", [b"", b"not HDF5", None])
def test_what_is_not_roles(tmp_path: Path, content: bytes | None) -> None:
    h5py = pytest.importorskip("h5py")
    if content is None:
        other = io.BytesIO()
        with h5py.File(other, "w") as file:
            file["something"] = 1
        content = other.getvalue()
    for split in ("train", "test"):
        (tmp_path / f"shakespeare_{split}.h5").write_bytes(content)
    with pytest.raises(DataError, match=r"shakespeare_train.h5 is damaged or has no examples/<ROLE>/snippets"):
        Shakespeare(source="roles").read(tmp_path)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="source must be 'text' or 'roles'"):
        Shakespeare(source="role")
    with pytest.raises(ConfigError, match="chunk must be at least 1"):
        Shakespeare(chunk=0)
