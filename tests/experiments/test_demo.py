"""The demonstration from the command to the pictures, on rounds as few as possible."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tesseract_fl.cli.demo import command
from tesseract_fl.experiments import demo
from tesseract_fl.reports.journal import Run
from tesseract_fl.types import DataError


def test_demo_ends_with_a_table_and_two_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in {"model": "logistic", "rounds": 3, "eval_every": 1}.items():
        monkeypatch.setitem(demo.SETTINGS, setting, value)
    done = CliRunner().invoke(command, ["--out", str(tmp_path), "--json"], catch_exceptions=False)
    result = json.loads(done.stdout)
    assert [row["attack"] for row in result["runs"]] == ["none", "full_trim", "full_trim", "full_krum"]
    assert all(0 < row["accuracy"] < 1 for row in result["runs"])
    for picture in result["pictures"].values():
        assert Path(picture).read_bytes().startswith(b"\x89PNG")

    run = Run(tmp_path / "tesseract-full_trim")
    weights = run.weights()
    assert weights.shape == (3, 40)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    told = {row["run"]: row["malicious_weight"] for row in result["runs"]}
    assert told["Tesseract, Full-Trim attack"] == pytest.approx(weights[-1, :8].sum())
    assert told["plain mean, no attack"] is None

    again = CliRunner().invoke(command, ["--out", str(tmp_path)], catch_exceptions=False)
    assert "Tesseract, Full-Krum attack" in again.stdout


def test_a_folder_that_is_no_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a run directory"):
        _ = Run(tmp_path).config
