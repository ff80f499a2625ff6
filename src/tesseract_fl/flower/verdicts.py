"""A round's report, told client by client for the ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tesseract_fl.reputation.records import Verdict
from tesseract_fl.rules.base import State
from tesseract_fl.types import Aggregate, ClientId, Rejection, Updates

PROBATION = "on probation: it weighs no more than the median of those who have passed"


def verdicts_of(
    updates: Updates | None,
    out: Aggregate | None,
    rejected: Sequence[Rejection],
    state: Any,
    round: int,
    newcomers: Collection[ClientId] = (),
) -> list[Verdict]:
    """One verdict per client: those who were admitted, then those who were turned away."""
    admitted = [] if updates is None or out is None else _admitted(updates, out, newcomers)
    known = reputation_in(state)
    return admitted + [
        Verdict(
            round=round,
            client=rejection.client,
            verdict="rejected",
            code=rejection.code,
            detail=rejection.detail,
            reputation=known.get(rejection.client),
        )
        for rejection in rejected
    ]


def _admitted(updates: Updates, out: Aggregate, newcomers: Collection[ClientId]) -> list[Verdict]:
    report = out.report
    nothing = [None] * updates.n
    scores, penalised = report.get("flip_score", nothing), report.get("penalised", nothing)
    reputation, why = report.get("reputation", nothing), report.get("why", nothing)
    shares = nothing if out.shares is None else out.shares.tolist()
    return [
        Verdict(
            round=updates.round,
            client=client,
            verdict={None: "admitted", True: "penalised", False: "rewarded"}[penalised[i]],
            detail="; ".join(
                part
                for part in (
                    why[i],
                    _band(scores[i], report) if penalised[i] else "",
                    PROBATION if client in newcomers else "",
                )
                if part
            ),
            score=scores[i],
            weight=shares[i],
            reputation=reputation[i],
            samples=None if updates.samples is None else float(updates.samples[i]),
        )
        for i, client in enumerate(updates.ids)
    ]


def _band(score: float | None, report: Mapping[str, Any]) -> str:
    """Which tail a penalised client was in."""
    low, high = report.get("flip_score_low"), report.get("flip_score_high")
    if score is None or low is None or high is None:
        return ""
    side = "among the highest" if score >= high else "among the lowest" if score <= low else "outside the band"
    return f"flip-score {score:.4g} {side}; the rewarded ones were between {low:.4g} and {high:.4g}"


def reputation_in(state: Any) -> Mapping[ClientId, float]:
    """The reputations that a rule's state holds, its own or those of the rule inside it; empty if there are none."""
    found = getattr(state, "reputation", None)
    if isinstance(found, Mapping):
        return found
    inner = [getattr(state, field.name) for field in dataclasses.fields(state)]
    return next((reputation_in(value) for value in inner if isinstance(value, State)), {})
