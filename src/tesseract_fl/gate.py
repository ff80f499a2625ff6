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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from tesseract_fl.kernels import squared_norms
from tesseract_fl.layout import Layout
from tesseract_fl.mapped import mapping
from tesseract_fl.types import ClientId, Cohort, ConfigError, Float64s, Matrix, QuorumError, Rejection, Settled, Updates

Defect: TypeAlias = tuple[str, str]  # a code and a sentence


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
        settled: Settled | None = None,
    ) -> Updates:
        """Check the values of updates that already are rows, and see whether enough of them remain."""
        claims = [None] * len(ids) if samples is None else samples
        admissions = Admissions(self, round)
        row_of: dict[ClientId, int] = {}
        norms = squared_norms(matrix, settled=settled)
        for row, (client, squared, claim) in enumerate(zip(ids, norms, claims, strict=True)):
            defect = admissions.defect(client, squared, claim)
            if defect is None:
                admissions.admit(client, squared, claim)
                row_of[client] = row
            else:
                admissions.refuse(client, defect)
        cohort = admissions.conclude()
        keep = np.zeros(len(ids), np.bool_)
        keep[[row_of[client] for client in cohort.ids]] = True
        in_file = mapping(matrix) is not None  # then rows are left out where they are read, not copied
        return Updates(
            matrix=matrix if in_file or keep.all() else matrix[keep],
            lens=(lambda block: block[keep]) if in_file and not keep.all() else None,
            ids=cohort.ids,
            round=round,
            samples=cohort.samples,
            rejected=cohort.rejected,
            settled=settled if keep.all() else None,
        )


class Admissions:
    """One round at the gate: clients come one by one, and in the end all who were admitted are looked at together."""

    def __init__(self, gate: Gate, round: int) -> None:
        self.gate = gate
        self.round = round
        self._sent: dict[ClientId, tuple[float, Any]] = {}  # squared norm and claimed sample count, if nothing is wrong
        self._refused: list[Rejection] = []
        self._too_large: dict[ClientId, Rejection] = {}

    def __contains__(self, client: ClientId) -> bool:
        return client in self._sent and client not in self._too_large

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        return (*self._refused, *self._too_large.values())

    @property
    def turned_away(self) -> tuple[Rejection, ...]:
        """The rejections of clients without an update in this round: a second one beside a good one is no offence."""
        return tuple(rejection for rejection in self.rejected if rejection.client not in self)

    def client_defect(self, client: Any) -> Defect | None:
        """Why nothing more is taken from this client, whatever it sends."""
        if not is_id(client):
            return "bad_id", "a client id must be a text that can be written as UTF-8"
        if client in self._sent:
            return "duplicate_id", "this client already has an update in this round"
        return None

    def defect(self, client: Any, squared: float, claim: Any) -> Defect | None:
        """What is wrong with a client, with its update's values, from their squared norm, or with what it claims."""
        if (defect := self.client_defect(client)) is not None:
            return defect
        if not math.isfinite(squared):
            return "not_finite", "NaN or infinite values"
        if claim is not None and not _is_count(claim):
            shown = f" {claim!r}"[:50] if isinstance(claim, float | str) else ""
            return "bad_samples", f"sample count{shown} of type {type(claim).__name__} is not a positive finite number"
        most = self.gate.max_samples
        if claim is not None and most is not None and claim > most:
            return "bad_samples", f"sample count {float(claim):.3g} is above the limit of {most:.3g}"
        return None

    def admit(self, client: ClientId, squared: float, claim: Any) -> None:
        self._sent[client] = squared, claim

    def refuse(self, client: Any, defect: Defect) -> Rejection:
        rejection = Rejection(client if is_id(client) else f"<{type(client).__name__}>", *defect)
        self._refused.append(rejection)
        return rejection

    def conclude(self, order: Iterable[ClientId] | None = None) -> Cohort:
        """Who takes part now that all norms and claims are known; QuorumError if they are too few.

        In the order of admission, unless `order` says another.
        """
        norms = {client: math.sqrt(squared) for client, (squared, _) in self._sent.items()}
        ratio = self.gate.max_norm_ratio
        moved = [norm for norm in norms.values() if norm > 0]  # many that send nothing are no measure for the others
        limit = math.inf if ratio is None or not moved else float(np.median(moved)) * ratio
        self._too_large = {
            client: Rejection(client, "norm_too_large", f"norm {norm:.3g}, the limit in this round was {limit:.3g}")
            for client, norm in norms.items()
            if norm > limit
        }
        ids = tuple(client for client in (order or self._sent) if client in self)
        if len(ids) < self.gate.quorum:
            raise QuorumError(
                f"round {self.round}: {len(ids)} updates were admitted and {len(self.rejected)} turned away "
                f"({_counts(self.rejected)}), but the quorum is {self.gate.quorum}. The model is kept. "
                "Ask more clients, or lower gate.quorum if this many are enough",
                self.turned_away,
            )
        samples = self._sample_counts([self._sent[client][1] for client in ids])
        return Cohort(ids=ids, round=self.round, samples=samples, rejected=self.rejected)

    def _sample_counts(self, claims: list[Any]) -> Float64s | None:
        """What the admitted clients count for; None if nobody claims anything."""
        made = [float(claim) for claim in claims if claim is not None]
        if not made:
            return None
        usual = sorted(made)[(len(made) - 1) // 2]  # the lower median: no sum that could overflow
        counts = np.array([usual if claim is None else float(claim) for claim in claims], np.float64)
        ratio = self.gate.max_sample_ratio
        return counts if ratio is None else np.minimum(counts, usual * ratio)


def structural_defect(arrays: Any, layout: Layout) -> Defect | None:
    """What is wrong with the names, dtypes and shapes of what was sent."""
    if not isinstance(arrays, Mapping) or not arrays:
        return "empty", f"expected {len(layout.slots)} named arrays, got {type(arrays).__name__} without any"
    names = {slot.name for slot in layout}
    for name in arrays:
        if name not in names:
            return "unknown_array", f"the model has no array {str(name)[:100]!r}"
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
    if not isinstance(client, str):
        return False
    try:
        client.encode()
    except UnicodeEncodeError:
        return False
    return True


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
