"""Detection figures against their definitions, and in the records and summary of real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.reports.journal import Run, suspected
from tesseract_fl.reports.overview import lines
from tesseract_fl.reports.sources import opened
from tesseract_fl.simulation import detection, engine
from tesseract_fl.simulation.buffers import combined
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation
from tesseract_fl.simulation.run import run
from tesseract_fl.types import CheckpointError
from tests.naive import oracles

CANCER: dict[str, Any] = {
    "data": "breast_cancer",
    "model": "logistic",
    "clients": 12,
    "malicious": 3,
    "rounds": 30,
    "batch": 8,
    "lr": 0.1,
    "attack": "full_trim",
}


@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), st.booleans()), min_size=2, max_size=12))
def test_auroc_is_the_share_of_pairs_in_order(clients: list[tuple[float, bool]]) -> None:
    standing, malicious = [c[0] for c in clients], [c[1] for c in clients]
    found = detection.auroc(np.array(standing), np.array(malicious))
    if all(malicious) or not any(malicious):
        assert found is None
    else:
        assert found == pytest.approx(oracles.auroc(standing, malicious))


def record(**changes: Any) -> dict[str, Any]:
    return {
        "round": 1,
        "clients": ["0", "1", "2", "3"],
        "weights": [0.0, 0.1, 0.3, 0.6],
        "rejected": [],
        **changes,
    }


def test_a_round_with_verdicts() -> None:
    found = detection.of_round(
        record(penalised=[True, False, False, True], reputation=[-1.0, 2.0, 1.0, 3.0]), {"0", "1"}
    )
    assert found == {
        "true_positive_rate": 0.5,
        "false_positive_rate": 0.5,
        "auroc": 0.75,
        "malicious_weight": pytest.approx(0.1),
        "malicious_weight_max": pytest.approx(0.1),
        "honest_weight_lost": pytest.approx(0.2),
    }


def test_without_verdicts_weights_count_and_without_reputation_too() -> None:
    found = detection.of_round(record(), {"0", "1"})
    assert (found["true_positive_rate"], found["false_positive_rate"], found["auroc"]) == (0.5, 0.0, 1.0)


def test_an_update_that_is_scaled_down_is_not_cut_off() -> None:
    found = detection.of_round(record(weights=[1e-6, 0.1, 0.3, 0.6], share=[0.25] * 4), {"0"})
    assert (found["true_positive_rate"], found["malicious_weight"], found["malicious_weight_max"]) == (0.0, 0.25, 0.25)
    assert found["auroc"] == 0.5


def test_oversized_updates_are_not_cut_off_by_being_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the figures, nor in what pages show, nor in how much their batch-norm statistics count."""
    counted = []

    def spy(rows: Any, shares: Any, before: Any) -> Any:
        counted.append(shares)
        return combined(rows, shares, before)

    monkeypatch.setattr(engine, "combined", spy)
    config = Config.from_table({**CANCER, "rule": "norm_clipping", "attack": "oversized"})
    summary = run(config, config.data.read(), tmp_path)
    assert summary["detection"]["cut_off_round"] is None
    assert summary["detection"]["true_positive_rate"] == 0.0
    assert summary["detection"]["auroc"] < 0.6  # by sample counts
    samples = np.mean(counted, axis=0)
    assert samples.sum() == pytest.approx(1)
    assert samples.min() > 0.1 / 12
    np.testing.assert_allclose(Run(tmp_path).weights()[0], samples)
    assert not any(suspected(record) for record in Run(tmp_path).records)
    source = opened(tmp_path)
    source.read()
    assert lines(source.history)["weight_malicious"][0] > 0.1


def test_who_was_turned_away_was_caught_and_weighs_nothing() -> None:
    rejected = [{"client": "9", "code": "not_finite", "detail": "NaN"}]
    found = detection.of_round(record(rejected=rejected), {"9"})
    assert (found["true_positive_rate"], found["auroc"], found["malicious_weight"]) == (1.0, 1.0, 0.0)
    coordinate = detection.of_round(record(weights=None, rejected=rejected), {"9"})
    assert coordinate == {"true_positive_rate": 1.0, "false_positive_rate": 0.0}


def test_a_coordinate_wise_rule_catches_nobody() -> None:
    assert detection.of_round(record(weights=None), {"0"}) == {"true_positive_rate": 0.0, "false_positive_rate": 0.0}


