"""Files of data sets: found in the user's directory or downloaded, and whether they are the published ones."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import shutil
import tarfile
import urllib.request
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tesseract_fl.checkpoint import becoming, write_atomically
from tesseract_fl.types import DataError


def places(root: Path, name: str, *below: str) -> list[Path]:
    """Where the files of a data set may be: in a folder of its name, in the data directory, or `below` either."""
    return [home / part for home in (root / name, root) for part in ("", *below)]


def find(folders: Iterable[Path], file: str) -> Path | None:
    """The first of the folders that has this file, or the file gzipped."""
    candidates = (folder / name for folder in folders for name in (f"{file}.gz", file))
    return next((path for path in candidates if path.is_file()), None)


def content_of(path: Path) -> bytes:
    """What is in a file, unzipped if its name ends in .gz."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def is_published(content: bytes, sha256: str) -> bool:
    return hashlib.sha256(content).hexdigest() == sha256


def check_published(path: Path, content: bytes, sha256: str, name: str) -> None:
    """Refuse another file under the same name."""
    if not is_published(content, sha256):
        raise DataError(
            f"{path.name} in {path.parent} is not the published {name}: its checksum differs. "
            "To use files of your own in this format, set data.verify=false"
        )


def download(url: str, *, name: str, root: Path, wanted: str) -> bytes:
    """Fetch a file from where it is published, or from $TESSERACT_FL_MIRROR. `wanted`: what the user could bring."""
    mirror = os.environ.get("TESSERACT_FL_MIRROR")
    if mirror:
        url = f"{mirror.rstrip('/')}/{name}/{url.rsplit('/', 1)[1]}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (a fixed or user-set mirror)
            content: bytes = answer.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(
            f"{name} is not in {root} and {url} could not be fetched ({error}). Put {wanted} into "
            f"{root / name}, or name another folder with --data-dir"
        ) from error
    return content


def not_published(file: str, name: str) -> DataError:
    return DataError(f"the downloaded {file} is not the published {name}: its checksum differs; nothing was kept")


def keep(root: Path, name: str, file: str, content: bytes) -> None:
    """Store a downloaded file where the next run finds it."""
    target = root / name / file
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)


def unpack(packed: bytes, wanted: Sequence[str], folder: Path) -> list[Path]:
    """Store some files of a downloaded tar archive, piece by piece, since they may be larger than memory.

    None of them is there before all are complete: a part of a data set would never be downloaded again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as complete, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member) if name in wanted else None
            if content is not None:
                shutil.copyfileobj(content, complete.enter_context(becoming(folder / name)), 1 << 20)
    return [folder / name for name in wanted]
