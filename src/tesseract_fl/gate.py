"""What may enter a round: each bad update is turned away with a reason, and the round goes on.

| code              | why an update is turned away                                              |
|-------------------|---------------------------------------------------------------------------|
| `empty`           | nothing was sent, or no array in it                                       |
| `missing_array`   | an array of the model is not there                                        |
| `unknown_array`   | an array that the model does not have                                     |
| `not_an_array`    | something that is not a numeric array                                     |
| `wrong_shape`     | another shape than the model's; nothing is ever broadcast                 |
| `wrong_dtype`     | another dtype than the model's                                            |
| `not_finite`      | NaN or infinite values                                                    |
| `bad_samples`     | a sample count that is not a positive finite number, or above `max_samples` |
| `norm_too_large`  | a norm above `max_norm_ratio` × the round's median norm                   |
| `bad_id`          | a client id that is not a text                                            |
| `duplicate_id`    | this client already has an update in this round: the first one counts     |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from tesseract_fl.kernels import squared_norms
from tesseract_fl.layout import Layout
from tesseract_fl.mapped import mapping
from tesseract_fl.types import ClientId, ConfigError, Matrix, QuorumError, Rejection, Updates


@dataclass(frozen=True, slots=True)
class Submission:
    """What one client sent, as it came: nothing in it is believed yet.

    A client that claims no sample count (None) counts as the lower median of those that do.
    """

    client: ClientId
    arrays: Any
    samples: Any = None


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Turns what clients sent into `Updates`.

    `quorum`: fewer admitted updates than this skip the round. `max_norm_ratio`: the largest norm allowed,
    as a multiple of the round's median; None allows any. `max_sample_ratio`: a claimed sample count above
    this multiple of the round's median is reduced to it; None believes any. `max_samples`: a client that claims
    more than this is turned away.

    >>> good, bad = np.ones((1, 3), np.float32), np.full((1, 3), np.nan, np.float32)
    >>> updates = Gate().screen(np.concatenate([good, bad]), ["a", "b"], round=1)
    >>> updates.ids, updates.rejected[0].code
    (('a',), 'not_finite')
    """

    quorum: int = 1
    max_norm_ratio: float | None = None
    max_sample_ratio: float | None = None
    max_samples: float | None = None

    def __post_init__(self) -> None:
        if self.quorum < 1:
            raise ConfigError(f"gate: quorum must be at least 1, got {self.quorum}")
        for name in ("max_norm_ratio", "max_sample_ratio"):
            ratio = getattr(self, name)
            if ratio is not None and not 1 <= ratio < math.inf:
                raise ConfigError(f"gate: {name} must be a finite number of at least 1, got {ratio}")
        if self.max_samples is not None and not self.max_samples > 0:
            raise ConfigError(f"gate: max_samples must be a positive number, got {self.max_samples}")

    def screen(
        self,
        matrix: Matrix,
        ids: Sequence[ClientId],
        *,
        round: int,
        samples: Sequence[Any] | None = None,
        rejected: Sequence[Rejection] = (),
    ) -> Updates:
        """Check the values of updates that already are rows, and see whether enough of them remain."""
        claims = [None] * len(ids) if samples is None else samples
        refused: list[Rejection] = list(rejected)
        squared = squared_norms(matrix)
        keep = np.zeros(len(ids), np.bool_)
        admitted: set[ClientId] = set()

        def refuse(client: Any, defect: tuple[str, str]) -> None:
            refused.append(Rejection(client if is_id(client) else f"<{type(client).__name__}>", *defect))

        for i, client in enumerate(ids):
            defect = self.value_defect(client, squared[i], claims[i])
            if defect is None and client in admitted:
                defect = ("duplicate_id", "this client already has an update in this round")
            if defect is None:
                keep[i] = True
                admitted.add(client)
            else:
                refuse(client, defect)
        limit = self.norm_limit(squared[keep])  # one vote per client
        for i, client in enumerate(ids):
            if keep[i] and math.sqrt(squared[i]) > limit:
                keep[i] = False
                admitted.remove(client)
                size = math.sqrt(squared[i])
                refuse(client, ("norm_too_large", f"norm {size:.3g}, the limit in this round was {limit:.3g}"))
        self.check_quorum(len(admitted), refused, round)
        in_file = mapping(matrix) is not None  # then rows are left out where they are read, not copied
        return Updates(
            matrix=matrix if in_file or keep.all() else matrix[keep],
            lens=(lambda block: block[keep]) if in_file and not keep.all() else None,
            ids=tuple(client for client, kept in zip(ids, keep, strict=True) if kept),
            round=round,
            samples=self.sample_counts([claim for claim, kept in zip(claims, keep, strict=True) if kept]),
            rejected=tuple(refused),
        )

    def check_quorum(self, admitted: int, refused: Sequence[Rejection], round: int) -> None:
        """Raise QuorumError if too few updates remain."""
        if admitted < self.quorum:
            raise QuorumError(
                f"round {round}: {admitted} updates were admitted and {len(refused)} turned away "
                f"({_counts(refused)}), but the quorum is {self.quorum}. The model is kept. "
                "Ask more clients, or lower gate.quorum if this many are enough",
                tuple(refused),
            )

    def value_defect(self, client: Any, squared: float, claim: Any) -> tuple[str, str] | None:
        """What is wrong with an update's values, from its squared norm, or with what its client claims."""
        if not is_id(client):
            return "bad_id", "a client id must be a text that can be written as UTF-8"
        if not math.isfinite(squared):
            return "not_finite", "NaN or infinite values"
        if claim is not None and not _is_count(claim):
            shown = f" {claim!r}"[:50] if isinstance(claim, float | str) else ""
            return "bad_samples", f"sample count{shown} of type {type(claim).__name__} is not a positive finite number"
        if claim is not None and self.max_samples is not None and claim > self.max_samples:
            return "bad_samples", f"sample count {float(claim):.3g} is above the limit of {self.max_samples:.3g}"
        return None

    def norm_limit(self, squared: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        """The largest norm that this round allows, from the squared norms of those who may vote."""
        if self.max_norm_ratio is None or squared.size == 0:
            return math.inf
        return float(np.median(np.sqrt(squared))) * self.max_norm_ratio

    def sample_counts(self, claims: list[Any]) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """What the admitted clients count for; None if nobody claims anything."""
        made = [float(claim) for claim in claims if claim is not None]
        if not made:
            return None
        usual = sorted(made)[(len(made) - 1) // 2]  # the lower median: no sum that could overflow
        counts = np.array([usual if claim is None else float(claim) for claim in claims], np.float64)
        if self.max_sample_ratio is not None:
            counts = np.minimum(counts, usual * self.max_sample_ratio)
        return counts


def structural_defect(arrays: Any, layout: Layout) -> tuple[str, str] | None:
    """What is wrong with the names, dtypes and shapes of what was sent: a code and a sentence, None if nothing is."""
    if not isinstance(arrays, Mapping) or not arrays:
        return "empty", f"expected {len(layout.slots)} named arrays, got {type(arrays).__name__} without any"
    unknown = [str(name) for name in arrays if name not in {slot.name for slot in layout}]
    if unknown:
        return "unknown_array", f"the model has no array {unknown[0][:100]!r}"
    for slot in layout:
        if slot.name not in arrays:
            return "missing_array", f"{slot.name!r} was not sent"
        array = arrays[slot.name]
        if not isinstance(array, np.ndarray):
            return "not_an_array", f"{slot.name!r} is {type(array).__name__}, not a numeric array"
        if array.dtype != slot.dtype:
            return "wrong_dtype", f"{slot.name!r} is {array.dtype}, the model has {slot.dtype}"
        if array.shape != slot.shape:
            return "wrong_shape", f"{slot.name!r} is {array.shape}, the model has {slot.shape}"
    return None


def is_id(client: Any) -> bool:
    try:
        return isinstance(client, str) and bool(client.encode() or True)
    except UnicodeEncodeError:
        return False


def _is_count(claim: Any) -> bool:
    if isinstance(claim, bool) or not isinstance(claim, Real):
        return False
    try:
        return 0 < float(claim) < math.inf
    except OverflowError:
        return False


def _counts(rejections: Sequence[Rejection]) -> str:
    codes = [rejection.code for rejection in rejections]
    return ", ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes))) or "none"
