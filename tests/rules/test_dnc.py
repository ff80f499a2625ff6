"""What divide and conquer rests on: nobody foresees the coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from tesseract_fl.randomness import generator
from tesseract_fl.rules.dnc import DnC
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import Updates

N, F, D = 20, 4, 50_000


def against(seed: int, round: int) -> Updates:
    """Attackers that are the honest mean where coordinates of this seed are drawn, and far from it elsewhere."""
    rng = np.random.default_rng(5)
    matrix = rng.normal(1.0, 1.0, (N, D)).astype(np.float32)
    drawn = generator(seed, "dnc 0", round).choice(D, 10_000, replace=False)
    mean = matrix[F:].mean(axis=0)
    row = -100 * mean
    row[drawn] = mean[drawn]
    matrix[:F] = row
    return Updates(matrix=matrix, ids=tuple(f"{i:02}" for i in range(N)), round=round)


@pytest.mark.parametrize(("rule", "passes"), [(DnC(f=F, seed=0), True), (DnC(f=F), False)], ids=["known", "unknown"])
def test_whoever_knows_the_coordinates_passes_so_nobody_does(rule: DnC, passes: bool) -> None:
    state = rule.init(D)
    for round in (1, 2):
        out = rule.aggregate(against(0, round), state)
        assert out.report["kept"][:F] == [passes] * F
        state = out.state


def test_in_a_simulation_a_rule_draws_from_the_seed_of_the_run() -> None:
    for name in ("dnc", "nnm+dnc", "bucketing+median"):
        rules = [Config.from_table({"rule": name, "seed": seed, "f": 2}).to_table()["rule"] for seed in (0, 7)]
        assert "7" in str(rules[1])
        assert "7" not in str(rules[0])
    assert Config.from_table({"rule": {"name": "dnc", "seed": 3}, "seed": 7, "f": 2}).to_table()["rule"]["seed"] == 3
