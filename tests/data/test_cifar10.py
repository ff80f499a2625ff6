"""CIFAR-10's binary batches: as files, in their archive, from a server; and what is not them."""

from __future__ import annotations

import io
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from tesseract_fl.data.augment import CropAndFlip
from tesseract_fl.data.cifar10 import Cifar10, parse_batch
from tesseract_fl.types import DataError

FOLDER = "cifar-10-batches-bin"


def batches() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    found = {}
    for file in Cifar10.sha256:
        records = rng.integers(0, 256, (12, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        found[file] = records.tobytes()
    return found


def archive(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for file, content in contents.items():
            member = tarfile.TarInfo(f"{FOLDER}/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize("folder", [f"cifar10/{FOLDER}", "cifar10", FOLDER, "."])
def test_batches_in_any_sensible_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for file, content in batches().items():
        (tmp_path / folder / file).write_bytes(content)
    data = Cifar10(verify=False).read(tmp_path)
    assert data.name == "cifar10"
    assert data.train_x.shape == (60, 3, 32, 32)
    assert data.test_y.tolist() == list(batches()["test_batch.bin"][::3073])
    np.testing.assert_allclose(data.train_x.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(data.train_x.std(axis=(0, 2, 3)), 1, atol=1e-5)
    first = np.frombuffer(batches()["data_batch_1.bin"], np.uint8)[1:3073].reshape(3, 32, 32)
    assert np.corrcoef(data.train_x[0, 1].ravel(), first[1].ravel())[0, 1] == pytest.approx(1)


def test_augmentation_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(batches()))
    assert Cifar10(verify=False).read(tmp_path).augment == CropAndFlip(padding=4)
    assert Cifar10(verify=False, augment=False).read(tmp_path).augment is None


def test_download_is_verified_and_kept(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (served / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(archive(batches()))
    for verify in (True, False):  # a file of your own does not come from their server
        with pytest.raises(DataError, match="checksum differs; nothing was kept"):
            Cifar10(verify=verify).read(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(Cifar10, "sha256", {file: sha256(batch).hexdigest() for file, batch in batches().items()})
    first = Cifar10().read(tmp_path)
    (served / "cifar10" / "cifar-10-binary.tar.gz").unlink()
    assert Cifar10().read(tmp_path).checksum == first.checksum


@pytest.mark.usefixtures("offline")
def test_no_files_and_no_network_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Put cifar-10-binary.tar.gz, or the six .bin files .*--data-dir"):
        Cifar10().read(tmp_path)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "cifar10"])
def test_pickles_are_not_read(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "data_batch_1").write_bytes(b"pickled")
    with pytest.raises(DataError, match=r"pickles, which are never read; put the binary version"):
        Cifar10().read(tmp_path)


def test_one_batch_is_missing(tmp_path: Path) -> None:
    for file, content in list(batches().items())[:-1]:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=r"test_batch.bin is missing"):
        Cifar10(verify=False).read(tmp_path)


def test_other_data_under_the_same_names_is_refused(tmp_path: Path) -> None:
    for file, content in batches().items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=r"not the published cifar10.*data.verify=false"):
        Cifar10().read(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/cifar-10-binary.tar.gz").write_bytes(archive(batches()))
    with pytest.raises(DataError, match=r"in .*binary.tar.gz is not the published cifar10.*data.verify=false"):
        Cifar10().read(tmp_path / "other")


def test_damaged_files() -> None:
    for content in (b"", b"x" * 3072, b"x" * 3074):
        with pytest.raises(DataError, match="some batch is damaged"):
            parse_batch(content, "some batch")


def test_a_torn_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive(batches())[:5000])
    with pytest.raises(DataError, match=r"is damaged or is not cifar-10-binary.tar.gz"):
        Cifar10().read(tmp_path)


def test_labels_that_are_no_class(tmp_path: Path) -> None:
    for file, content in batches().items():
        (tmp_path / file).write_bytes(b"\x0b" + content[1:])
    with pytest.raises(DataError, match="labels from 0 to 11, not 0 to 9"):
        Cifar10(verify=False).read(tmp_path)
