"""The paper's experiments: the right runs, our numbers beside the paper's, tables and figures on disk."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tesseract_fl.cli.reproduce import NAMES, command
from tesseract_fl.experiments import paper, presets
from tesseract_fl.experiments.reproduce import EXPERIMENTS, Choice
from tesseract_fl.reports.reproductions import FIGURES, TABLES
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError


def test_every_experiment_can_be_shown() -> None:
    assert set(EXPERIMENTS) == set(TABLES) | set(FIGURES)
    assert set(NAMES) == {*EXPERIMENTS, "convergence"}


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", presets.SCALES)
def test_every_run_can_be_configured(name: str, scale: str) -> None:
    cells = EXPERIMENTS[name].cells(Choice(scale=scale, seeds=2))
    assert len(cells) > 1
    assert {cell.varied["seed"] for cell in cells} == {0, 1}
    assert all(cell.config.seed == cell.varied["seed"] for cell in cells)


def test_the_table_of_accuracies_has_every_number_of_the_paper() -> None:
    cells = EXPERIMENTS["accuracy"].cells(Choice())
    keys = {(cell.varied["data"], cell.varied["attack"], cell.varied["rule"]) for cell in cells}
    assert len(keys) == len(cells) == 4 * (5 + 7 + 7)
    assert all(paper.quality(*key) is not None for key in keys)
    assert paper.quality("mnist", "full_krum", "krum") == 8.92
    assert paper.quality("mnist", "none", "krum") is None


def test_at_scale_paper_the_settings_are_the_paper_s() -> None:
    (cell,) = EXPERIMENTS["accuracy"].cells(
        Choice(data=["femnist"], attacks=["full_trim"], rules=["tesseract"], seeds=1)
    )
    config = cell.config
    assert (config.clients, config.malicious, config.rounds, config.batch, config.lr) == (35, 7, 2000, 32, 0.1)
    assert config.to_table()["rule"] == {"name": "tesseract", "f": 7, "decay": 0.99}


def test_what_is_selected_is_run_and_nothing_else() -> None:
    cells = EXPERIMENTS["accuracy"].cells(Choice(data=["mnist"], attacks=["full_krum"], rules=["dnc", "krum"], seeds=3))
    assert [cell.labels for cell in cells[::3]] == [
        {"data": "mnist", "attack": "full_krum", "rule": "dnc", "seed": "0"},
        {"data": "mnist", "attack": "full_krum", "rule": "krum", "seed": "0"},
    ]
    with pytest.raises(ConfigError, match="has no data cifar100; it has mnist, cifar10"):
        EXPERIMENTS["adaptive"].cells(Choice(data=["cifar100"]))
    assert EXPERIMENTS["adaptive"].cells(Choice(data=["femnist"]), strict=False) == []


def test_at_30_percent_rules_know_how_many_there_are() -> None:
    for cell in EXPERIMENTS["faba-30"].cells(Choice()):
        assert cell.config.malicious == round(0.3 * cell.config.clients)
        if cell.varied["rule"] == "faba":
            assert cell.config.to_table()["rule"]["f"] == cell.config.malicious


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every data set of the figures is a small one that arrives by pip."""
    tiny: dict[str, Any] = {
        "data": "mnist_5k", "model": {"name": "mlp", "hidden": 8}, "clients": 30, "malicious": 6, "rounds": 4,
        "batch": 8, "lr": 0.1, "eval_every": 2,
    }  # fmt: skip
    for name in presets.PRESETS:
        monkeypatch.setitem(presets.PRESETS, name, tiny)
    monkeypatch.setattr(presets, "CPU", {})


def run(*arguments: str) -> Any:
    outcome = CliRunner().invoke(command, [*arguments, "--workers", "1"], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome


def test_the_paper_s_number_stands_beside_a_run_in_its_setting_only() -> None:
    def theirs(**changed: Any) -> float | None:
        run = {"data": "mnist", "model": "dnn", "clients": 100, "malicious": 20, "rounds": 500, "batch": 32, "lr": 0.01}
        return paper.beside(Config.from_table({**run, "rule": "tesseract", "attack": "full_trim", **changed}))

    assert theirs() == pytest.approx(0.9055)
    assert theirs(rounds=200) is None
    assert theirs(schedule="cifar") is None
    assert theirs(rule="hardened") is None


@pytest.mark.usefixtures("small")
def test_a_table_has_our_numbers_beside_the_paper_s(tmp_path: Path) -> None:
    store, out = ["--store", str(tmp_path / "store")], ["--out", str(tmp_path / "out")]
    which = ["--data", "mnist", "--rules", "tesseract,fedsgd", "--attacks", "none,full_trim", "--seeds", "2"]
    shown = run("accuracy", *which, *store, *out).output
    assert "mnist (mnist_5k)" in shown  # never under another data set's name
    rows = list(csv.DictReader((tmp_path / "out/paper/accuracy.csv").read_text().splitlines()))
    assert [(row["attack"], row["rule"], row["paper"]) for row in rows] == [
        ("none", "tesseract", "92.52"), ("none", "fedsgd", "92.45"),
        ("full_trim", "tesseract", "90.55"), ("full_trim", "fedsgd", "65.25"),
    ]  # fmt: skip
    for row in rows:
        assert float(row["difference"]) == pytest.approx(float(row["ours"]) - float(row["paper"]))
        assert float(row["interval"]) >= 0
        assert row["seeds"] == "2"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    again = run("accuracy", *which, *store, *out, "--stored", "--json").output
    assert json.loads(again) == {"accuracy": [str(tmp_path / f"out/paper/accuracy.{kind}") for kind in ("csv", "md")]}
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}


@pytest.mark.usefixtures("small")
def test_every_experiment_leaves_its_table_or_figure(tmp_path: Path) -> None:
    arguments = ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--scale", "cpu", "--json"]
    names = [name for name in EXPERIMENTS if name != "accuracy"]
    written = json.loads(run(*names, *arguments).output)
    for name in names:
        assert {Path(path).suffix for path in written[name]} == (
            {".csv", ".md"} if name in TABLES else {".csv", ".png", ".svg"}
        )
        assert all(Path(path).stat().st_size > 100 for path in written[name])
    points = list(csv.DictReader((tmp_path / "out/cpu/intuition.csv").read_text().splitlines()))
    panels = {row["panel"] for row in points}
    assert "full_trim: only benign updates aggregated" in panels
    last = {
        row["curve"]: float(row["mean flip-score"])
        for row in points
        if row["panel"] == "full_trim: only benign updates aggregated"
    }
    assert last["malicious"] > last["benign"]  # what the paper's intuition says
    shares = list(csv.DictReader((tmp_path / "out/cpu/weights.csv").read_text().splitlines()))
    assert all(0 <= float(row["ours"]) <= 1 for row in shares)
    assert {row["camp"] for row in shares if row["attack"] == "none"} == {"benign"}
    assert "Scaled down" in (tmp_path / "out/cpu/weights.md").read_text()


def test_nothing_in_the_store_is_not_an_error(tmp_path: Path) -> None:
    outcome = run("faba-30", "--data", "breast_cancer", "--stored", "--store", str(tmp_path), "--out", str(tmp_path))
    assert "nothing is in the store" in outcome.output
