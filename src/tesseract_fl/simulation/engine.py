"""The round loop: clients compute, attackers craft, the gate admits, the rule aggregates, the model moves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tesseract_fl import checkpoint
from tesseract_fl.attacks.base import Late, View
from tesseract_fl.data.base import Dataset
from tesseract_fl.kernels import blend, sign
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.randomness import generator
from tesseract_fl.simulation import detection
from tesseract_fl.simulation.buffers import combined
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.evaluate import evaluate
from tesseract_fl.simulation.gradients import Clients, channels_last
from tesseract_fl.simulation.numerics import numerics
from tesseract_fl.simulation.schedule import learning_rate
from tesseract_fl.types import (
    Aggregate,
    Blend,
    ClientId,
    ConfigError,
    Float64s,
    Floats,
    Ints,
    KnowledgeError,
    Matrix,
    Rejection,
    RoundSkipped,
    Settled,
    Updates,
)

Record = dict[str, Any]


class Simulation:
    """A run in memory: `step` plays one round and returns its record, `save` and `load` move it to disk."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        self.config = config
        self.data_checksum = dataset.checksum
        self.table = config.to_table()
        self.train = torch.from_numpy(dataset.train_x), torch.from_numpy(dataset.train_y)
        self.augment = dataset.augment
        tested = self._tested(len(dataset.test_y))
        self.test = channels_last(torch.from_numpy(dataset.test_x[tested])), torch.from_numpy(dataset.test_y[tested])
        rng = generator(config.seed, "partition")
        self.samples = config.partition.split(dataset.train_y, config.clients, dataset.classes, rng, dataset.groups)
        seed = int(generator(config.seed, "model").integers(2**31))
        self.model = FlatModel.create(config.model, dataset.shape, dataset.classes, seed)
        self.clients = Clients(self.model, strategy=config.gradients, optimiser=config.optimiser)
        self.state = config.rule.init(self.model.layout.d)
        self.root = self._root_samples() if config.rule.needs_trusted else None
        self.classes = dataset.classes
        self.aim = config.attack.aim(*self.test, self.classes) if config.malicious else None
        if self.aim is not None and self.aim[1].ndim != self.test[1].ndim:
            raise ConfigError("an attack that aims at one class needs one label per sample; these are sequences")
        if self.aim is not None and not len(self.aim[1]):
            raise ConfigError("no test sample is of a class that the attack aims at; take more with eval_samples")
        self.numerics = numerics(self.table)  # of the code that is loaded; files may change while the run goes on
        self.round = 0
        self.report: dict[str, Any] = {}
        self.reference = np.zeros(self.model.layout.d, np.int8)
        self._matrix = np.empty((config.clients_per_round, self.model.layout.d), np.float32)
        self._buffers = np.empty((config.clients_per_round, self.model.buffer_layout.d))

    def step(self) -> Record:
        """Play the next round."""
        self.round += 1
        present = self._sample_clients()
        ids = [self._name(client) for client in present]
        matrix = self._matrix
        c = sum(self._bad(client) for client in present) if self.config.attacked else 0
        losses = self._train(present[c:], matrix[c:], self._buffers[c:])
        loss = float(np.mean(losses)) if losses else math.nan
        record: Record = {"round": self.round, "clients": ids, "train_loss": loss}
        trusted = self._server_update()
        if c:
            record |= self._attack(matrix, c, present, ids, trusted)
        rejected: tuple[Rejection, ...] = ()
        try:
            updates = self._admitted(matrix, present, ids, trusted)
            rejected = tuple(rejection for rejection in updates.rejected if rejection.client not in updates.ids)
            out = self.config.rule.aggregate(updates, self.state)
            self._apply(out)
            self.report = {"clients": list(updates.ids), "weights": _list(out.weights), **out.report}
            self._combine_buffers([ids.index(client) for client in updates.ids], out.shares)
            record |= self.report
        except RoundSkipped as skipped:
            rejected = rejected or skipped.rejected
            self.state = self.config.rule.turned_away(rejected, len(ids), self.state)
            turned_away = {rejection.client for rejection in rejected}
            record |= {
                "clients": [client for client in ids if client not in turned_away],
                "weights": None,
                "skipped": str(skipped),
                "rejected": [asdict(rejection) for rejection in rejected],
            }
        if self.config.attacked:
            record |= detection.of_round(record, {self._name(client) for client in present if self._bad(client)})
        if self.round % self.config.eval_every == 0 or self.round == self.config.rounds:
            quality = evaluate(self.clients, *self.test)
            record |= {"test_loss": quality.loss, "accuracy": quality.accuracy}
            if self.aim is not None:
                record["attack_success"] = evaluate(self.clients, *self.aim).accuracy
        return _jsonable(record)

    def _bad(self, client: int) -> bool:
        return client < self.config.malicious

    def _name(self, client: int) -> ClientId:
        """Under which id a client comes to this round."""
        return self.config.attack.alias(str(client), self.round) if self._bad(client) else str(client)

    def _tested(self, available: int) -> Ints | slice:
        """Which samples of the test set the model is judged by."""
        count = self.config.eval_samples
        if count > available:
            raise ConfigError(f"eval_samples is {count}, but the test set has {available}; 0 takes them all")
        return generator(self.config.seed, "test").permutation(available)[:count] if count else slice(None)

    def _root_samples(self) -> Ints:
        available = len(self.train[1])
        if self.config.root > available:
            raise ConfigError(f"a root set of {self.config.root} can't be drawn from {available} training samples")
        return generator(self.config.seed, "root").choice(available, self.config.root, replace=False)

    def _sample_clients(self) -> Ints:
        rng = generator(self.config.seed, "participation", self.round)
        chosen = rng.choice(self.config.clients, self.config.clients_per_round, replace=False)
        return np.sort(chosen)

    def _train(self, clients: Ints, out: Matrix, buffers: Float64s) -> list[float]:
        batches = [self._batches(self.samples[client], client) for client in clients]
        return self.clients.updates(batches, self._lr(), out, buffers)

    def _server_update(self) -> Floats | None:
        """What the server itself learns from its clean root set, where the rule asks for it."""
        if self.root is None:
            return None
        update = np.empty(self.model.layout.d, np.float32)
        self.clients.updates([self._batches(self.root)], self._lr(), update[None])
        return update

    def _lr(self) -> float:
        return learning_rate(self.config.schedule, self.config.lr, self.round, self.config.rounds)

    def _batches(self, own: Ints, client: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Each client walks its samples round-robin; where it stands follows from the round alone. None: the server."""
        batch, steps = self.config.batch, self.config.local_steps
        if self.config.local_epochs:
            steps = self.config.local_epochs * math.ceil(len(own) / batch)
        start = (self.round - 1) * steps * batch
        rng = generator(self.config.seed, f"augment {'server' if client is None else client}", self.round)
        for step in range(steps):
            rows = own[np.arange(start + step * batch, start + (step + 1) * batch) % len(own)]
            x, y = self.train[0][rows], self.train[1][rows]
            if self.augment is not None:
                x = torch.from_numpy(self.augment.apply(x.numpy(), rng))
            if client is not None and self._bad(client):
                x, y = self.config.attack.poison(x, y, classes=self.classes, round=self.round)
            yield channels_last(x), y

    def _admitted(
        self,
        matrix: Matrix,
        present: Ints,
        ids: list[ClientId],
        trusted: Floats | None,
        settled: Settled | None = None,
    ) -> Updates:
        """What the rule gets to see: what the gate let through, and the server's own update."""
        samples = [len(self.samples[client]) for client in present]
        admitted = self.config.gate.screen(matrix, ids, round=self.round, samples=samples, settled=settled)
        return replace(admitted, trusted=trusted)

    def _attack(self, matrix: Matrix, c: int, present: Ints, ids: list[ClientId], trusted: Floats | None) -> Record:
        """Write the rows of the c malicious clients, which are the first: `present` is sorted."""
        granted = self.config.knowledge

        @cache
        def train() -> Matrix:
            own = np.empty_like(matrix[:c])
            self._train(present[:c], own, self._buffers[:c])
            return own

        settled = Settled(c)

        def ask(rows: Matrix, state: Any = None) -> Aggregate:
            matrix[:c] = rows
            updates = self._admitted(matrix, present, ids, trusted, settled)
            return self.config.rule.aggregate(updates, self.state if state is None else state)

        def judge(rows: Blend) -> Mapping[str, Any]:
            blend(rows, matrix[:c])
            updates = self._admitted(matrix, present, ids, trusted, replace(settled, blend=rows))
            return self.config.rule.judge(updates, self.state).told(updates)

        view = View(
            round=self.round,
            trained=Late(train, (c, self.model.layout.d), matrix.dtype),
            benign=matrix[c:] if granted.updates == "all" else None,
            n=len(ids),
            reference=self.reference,
            report=None if granted.defence == "nothing" else self.report,
            ask=ask if granted.defence == "rule" else None,
            judge=judge if granted.defence == "rule" else None,
            ids=ids[:c],
        )
        if self.model.buffer_layout.d:  # what an attack leaves alone is sent as it was trained
            matrix[:c] = view.own
        try:
            matrix[:c] = self.config.attack.craft(view, generator(self.config.seed, "attack", self.round))
        except KnowledgeError:
            raise
        except ConfigError as impossible:  # not with as many as were sampled into this round: they stay honest
            matrix[:c] = view.honest(str(impossible))
        return {"not_attacked": view.gave_up[0]} if view.gave_up else {}

    def _apply(self, out: Aggregate) -> None:
        moved: Floats = self.model.vector + out.update
        if not np.isfinite(moved).all():
            raise RoundSkipped(f"round {self.round}: the update would make the model infinite; it is kept")
        self.model.vector[:] = moved
        self.state, self.reference = out.state, sign(out.update)

    def _combine_buffers(self, rows: list[int], shares: Float64s | None) -> None:
        self.model.buffers = combined(self._buffers[rows], shares, before=self.model.buffers)

    def save(self, path: Path) -> None:
        """Everything that the next round depends on, in one file that is written atomically."""
        arrays, meta = checkpoint.pack(self.state, "state.")
        arrays |= {"model": self.model.vector, "reference": self.reference}
        if self.model.buffer_layout.d:
            arrays["buffers"] = self.model.buffers
        meta |= {
            "round": self.round,
            "report": self.report,
            "config": self.table,
            "data": self.data_checksum,
            "numerics": self.numerics,
        }
        checkpoint.write(path, arrays, meta)

    def load(self, path: Path) -> None:
        arrays, meta = checkpoint.read(path)
        self.state = checkpoint.unpack(self.state, arrays, meta, "state.")
        self.model.vector[:] = arrays["model"]
        self.model.buffers = arrays.get("buffers", self.model.buffers)
        self.reference = arrays["reference"]
        self.round, self.report = meta["round"], meta["report"]


def _list(values: Any) -> list[float] | None:
    return None if values is None else [float(value) for value in values]


def _jsonable(record: Record) -> Record:
    """JSON has no NaN: a loss that is not finite becomes null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }
