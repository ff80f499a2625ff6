"""The lasting part of a strategy: model, rule state, round. It changes only with a commit to the ledger."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl import checkpoint
from tesseract_fl.flower.intake import Intake, Score
from tesseract_fl.flower.model import BUFFERS, Model, NamedArrays
from tesseract_fl.flower.verdicts import verdicts_of
from tesseract_fl.flower.weighing import Newcomers, hosted, policy_for
from tesseract_fl.gate import Gate
from tesseract_fl.reputation.ledger import Ledger, describe_layout
from tesseract_fl.reputation.records import Entry, Verdict
from tesseract_fl.rules.base import Rule, State, WeightingRule
from tesseract_fl.simulation.buffers import bounded, combined
from tesseract_fl.types import (
    Aggregate,
    CheckpointError,
    ClientId,
    ConfigError,
    Float64s,
    Floats,
    RoundSkipped,
    Updates,
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A round that was committed."""

    entry: Entry
    arrays: NamedArrays | None  # None where the round was skipped
    admitted: tuple[ClientId, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many clients met with which verdict."""
        verdicts = [verdict.verdict for verdict in self.entry.verdicts]
        counted = {name: verdicts.count(name) for name in ("penalised", "rejected", "ignored", "absent")}
        return {"asked": self.entry.asked, "admitted": self.entry.admitted} | counted


class Federation:
    """Aggregates rounds by a rule and remembers everything that the next round depends on."""

    model: Model
    state: Any
    ledger: Ledger

    def __init__(
        self,
        rule: Rule[Any],
        *,
        gate: Gate,
        directory: Path | None = None,
        newcomers: Newcomers | None = None,
        buffers: Sequence[str] = BUFFERS,
    ) -> None:
        self.rule = rule
        self.gate = gate
        self.directory = directory
        self.newcomers = policy_for(rule, newcomers)
        self.buffers = tuple(buffers)
        self.round = 0
        self.banned: set[ClientId] = set()
        self._last_action = 0
        self._passed: Counter[ClientId] = Counter()  # rounds without a penalty, since its last pardon
        self._matrix: Floats = np.empty((0, 0), np.float32)

    def open(self, arrays: NamedArrays) -> None:
        """Go on where the ledger ends; if it is new, start with these arrays."""
        self.model = Model.of(arrays, self.buffers)
        about = {
            "rule": repr(self.rule),
            "model": describe_layout(self.model.signature),
            "buffers": ", ".join(slot.name for slot in self.model.buffers) or "none",
        }
        self.ledger = Ledger.open(self.directory, about)
        self.state = self.rule.init(self.model.parameters.d)
        if self.ledger.round:
            self._restore()

    def rebase(self, arrays: NamedArrays) -> None:
        """Go on from other values of the same model: what the next clients are sent."""
        model = Model.of(arrays, self.buffers)
        if model.signature != self.model.signature:
            raise ConfigError("these arrays have other names, shapes or dtypes than the model that the ledger holds")
        self.model = model

    def begin(self) -> None:
        """Before a round: heed what operators decided since the last one."""
        for action in self.ledger.actions():
            if action.action == "ban":
                self.banned.add(action.client)
            else:
                self.banned.discard(action.client)
                if action.id > self._last_action:
                    self.state = without(self.state, action.client)
                    self._passed.pop(action.client, None)
            self._last_action = max(self._last_action, action.id)

    def intake(self, clients: Sequence[ClientId]) -> Intake:
        """Where the replies of these clients go. The matrix is the one of the last round, if it is large enough."""
        n, d = len(clients), self.model.parameters.d
        if self._matrix.shape[0] < n or self._matrix.shape[1] != d:
            self._matrix = np.empty((0, 0), np.float32)  # give the old one back first
            self._matrix = np.empty((n, d), np.float32)
        return Intake(self.gate, self.model, clients, self.round + 1, self._score(), self._matrix[:n])

    def _score(self) -> Score | None:
        rule, state, round = self.rule, self.state, self.round + 1
        if not isinstance(rule, WeightingRule) or not rule.by_row:
            return None
        return lambda row: rule.statistic(Updates(matrix=row, ids=("",), round=round), state)

    def conclude(
        self,
        intake: Intake,
        others: Sequence[Verdict],
        *,
        asked: int,
        began: float,
        trusted: Floats | None = None,
    ) -> Outcome:
        """Aggregate what was taken in and commit the round, which `began` at that reading of `time.perf_counter`.

        `others` sent nothing that could be taken in.
        """
        round = self.round + 1
        try:
            updates, statistic, buffers = intake.close()
            updates = dataclasses.replace(updates, trusted=trusted)
            newcomers = self._on_probation(updates)
            out = hosted(self.rule, statistic, newcomers).aggregate(updates, self.state)
            arrays = self._moved(out, buffers)
        except RoundSkipped as skipped:
            away = intake.turned_away
            state = self.rule.turned_away(away, asked, self.state) if away else self.state
            judged = verdicts_of(None, None, away, state, round)
            seconds = time.perf_counter() - began
            entry = Entry(round=round, outcome="skipped", detail=str(skipped), asked=asked, seconds=seconds)
            return self._commit(entry, [*judged, *others], self.model.arrays, state, ())
        judged = verdicts_of(updates, out, intake.rejected, out.state, round, newcomers)
        seconds = time.perf_counter() - began
        entry = Entry(round=round, outcome="aggregated", asked=asked, admitted=updates.n, seconds=seconds)
        return self._commit(entry, [*judged, *others], arrays, out.state, updates.ids)

    def _moved(self, out: Aggregate, buffers: Float64s) -> dict[str, np.ndarray[Any, Any]]:
        before = np.empty(self.model.buffers.d)
        self.model.buffers.flatten(self.model.arrays, out=before)
        for slot in self.model.buffers:
            buffers[:, slot.columns] = bounded(buffers[:, slot.columns])
        arrays = self.model.moved(out.update, combined(buffers, out.shares, before))
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise RoundSkipped(f"round {self.round + 1}: the update would make the model infinite; it is kept")
        return arrays

    def _on_probation(self, updates: Updates) -> frozenset[ClientId]:
        """Nobody, if all of them are new: then there is no median to hold them to."""
        new = [client for client in updates.ids if self.newcomers.on_probation(self._passed[client])]
        return frozenset(new if len(new) < updates.n else ())

    def _commit(
        self,
        entry: Entry,
        verdicts: Sequence[Verdict],
        arrays: NamedArrays,
        state: Any,
        admitted: tuple[ClientId, ...],
    ) -> Outcome:
        entry = dataclasses.replace(entry, verdicts=tuple(verdicts))
        passed = Counter(self._passed)
        passed.update(verdict.client for verdict in verdicts if verdict.verdict in ("rewarded", "admitted"))
        if self.ledger.lasting:
            self.ledger.commit(entry, *self._packed(arrays, state, passed))
        else:
            self.ledger.commit(entry)
        self.round, self.state, self._passed = entry.round, state, passed
        aggregated = entry.outcome == "aggregated"
        if aggregated:
            self.model = dataclasses.replace(self.model, arrays=arrays)
        return Outcome(entry=entry, arrays=arrays if aggregated else None, admitted=admitted)

    def _packed(
        self, arrays: NamedArrays, state: Any, passed: Counter[ClientId]
    ) -> tuple[checkpoint.Arrays, dict[str, Any]]:
        packed, meta = checkpoint.pack(state, "state.")
        packed |= {f"model/{name}": array for name, array in arrays.items()}
        in_order = {
            key: dict(sorted(value.items())) if isinstance(value, Mapping) else value
            for key, value in {**meta, "passed": passed}.items()
        }
        return packed, {**in_order, "arrays": list(arrays), "last_action": self._last_action}

    def _restore(self) -> None:
        stored, meta = self.ledger.load()
        try:
            arrays = {name: stored[f"model/{name}"] for name in meta["arrays"]}
            self._last_action, self._passed = meta["last_action"], Counter(meta["passed"])
        except KeyError as missing:
            raise CheckpointError(f"the snapshot in {self.ledger.source} lacks {missing}: it is damaged") from missing
        self.state = checkpoint.unpack(self.state, stored, meta, "state.")
        self.model = dataclasses.replace(self.model, arrays=arrays)
        self.round = self.ledger.round


def without(remembered: Any, client: ClientId) -> Any:
    """A rule's state that has never seen this client."""
    if isinstance(remembered, State):
        values = {field.name: getattr(remembered, field.name) for field in dataclasses.fields(remembered)}
        return dataclasses.replace(remembered, **{name: without(value, client) for name, value in values.items()})
    if not isinstance(remembered, Mapping):
        return remembered
    if any(isinstance(item, Mapping) for item in remembered.values()):  # by kind; the clients are one level below
        return {kind: without(item, client) for kind, item in remembered.items()}
    return {key: item for key, item in remembered.items() if key != client}
