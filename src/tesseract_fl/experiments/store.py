"""The result store: every finished run is kept under a hash of all that its numbers depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.numerics import numerics
from tesseract_fl.types import DataError


@dataclass(frozen=True)
class Store:
    """A directory of run directories, each named by its complete configuration, the data, and the code's numerics.

    `known`: summaries of runs that were played elsewhere, by those names.
    """

    directory: Path
    known: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def home(self, config: Config, data_checksum: str) -> Path:
        table = config.to_table()
        complete = {"config": table, "data": data_checksum, "numerics": numerics(table)}
        digest = hashlib.sha256(json.dumps(complete, sort_keys=True).encode()).hexdigest()
        return self.directory / digest[:20]

    def summary(self, home: Path) -> dict[str, Any] | None:
        """The summary of a finished run; None if it is not finished."""
        try:
            summary: dict[str, Any] = json.loads((home / "summary.json").read_text())
            return summary
        except FileNotFoundError:
            return self.known.get(home.name)
        except (OSError, json.JSONDecodeError) as error:
            raise DataError(
                f"{home / 'summary.json'} can't be read ({error}); delete {home} to run it again"
            ) from error
