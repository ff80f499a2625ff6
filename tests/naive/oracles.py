"""Slow oracles, written from the definitions with plain loops. They import nothing from the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Rows = Any  # anything that iterates over rows of numbers


def sign(x: float) -> int:
    return int(x > 0) - int(x < 0)


def flip_scores(U: Rows, s: Sequence[int]) -> list[float]:
    return [math.fsum(float(u) ** 2 for u, sj in zip(row, s, strict=True) if sign(u) != sj) for row in U]


def weighted_sum(w: Sequence[float], U: Rows) -> list[float]:
    return [math.fsum(wi * float(u) for wi, u in zip(w, column, strict=True)) for column in zip(*U, strict=True)]


def squared_distance(x: Sequence[float], y: Sequence[float]) -> float:
    return math.fsum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True))


def tesseract_round(
    U: Rows,
    ids: Sequence[str],
    s: Sequence[int],
    reputation: Mapping[str, float],
    *,
    f: int,
    decay: float,
    rejected: Sequence[str] = (),
) -> tuple[list[float], dict[str, float], list[float]]:
    """One round of the Tesseract rule where no two flip-scores are equal: update, reputations, weights."""
    n = len(ids)
    scores = flip_scores(U, s)
    by_score = sorted(range(n), key=lambda i: scores[i])
    penalised = {ids[i] for i in by_score[:f]} | {ids[i] for i in by_score[n - f :]} | set(rejected)
    after = dict(reputation)
    for client in [*ids, *rejected]:
        change = -(1 - 2 * f / n) if client in penalised else 2 * f / n
        after[client] = decay * reputation.get(client, 0.0) + change
    while max(after.values()) > math.log(float(np.finfo(np.float32).max)):
        after = {client: score / 2 for client, score in after.items()}
    total = math.fsum(math.exp(after[client]) for client in ids)
    weights = [math.exp(after[client]) / total for client in ids]
    return weighted_sum(weights, U), after, weights


def krum_scores(U: Rows, f: int) -> list[float]:
    """Σ of squared distances to the n − f − 2 nearest others."""
    rows = list(U)
    n = len(rows)
    return [
        math.fsum(sorted(squared_distance(rows[i], rows[k]) for k in range(n) if k != i)[: n - f - 2]) for i in range(n)
    ]


def full_krum_strength(benign: Rows, c: int, smallest: float = 1e-5) -> float | None:
    """λ by running Krum over the n rows at every halving."""
    rows = [[float(x) for x in row] for row in benign]
    n, d = len(rows) + c, len(rows[0])
    s = [sign(math.fsum(column)) for column in zip(*rows, strict=True)]
    spread = min(
        math.fsum(sorted(squared_distance(row, other) for k, other in enumerate(rows) if k != i)[: n - c - 2])
        for i, row in enumerate(rows)
    )
    largest = max(math.sqrt(math.fsum(x * x for x in row)) for row in rows)
    strength = math.sqrt(spread / ((n - 2 * c - 1) * d)) + largest / math.sqrt(d)
    while strength >= smallest:
        crafted = [[-strength * sj for sj in s]] * c
        scores = krum_scores(crafted + rows, c)
        if min(scores[:c]) < min(scores[c:]):
            return strength
        strength /= 2
    return None


def full_trim_interval(column: Sequence[float], b: float = 2.0) -> tuple[float, float]:
    """Where the attack samples for one coordinate."""
    low, high, s = min(column), max(column), sign(math.fsum(column))
    if s > 0:
        return (low / b, low) if low > 0 else (b * low, low)
    if s < 0:
        return (high, b * high) if high > 0 else (high, high / b)
    return (0.0, 0.0)
