from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tesseract_fl.experiments.presets import CPU, PAPER, settings_of
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.simulation.config import Config

# clients, malicious, rounds, batch, learning rate: the paper's table of data sets
TABLE = {
    "mnist": (100, 20, 500, 32, 0.01),
    "cifar10": (10, 2, 2000, 128, 0.1),
    "shakespeare": (10, 2, 2000, 100, 0.01),
    "femnist": (35, 7, 2000, 32, 0.1),
}


@pytest.mark.parametrize("name", PAPER)
def test_presets_are_the_paper_s_table(name: str) -> None:
    config = Config.from_table(settings_of(name))
    assert (config.clients, config.malicious, config.rounds, config.batch, config.lr) == TABLE[name]
    assert config.rule == Tesseract(f=config.malicious, decay=0.99)
    assert (config.schedule == "cifar") == (name == "cifar10")
    assert (config.optimiser == "adam") == (name == "shakespeare")
    assert settings_of(name)["partition"] == Config.from_table({"data": settings_of(name)["data"]}).data.partition


@pytest.mark.parametrize("name", PAPER)
def test_the_cpu_scale_is_the_same_problem_but_smaller(name: str) -> None:
    paper, small = (Config.from_table(settings_of(name, scale)) for scale in ("paper", "cpu"))
    assert set(PAPER) <= set(CPU)
    assert small.rounds <= paper.rounds
    for same in ("clients", "malicious", "lr", "data", "partition", "schedule", "optimiser"):
        assert getattr(small, same) == getattr(paper, same)


def test_run_takes_a_preset_and_options_win(tmp_path: Path) -> None:
    """Without touching the paper's data: everything about it but the data is the preset's."""
    options = ["--data", "breast_cancer", "--model", "logistic", "--rounds", "2", "--clients", "12", "--malicious", "3"]
    command = [sys.executable, "-m", "tesseract_fl", "run", "--preset", "mnist", *options, "--set", "eval_samples=9"]
    done = subprocess.run([*command, "--out", "here"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    table = tomllib.loads((tmp_path / "here/config.toml").read_text())
    assert (table["clients"], table["rounds"], table["batch"], table["lr"]) == (12, 2, 32, 0.01)
    assert table["data"]["name"] == "breast_cancer"
    assert table["eval_samples"] == 9
