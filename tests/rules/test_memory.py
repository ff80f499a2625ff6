"""What a rule needs on top of the matrix of updates, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conformance.contract import PROMISES

MEASURE = """
import resource, sys
import numpy as np
from tesseract_fl.types import Updates
from tests.conformance.contract import build

name, n, d = sys.argv[1], 100, 266_060

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def play(d):
    matrix = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    sent = Updates(matrix=matrix, ids=tuple(map(str, range(n))), round=1, trusted=matrix[0] + 1)
    before = peak()
    rule.aggregate(sent, rule.init(d))
    return (peak() - before) / matrix.nbytes

rule = build(name)
play(64)  # compile first
print(play(d))
"""

WITHOUT_HISTORY = [name for name in PROMISES if name != "foolsgold"]


@pytest.mark.parametrize("name", WITHOUT_HISTORY)
def test_at_most_1_3_matrices_on_top(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE, name], capture_output=True, text=True, check=True)
    assert float(done.stdout) <= 1.3
