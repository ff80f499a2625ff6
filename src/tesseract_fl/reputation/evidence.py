"""Evidence: a score for every client of a round, and which of its tails are suspicious."""

from __future__ import annotations

from hashlib import blake2b
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tesseract_fl.types import Bools, Cohort, Float64s


def rank(scores: Float64s, cohort: Cohort) -> npt.NDArray[np.intp]:
    """Row numbers from the lowest score to the highest.

    Equal scores are ordered by a hash of round and client id: it does not depend on who arrived first,
    and it changes every round, so no client id is a lucky one.
    """
    coins = [blake2b(f"{cohort.round}:{client}".encode(), digest_size=8).digest() for client in cohort.ids]
    return np.lexsort((np.frombuffer(b"".join(coins), np.uint64), scores))


def both_tails(scores: Float64s, f: int, cohort: Cohort) -> Bools:
    """The f lowest and the f highest: of flip-scores both are suspicious.

    After an honest round an attacker flips more than the others; after a poisoned one the honest clients do, and the
    attacker is the one who flips least.
    """
    order = rank(scores, cohort)
    suspects = np.zeros(cohort.n, np.bool_)
    suspects[order[:f]] = True
    suspects[order[cohort.n - f :]] = True
    return suspects


SMALLEST_SPREAD = 1e-3  # cosines this close are equal: rounding and luck
WIDEST = 1.5
CREDIT = 2.0
FARTHEST = 1e3  # times the median norm, or its part: what is longer or shorter is no worse and not remembered longer


def cosines(gram: Float64s) -> Float64s:
    """cos(u_i, u_l) from ⟨u_i, u_l⟩; 0 with an update that is 0, and 0 with itself, which is no evidence."""
    norms = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    found: Float64s = np.clip(gram * inverse * inverse[:, None], -1.0, 1.0)  # of tiny numbers hardly a digit is left
    np.fill_diagonal(found, 0.0)
    return found


def agreement(cosines: Float64s, weights: Float64s) -> Float64s:
    """a_i = Σ_{l≠i} w_l cos_il / Σ_{l≠i} w_l: whether a client pulls where those with a good name pull.

    Whoever hinders the training must, sooner or later, pull against everybody whom it hinders.
    """
    others = np.where(np.eye(len(weights), dtype=np.bool_), 0.0, weights).sum(axis=1)
    pulled: Float64s = np.divide(cosines @ weights, others, out=np.zeros_like(others), where=others > 0)
    return pulled


def company(cosines: Float64s) -> Float64s:
    """k_i = √ Σ_{l≠i} max(0, cos_il)²: k_i² is how many others send the same as a client.

    Clients that collude push together, or cancel each other out.
    """
    found: Float64s = np.sqrt(np.square(np.maximum(cosines, 0.0)).sum(axis=1))
    return found


def length(norms: Float64s) -> Float64s:
    """ℓ_i = log(‖u_i‖ / median‖u‖): whether a client sends more than its share.

    A bound on lengths makes a boosted update harmless; who boosts in every round wants to outweigh the others.
    """
    middle = float(np.median(norms))
    if middle == 0:
        return np.zeros_like(norms)
    found: Float64s = np.log(np.clip(norms, middle / FARTHEST, middle * FARTHEST) / middle)
    return found


def flatness(sums: Float64s, norms: Float64s) -> Float64s:
    """φ_i = log(‖u_i‖₁ / ‖u_i‖): over how many coordinates a client spreads what it sends.

    An honest update's energy is in few of them. To go against everybody where it hardly shows, a little in every
    coordinate, is to be flatter than they are.
    """
    ratio = np.divide(sums, norms, out=np.ones_like(sums), where=norms > 0)
    return np.asarray(np.log(np.maximum(ratio, 1.0)), np.float64)


def course(along: Float64s, norms: Float64s, way: float) -> Float64s:
    """c_i = ⟨u_i, m⟩/(‖u_i‖‖m‖): whether a client pulls on along the way of the last rounds, or back.

    Colluders who all but cancel a round's honest updates leave a mean that is mostly noise, with which hardly anybody
    disagrees. Over many rounds the noise goes and what is left of the way stays.
    """
    found: Float64s = np.divide(along, norms * way, out=np.zeros_like(along), where=norms * way > 0)
    return found


def honest(scores: Float64s, shares: npt.ArrayLike, least: float = 0.0) -> tuple[Float64s, Float64s]:
    """The middle of honest scores and their standard deviation, if at most a share ε of all scores is too high.

    Under ε·n scores that are too high, the honest median is at the quantile (1 − ε)/2 and the honest lower quartile at
    (1 − ε)/4; of normal scores they are 0.6745 standard deviations apart. But scores between the two bring them
    together, so that honest ones stand out, and scores far below drive them apart, so that nobody does. The shortest
    interval that holds more than half of all scores is moved by neither as easily: of normal scores it is
    2·Φ⁻¹(½ + ¼/(1 − ε)) deviations long with all ε·n outside of it, and never longer than honest ones alone would make
    it. A deviation is between 1 and `WIDEST` times what that says, and `least` at least.

    Of many shares there are as many answers.

    >>> scores = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 99.0])
    >>> middle, deviation = honest(scores, 1 / 6)
    >>> ((scores - middle) / deviation).round(1).tolist()
    [-1.2, -0.6, -0.0, 0.5, 1.1, 53.8]
    """
    left = 1 - np.asarray(shares, np.float64)
    middle, quartile = np.quantile(scores, [left / 2, left / 4])
    half = _shortest_half(scores) / 2 / np.vectorize(NormalDist().inv_cdf)(0.5 + 0.25 / left)
    deviation = np.clip((middle - quartile) / 0.6745, half, WIDEST * half)
    return middle, np.maximum(deviation, max(SMALLEST_SPREAD, least))


def without_credit(scores: Float64s, share: float, least: float = 0.0) -> Float64s:
    """Scores of which only the upper tail is suspicious, none more than `CREDIT` deviations below the honest middle.

    What is remembered is a mean: a round far on the good side, as an update in one coordinate only is the least flat,
    would pay for many on the other.
    """
    middle, deviation = honest(scores, share, least)
    return np.maximum(scores, middle - CREDIT * deviation)


def _shortest_half(scores: Float64s) -> float:
    """The length of the shortest interval that holds more than half of the scores."""
    ordered, others = np.sort(scores), (len(scores) - 1) // 2
    return float((ordered[len(scores) - 1 - others :] - ordered[: others + 1]).min())
