"""Event files, read back by TensorBoard itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reports.made import Writer

# TensorBoard's reader warns of itself
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def events(directory: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory))
    found.Reload()
    return found


def test_tensorboard_reads_what_a_run_writes(tmp_path: Path) -> None:
    small = ("--data", "breast_cancer", "--model", "logistic", "--clients", "12", "--malicious", "3", "--threads", "1")
    command = [sys.executable, "-m", "tesseract_fl", "run", *small, "--eval-every", "5", "--out", "r", "--tensorboard"]
    for more in (["--rounds", "10"], ["--rounds", "15", "--resume"]):
        done = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    found = events(tmp_path / "r/tensorboard")
    assert [point.step for point in found.Scalars("quality/test accuracy")] == [5, 10, 15]
    assert [point.step for point in found.Scalars("round/seconds")] == list(range(1, 16))
    assert found.Histograms("clients/reputation")[0].histogram_value.num == 12


def test_rounds_that_a_resumed_run_repeats_are_replaced(tmp_path: Path) -> None:
    from tesseract_fl.reports.tensorboard import recording

    run = Writer(tmp_path / "run")
    records = [run.record() for _ in range(6)]
    told: list[int] = []

    def before(title: str, total: int, done: int) -> Callable[[dict[str, Any], float], None]:
        return lambda record, seconds: told.append(record["round"])

    for done, some in ((0, records[:5]), (3, records[3:])):
        with recording(tmp_path / "events", before) as start:
            on_round = start("title", 6, done)
            for record in some:
                on_round(record, 0.5)
    assert told == [1, 2, 3, 4, 5, 4, 5, 6], "what was there before is still called"
    assert [point.step for point in events(tmp_path / "events").Scalars("round/seconds")] == [1, 2, 3, 4, 5, 6]
