"""The paper's experiments: the right runs, our numbers beside the paper's, tables and figures on disk."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tesseract_fl.cli.reproduce import NAMES, command
from tesseract_fl.experiments import convergence, paper, presets
from tesseract_fl.experiments.reproduce import EXPERIMENTS, Choice, name_of, planned
from tesseract_fl.reports.journal import Run
from tesseract_fl.reports.reproductions import FIGURES, OF_QUALITY, TABLES, Played, accuracy, rows_beyond, write
from tesseract_fl.rules.foolsgold import FoolsGold
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError, DataError


def test_every_experiment_can_be_shown() -> None:
    assert set(EXPERIMENTS) == set(TABLES) | set(FIGURES)
    assert set(NAMES) == {*EXPERIMENTS, "convergence"}


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("scale", presets.SCALES)
def test_every_run_can_be_configured(name: str, scale: str) -> None:
    cells = EXPERIMENTS[name].cells(Choice(scale=scale, seeds=2))
    assert len(cells) > 1
    assert {cell.varied["seed"] for cell in cells} == ({0} if EXPERIMENTS[name].one_seed else {0, 1})
    assert all(cell.config.seed == cell.varied["seed"] for cell in cells)


def test_the_table_of_accuracies_has_every_number_of_the_paper() -> None:
    cells = EXPERIMENTS["accuracy"].cells(Choice())
    keys = {(cell.varied["data"], cell.varied["attack"], name_of(cell.varied["rule"])) for cell in cells}
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
        {"data": "mnist", "attack": "full_krum", "rule": "dnc", "seed": 0},
        {"data": "mnist", "attack": "full_krum", "rule": "krum", "seed": 0},
    ]


def test_what_no_chosen_experiment_has_is_refused() -> None:
    plans, _ = planned(["adaptive", "weights"], Choice(data=["cifar10"]))
    assert (len(plans["adaptive"]), plans["weights"]) == (5, [])
    with pytest.raises(ConfigError, match=r"no data set cifar100 here; there are mnist, cifar10$"):
        planned(["adaptive", "weights"], Choice(data=["cifar10", "cifar100"]))
    with pytest.raises(ConfigError, match="no attack full_crumb here"):
        planned(["adaptive", "weights"], Choice(attacks=["full_crumb"]))
    with pytest.raises(ConfigError, match="no rule named 'krumm'"):
        planned(["adaptive", "weights"], Choice(rules=["krumm"]))


@pytest.mark.parametrize(
    ("name", "rule", "why"),
    [
        ("intuition", "tesseract", "one camp alone"),
        ("weights", "trimmed_mean", "gives clients none"),
        ("weights", "bulyan", "gives clients none"),
        ("reputation", "bucketing+median", "gives clients none"),
    ],
)
def test_rules_that_an_experiment_can_t_show_are_refused_before_they_are_run(name: str, rule: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} can't show {re.escape(rule)}: .*{why}"):
        planned([name], Choice(rules=["camp_mean", rule]))
    plans, left_out = planned([name, "accuracy"], Choice(rules=["camp_mean", rule], data=["mnist"]))
    assert {cell.labels["rule"] for cell in plans[name]} == {"camp_mean"}
    assert {cell.labels["rule"] for cell in plans["accuracy"]} == {"camp_mean", rule}
    assert len(left_out) == 1


def test_seeds_that_nobody_would_see_are_not_run() -> None:
    plans, _ = planned(["reputation", "weights"], Choice(seeds=3))
    assert {cell.config.seed for cell in plans["reputation"]} == {0}
    assert {cell.config.seed for cell in plans["weights"]} == {0, 1, 2}


def test_a_table_with_rows_of_other_runs_is_known_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    asked = [{"data": "femnist", "attack": "full_krum", "rule": "krum", "seed": 0}]
    assert rows_beyond(asked, path) == 0
    path.write_text("data,attack,rule,ours\nfemnist (unipen62),full_krum,krum,1\nmnist,full_krum,krum,2\n")
    assert rows_beyond(asked, path) == 1
    (tmp_path / "paper").mkdir()
    path.rename(tmp_path / "paper/accuracy.csv")
    told = CliRunner().invoke(command, ["accuracy", "--data", "femnist", "--out", str(tmp_path)])
    assert "has 1 rows that this would leave out" in str(told.exception)


def test_seeds_and_curves_are_not_left_out_either(tmp_path: Path) -> None:
    runs = tmp_path / "faba-30-runs.csv"
    runs.write_text("data,attack,rule,seed\nmnist,none,krum,0\nmnist,none,krum,1\n")
    assert rows_beyond([{"data": "mnist", "attack": "none", "rule": "krum", "seed": 0}], runs) == 1
    points = tmp_path / "adaptive.csv"
    points.write_text("panel,curve,round\nmnist,krum,1\nmnist,krum,2\ncifar10,krum,1\n")
    assert rows_beyond([{"panel": "mnist", "curve": "krum", "round": 1}], points) == 1
    played = [Played("mnist", "none", "krum", 0, {"data": "mnist"}, diverging(tmp_path / "run", [1.0, 2.0]))]
    before = points.read_text()
    with pytest.raises(ConfigError, match="has 3 rows that this would leave out"):
        write("adaptive", played, tmp_path, "")
    assert points.read_text() == before


def test_fewer_seeds_do_not_replace_more(tmp_path: Path) -> None:
    table = tmp_path / "weights.csv"
    table.write_text("data,attack,rule,camp,seeds\nmnist,none,krum,benign,3\n")
    row = {"data": "mnist", "attack": "none", "rule": "krum", "camp": "benign"}
    assert [rows_beyond([row | {"seeds": seeds}], table) for seeds in (1, 3, 4)] == [1, 0, 0]
    (tmp_path / "paper").mkdir()
    table.rename(tmp_path / "paper/weights.csv")
    told = CliRunner().invoke(command, ["weights", "--data", "mnist", "--rules", "krum", "--out", str(tmp_path)])
    assert "has 1 rows that this would leave out" in str(told.exception)
    run = diverging(tmp_path / "run", [1.0, 2.0])
    summary = {"data": "mnist", "accuracy": 0.5}
    played = [Played("mnist", "none", "krum", seed, summary, run) for seed in (0, 1)]
    write("adaptive", played, tmp_path, "")
    with pytest.raises(ConfigError, match="rows that this would leave out"):
        write("adaptive", played[:1], tmp_path, "")


def test_a_rule_that_is_named_twice_is_run_once() -> None:
    plans, _ = planned(["accuracy"], Choice(data=("mnist",), attacks=("none",), rules=("krum", "krum")))
    assert len(plans["accuracy"]) == 1


def test_a_loss_that_a_summary_lacks_is_in_the_journal(tmp_path: Path) -> None:
    run = diverging(tmp_path / "run", [4.0, 3.0])
    (row,) = accuracy([Played("shakespeare", "none", "krum", 0, {"data": "shakespeare", "accuracy": 0.5}, run)])
    assert row["ours"] == 3.0


def test_all_data_sets_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    told = CliRunner().invoke(command, ["faba-30", "accuracy", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
    assert isinstance(told.exception, DataError)
    for part in ("femnist", "kather5000_texture74", "--data"):
        assert part in str(told.exception)


def test_a_stand_in_has_no_number_of_the_paper_beside_it(tmp_path: Path) -> None:
    for held, theirs in (("femnist", True), ("unipen62", False)):
        (row,) = accuracy([Played("femnist", "full_krum", "krum", 0, {"accuracy": 0.5, "data": held}, Run(tmp_path))])
        assert row["ours"] == 50.0
        assert (row["paper"], row["difference"]) == ((5.62, 50.0 - 5.62) if theirs else (None, None))


def test_the_paper_s_foolsgold_has_no_memory() -> None:
    trials = {name: EXPERIMENTS[name].cells(Choice()) for name in ("accuracy", "weights", "shakespeare-loss")}
    trials["asked for"] = EXPERIMENTS["accuracy"].cells(Choice(rules=["foolsgold"]))
    for cells in trials.values():
        rules = [cell.config.rule for cell in cells if isinstance(cell.config.rule, FoolsGold)]
        assert {rule.memory for rule in rules} == {False}


def test_at_30_percent_rules_know_how_many_there_are() -> None:
    for cell in EXPERIMENTS["faba-30"].cells(Choice()):
        assert cell.config.malicious == round(0.3 * cell.config.clients)
        assert paper.quality(*(name_of(cell.varied[key]) for key in ("data", "attack", "rule"))) is None, "not at 30 %"
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
    monkeypatch.setattr(presets, "CPU", {"mnist": {"batch": 4}})


def run(*arguments: str) -> Any:
    outcome = CliRunner().invoke(command, [*arguments, "--workers", "1"], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome


def test_the_paper_s_number_stands_beside_a_run_in_its_setting_only() -> None:
    def theirs(read: str = "mnist", **changed: Any) -> float | None:
        run = {"data": "mnist", "model": "dnn", "clients": 100, "malicious": 20, "rounds": 500, "batch": 32, "lr": 0.01}
        return paper.beside(Config.from_table({**run, "rule": "tesseract", "attack": "full_trim", **changed}), read)

    assert theirs() == pytest.approx(0.9055)
    assert theirs(seed=3, eval_every=50, checkpoint_every=5, gradients="loop") == theirs()
    assert theirs(rule={"name": "foolsgold", "memory": False}) == pytest.approx(0.9161)
    others: tuple[dict[str, Any], ...] = (
        {"rounds": 200}, {"schedule": "cifar"}, {"rule": "hardened"}, {"rule": "foolsgold"}, {"model": "mlp"},
        {"partition": "iid"}, {"partition": {"name": "label_biased", "bias": 0.8}}, {"local_steps": 2},
        {"participation": 0.5}, {"eval_samples": 2000}, {"f": 10}, {"rule": {"name": "tesseract", "decay": 0.9}},
        {"attack": {"name": "full_trim", "b": 3.0}}, {"attack": {"name": "sleeper+full_trim", "until": 5}},
        {"knowledge": {"updates": "all", "defence": "nothing"}}, {"gate": {"max_norm_ratio": 3.0}},
        {"data": {"name": "mnist", "verify": False}}, {"read": "a stand-in"},
    )  # fmt: skip
    for other in others:
        assert theirs(**other) is None, other


@pytest.mark.usefixtures("small")
def test_a_table_of_several_seeds_is_made_again_from_the_store(tmp_path: Path) -> None:
    store, out = ["--store", str(tmp_path / "store")], ["--out", str(tmp_path / "out")]
    which = ["--data", "mnist", "--rules", "tesseract,fedsgd", "--attacks", "none,full_trim", "--seeds", "2"]
    shown = run("accuracy", *which, *store, *out).output
    assert "mnist (mnist_5k)" in shown  # never under another data set's name
    rows = list(csv.DictReader((tmp_path / "out/paper/accuracy.csv").read_text().splitlines()))
    assert [(row["attack"], row["rule"], row["paper"]) for row in rows] == [
        ("none", "tesseract", ""), ("none", "fedsgd", ""),
        ("full_trim", "tesseract", ""), ("full_trim", "fedsgd", ""),
    ], "a stand-in is not what the paper measured"  # fmt: skip
    for row in rows:
        assert float(row["interval"]) >= 0
        assert row["seeds"] == "2"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    again = run("accuracy", *which, *store, *out, "--stored", "--json").output
    files = [str(tmp_path / f"out/paper/accuracy{rest}") for rest in (".csv", ".md", "-runs.csv")]
    assert json.loads(again) == {"accuracy": files}
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    whole = [Path(file).read_text() for file in files]
    run("accuracy", *which, "--store", str(tmp_path / "empty"), *out)
    assert [Path(file).read_text() for file in files] == whole
    assert not (tmp_path / "empty").exists(), "the table of runs is as good as the store"


@pytest.mark.usefixtures("small")
def test_every_experiment_leaves_its_table_or_figure(tmp_path: Path) -> None:
    arguments = ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--scale", "cpu", "--json"]
    names = [name for name in EXPERIMENTS if name != "accuracy"]
    written = json.loads(run(*names, *arguments).output)
    for name in names:
        kinds = {".csv"} | ({".md"} if name in TABLES or name in OF_QUALITY else set())
        kinds |= {".png", ".svg"} if name in FIGURES else set()
        assert {Path(path).suffix for path in written[name]} == kinds
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
    assert "mnist is scaled down, not the paper's setting: batch 4." in (tmp_path / "out/cpu/weights.md").read_text()


@pytest.mark.usefixtures("small")
def test_several_seeds_and_rules_can_be_told_apart(tmp_path: Path) -> None:
    arguments = ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--seeds", "2"]
    shown = run("adaptive", "--data", "mnist", "--attacks", "none", *arguments).output
    assert "Means over seeds, 95 % confidence intervals." in shown
    points = list(csv.DictReader((tmp_path / "out/paper/adaptive.csv").read_text().splitlines()))
    for point in points:
        assert float(point["low"]) <= float(point["test accuracy (%)"]) <= float(point["high"])
    shown = run("reputation", "--attacks", "full_trim", "--rules", "tesseract,krum", *arguments).output
    assert "Means over seeds" not in shown
    points = list(csv.DictReader((tmp_path / "out/paper/reputation.csv").read_text().splitlines()))
    assert {point["panel"] for point in points} == {"tesseract, full_trim", "krum, full_trim"}
    assert "low" not in points[0]


def diverging(directory: Path, losses: list[float | None]) -> Run:
    directory.mkdir()
    (directory / "config.toml").write_text('rule = {name = "krum"}')
    lines = [json.dumps({"round": t, "test_loss": loss, "accuracy": 0.1}) + "\n" for t, loss in enumerate(losses, 1)]
    (directory / "metrics.jsonl").write_text("".join(lines))
    return Run(directory)


def test_a_run_that_diverges_is_not_told_by_its_last_finite_loss(tmp_path: Path) -> None:
    losses: list[list[float | None]] = [[4.0, 3.0], [4.0, None], [None, None]]
    played = [
        Played(
            "shakespeare", "full_krum", "krum", seed, {"data": "shakespeare", "test_loss": each[-1]},
            diverging(tmp_path / str(seed), each),
        )
        for seed, each in enumerate(losses)
    ]  # fmt: skip
    (row,) = accuracy(played)
    assert (row["ours"], row["interval"], row["paper"]) == (math.inf, None, 11.98)
    text, _ = write("accuracy", played, tmp_path / "out", "")
    assert "| diverged | 3 | 11.98 |  |" in text
    write("shakespeare-loss", played[:2], tmp_path / "out", "")
    points = list(csv.DictReader((tmp_path / "out/shakespeare-loss.csv").read_text().splitlines()))
    assert [point["test loss (nats)"] for point in points] == ["4.0", "inf"]


def test_convergence_is_not_in_the_store_and_takes_the_seeds_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def measure(rounds: int, seeds: int, on_round: Any) -> Any:
        asked.append(seeds)
        return convergence_of(20, 1)

    convergence_of = convergence.measure
    monkeypatch.setattr(convergence, "measure", measure)
    assert "nothing is in the store" in run("convergence", "--stored", "--out", str(tmp_path)).output
    assert (asked, list(tmp_path.iterdir())) == ([], [])
    for seeds in ([], ["--seeds", "2"]):
        run("convergence", *seeds, "--out", str(tmp_path))
    assert asked == [3, 2]


def test_nothing_in_the_store_is_not_an_error(tmp_path: Path) -> None:
    outcome = run("faba-30", "--data", "breast_cancer", "--stored", "--store", str(tmp_path), "--out", str(tmp_path))
    assert "nothing is in the store" in outcome.output