@pytest.mark.parametrize("rule", ["median", "fedsgd"])
def test_who_is_turned_away_in_half_of_the_rounds_was_caught_in_half_of_them(rule: str) -> None:
    config = Config.from_table({**CANCER, "rule": rule, "attack": {"name": "on_off+non_finite", "on": 5, "off": 5}})
    summary = run(config, config.data.read())
    assert summary["detection"]["true_positive_rate"] == 0.5
    assert summary["not_attacked"] == 15


def test_rounds_that_are_skipped_count() -> None:
    config = Config.from_table({**CANCER, "rule": "median", "attack": "non_finite", "gate": {"quorum": 10}})
    summary = run(config, config.data.read())
    assert summary["skipped"] == 30
    assert summary["detection"]["true_positive_rate"] == 1.0
    assert summary["detection"]["false_positive_rate"] == 0.0


def test_cut_off_for_the_first_time_and_for_good() -> None:
    heaviest = [0.5, 1e-5, 0.2, 1e-5, 1e-6]
    rounds = [
        {"round": t, "true_positive_rate": 1.0, "false_positive_rate": 0.0, "malicious_weight_max": weight}
        for t, weight in enumerate(heaviest, start=1)
    ]
    found = detection.of_run(rounds)
    assert (found["cut_off_round"], found["cut_off_since"]) == (2, 4)
    assert detection.of_run(rounds[:3])["cut_off_since"] is None
    assert detection.of_run([])["true_positive_rate"] is None


def test_a_run_records_and_sums_them_up(tmp_path: Path) -> None:
    config = Config.from_table(CANCER)
    summary = run(config, config.data.read(), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert all(set(detection.FIGURES) <= set(line) for line in lines)
    found = summary["detection"]
    assert found["cut_off_round"] <= found["cut_off_since"] < 30
    assert found["malicious_weight"] < 1e-4
    assert found["auroc"] == 1.0
    assert found["true_positive_rate"] > found["false_positive_rate"]
    assert json.loads((tmp_path / "run/summary.json").read_text())["detection"] == found


def test_a_resumed_run_sums_up_the_same(tmp_path: Path) -> None:
    half, whole = Config.from_table({**CANCER, "rounds": 12}), Config.from_table(CANCER)
    data = whole.data.read()
    run(half, data, tmp_path / "run")
    resumed = run(whole, data, tmp_path / "run", resume=True)
    assert resumed["detection"] == run(whole, data)["detection"]


def test_a_damaged_journal_can_t_be_resumed_and_says_so(tmp_path: Path) -> None:
    config = Config.from_table({**CANCER, "rounds": 3})
    run(config, config.data.read(), tmp_path / "run")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    for torn in ("{torn", "5"):
        (tmp_path / "run/metrics.jsonl").write_text("\n".join([lines[0], torn, lines[2]]) + "\n")
        with pytest.raises(CheckpointError, match="is damaged"):
            run(Config.from_table(CANCER), config.data.read(), tmp_path / "run", resume=True)


def test_nobody_attacks_nothing_to_detect() -> None:
    config = Config.from_table({**CANCER, "attack": "none", "rounds": 2})
    assert "detection" not in run(config, config.data.read())


def test_the_rule_may_assume_more_or_fewer_than_there_are() -> None:
    for f in (2, 5):
        config = Config.from_table({**CANCER, "f": f})
        simulation = Simulation(config, config.data.read())
        assert [sum(simulation.step()["penalised"]) for _ in range(5)] == [2 * f] * 5
        assert config.malicious == 3


def test_whitewashing_comes_back_under_new_ids(tmp_path: Path) -> None:
    config = Config.from_table({**CANCER, "attack": {"name": "whitewash+full_trim", "every": 10}})
    run(config, config.data.read(), tmp_path / "run")
    read = Run(tmp_path / "run")
    assert [read.records[t]["clients"][0] for t in (9, 10, 20)] == ["0", "0~1", "0~2"]
    assert read.weights().shape == (30, 12)
    assert not np.isnan(read.weights()).any()


def test_a_backdoor_s_success_is_measured() -> None:
    trigger = {"name": "backdoor", "target": 1, "size": 2, "value": 5.0}
    success = {}
    for until in (0, 1000):
        attack = {"name": "sleeper", "inner": trigger, "until": until}
        config = Config.from_table({**CANCER, "attack": attack, "rule": "fedsgd"})
        success[until] = run(config, config.data.read())["attack_success"]
    assert success[0] > success[1000] + 0.3
