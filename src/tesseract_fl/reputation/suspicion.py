"""Suspicion: how far several kinds of evidence, taken together, put each client from the honest ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tesseract_fl.reputation.evidence import honest, rank, without_credit
from tesseract_fl.types import Bools, Cohort, Float64s, Ints

# Each kind of evidence with its suspicious tails: −1 for scores that are too low, +1 for scores that are too high.
TAILS: dict[str, tuple[int, ...]] = {
    "agreement": (-1,),
    "company": (+1,),
    "flip": (-1, +1),
    "length": (+1,),
    "flatness": (+1,),
    "course": (-1, +1),
}

# Where all others are alike, a client with more data, or less, or akin to another, would stand out for next to nothing.
# So a deviation of company or course is at least this part of its median, and of flatness, a logarithm, this much.
ALIKE = 0.08
AS_FLAT = 0.02

Scores = dict[str, Float64s]  # for each kind of evidence a score of every client


def least_deviations(now: Scores) -> dict[str, float]:
    alike = {kind: ALIKE * abs(float(np.median(now[kind]))) for kind in now.keys() & {"company", "course"}}
    return {**alike, "flatness": AS_FLAT}


def relative(now: Scores, share: float, least: Mapping[str, float]) -> Scores:
    """Scores from the median of their round; of kinds with one tail, without credit for the other side."""
    found = {}
    for kind, scores in now.items():
        tail, *other = TAILS[kind]
        counted = scores if other else tail * without_credit(tail * scores, share, least.get(kind, 0.0))
        found[kind] = counted - np.median(scores)
    return found


def remembered(now: Scores, before: Scores, seen: Ints, memory: float) -> Scores:
    """β·before + (1 − β)·now; the plain mean of all rounds until there are enough of them.

    Now is relative to the median: what is remembered of clients that took part in different rounds can be compared.
    """
    beta = np.minimum(memory, seen / (seen + 1))
    return {kind: beta * before[kind] + (1 - beta) * now[kind] for kind in now}


class Found(NamedTuple):
    """How far each client is out: in every tail of every kind (tails × n), in all together, and how guilty it is."""

    tails: list[tuple[str, int]]
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
    n, tails = cohort.n, [(kind, tail) for kind in scores for tail in TAILS[kind]]
    values = np.stack([tail * scores[kind] for kind, tail in tails])
    shares = np.maximum(np.arange(f + 1), min(f, 1)) / n
    usual = [honest(row, shares, least.get(kind, 0.0)) for row, (kind, _) in zip(values, tails, strict=True)]
    middles, widths = np.stack(usual, axis=1)
    for k in range(f, -1, -1):
        deviations = (values - middles[:, [k]]) / widths[:, [k]]
        suspicion = np.where(long_known, joint(deviations), deviations.max(axis=0))
        edge = cut * leeway(n, k)
        if k == 0 or np.partition(suspicion, n - k)[n - k] > edge:
            break
    guilt, suspects = np.zeros(n), rank(suspicion, cohort)[n - k :]
    guilt[suspects] = np.minimum(1.0, f / 4 / max(k, 1) + suspicion[suspects] / edge - 1)
    return Found(tails, deviations, suspicion, guilt)


def joint(deviations: Float64s) -> Float64s:
    """√Σ max(0, ·)² over all tails."""
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
    told = [""] * len(found.guilt)
    for i in np.flatnonzero(found.suspects):
        deviations, suspicion = found.deviations[:, i], found.suspicion[i]
        worst, *others = np.argsort(-deviations)
        kind, tail = found.tails[worst]
        side = "above" if tail > 0 else "below"
        also = " and ".join(found.tails[other][0] for other in others[:2] if deviations[other] > 0)
        told[i] = (
            f"{kind} {scores[kind][i]:+.3g} from the median: "
            f"{deviations[worst]:.1f} deviations {side} the honest middle"
            + (f"; with {also} {suspicion:.1f}" if suspicion > deviations[worst] else "")
        )
    return told
