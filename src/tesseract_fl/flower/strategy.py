"""A Flower strategy that runs any rule of ours: malicious clients can't bend it, and a crash can't reset it."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from tesseract_fl.flower.exposition import Exposition
from tesseract_fl.flower.federation import Federation, Outcome
from tesseract_fl.flower.grid import StreamingGrid
from tesseract_fl.flower.identity import Directory, Identify
from tesseract_fl.flower.metrics import medians
from tesseract_fl.flower.model import BUFFERS, NamedArrays
from tesseract_fl.flower.replies import named_arrays
from tesseract_fl.flower.round import Round, messages
from tesseract_fl.flower.weighing import Newcomers
from tesseract_fl.gate import Gate
from tesseract_fl.randomness import generator
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.hardened import Hardened
from tesseract_fl.types import ClientId, ConfigError, Floats, PreconditionError

GATE = Gate(max_norm_ratio=10.0, max_sample_ratio=10.0, max_samples=1e9)

_log = logging.getLogger("flwr.tesseract")


class RobustStrategy(Strategy):
    """Aggregates by a rule, with identity, reputation and model kept in a ledger.

    `rule`: any rule, Hardened(f=0.2) where none is given; `ledger`: a folder of the operator's, without which nothing
    outlasts the process. `identify(node)` names a client where the app knows better than its public key or node id.
    `trusted_fn(round, arrays)` returns the arrays that the server itself trained on clean data, for rules that need
    them. Client-reported metrics are combined by their median. `metrics_port`: a loopback port for Prometheus (0 takes
    a free one). The other parameters are those of Flower's FedAvg.
    """

    def __init__(
        self,
        rule: Rule[Any] | None = None,
        *,
        ledger: str | Path | None = None,
        gate: Gate = GATE,
        newcomers: Newcomers | None = None,
        identify: Identify | None = None,
        require_nonce: bool = True,
        buffers: Sequence[str] = BUFFERS,
        trusted_fn: Callable[[int, ArrayRecord], ArrayRecord] | None = None,
        seed: int | None = None,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 3,
        min_evaluate_nodes: int = 3,
        min_available_nodes: int = 3,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        poll_seconds: float | None = None,
        metrics_port: int | None = None,
    ) -> None:
        rule = Hardened(f=0.2) if rule is None else rule
        if rule.needs_trusted and trusted_fn is None:
            raise ConfigError(f"{type(rule).__name__} needs trusted_fn, the server's own training on clean data")
        folder = None if ledger is None else Path(ledger)
        if folder is not None and not folder.is_absolute():
            raise ConfigError(
                f"ledger must be an absolute path, got {ledger}: the ServerApp's working folder is the SuperLink's"
            )
        self.federation = Federation(rule, gate=gate, directory=folder, newcomers=newcomers, buffers=buffers)
        self.fraction_train, self.fraction_evaluate = fraction_train, fraction_evaluate
        self.min_train_nodes, self.min_evaluate_nodes = min_train_nodes, min_evaluate_nodes
        self.min_available_nodes = min_available_nodes
        self.weighted_by_key = weighted_by_key
        self.arrayrecord_key, self.configrecord_key = arrayrecord_key, configrecord_key
        self._directory = Directory(identify)
        self._require_nonce = require_nonce
        self._trusted_fn = trusted_fn
        self._seed = secrets.randbits(64) if seed is None else seed
        self._poll_seconds = poll_seconds
        self.exposition = None if metrics_port is None else Exposition(metrics_port)
        self._offset = 0  # rounds that were played by processes before this one
        self._opened = False
        self._round: Round | None = None
        self._latest: ArrayRecord | None = None

    def summary(self) -> None:
        federation = self.federation
        _log.info("\t├──> Rule: %s", federation.rule)
        _log.info("\t├──> Gate: %s", federation.gate)
        _log.info("\t├──> Newcomers: %s", federation.newcomers)
        _log.info("\t└──> Ledger: %s", federation.directory or "none: nothing outlasts this process")

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play all rounds up to `num_rounds`; those that the ledger has are not played again."""
        arrays = self._open(initial_arrays)
        done = self._offset = self.federation.round
        if done:
            _log.info("the ledger has %d rounds: going on with round %d", done, done + 1)
        result = super().start(
            StreamingGrid(grid, self._poll_seconds),
            arrays,
            max(num_rounds - done, 0),
            timeout,
            train_config,
            evaluate_config,
            None if evaluate_fn is None else lambda t, now: evaluate_fn(t + done, now),
        )
        return _shifted(result, done, arrays)

    def _open(self, initial_arrays: ArrayRecord) -> ArrayRecord:
        """The arrays to start from: the ledger's, or those given if it is new."""
        if not self._opened:
            self.federation.open(named_arrays(initial_arrays))
            self._opened = True
        return record_of(self.federation.model.arrays) if self.federation.round else initial_arrays

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a sample of the clients to train; banned ones are not asked."""
        if self.fraction_train == 0.0:
            return []
        self._open(arrays)
        round = self._round_number(server_round)
        if arrays is not self._latest:
            self.federation.rebase(named_arrays(arrays))
        self._latest = arrays
        self.federation.begin()
        check = self.federation.rule.check
        nodes = self._sampled(grid, self.fraction_train, self.min_train_nodes, "participation", round, check)
        self._round = self._new_round(round, nodes, arrays, config, MessageType.TRAIN)
        self._round.intake = self.federation.intake(list(nodes))
        return [asked.message for asked in self._round.asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take replies in as they arrive, aggregate, and commit the round."""
        current, self._round = self._round, None
        if current is None or current.intake is None:
            return None, None
        for reply in replies:
            current.take(reply)
        start = time.perf_counter()
        current.finish()
        outcome = self.federation.conclude(
            current.intake,
            current.others,
            asked=len(current.asked),
            began=current.began,
            trusted=self._trusted(current.number),
        )
        self._tell(outcome, time.perf_counter() - start)
        if outcome.arrays is not None:
            self._latest = record_of(outcome.arrays)
        metrics = medians((current.metrics[client] for client in outcome.admitted), self.weighted_by_key)
        metrics.update(outcome.counts)
        return (None if outcome.arrays is None else self._latest), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a sample of the clients to evaluate."""
        if self.fraction_evaluate == 0.0:
            return []
        round = server_round + self._offset
        nodes = self._sampled(grid, self.fraction_evaluate, self.min_evaluate_nodes, "evaluation", round)
        self._round = self._new_round(round, nodes, arrays, config, MessageType.EVALUATE)
        return [asked.message for asked in self._round.asked]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The medians of what clients report; bad replies are left out."""
        current, self._round = self._round, None
        if current is None:
            return None
        for reply in replies:
            current.take(reply)
        return medians(current.metrics.values(), self.weighted_by_key) if current.metrics else None

    def _tell(self, outcome: Outcome, seconds: float) -> None:
        _log.info("%s", json.dumps(_line(outcome, seconds)))
        if self.exposition is not None:
            self.exposition.update(outcome, seconds)

    def _round_number(self, server_round: int) -> int:
        expected = self.federation.round + 1
        if server_round + self._offset != expected:
            raise ConfigError(
                f"round {server_round} was asked for, but the ledger goes on with round {expected}: "
                "let start() count, or hand this number on"
            )
        return expected

    def _sampled(
        self,
        grid: Grid,
        fraction: float,
        least: int,
        purpose: str,
        round: int,
        check: Callable[[int], None] = lambda count: None,
    ) -> dict[ClientId, int]:
        """Some of the clients that are online; with a seed the same ones whenever the same ones are online."""
        while True:
            present = self._present(grid)
            count = max(int(len(present) * fraction), least)
            missing = self._missing(len(present), count, check)
            if not missing:
                break
            _log.info("waiting for nodes: %d are there; %s", len(present), missing)
            time.sleep(1)
        chosen = generator(self._seed, purpose, round).choice(len(present), count, replace=False)
        clients = sorted(present)
        return {clients[i]: present[clients[i]] for i in sorted(chosen)}

    def _present(self, grid: Grid) -> dict[ClientId, int]:
        online = self._directory.online(list(grid.get_nodes()))
        return {client: node for client, node in online.items() if client not in self.federation.banned}

    def _missing(self, present: int, asked: int, check: Callable[[int], None]) -> str:
        """Why a round can't begin; empty if it can."""
        needed = max(self.min_available_nodes, asked)
        if present < needed:
            return f"{needed} are needed"
        try:
            check(asked)
        except PreconditionError as error:
            return f"{asked} would be asked, and {error}"
        return ""

    def _new_round(
        self, round: int, nodes: Mapping[ClientId, int], arrays: ArrayRecord, config: ConfigRecord, kind: str
    ) -> Round:
        config["server-round"] = round
        return Round(
            number=round,
            began=time.perf_counter(),
            asked=messages(
                nodes,
                arrays,
                config,
                arrays_key=self.arrayrecord_key,
                config_key=self.configrecord_key,
                message_type=kind,
            ),
            samples_key=self.weighted_by_key,
            nonce_required=self._require_nonce,
        )

    def _trusted(self, round: int) -> Floats | None:
        if self._trusted_fn is None or self._latest is None:
            return None
        return self.federation.model.update(named_arrays(self._trusted_fn(round, self._latest)))


def record_of(arrays: NamedArrays) -> ArrayRecord:
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def _line(outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The log line of a round."""
    entry = outcome.entry
    why = {"detail": entry.detail} if entry.detail else {}
    return {"event": "round", "round": entry.round, "outcome": entry.outcome, **why} | {
        **outcome.counts,
        "seconds_after_last_reply": round(seconds, 4),
    }


def _shifted(result: Result, done: int, arrays: ArrayRecord) -> Result:
    """The same result, its rounds counted from the federation's first."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        setattr(result, name, {round + done: record for round, record in getattr(result, name).items()})
    if not result.arrays:
        result.arrays = arrays
    return result
