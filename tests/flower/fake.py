"""A Grid in this process: nodes are functions from message to replies."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from tesseract_fl.flower.client import echo
from tesseract_fl.flower.replies import named_arrays

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what Flower's processes set before an app runs

Arrays = dict[str, np.ndarray[Any, Any]]
Train = Callable[[Arrays, int], Arrays]
Node = Callable[[Message], Iterable[Message]]


class FakeGrid(Grid):
    """`nodes` maps a node id to what it does; `keys` maps some of them to a public key."""

    pull_interval = 0.001

    def __init__(self, nodes: dict[int, Node], keys: dict[int, bytes] | None = None, seed: int = 0) -> None:
        self.nodes = nodes
        self.keys = keys or {}
        self.shuffle = random.Random(seed)
        self.waiting: dict[str, Message] = {}
        self.pulled = 0

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=node, public_key=self.keys.get(node, b"")) for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            self.waiting[message.metadata.message_id] = message
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for id in message_ids:
            message = self.waiting.pop(id, None)
            if message is not None and message.metadata.dst_node_id in self.nodes:
                self.pulled += 1
                replies += list(self.nodes[message.metadata.dst_node_id](message))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """All at once and in any order, as Flower's own grids do."""
        ids = self.push_messages(list(messages))
        self.shuffle.shuffle(ids)
        return list(self.pull_messages(ids))


def record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def reply(message: Message, arrays: Arrays, samples: Any = 10, **metrics: Any) -> Message:
    numbers = {"num-examples": samples, **metrics}
    content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(numbers)})
    return Message(content, reply_to=message)


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def client(train: Train, samples: Any = 10, **metrics: Any) -> Node:
    """A well-behaved ClientApp around a training function of the global arrays and the round."""

    def app(message: Message, _: Context) -> Message:
        if message.metadata.message_type != "train":
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 10, "loss": 0.5})}), reply_to=message)
        arrays = named_arrays(message.content.array_records["arrays"])
        round = int(str(message.content.config_records["config"]["server-round"]))
        return reply(message, train(arrays, round), samples, **metrics)

    return lambda message: [echo(message, context(), app)]


def honest(number: int, scale: float = 1.0) -> Train:
    """Steps that differ from client to client and from round to round, and depend on nothing else."""

    def train(arrays: Arrays, round: int) -> Arrays:
        rng = np.random.default_rng([number, round])
        return {
            name: array + np.asarray(scale * (0.1 + 0.05 * rng.standard_normal(array.shape)), array.dtype)
            if array.dtype.kind == "f"
            else array + number
            for name, array in arrays.items()
        }

    return train


def small_model() -> Arrays:
    return {"w": np.zeros((3, 4), np.float32), "b": np.zeros(4, np.float32)}


def everyone(n: int = 6) -> dict[int, Node]:
    return {100 + i: client(honest(i)) for i in range(n)}


def config() -> ConfigRecord:
    return ConfigRecord()


def rounds(strategy: Any, grid: Grid, arrays: Arrays, count: int) -> Iterator[Any]:
    """The arrays after each round, played by the hooks as Flower's loop plays them."""
    current = record(arrays)
    for t in range(1, count + 1):
        sent = strategy.configure_train(t, current, config(), grid)
        new, metrics = strategy.aggregate_train(t, grid.send_and_receive(sent))
        current = current if new is None else new
        yield current, metrics
