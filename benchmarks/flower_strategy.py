"""What aggregation costs in a Flower ServerApp: ours beside Flower's own, on the same replies, in one run.

For each of our rules: without a ledger, of that what comes after the last reply, and with a ledger on disk.

python benchmarks/flower_strategy.py --clients 100 --repeat 10
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Krum, Strategy
from flwr.supercore.task_identity import TaskIdentity

from tesseract_fl.flower import RobustStrategy
from tesseract_fl.flower.round import Round
from tesseract_fl.rules.hardened import Hardened
from tesseract_fl.rules.tesseract import Tesseract

SHAPES = {"c1.w": (30, 1, 3, 3), "c1.b": (30,), "c2.w": (50, 30, 3, 3), "c2.b": (50,)}
SHAPES |= {"f1.w": (200, 1250), "f1.b": (200,), "f2.w": (10, 200), "f2.b": (10,)}  # the dnn: 266,060 in all


def record(rng: np.random.Generator, scale: float) -> ArrayRecord:
    arrays = {name: scale * rng.standard_normal(shape, dtype=np.float32) for name, shape in SHAPES.items()}
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


class Nodes:
    """A grid that only knows who is there."""

    def __init__(self, n: int) -> None:
        self.n = n

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=i + 1, public_key=b"") for i in range(self.n)]


def replies_to(current: Round, sent: list[ArrayRecord]) -> list[Message]:
    """The same arrays as everybody else's replies, each with the nonce that it must return."""
    replies = []
    for i, (asked, arrays) in enumerate(zip(current.asked, sent, strict=True)):
        asked.message.metadata.__dict__["_message_id"] = str(i)
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})})
        content["tesseract"] = ConfigRecord({"nonce": asked.nonce})
        replies.append(Message(content, reply_to=asked.message))
    return replies


class Ours:
    """A strategy of ours, one round after the other."""

    def __init__(self, strategy: RobustStrategy, model: ArrayRecord, sent: list[ArrayRecord]) -> None:
        self.strategy, self.current, self.sent, self.round = strategy, model, sent, 0
        self.after_last_reply = float("inf")
        self()  # compiles

    def __call__(self) -> float:
        self.round += 1
        self.strategy.configure_train(self.round, self.current, ConfigRecord(), Nodes(len(self.sent)))  # type: ignore[arg-type]
        assert self.strategy._round is not None
        replies = replies_to(self.strategy._round, self.sent)
        start = time.perf_counter()
        new, _ = self.strategy.aggregate_train(self.round, self._as_they_arrive(replies))
        end = time.perf_counter()
        self.after_last_reply = min(self.after_last_reply, end - self._last)
        self.current = new or self.current
        return end - start

    def _as_they_arrive(self, replies: list[Message]) -> Iterator[Message]:
        yield from replies
        self._last = time.perf_counter()


def theirs(strategy: Strategy, replies: list[Message]) -> Callable[[], float]:
    def aggregate() -> float:
        start = time.perf_counter()
        strategy.aggregate_train(1, replies)
        return time.perf_counter() - start

    return aggregate


def measure(clients: int, repeat: int) -> dict[str, float]:
    """The best of some repetitions in turn, which is what a busy machine disturbs least."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.getLogger("flwr").setLevel(logging.WARNING)
    rng = np.random.default_rng(0)
    model, sent = record(rng, 1.0), [record(rng, 1.0) for _ in range(clients)]
    content = [RecordDict({"arrays": a, "metrics": MetricRecord({"num-examples": 10})}) for a in sent]
    asked = [Message(RecordDict(), dst_node_id=i + 1, message_type="train") for i in range(clients)]
    plain = [Message(c, reply_to=m) for c, m in zip(content, asked, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        ours: dict[str, Ours] = {}
        for rule in (Hardened(f=0.2), Tesseract(f=0.2)):
            ledger = Path(folder).resolve() / rule.name
            ours[rule.name] = Ours(RobustStrategy(rule), model, sent)
            ours[f"{rule.name}_with_ledger"] = Ours(RobustStrategy(rule, ledger=ledger), model, sent)
        actions: dict[str, Callable[[], float]] = {"flower_fedavg": theirs(FedAvg(), plain), **ours}
        found = {name: float("inf") for name in actions}
        for _ in range(repeat):
            for name, action in actions.items():
                found[name] = min(found[name], action())
        found |= {f"{name}_after_last_reply": strategy.after_last_reply for name, strategy in ours.items()}
        krum = theirs(Krum(num_malicious_nodes=clients // 5), plain)
        found["flower_krum"] = min(krum() for _ in range(2))
    return {"clients": clients, "parameters": 266_060} | {name: round(value, 4) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    print(json.dumps(measure(options.clients, options.repeat), indent=2))
