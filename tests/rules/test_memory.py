"""What a rule needs on top of the matrix of updates, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.contract import PROMISES

MEASURE = """
import sys
import numpy as np
from benchmarks.memory import resident
from tesseract_fl.types import Updates
from tests.conformance.contract import build

name, n, d = sys.argv[1], *map(int, sys.argv[2:])

def play(d):
    matrix = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    sent = Updates(matrix=matrix, ids=tuple(map(str, range(n))), round=1, trusted=matrix[0] + 1)
    before = resident("VmHWM")
    rule.aggregate(sent, rule.init(d))
    return (resident("VmHWM") - before) / matrix.nbytes

rule = build(name)
play(64)  # compile first
print(play(d))
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
WITHOUT_HISTORY = [name for name in PROMISES if name != "foolsgold"]


def on_top(name: str, n: int, d: int) -> float:
    """How many matrices more."""
    asked = [sys.executable, "-c", MEASURE, name, str(n), str(d)]
    return float(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", WITHOUT_HISTORY)
def test_at_most_1_3_matrices_on_top(name: str) -> None:
    assert on_top(name, 100, 266_060) <= 1.3


def test_a_gram_matrix_of_many_clients_stays_small_beside_the_updates() -> None:
    assert on_top("hardened", 800, 12_800) <= 1.3
