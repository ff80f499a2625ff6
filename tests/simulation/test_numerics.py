"""Whether the same configuration still gives the same numbers: if this fails on purpose, NUMERICS or REVISED goes up.

The values were made by the code of NUMERICS = 4. They are compared with a tolerance, because other processors add in
another order; what a changed algorithm does is larger.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl import registry
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation
from tesseract_fl.simulation.numerics import NUMERICS, REVISED, numerics

SMALL: dict[str, Any] = {"data": "mnist_5k", "clients": 10, "malicious": 2, "batch": 4, "lr": 0.05, "eval_samples": 50}
# model, rule, attack, optimiser → the norm of the model's change in four rounds, and three of its coordinates, × 1000
GOLDEN: dict[tuple[str, str, str, str], list[float]] = {
    ("dnn", "fedsgd", "none", "sgd"): [121.737473, 0.320955, 0.01822, 0.019386],
    ("dnn", "tesseract", "full_trim", "sgd"): [120.181984, 0.066351, 0.014968, 0.04632],
    ("mlp", "krum", "full_krum", "sgd"): [627.867188, -1.713641, -0.161719, -0.16172],
    ("mlp", "trimmed_mean", "ipm", "sgd"): [151.377533, -0.189934, 0.136405, 0.03943],
    ("mlp", "median", "sign_flip", "sgd"): [201.546402, -0.154736, 0.00849, 0.0],
    ("mlp", "hardened", "camouflage", "sgd"): [266.00354, -0.142442, 0.217732, 0.128854],
    ("mlp", "hardened", "adaptive_trim", "sgd"): [229.643799, -0.230944, -0.035182, 0.002639],
    ("mlp", "fedsgd", "none", "adam"): [8508.439453, 14.374743, -23.737326, 18.38755],
    ("mlp", "geometric_median", "min_max", "sgd"): [368.042358, -0.638552, -0.386305, -0.179956],
}


def code_of(rule: Any, attack: Any = "none") -> Any:
    return numerics(Config.from_table(SMALL | {"rule": rule, "attack": attack}).to_table())


def test_a_component_that_was_revised_says_so_and_the_others_do_not() -> None:
    assert code_of("krum", "full_trim") == NUMERICS
    assert code_of("dnc") == {"": NUMERICS, "dnc": REVISED["dnc"]}
    assert code_of("nnm+dnc", "sleeper+sign_flip") == code_of("dnc")


def test_a_component_of_another_package_is_known_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "mine_for_a_test.py"
    point = EntryPoint("mine", "mine_for_a_test:Mine", "tesseract_fl.rules")
    monkeypatch.setattr(registry, "_offered", lambda kind: EntryPoints([point] if kind == "rules" else []))
    monkeypatch.syspath_prepend(tmp_path)
    code = "from tesseract_fl.rules.fedsgd import FedSGD\nclass Mine(FedSGD):\n    pass\n"
    seen = []
    for text in (code, code, code + "# another\n"):
        module.write_text(text)
        seen.append(code_of("mine"))
    assert seen[0] == seen[1] != seen[2]
    assert seen[0][""] == NUMERICS


def test_a_rule_and_an_attack_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "origin", lambda kind, name: f"the code of {kind}" if name == "none" else None)
    table = Config.from_table(SMALL | {"rule": "krum", "attack": "none"}).to_table()
    told = numerics({**table, "rule": {"name": "none"}})
    assert told == {"": NUMERICS, "rules/none": "the code of rules", "attacks/none": "the code of attacks"}


@pytest.mark.parametrize("case", GOLDEN, ids="-".join)
def test_four_rounds_end_where_they_used_to(case: tuple[str, str, str, str]) -> None:
    assert played(*case) == pytest.approx(GOLDEN[case], rel=2e-3, abs=1e-4)


def played(model: str, rule: str, attack: str, optimiser: str) -> list[float]:
    parts = {"model": model, "rule": rule, "attack": attack, "optimiser": optimiser}
    config = Config.from_table(SMALL | parts)
    simulation = Simulation(config, config.data.read(None))
    before = simulation.model.vector.copy()
    for _ in range(4):
        simulation.step()
    change = 1000 * (simulation.model.vector - before)
    return [float(np.linalg.norm(change)), *(float(change[len(change) * k // 4]) for k in (1, 2, 3))]
