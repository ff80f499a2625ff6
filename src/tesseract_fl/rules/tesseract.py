"""The Tesseract rule, and its reputation as a filter in front of any other rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from tesseract_fl.kernels import flip_scores, sign
from tesseract_fl.reputation import score
from tesseract_fl.reputation.evidence import both_tails, rank
from tesseract_fl.rules.base import HonestMajority, Rule, WeightingRule, check_decay, resolve_f
from tesseract_fl.rules.plan import Plan, S, State, Verdict, behind
from tesseract_fl.types import Bools, ClientId, Cohort, Float64s, Matrix, Rejection, Updates


@dataclass(frozen=True, eq=False)
class TesseractState(State):
    """`direction`: the sign of the last global update. `reputation`: of every client ever seen."""

    direction: npt.NDArray[np.int8]
    reputation: Mapping[ClientId, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tesseract(HonestMajority, WeightingRule[TesseractState]):
    """Mean weighted by a reputation that clients lose by flipping unusually much or little.

    FS_i = Σ_j u_ij² · [sign(u_ij) ≠ s_j]
    RS_i ← μ·RS_i − (1 − 2f/n)  for the f lowest and the f highest FS,  μ·RS_i + 2f/n  for the others
    g = Σ_i softmax(RS)_i · u_i,  s ← sign(g)

    `f` is how many clients may be malicious, as a number or as a fraction of those present; `decay` is μ.

    >>> rule = Tesseract(f=1, decay=0.99)
    >>> state = rule.init(d=2)
    >>> sent = np.array([[1.0, 1.0], [0.9, 1.1], [1.1, 0.9], [-9.0, -9.0]], np.float32)
    >>> for t in range(1, 50):
    ...     out = rule.aggregate(Updates(matrix=sent, ids=("a", "b", "c", "evil"), round=t), state)
    ...     state = out.state
    >>> bool(out.weights[3] < 1e-6)
    True

    Sharma et al., TESSERACT: Gradient flip score to secure federated learning against model poisoning
    attacks, 2021.
    """

    name = "tesseract"
    by_row = True

    decay: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.name, self.decay)

    @property
    def remembers_clients(self) -> bool:
        return True

    def turned_away(self, rejected: Sequence[Rejection], n: int, state: TesseractState) -> TesseractState:
        reward = 2 * resolve_f(self.f, n) / n
        return replace(state, reputation=score.penalised(state.reputation, rejected, reward=reward, decay=self.decay))

    def init(self, d: int) -> TesseractState:
        return TesseractState(direction=np.zeros(d, np.int8))

    def statistic(self, updates: Updates, state: TesseractState) -> Float64s:
        return flip_scores(updates.matrix, state.direction, settled=updates.settled)

    def weigh(
        self, statistic: Float64s, cohort: Cohort, state: TesseractState
    ) -> tuple[Float64s, TesseractState, dict[str, Any]]:
        f = resolve_f(self.f, cohort.n)
        suspects = both_tails(statistic, f, cohort)
        reputation = score.judge(state.reputation, cohort, suspects, reward=2 * f / cohort.n, decay=self.decay)
        standing, rewarded = score.of(reputation, cohort), statistic[~suspects]
        report = {
            "flip_score": statistic.tolist(),
            "penalised": suspects.tolist(),
            "reputation": standing.tolist(),
            "flip_score_low": float(rewarded.min()),
            "flip_score_high": float(rewarded.max()),
        }
        return score.softmax(standing), replace(state, reputation=reputation), report

    def finish(self, state: TesseractState, updates: Updates, update: Matrix) -> TesseractState:
        return replace(state, direction=sign(update))


@dataclass(frozen=True, eq=False)
class FilterState(TesseractState, Generic[S]):
    """Tesseract's, and what the rule behind the filter remembers."""

    inner: S = field(kw_only=True)


@dataclass(frozen=True, kw_only=True)
class ReputationFilter(HonestMajority, Rule[FilterState[S]]):
    """Leave out the f clients of the lowest reputation; any other rule aggregates those that remain.

    Reputation is Tesseract's; equal reputations are ordered like equal flip-scores. `inner` sees n − f clients.
    """

    name = "reputation_filter"

    inner: Rule[S]
    decay: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.name, self.decay)

    @property
    def remembers_clients(self) -> bool:
        return True

    @property
    def needs_trusted(self) -> bool:
        return self.inner.needs_trusted

    @property
    def _tesseract(self) -> Tesseract:
        return Tesseract(f=self.f, decay=self.decay)

    def check(self, n: int) -> None:
        super().check(n)
        self.inner.check(n - resolve_f(self.f, n))

    def turned_away(self, rejected: Sequence[Rejection], n: int, state: FilterState[S]) -> FilterState[S]:
        judged = self._tesseract.turned_away(rejected, n, state)
        left = n - resolve_f(self.f, n)
        inner = self.inner.turned_away(rejected, left, state.inner) if left > 0 else state.inner
        return replace(state, reputation=judged.reputation, inner=inner)

    def init(self, d: int) -> FilterState[S]:
        return FilterState(direction=np.zeros(d, np.int8), inner=self.inner.init(d))

    def plan(self, cohort: Cohort, state: FilterState[S]) -> Plan[FilterState[S]]:
        tesseract = self._tesseract
        _, judged, report = tesseract.weigh((yield tesseract.statistic), cohort, state)
        keep = np.ones(cohort.n, np.bool_)
        keep[rank(score.of(judged.reputation, cohort), cohort)[: resolve_f(self.f, cohort.n)]] = False

        inner = self.inner.plan(cohort.only(keep), state.inner)
        verdict = yield from behind(inner, lambda updates: updates.only(keep), lambda state: state.inner)

        def finish(updates: Updates, state: FilterState[S]) -> tuple[Matrix, FilterState[S]]:
            update, after = verdict.finish(updates, state)
            return update, FilterState(direction=sign(update), reputation=judged.reputation, inner=after)

        report["kept"] = keep.tolist()
        if "share" in verdict.report:
            report["share"] = _spread(verdict.report["share"], keep).tolist()
        return Verdict(finish, None if verdict.weights is None else _spread(verdict.weights, keep), report)


def _spread(values: npt.ArrayLike, keep: Bools) -> Float64s:
    """What those who were kept have, as what all have."""
    spread = np.zeros(len(keep), np.float64)
    spread[keep] = values
    return spread
