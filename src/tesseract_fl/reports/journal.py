"""Reading a run directory back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.reports.history import NEGLIGIBLE
from tesseract_fl.types import DataError, Float64s, TesseractError


@dataclass(frozen=True)
class Run:
    """A finished or unfinished run, as its directory tells it."""

    directory: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        try:
            return tomllib.loads((self.directory / "config.toml").read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{self.directory} is not a run directory: config.toml can't be read: {error}") from error

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """One record per round; a line that is being written while we read is left out."""
        path = self.directory / "metrics.jsonl"
        with reading(path):
            return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

    def weights(self) -> Float64s:
        """Rounds × clients: how much each counted; NaN where a client took no part."""
        table = np.full((len(self.records), int(self.config["clients"])), np.nan)
        for row, record in zip(table, self.records, strict=True):
            held = record.get("share", record.get("weights"))
            if held is not None:
                row[[number(client) for client in record["clients"]]] = held
        return table


@contextmanager
def reading(what: Path | str) -> Iterator[None]:
    """Whatever is wrong with a part of a run directory, the error names that part."""
    try:
        yield
    except TesseractError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(
            f"{what} is not as `tesseract-fl run` writes it: {error!r}; put a copy back, or play the run again"
        ) from error


def suspected(record: Mapping[str, Any]) -> int:
    """How many clients a round leaves suspected: turned away, or with next to no weight."""
    weights = record.get("share") or record.get("weights") or []
    light = [client for client, w in zip(record["clients"], weights, strict=False) if w < NEGLIGIBLE * max(weights)]
    return len({*light, *(rejection["client"] for rejection in record.get("rejected", []))})


def number(client: str) -> int:
    """Which client it is, under whatever id it came: "7~2" is 7 in its third life."""
    return int(client.partition("~")[0])
