"""Readers: the embedded sets, and IDX files plain, gzipped, damaged, and downloaded from a real server."""

from __future__ import annotations

import gzip
import socketserver
import threading
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tesseract_fl.data import idx
from tesseract_fl.data.embedded import BreastCancer, Mnist5k
from tesseract_fl.data.idx import FashionMnist, Mnist, parse_idx
from tesseract_fl.types import DataError


def idx_bytes(array: npt.NDArray[np.int64]) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def contents() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": idx_bytes(rng.integers(0, 256, (30, 28, 28))),
        "train-labels-idx1-ubyte": idx_bytes(rng.integers(0, 10, 30)),
        "t10k-images-idx3-ubyte": idx_bytes(rng.integers(0, 256, (10, 28, 28))),
        "t10k-labels-idx1-ubyte": idx_bytes(rng.integers(0, 10, 10)),
    }


def test_mnist_5k() -> None:
    data = Mnist5k().read()
    assert data.train_x.shape == (4000, 1, 28, 28)
    assert data.test_x.shape == (1000, 1, 28, 28)
    assert data.train_x.dtype == np.float32
    assert np.bincount(data.train_y).tolist() == [400] * 10
    assert np.bincount(data.test_y).tolist() == [100] * 10
    assert data.train_x.mean() == pytest.approx(0, abs=1e-4)
    assert data.train_x.std() == pytest.approx(1, abs=1e-4)
    assert data.checksum == Mnist5k().read().checksum


def test_breast_cancer() -> None:
    data = BreastCancer().read()
    assert data.train_x.shape == (456, 30)
    assert data.test_x.shape == (113, 30)
    assert data.classes == 2
    np.testing.assert_allclose(data.train_x.std(axis=0), 1, rtol=1e-3)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "."])
def test_idx_files_plain_or_gzipped_in_the_folder_or_below(tmp_path: Path, zipped: bool, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, content in contents().items():
        path = tmp_path / folder / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)
    data = Mnist(verify=False).read(tmp_path)
    assert data.train_x.shape == (30, 1, 28, 28)
    assert data.train_x.mean() == pytest.approx(0, abs=1e-5)
    assert data.test_y.tolist() == list(contents()["t10k-labels-idx1-ubyte"][8:])


@pytest.mark.parametrize("content", [b"", b"\x00\x00\x08", b"\x00\x00\x0d\x01", b"\x00\x00\x08\x01\x00\x00\x00\x05abc"])
def test_damaged_idx(content: bytes) -> None:
    with pytest.raises(DataError, match=r"some file is (damaged|not an IDX)"):
        parse_idx(content, "some file")


def test_other_data_under_the_same_file_names_is_refused(tmp_path: Path) -> None:
    for name, content in contents().items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"not the published mnist.*data.verify=false"):
        Mnist().read(tmp_path)


def test_a_torn_gzip_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"x" * 9999)[:40])
    with pytest.raises(DataError, match="is damaged"):
        Mnist().read(tmp_path)


@pytest.fixture
def mirror(served: Path) -> Path:
    for name, content in contents().items():
        (served / "fashion_mnist" / f"{name}.gz").write_bytes(gzip.compress(content))
        (served / "mnist" / f"{name}.gz").write_bytes(
            gzip.compress(content[::-1])
        )  # another set's, under the same names
    return served


def test_download_keeps_what_has_the_right_checksum(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = tuple(sha256(content).hexdigest() for content in contents().values())
    monkeypatch.setattr(FashionMnist, "sha256", digests)
    assert FashionMnist().read(tmp_path).train_x.shape == (30, 1, 28, 28)
    for file in mirror.rglob("*.gz"):
        file.unlink()
    assert FashionMnist().read(tmp_path).train_x.shape == (30, 1, 28, 28)  # from disk this time


def test_download_of_something_else_is_refused(mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="checksum differs; nothing was kept"):
        Mnist().read(tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_no_files_and_no_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACT_FL_MIRROR", "http://127.0.0.1:9/")
    with pytest.raises(DataError, match=r"Put train-images-idx3-ubyte.gz and its three companions into .*--data-dir"):
        Mnist().read(tmp_path)


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort"])
def test_a_server_that_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("TESSERACT_FL_MIRROR", f"http://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(DataError, match="could not be fetched"):
            Mnist().read(tmp_path)
        server.shutdown()
    monkeypatch.setenv("TESSERACT_FL_MIRROR", "my mirror")
    with pytest.raises(DataError, match="could not be fetched"):
        Mnist().read(tmp_path)


def test_every_file_has_a_published_checksum() -> None:
    for cls in (Mnist, FashionMnist):
        assert len(cls.sha256) == len(idx._FILES)
        assert all(len(digest) == 64 for digest in cls.sha256)
