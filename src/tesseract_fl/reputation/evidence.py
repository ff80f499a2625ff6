"""Evidence: a score for every client of a round, and which of its tails are suspicious."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from tesseract_fl.kernels import flip_scores
from tesseract_fl.types import Bools, Cohort, Float64s, Matrix


@dataclass(frozen=True, kw_only=True)
class FlipScore:
    """FS_i = Σ_j u_ij² · [sign(u_ij) ≠ s_j]: energy that goes against the last global update.

    Both tails are suspicious. After an honest round an attacker flips more than the others; after a
    poisoned one the honest clients do, and the attacker is the one who flips least.
    """

    def scores(self, block: Matrix, direction: npt.NDArray[np.int8]) -> Float64s:
        """Additive over blocks of columns."""
        return flip_scores(block, direction)

    def suspects(self, scores: Float64s, f: int, cohort: Cohort) -> Bools:
        """The f lowest and the f highest."""
        order = rank(scores, cohort)
        suspects = np.zeros(cohort.n, np.bool_)
        suspects[order[:f]] = True
        suspects[order[cohort.n - f :]] = True
        return suspects


def rank(scores: Float64s, cohort: Cohort) -> npt.NDArray[np.intp]:
    """Row numbers from the lowest score to the highest.

    Equal scores are ordered by a hash of round and client id: it does not depend on who arrived first,
    and it changes every round, so no client id is a lucky one.
    """
    coins = [blake2b(f"{cohort.round}:{client}".encode(), digest_size=8).digest() for client in cohort.ids]
    return np.lexsort((np.frombuffer(b"".join(coins), np.uint64), scores))
