"""Suspicion: how far several kinds of evidence, taken together, put each client from the honest ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tesseract_fl.reputation.evidence import honest, rank, without_credit
from tesseract_fl.types import Bools, Cohort, Float64s, Ints

# What is suspicious: the kind of evidence, and −1 for scores that are too low, +1 for scores that are too high.
SIDES: dict[str, tuple[str, int]] = {
    "agreement": ("agreement", -1),
    "company": ("company", +1),
    "flip_low": ("flip", -1),
    "flip_high": ("flip", +1),
    "length": ("length", +1),
    "flatness": ("flatness", +1),
    "course_low": ("course", -1),
    "course_high": ("course", +1),
}
KINDS = tuple(dict.fromkeys(kind for kind, _ in SIDES.values()))

# Where all others are alike, a client with more data, or less, or akin to another, would stand out for next to nothing.
# So a deviation of company or course is at least this part of its median, and of flatness, a logarithm, this much.
ALIKE = 0.08
AS_FLAT = 0.02

Scores = dict[str, Float64s]  # for each kind of evidence, or each side of it, a score of every client


def least_deviations(now: Scores) -> dict[str, float]:
    alike = {kind: ALIKE * abs(float(np.median(now[kind]))) for kind in now.keys() & {"company", "course"}}
    return {**alike, "flatness": AS_FLAT}


def relative(now: Scores, share: float, least: Mapping[str, float]) -> Scores:
    """Scores from the median of their round, for each side of a kind without credit for the other one.

    Else a round too far on one side would pay for many on the other.
    """
    return {
        side: tail * without_credit(tail * now[kind], share, least.get(kind, 0.0)) - np.median(now[kind])
        for side, (kind, tail) in SIDES.items()
        if kind in now
    }


def remembered(now: Scores, before: Scores, seen: Ints, memory: float) -> Scores:
    """β·before + (1 − β)·now; the plain mean of all rounds until there are enough of them.

    Now is relative to the median: what is remembered of clients that took part in different rounds can be compared.
    """
    beta = np.minimum(memory, seen / (seen + 1))
    return {side: beta * before[side] + (1 - beta) * now[side] for side in now}


class Found(NamedTuple):
    """How far each client is out: on every side (sides × n), on all together, and how guilty it is."""

    deviations: Float64s
    suspicion: Float64s
    guilt: Float64s

    @property
    def suspects(self) -> Bools:
        return self.guilt > 0


def found(
    scores: Scores, least: Mapping[str, float], f: int, cohort: Cohort, *, long_known: Bools, cut: float
) -> Found:
    """Suspects are as many as can be, f at most, of whom each is beyond the cut if they are the malicious ones.

    f is a bound and no guess: the fewer are taken for malicious, the more clients tell how far honest ones differ.
    And no more than f can be malicious, so honest ones can't all fall out.

    The more suspects there are, and the nearer to the cut, the less guilty they are. Honest clients get beyond it
    with all others of their class, and were these lost at once, the class would be, which would drive them farther
    out. Attackers who feel for the cut step over it one by one.

    Of who has not been `long_known` the largest deviation counts, of the others all: in the first rounds whole classes
    of honest clients stand out in several ways at once, and then no more.
    """
    n, sides = cohort.n, [SIDES[side] for side in scores]
    values = np.stack([tail * found for (_, tail), found in zip(sides, scores.values(), strict=True)])
    shares = np.maximum(np.arange(f + 1), min(f, 1)) / n
    usual = [honest(row, shares, least.get(kind, 0.0)) for row, (kind, _) in zip(values, sides, strict=True)]
    middles, widths = np.stack(usual, axis=1)
    for k in range(f, -1, -1):
        deviations = (values - middles[:, [k]]) / widths[:, [k]]
        suspicion = np.where(long_known, joint(deviations), deviations.max(axis=0))
        edge = cut * leeway(n, k)
        if k == 0 or np.partition(suspicion, n - k)[n - k] > edge:
            break
    guilt, suspects = np.zeros(n), rank(suspicion, cohort)[n - k :]
    guilt[suspects] = np.minimum(1.0, f / 4 / max(k, 1) + suspicion[suspects] / edge - 1)
    return Found(deviations, suspicion, guilt)


def joint(deviations: Float64s) -> Float64s:
    """√Σ max(0, ·)² over all sides."""
    together: Float64s = np.sqrt(np.square(np.maximum(deviations, 0.0)).sum(axis=0))
    return together


def leeway(n: int, k: int) -> float:
    """How much wider the cut is for n clients, as their spread is guessed from fewer, if k of them are malicious.

    From sixteen down to ten no wider, or who poisons data stays within it; below ten their own data tell honest
    clients apart as much. If more than a quarter were, the middle would lie so low that honest ones seem far out.

    >>> [round(leeway(n, n // 5), 2) for n in (100, 40, 20, 10, 7, 5, 3)]
    [1.25, 1.62, 2.25, 2.5, 4.06, 6.0, 9.33]
    >>> [round(leeway(100, k), 2) for k in (25, 30, 40, 45)]
    [1.25, 1.34, 1.56, 1.7]
    """
    return (1 + min(25 / n, 1.5 * max(1.0, (10 / n) ** 2))) * max(1.0, 0.75 / (1 - k / n))


def reasons(found: Found, scores: Scores) -> list[str]:
    """For a person: what stood out most about each suspect, and what else did where all of it counted."""
    told, sides = [""] * len(found.guilt), list(scores)
    for i in np.flatnonzero(found.suspects):
        deviations, suspicion = found.deviations[:, i], found.suspicion[i]
        worst, *others = np.argsort(-deviations)
        kind, tail = SIDES[sides[worst]]
        where = "above" if tail > 0 else "below"
        also = " and ".join(SIDES[sides[other]][0] for other in others[:2] if deviations[other] > 0)
        told[i] = (
            f"{kind} {scores[sides[worst]][i]:+.3g} from the median: "
            f"{deviations[worst]:.1f} deviations {where} the honest middle"
            + (f"; with {also} {suspicion:.1f}" if suspicion > deviations[worst] else "")
        )
    return told
