"""Whether the same configuration still gives the same numbers: if this fails on purpose, NUMERICS has to go up.

The values were made by the code of NUMERICS = 4. They are compared with a tolerance, because other processors add in
another order; what a changed algorithm does is larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import NUMERICS, Simulation

SMALL: dict[str, Any] = {"data": "mnist_5k", "clients": 10, "malicious": 2, "batch": 4, "lr": 0.05, "eval_samples": 50}
# model, rule, attack, optimiser → the norm of the model's change in four rounds, and three of its coordinates, × 1000
GOLDEN: dict[tuple[str, str, str, str], list[float]] = {
    ("dnn", "fedsgd", "none", "sgd"): [121.737473, 0.320955, 0.01822, 0.019386],
    ("dnn", "tesseract", "full_trim", "sgd"): [120.181984, 0.066351, 0.014968, 0.04632],
    ("mlp", "krum", "full_krum", "sgd"): [627.867188, -1.713641, -0.161719, -0.16172],
    ("mlp", "trimmed_mean", "ipm", "sgd"): [151.377533, -0.189934, 0.136405, 0.03943],
    ("mlp", "median", "sign_flip", "sgd"): [201.546402, -0.154736, 0.00849, 0.0],
    ("mlp", "hardened", "camouflage", "sgd"): [217.475067, -0.396272, 0.501856, 0.232719],
    ("mlp", "hardened", "adaptive_trim", "sgd"): [219.882339, -0.382474, 0.121504, 0.126906],
    ("mlp", "fedsgd", "none", "adam"): [8508.439453, 14.374743, -23.737326, 18.38755],
    ("mlp", "geometric_median", "min_max", "sgd"): [368.042358, -0.638552, -0.386305, -0.179956],
}


def test_the_numbers_are_those_of_this_version() -> None:
    assert NUMERICS == 4


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
