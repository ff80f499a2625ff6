"""FEMNIST and CH-MNIST from npz archives, and CH-MNIST's stand-in from IDX files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tesseract_fl.data.idx import IdxImages
from tesseract_fl.data.npz import ChMnistTexture, Femnist
from tesseract_fl.types import DataError


def characters(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    writers = np.repeat(np.array([7, 3, 900], np.uint16), 20)
    arrays = {"images": rng.integers(0, 256, (60, 28, 28), np.uint8), "labels": np.arange(60) % 62, "writers": writers}
    return arrays | changes


def store(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **arrays)


def test_an_npz_with_writers_keeps_its_own_name(tmp_path: Path) -> None:
    store(tmp_path / "femnist/unipen62_28x28.npz", characters())
    store(tmp_path / "femnist/something_else.npz", {"x": np.zeros(3)})
    data = Femnist().read(tmp_path)
    assert data.name == "unipen62"
    assert data.train_x.shape == (54, 1, 28, 28)
    assert data.test_x.shape == (6, 1, 28, 28)
    assert data.groups is not None
    assert np.bincount(data.groups).tolist() == [18, 18, 18]
    assert data.checksum == Femnist(file="unipen62_28x28.npz").read(tmp_path).checksum
    assert Femnist().partition == "by_writer"


def test_writers_are_part_of_the_checksum(tmp_path: Path) -> None:
    checksums = []
    for names in ([1, 2, 3], [2, 1, 3]):  # the same samples, another order of the writers
        store(tmp_path / "femnist/femnist.npz", characters(writers=np.repeat(names, 20)))
        checksums.append(Femnist().read(tmp_path).checksum)
    assert checksums[0] != checksums[1]


def test_writers_may_have_names(tmp_path: Path) -> None:
    checksums = []
    for names in ([1, 2, 3], ["ann", "bob", "cy"]):
        store(tmp_path / "femnist/femnist.npz", characters(writers=np.repeat(names, 20)))
        checksums.append(Femnist().read(tmp_path).checksum)
    assert checksums[0] == checksums[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (characters(images=np.zeros((60, 784), np.uint8)), "images must be n × height × width bytes"),
        (characters(images=np.zeros((60, 28, 28))), "images must be n × height × width bytes"),
        (characters(labels=np.zeros(59, np.int64)), "with a label and a writer each"),
        (characters(labels=np.array([object()] * 60)), "can't be read"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    store(tmp_path / "femnist/femnist.npz", arrays)
    with pytest.raises(DataError, match=message):
        Femnist().read(tmp_path)


def test_missing_damaged_and_ambiguous_archives(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no npz with the arrays images .* docs/data.md"):
        Femnist().read(tmp_path)
    with pytest.raises(DataError, match=r"there is no mine.npz in"):
        Femnist(file="mine.npz").read(tmp_path)
    for name in ("one.npz", "two.npz"):
        store(tmp_path / "femnist" / name, characters())
    with pytest.raises(DataError, match=r"one.npz, two.npz; choose with --set data.file=NAME"):
        Femnist().read(tmp_path)
    assert Femnist(file="two.npz").read(tmp_path).name == "two"
    path = tmp_path / "femnist/two.npz"
    path.write_bytes(path.read_bytes()[:999])
    with pytest.raises(DataError, match=r"two.npz is damaged or not an npz"):
        Femnist(file="two.npz").read(tmp_path)
    store(path, {"images": np.zeros(3)})
    with pytest.raises(DataError, match=r"has no array labels, writers; it has images"):
        Femnist(file="two.npz").read(tmp_path)


def test_texture_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(3, 5, (80, 6)).astype(np.float32)
    x[:, 2] = 0.1  # says nothing, though its standard deviation in float32 is not 0
    store(tmp_path / "ch_mnist/kather5000_texture74.npz", {"X": x, "y": np.arange(80) % 8})
    data = ChMnistTexture().read(tmp_path)
    assert (data.name, data.classes) == ("ch_mnist_texture", 8)
    assert data.train_x.shape == (64, 5)
    np.testing.assert_allclose(data.train_x.std(axis=0), 1, rtol=1e-4)
    store(tmp_path / "ch_mnist/mine.npz", {"X": x, "y": np.arange(80) % 8})
    assert ChMnistTexture(file="mine.npz").read(tmp_path).name == "mine"
    x[0, 0] = np.nan
    store(tmp_path / "ch_mnist/mine.npz", {"X": x, "y": np.arange(80) % 8})
    with pytest.raises(DataError, match="X must be finite"):
        ChMnistTexture(file="mine.npz").read(tmp_path)
    with pytest.raises(DataError, match=r"docs/data.md"):
        ChMnistTexture().read(tmp_path / "elsewhere")


def test_images_of_your_own_in_idx_files(tmp_path: Path) -> None:
    def idx(array: npt.NDArray[np.int64]) -> bytes:
        return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()

    rng = np.random.default_rng(0)
    for part, count in (("train", 24), ("test", 8)):
        for kind, array in (
            ("images-idx3", rng.integers(0, 256, (count, 9, 9))),
            ("labels-idx1", np.arange(count) % 8),
        ):
            (tmp_path / f"tissuemnist8-{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    data = IdxImages().read(tmp_path)
    assert (data.name, data.classes, data.train_x.shape) == ("tissuemnist8", 8, (24, 1, 9, 9))
    with pytest.raises(DataError, match=r"no mine-train-images-idx3-ubyte, plain or gzipped, in .*ch_mnist"):
        IdxImages(prefix="mine").read(tmp_path)
