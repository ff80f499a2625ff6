"""CH-MNIST's tiles: real TIFF files in folders, and in the zip that is published."""

from __future__ import annotations

import io
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tesseract_fl.data.tiles import TISSUES, ChMnistTiles, grey
from tesseract_fl.types import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")

FOLDER = "Kather_texture_2016_image_tiles_5000"
PER_TISSUE = 5


def tiff(colours: npt.NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(colours).save(content, "TIFF")
    return content.getvalue()


def tiles() -> dict[str, bytes]:
    """A few tiles of each tissue, named as the published ones are."""
    rng = np.random.default_rng(0)
    return {
        f"{tissue}/1{tile}F0_CRC-Prim-HE-0{tile}_00{tile}.tif_Row_1_Col_151.tif": tiff(
            (rng.integers(0, 200, (150, 150, 3)) + 5 * label).astype(np.uint8)
        )
        for label, tissue in enumerate(TISSUES)
        for tile in range(PER_TISSUE)
    }


@pytest.fixture(scope="module")
def published() -> dict[str, bytes]:
    return tiles()


def unpacked(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def zipped(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in reversed(files.items()):
            archive.writestr(f"{FOLDER}/{name}", part)
            archive.writestr(f"__MACOSX/{FOLDER}/{name}", b"no image")
    return content.getvalue()


@pytest.mark.parametrize("folder", [f"ch_mnist/{FOLDER}", "ch_mnist", FOLDER, "."])
def test_folders(tmp_path: Path, folder: str, published: dict[str, bytes]) -> None:
    unpacked(tmp_path / folder, published)
    (tmp_path / folder / TISSUES[0] / "._1F0.tif").write_bytes(b"left by another system")
    data = ChMnistTiles().read(tmp_path)
    assert (data.name, data.classes, data.train_x.shape) == ("ch_mnist_tiles", 8, (32, 1, 64, 64))
    assert np.bincount(data.train_y).tolist() == [PER_TISSUE - 1] * 8
    assert np.bincount(data.test_y).tolist() == [1] * 8
    assert data.train_x.mean() == pytest.approx(0, abs=1e-4)
    assert data.train_x.std() == pytest.approx(1, abs=1e-4)
    brightness = [data.train_x[data.train_y == label].mean() for label in range(8)]
    assert brightness == sorted(brightness)  # images and labels belong together
    assert ChMnistTiles().partition == "label_biased"


def test_grey_is_the_average_over_an_area() -> None:
    rng = np.random.default_rng(0)
    colours = np.repeat(np.repeat(rng.integers(0, 256, (50, 50, 3), np.uint8), 3, axis=0), 3, axis=1)
    luma = colours[::3, ::3] @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(grey(tiff(colours), 50, "a tile"), luma, atol=1)
    np.testing.assert_allclose(grey(tiff(colours), 25, "a tile"), luma.reshape(25, 2, 25, 2).mean((1, 3)), atol=2)
    assert grey(tiff(colours), 150, "a tile").shape == (150, 150)


def test_a_zip_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, bytes]) -> None:
    unpacked(tmp_path / "folders", published)
    expected = ChMnistTiles(size=28).read(tmp_path / "folders").checksum
    archive = tmp_path / f"{FOLDER}.zip"
    archive.write_bytes(zipped(published))
    with pytest.raises(DataError, match=r"not the published CH-MNIST.*data.verify=false"):
        ChMnistTiles().read(tmp_path)
    assert ChMnistTiles(size=28, verify=False).read(tmp_path).checksum == expected
    monkeypatch.setattr(ChMnistTiles, "sha256", sha256(archive.read_bytes()).hexdigest())
    assert ChMnistTiles(size=28).read(tmp_path).checksum == expected


def test_download(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, bytes]) -> None:
    archive = served / "ch_mnist" / f"{FOLDER}.zip"
    archive.write_bytes(zipped(published))
    with pytest.raises(DataError, match="not the published CH-MNIST: its checksum differs; nothing was kept"):
        ChMnistTiles().read(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(ChMnistTiles, "sha256", sha256(archive.read_bytes()).hexdigest())
    first = ChMnistTiles(size=20).read(tmp_path)
    archive.unlink()
    assert ChMnistTiles(size=20).read(tmp_path).checksum == first.checksum


@pytest.mark.usefixtures("offline")
def test_no_files_and_no_network_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"Put {FOLDER}.zip, or the folder that is in it, into .*ch_mnist.*--data-dir"):
        ChMnistTiles().read(tmp_path)


def test_without_pillow_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"needs Pillow: pip install 'tesseract-fl\[data\]'"):
        ChMnistTiles().read(tmp_path)


SMALL = tiff(np.zeros((64, 64, 3), np.uint8))
COLOURLESS = tiff(np.zeros((150, 150), np.uint8))
WHOLE = tiff(np.random.default_rng(0).integers(0, 256, (150, 150, 3), np.uint8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SMALL, r"04_LYMPHO/mine.tif must be 150×150 pixels in RGB, got \(64, 64\) in RGB"),
        (COLOURLESS, r"got \(150, 150\) in L"),
        (b"", r"04_LYMPHO/mine.tif is damaged or not a TIFF image"),
        (b"nonsense", "is damaged or not a TIFF image"),
        (WHOLE[: len(WHOLE) // 2], "is damaged or not a TIFF image"),
    ],
)
def test_what_is_not_a_tile(tmp_path: Path, content: bytes, message: str, published: dict[str, bytes]) -> None:
    unpacked(tmp_path, published | {"04_LYMPHO/mine.tif": content})
    with pytest.raises(DataError, match=message):
        ChMnistTiles(size=8).read(tmp_path)


def test_a_tissue_is_missing(tmp_path: Path, published: dict[str, bytes]) -> None:
    some = {name: content for name, content in published.items() if not name.startswith("08")}
    unpacked(tmp_path / "folders", some)
    with pytest.raises(DataError, match=r"08_EMPTY is missing .* put all eight folders"):
        ChMnistTiles(size=8).read(tmp_path / "folders")
    (tmp_path / "folders/08_EMPTY").mkdir()
    with pytest.raises(DataError, match=r"no .tif files in .*08_EMPTY"):
        ChMnistTiles(size=8).read(tmp_path / "folders")
    (tmp_path / f"{FOLDER}.zip").write_bytes(zipped(some))
    with pytest.raises(DataError, match=r"08_EMPTY.* put all eight folders"):
        ChMnistTiles(size=8, verify=False).read(tmp_path)


@pytest.mark.parametrize("keep", [0, 200, -400])
def test_a_torn_zip(tmp_path: Path, keep: int, published: dict[str, bytes]) -> None:
    (tmp_path / f"{FOLDER}.zip").write_bytes(zipped(published)[:keep])
    with pytest.raises(DataError, match=r"is damaged or not a zip"):
        ChMnistTiles(verify=False).read(tmp_path)


def test_sizes_that_make_no_sense() -> None:
    for size in (0, 151):
        with pytest.raises(ConfigError, match="size must be from 1 to 150"):
            ChMnistTiles(size=size)
