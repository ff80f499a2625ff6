"""Condense run directories into numbers that are kept here: `python results/collect.py OUT.json RUN [RUN …]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tesseract_fl.reports.journal import Run


def condense(directory: Path) -> dict[str, Any]:
    """The configuration, the summary, and every evaluation of one run."""
    run = Run(directory)
    rounds, accuracy = run.accuracy()
    return {
        "config": run.config,
        "summary": json.loads((directory / "summary.json").read_text()),
        "malicious_weight_in_the_last_round": run.malicious_weight(),
        "accuracy": dict(zip(rounds, accuracy, strict=True)),
    }


def main(out: str, *runs: str) -> None:
    lines = [f"{json.dumps(run)}: {json.dumps(condense(Path(run)))}" for run in runs]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
