"""Files that are there whole or not at all, whoever else writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from tesseract_fl.checkpoint import becoming, write_atomically


def test_several_writers_leave_the_whole_of_one(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(number: int) -> None:
        for _ in range(20):
            write_atomically(path, bytes([number]) * 300_000)
            content = path.read_bytes()
            assert len(content) == 300_000
            assert len(set(content)) == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(TypeError), becoming(path) as file:
        file.write(cast(Any, "text"))
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
