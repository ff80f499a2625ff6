"""Reputation: how verdicts add up over rounds, and what a client then weighs. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tesseract_fl.types import Bools, ClientId, Cohort, Float64s, Rejection

Reputation = Mapping[ClientId, float]

LARGEST = math.log(np.finfo(np.float32).max)  # exp of more than this is infinite in float32


def judge(
    known: Reputation,
    cohort: Cohort,
    guilt: Float64s | Bools,
    *,
    reward: float,
    decay: float,
    highest: float = math.inf,
) -> dict[ClientId, float]:
    """RS_i ← μ·RS_i + reward − guilt_i, `highest` at most; guilt is 1 for suspects and 0 for the others, or between.

    A client seen for the first time starts from 0. Those whom the gate turned away are as guilty as can be.
    All others keep their reputation. Where one grows past what exp can take, all are halved.

    >>> cohort = Cohort(ids=("a", "b", "c", "d"), round=1)
    >>> judge({"z": 1.0}, cohort, np.array([True, False, False, True]), reward=0.5, decay=0.5)
    {'z': 1.0, 'a': -0.5, 'b': 0.5, 'c': 0.5, 'd': -0.5}
    """
    judged, judged_now = dict(known), set(cohort.ids)
    for client, blame in zip(cohort.ids, guilt.tolist(), strict=True):
        judged[client] = min(decay * known.get(client, 0.0) + (reward - blame), highest)
    away = dict.fromkeys(rejection.client for rejection in cohort.rejected if rejection.client not in judged_now)
    for client in away:
        judged[client] = decay * known.get(client, 0.0) + (reward - 1)
    while max(judged.values(), default=0.0) > LARGEST:
        judged = {client: score / 2 for client, score in judged.items()}
    return judged


def penalised(known: Reputation, rejected: Sequence[Rejection], *, reward: float, decay: float) -> Reputation:
    """Reputations after a round that was skipped: only those who were turned away lose.

    For 2f ≥ n the rule is not defined, and what it would call a penalty, 1 − 2f/n, is none: then nothing changes.
    """
    if reward >= 1:
        return known
    nobody = Cohort(ids=(), round=0, rejected=tuple(rejected))
    return judge(known, nobody, np.zeros(0, np.bool_), reward=reward, decay=decay)


def of(reputation: Reputation, cohort: Cohort) -> Float64s:
    """The reputations of a round's clients, in row order."""
    return np.array([reputation[client] for client in cohort.ids], np.float64)


def softmax(scores: Float64s) -> Float64s:
    """w_i = exp(RS_i) / Σ_l exp(RS_l)."""
    exponentials = np.exp(scores - scores.max())
    weights: Float64s = exponentials / exponentials.sum()
    return weights
