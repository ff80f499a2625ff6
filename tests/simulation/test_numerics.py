"""Whether the same configuration still gives the same numbers: if this fails on purpose, NUMERICS has to go up.

The values were made by the code of NUMERICS = 3. They are compared with a tolerance, because other processors add in
another order; what a changed algorithm does is larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation
from tesseract_fl.simulation.run import NUMERICS

SMALL: dict[str, Any] = {"data": "mnist_5k", "clients": 10, "malicious": 2, "batch": 4, "lr": 0.05, "eval_samples": 50}
# model, rule, attack → the norm of the model's change in four rounds, and three of its coordinates, × 1000
GOLDEN: dict[tuple[str, str, str], list[float]] = {
    ("dnn", "fedsgd", "none"): [121.737473, 0.320955, 0.01822, 0.019386],
    ("dnn", "tesseract", "full_trim"): [120.181984, 0.066351, 0.014968, 0.04632],
    ("mlp", "krum", "full_krum"): [627.867188, -1.713641, -0.161719, -0.16172],
    ("mlp", "trimmed_mean", "alie"): [259.543854, -0.128197, -0.068322, -0.012508],
    ("mlp", "median", "sign_flip"): [201.546402, -0.154736, 0.00849, 0.0],
    ("mlp", "geometric_median", "min_max"): [368.042358, -0.638552, -0.386305, -0.179956],
}


def test_the_numbers_are_those_of_this_version() -> None:
    assert NUMERICS == 3


@pytest.mark.parametrize(("model", "rule", "attack"), GOLDEN)
def test_four_rounds_end_where_they_used_to(model: str, rule: str, attack: str) -> None:
    assert played(model, rule, attack) == pytest.approx(GOLDEN[model, rule, attack], rel=2e-3, abs=1e-4)


def played(model: str, rule: str, attack: str) -> list[float]:
    config = Config.from_table(SMALL | {"model": model, "rule": rule, "attack": attack})
    simulation = Simulation(config, config.data.read(None))
    before = simulation.model.vector.copy()
    for _ in range(4):
        simulation.step()
    change = 1000 * (simulation.model.vector - before)
    return [float(np.linalg.norm(change)), *(float(change[len(change) * k // 4]) for k in (1, 2, 3))]
