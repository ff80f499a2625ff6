"""CH-MNIST's own images: tiles of colorectal histology, one folder for each tissue, or the zip with the folders."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from tesseract_fl.data import files
from tesseract_fl.data.base import Dataset, Reader, data_directory, held_out, needs_extra, standardise
from tesseract_fl.data.idx import pixels
from tesseract_fl.types import ConfigError, DataError

Folder: TypeAlias = Path | zipfile.Path

TISSUES = (
    "01_TUMOR", "02_STROMA", "03_COMPLEX", "04_LYMPHO", "05_DEBRIS", "06_MUCOSA", "07_ADIPOSE", "08_EMPTY",
)  # fmt: skip
_FOLDER = "Kather_texture_2016_image_tiles_5000"
_SIDE = 150


@dataclass(frozen=True, kw_only=True)
class ChMnistTiles(Reader):
    """CH-MNIST (colorectal histology, 8 classes), 5,000 images in grey; from --data-dir, or downloaded (needs Pillow).

    In DIR/ch_mnist is the folder Kather_texture_2016_image_tiles_5000, or its zip. The tiles of 150×150 pixels in
    colour become `size`×`size` in grey; 64, as in Fang et al., 2020, if nothing is said. A fifth of every class is test
    set. One mean and one standard deviation over all training pixels normalise it. `verify=False` takes a zip of
    your own.

    Kather et al., Multi-class texture analysis in colorectal cancer histology, 2016.
    """

    size: int = 64
    verify: bool = True

    url: ClassVar[str] = f"https://zenodo.org/record/53169/files/{_FOLDER}.zip"
    sha256: ClassVar[str] = "936d0b95ae0f04f1f7b18a2b7e8c55776c3e887d102f645bcee752d1a6626a32"

    def __post_init__(self) -> None:
        if not 1 <= self.size <= _SIDE:
            raise ConfigError(f"ch_mnist_tiles: size must be from 1 to {_SIDE}, got {self.size}")

    def read(self, directory: Path | None = None) -> Dataset:
        _needs_pillow()
        tissues = self._folder(data_directory(directory))
        images, labels = [], []
        for label, tissue in enumerate(TISSUES):
            for name, content in _tiles(tissues / tissue):
                images.append(grey(content, self.size, name))
                labels.append(label)
        y = np.array(labels, np.int64)
        test = held_out(y, 5, "ch_mnist_tiles")
        x = np.stack(images)
        train_x, test_x = standardise(pixels(x[~test]), pixels(x[test]))
        return Dataset(
            name="ch_mnist_tiles", train_x=train_x, train_y=y[~test], test_x=test_x, test_y=y[test],
            classes=len(TISSUES),
        )  # fmt: skip

    def _folder(self, root: Path) -> Folder:
        """The folder with those of the tissues: on disk, else in the zip, else in the zip from the network."""
        folders = files.places(root, "ch_mnist", _FOLDER)
        found = next((folder for folder in folders if (folder / TISSUES[0]).is_dir()), None)
        return found or self._in_zip(folders) or self._downloaded(root)

    def _in_zip(self, folders: list[Path]) -> Folder | None:
        path = next((path for folder in folders if (path := folder / f"{_FOLDER}.zip").is_file()), None)
        if path is None:
            return None
        if self.verify:
            files.check_published(path, files.content_of(path), self.sha256, "CH-MNIST")
        return _inside(path)

    def _downloaded(self, root: Path) -> Folder:
        wanted = f"{_FOLDER}.zip, or the folder that is in it,"
        content = files.download(self.url, name="ch_mnist", root=root, wanted=wanted)
        if not files.is_published(content, self.sha256):
            raise files.not_published(f"{_FOLDER}.zip", "CH-MNIST")
        files.keep(root, "ch_mnist", f"{_FOLDER}.zip", content)
        return _inside(root / "ch_mnist" / f"{_FOLDER}.zip")


def grey(content: bytes, size: int, name: str) -> npt.NDArray[np.uint8]:
    """A tile, from TIFF: its brightness, averaged over areas."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=("TIFF",)) as image:
            if image.mode != "RGB" or image.size != (_SIDE, _SIDE):
                raise DataError(f"{name} must be {_SIDE}×{_SIDE} pixels in RGB, got {image.size} in {image.mode}")
            small = image.convert("L").resize((size, size), Image.Resampling.BOX)
    except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
        raise DataError(f"{name} is damaged or not a TIFF image: {error}") from error
    return np.asarray(small, np.uint8)


def _tiles(folder: Folder) -> Iterator[tuple[str, bytes]]:
    """Each image of a tissue, in the order of their names."""
    try:
        tiles = sorted(
            (path for path in folder.iterdir() if path.name.endswith(".tif") and not path.name.startswith(".")),
            key=lambda path: path.name,
        )
        if not tiles:
            raise DataError(f"there are no .tif files in {folder}; put all eight folders of the data set there again")
        for path in tiles:
            yield str(path), path.read_bytes()
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{folder} is missing or damaged: {error}; put all eight folders of the data set there"
        ) from error


def _inside(path: Path) -> Folder:
    try:
        return zipfile.Path(path, f"{_FOLDER}/")
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is damaged or not a zip: {error}") from error


def _needs_pillow() -> None:
    """Ask before a download that could not be read."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise needs_extra("Pillow", "data") from error
