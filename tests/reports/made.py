"""Run directories and ledgers made by hand, with ids and reasons as an attacker would choose them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.reputation.records import Entry, Verdict

HOSTILE = '<img src=x onerror="window.hacked=1"></script><b>bold</b> & "quotes"\n\'line\''
CONFIG: dict[str, Any] = {
    "clients": 12,
    "malicious": 3,
    "participation": 1.0,
    "rounds": 40,
    "batch": 8,
    "lr": 0.1,
    "local_steps": 1,
    "local_epochs": 0,
    "seed": 0,
    "data": {"name": "breast_cancer"},
    "partition": {"name": "label_biased", "bias": 0.5},
    "model": {"name": "logistic"},
    "rule": {"name": "tesseract", "f": 3, "decay": 0.99},
    "attack": {"name": "full_trim", "b": 2.0},
}


class Writer:
    """Writes a run directory round by round, as a simulation does: attackers first, one of them turned away."""

    def __init__(self, directory: Path, clients: int = 12, malicious: int = 3, **settings: Any) -> None:
        self.directory = directory
        self.n, self.c = clients, malicious
        self.rng = np.random.default_rng(0)
        self.round = 0
        self.reputation = np.zeros(clients)
        directory.mkdir(parents=True)
        config = CONFIG | {"clients": clients, "malicious": malicious} | settings
        (directory / "config.toml").write_text(tomli_w.dumps(config))

    def play(self, rounds: int = 1) -> None:
        with (self.directory / "metrics.jsonl").open("a") as file:
            for _ in range(rounds):
                file.write(json.dumps(self.record()) + "\n")
        with (self.directory / "timings.jsonl").open("a") as file:
            file.write('{"seconds": 0.25}\n' * rounds)

    def record(self) -> dict[str, Any]:
        self.round += 1
        scores = self.rng.lognormal(-3, 0.5, self.n)
        scores[: self.c] *= 30
        order = np.argsort(scores)
        penalised = np.zeros(self.n, np.bool_)
        penalised[order[: self.c]] = penalised[order[-self.c :]] = True
        self.reputation = 0.99 * self.reputation + np.where(penalised, -0.5, 0.5)
        weights = np.exp(self.reputation) / np.exp(self.reputation).sum()
        rewarded = scores[~penalised]
        record: dict[str, Any] = {
            "round": self.round,
            "clients": [str(client) for client in range(self.n)],
            "train_loss": 1 / self.round,
            "weights": weights.tolist(),
            "flip_score": scores.tolist(),
            "penalised": penalised.tolist(),
            "reputation": self.reputation.tolist(),
            "flip_score_low": float(rewarded.min()),
            "flip_score_high": float(rewarded.max()),
            "rejected": [{"client": HOSTILE, "code": "not_finite", "detail": f"in {HOSTILE}"}],
            "true_positive_rate": 1.0,
            "false_positive_rate": 0.25,
            "malicious_weight": float(weights[: self.c].sum()),
        }
        if self.round % 5 == 0:
            record |= {"accuracy": 1 - 1 / (1 + self.round), "test_loss": 1 / self.round}
        return record


def written_ledger(directory: Path, rounds: int = 6, seed: int = 0, rule: str = "Tesseract(f=0.2)") -> Ledger:
    """A federation with good, bad, absent and hostile clients; what becomes of each is drawn at random.

    Some reply twice.
    """
    rng = np.random.default_rng(seed)
    ledger = Ledger.open(directory, {"rule": rule})
    kinds = ("rewarded", "penalised", "rejected", "absent", "ignored")
    for t in range(1, rounds + 1):
        verdicts = []
        for number in range(8):
            kind = "rewarded" if number == 0 else str(rng.choice(kinds, p=[0.35, 0.3, 0.15, 0.1, 0.1]))
            inside = kind in ("rewarded", "penalised")
            verdicts.append(
                Verdict(
                    round=t,
                    client=HOSTILE if number == 7 else f"key:{number}",
                    verdict=kind,
                    code="" if inside else f"code_{kind}",
                    detail="" if inside else HOSTILE,
                    score=float(rng.lognormal()) if inside else None,
                    weight=float(10 ** rng.uniform(-6, 0)) if inside else None,
                    reputation=float(rng.normal()) if inside else None,
                )
            )
        admitted = [verdict for verdict in verdicts if verdict.weight is not None]
        verdicts += [
            replace(verdict, verdict="rejected", code="duplicate_id", score=None, weight=None)
            for verdict in admitted
            if rng.random() < 0.3
        ]
        ledger.commit(Entry(round=t, outcome="aggregated", asked=8, admitted=4, seconds=0.5, verdicts=verdicts))
    return ledger
