"""What a round costs: one matrix of memory, and little time after the last reply."""

from __future__ import annotations

import subprocess
import sys

from tests.flower.processes import ROOT, environment

MEASURE = """
from collections.abc import Iterator
import numpy as np
from benchmarks.memory import resident
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from tesseract_fl.flower import RobustStrategy
from tesseract_fl.rules.tesseract import Tesseract
from tests.flower.fake import FakeGrid

N, D = 60, 1_000_000

def play(strategy, n, d):
    grid = FakeGrid(dict.fromkeys(range(n)))
    model = ArrayRecord({"w": Array(np.zeros(d, np.float32))})
    sent = strategy.configure_train(1, model, ConfigRecord(), grid)
    grid.push_messages(sent)
    all_asked = strategy._round.asked
    rng = np.random.default_rng(0)

    def arriving():
        for asked, message in zip(all_asked, sent):
            if message.metadata.dst_node_id == 3:
                continue  # absent: rows must be moved up, in place
            arrays = ArrayRecord({"w": Array(rng.standard_normal(d, dtype=np.float32))})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
            content["tesseract"] = ConfigRecord({"nonce": asked.nonce})
            yield Message(content, reply_to=message)

    before = resident("VmHWM")
    new, _ = strategy.aggregate_train(1, arriving())
    assert new is not None
    return resident("VmHWM") - before

play(RobustStrategy(Tesseract(f=5)), 20, 100)  # compile first
print(play(RobustStrategy(Tesseract(f=5)), N, D) / (N * D * 4))
"""


def test_a_round_needs_one_matrix_and_not_two(tmp_path: object) -> None:
    env = environment(ROOT) | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert 0.9 < float(done.stdout.split()[-1]) < 1.35
