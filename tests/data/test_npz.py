"""CH-MNIST's texture features from an npz archive, and its stand-in from IDX files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tesseract_fl.data.idx import IdxImages
from tesseract_fl.data.npz import ChMnistTexture
from tesseract_fl.types import DataError


def store(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **arrays)


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
    for labels in (np.arange(80) % 8 + 1, np.arange(80) % 8 + 0.7, np.array(["a", "b"] * 40), 2 * (np.arange(80) % 4)):
        store(tmp_path / "ch_mnist/mine.npz", {"X": np.ones((80, 2)), "y": labels})
        with pytest.raises(DataError, match="y must be the classes 0, 1, …"):
            ChMnistTexture(file="mine.npz").read(tmp_path)
    for features in (np.empty((0, 2)), np.full((0, 2), "a")):
        store(tmp_path / "ch_mnist/mine.npz", {"X": features, "y": np.empty(0, np.int64)})
        with pytest.raises(DataError, match="must be"):
            ChMnistTexture(file="mine.npz").read(tmp_path)
    with pytest.raises(DataError, match=r"make an npz with X .* and y .* data.file, or .* --data ch_mnist_tiles"):
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
