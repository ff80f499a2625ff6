"""Tesseract against attackers that know it: reputation that can't be saved up, from evidence that is remembered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tesseract_fl import kernels
from tesseract_fl.reputation import evidence, score, suspicion
from tesseract_fl.rules.base import HonestMajority, WeightingRule, check_decay, resolve_f, shrinking
from tesseract_fl.rules.plan import State
from tesseract_fl.types import (
    Bools,
    ClientId,
    Cohort,
    ConfigError,
    Float64s,
    Matrix,
    PreconditionError,
    Rejection,
    Updates,
)

LARGEST = np.finfo(np.float32).max

Remembered = Mapping[str, Mapping[ClientId, float]]


@dataclass(frozen=True, eq=False)
class HardenedState(State):
    """What is remembered of every client ever seen, and where the model went.

    `direction`: the sign of the last global update. `course`: the mean of the last ones, later ones counting more.
    `memory`: per kind of evidence, each client's smoothed score, relative to the medians of its rounds. `seen`: in how
    many rounds a client took part. `probation`: how many rounds are left to those who came late. `age`: rounds so far.
    """

    direction: npt.NDArray[np.int8]
    course: npt.NDArray[np.float32] = field(metadata={"new": True})
    reputation: Mapping[ClientId, float] = field(default_factory=dict)
    memory: Remembered = field(default_factory=dict)
    seen: Mapping[ClientId, int] = field(default_factory=dict)
    probation: Mapping[ClientId, int] = field(default_factory=dict)
    age: int = 0


@dataclass(frozen=True, kw_only=True)
class Hardened(HonestMajority, WeightingRule[HardenedState]):
    """Mean of bounded updates, weighted by a reputation that can be lost and regained, but not saved up.

    cos_il = ⟨u_i, u_l⟩/(‖u_i‖‖u_l‖),  s the sign of the last global update
    a_i = Σ_{l≠i} w_l cos_il / Σ_{l≠i} w_l,  w from the reputations before this round
    k_i = √ Σ_{l≠i} max(0, cos_il)²,  p_i = Σ_j u_ij²·[sign(u_ij) ≠ s_j] / ‖u_i‖²
    ℓ_i = log(‖u_i‖ / median‖u‖),  between ± log 1000,  φ_i = log(‖u_i‖₁ / ‖u_i‖)
    c_i = ⟨u_i, m⟩/(‖u_i‖‖m‖),  m ← β·m + (1 − β)·g  after every round
    a_i, k_i, ℓ_i and φ_i count as at most 2 robust deviations from the honest middle on their good side
    ā_i ← β_i·ā_i + (1 − β_i)·(a_i − median a),  β_i = min(β, seen_i/(seen_i + 1)),  k̄_i, p̄_i, ℓ̄_i, φ̄_i, c̄_i likewise
    z_i(k): by how many robust deviations (`evidence.honest`) ā_i is too low, k̄_i, ℓ̄_i, φ̄_i too high, p̄_i, c̄_i either,
        if k clients are malicious
    Z_i(k) = √Σ max(0, z_i(k))² over all kinds and sides,  while seen_i < 1/(1 − β) it is max z_i(k)
    suspects: the k of largest Z(k), for the largest k ≤ f for which that is above κ·λ(n, k) for all of them
    λ(n, k) = (1 + min(25/n, 1.5·max(1, (10/n)²)))·max(1, ¾/(1 − k/n))
    RS_i ← min(0, μ·RS_i + ρ − guilt_i),  guilt_i = min(1, ¼·f/k + Z_i(k)/(κ·λ(n, k)) − 1)  for suspects,
        1 for whom the gate turned away altogether,  0 for the others
    w = softmax(RS);  where the newcomers' share S of it is ν < S < ½, it is scaled to ν, and the others' to 1 − ν
    g = Σ_i w_i · u_i · min(1, τ·median‖u‖/‖u_i‖)
    n, f and everything else are of those who sent another update than 0; where there are others, they count as absent

    `f` is how many clients may be malicious, as a number or as a fraction of those present; `decay` is μ, `memory` β,
    `cut` κ, `redemption` ρ, `reach` τ, `newcomers` ν. Whoever comes after the first `probation` rounds is a newcomer
    until it was not suspected in as many rounds of its own. `evidence` names what counts: agreement (a), company (k),
    flip (p), length (ℓ), flatness (φ), course (c).

    >>> rule = Hardened(f=1)
    >>> state = rule.init(d=2)
    >>> sent = np.array([[1.0, 1.2], [0.9, 1.1], [1.1, 0.9], [1.3, 1.0], [-1.0, -1.1]], np.float32)
    >>> for t in range(1, 50):
    ...     out = rule.aggregate(Updates(matrix=sent, ids=("a", "b", "c", "d", "evil"), round=t), state)
    ...     state = out.state
    >>> bool(out.weights[4] < 1e-6), bool(out.weights[:4].min() > 0.24)
    (True, True)

    This project's own; docs/hardened.md says what each part is for, what it costs and what still breaks it. It stands
    on Sharma et al., TESSERACT: Gradient flip score to secure federated learning, 2021.
    """

    name = "hardened"

    decay: float = 0.99
    memory: float = 0.95
    cut: float = 4.0
    redemption: float = 0.05
    reach: float = 2.0
    probation: int = 20
    newcomers: float = 0.1
    evidence: str = "agreement+company+flip+length+flatness+course"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_decay(self.name, self.decay)
        within = {"memory": self.memory, "redemption": self.redemption, "newcomers": self.newcomers}
        for name, value in within.items():
            if not 0 <= value < 1:
                raise ConfigError(f"hardened: {name} must be at least 0 and below 1, got {value}")
        if not (self.cut > 0 and self.reach > 0 and self.probation >= 0):
            raise ConfigError(
                "hardened: cut and reach must be above 0 and probation at least 0, got "
                f"{self.cut}, {self.reach} and {self.probation}"
            )
        for kind in self.kinds:
            if kind not in suspicion.TAILS:
                raise ConfigError(
                    f"hardened: evidence must be made of {', '.join(suspicion.TAILS)}, joined by +, got {kind!r}"
                )
        if len(set(self.kinds)) < len(self.kinds):
            raise ConfigError(f"hardened: evidence counts once, got {self.evidence!r}")

    @property
    def kinds(self) -> list[str]:
        return self.evidence.split("+")

    @property
    def remembers_clients(self) -> bool:
        return True

    @property
    def limits_newcomers(self) -> bool:
        return True

    def turned_away(self, rejected: Sequence[Rejection], n: int, state: HardenedState) -> HardenedState:
        lost = score.penalised(state.reputation, rejected, reward=self.redemption, decay=self.decay)
        return replace(state, reputation=lost)

    def init(self, d: int) -> HardenedState:
        return HardenedState(direction=np.zeros(d, np.int8), course=np.zeros(d, np.float32))

    def statistic(self, updates: Updates, state: HardenedState) -> Float64s:
        """⟨u_i, u_l⟩ and, in the last four columns, flip-scores, ‖u_i‖₁, ⟨u_i, m⟩ and ‖m‖²."""
        matrix, settled = updates.matrix, updates.settled
        gram = kernels.gram(matrix, centre=None, settled=settled)
        flips = kernels.flip_scores(matrix, state.direction, settled=settled)
        sums = kernels.absolute_sums(matrix, settled=settled)
        along = kernels.dots(matrix, state.course, settled=settled)
        way = np.full(len(gram), kernels.dot(state.course, state.course))
        return np.column_stack([gram, flips, sums, along, way])

    def weigh(
        self, statistic: Float64s, cohort: Cohort, state: HardenedState
    ) -> tuple[Float64s, HardenedState, dict[str, Any]]:
        moved = np.diagonal(statistic) > 0
        if moved.any() and not moved.all():
            return self._weigh_those_who_moved(moved, statistic, cohort, state)
        f = resolve_f(self.f, cohort.n)
        state = self._welcomed(cohort, state)
        gram, of_each = statistic[:, : cohort.n], statistic[:, cohort.n :].T
        now = self._scores(gram, of_each, cohort, state)
        least = suspicion.least_deviations(now)
        seen = np.array([state.seen.get(client, 0) for client in cohort.ids])
        before = {kind: np.array([state.memory.get(kind, {}).get(i, 0.0) for i in cohort.ids]) for kind in now}
        scores = suspicion.remembered(suspicion.relative(now, f / cohort.n, least), before, seen, self.memory)
        long_known = seen * (1 - self.memory) >= 1 - 1e-9
        found = suspicion.found(scores, least, f, cohort, long_known=long_known, cut=self.cut)
        judged = self._judged(scores, found.guilt, cohort, state)
        norms = np.sqrt(np.diagonal(gram))
        share = self._weights(cohort, judged)
        weights = share * shrinking(norms, self.reach * float(np.median(norms)))
        report = {
            "share": share.tolist(),
            "flip_score": of_each[0].tolist(),
            **{kind: values.tolist() for kind, values in scores.items()},
            "suspicion": found.suspicion.tolist(),
            "penalised": found.suspects.tolist(),
            "reputation": score.of(judged.reputation, cohort).tolist(),
            "why": [*map(joined, suspicion.reasons(found, scores), self._limits(cohort, judged))],
        }
        return weights, judged, report

    def _weigh_those_who_moved(
        self, moved: Bools, statistic: Float64s, cohort: Cohort, state: HardenedState
    ) -> tuple[Float64s, HardenedState, dict[str, Any]]:
        """As if the others had not come: if most are idle, those who train must not stand out among them."""
        active = cohort.only(moved)
        try:
            self.check(active.n)
        except PreconditionError as error:
            raise PreconditionError(f"{cohort.n - active.n} of {cohort.n} clients sent no change: {error}") from error
        weights, judged, told = self.weigh(statistic[np.ix_(moved, np.append(moved, [True] * 4))], active, state)
        idle: dict[str, Any] = {"penalised": False, "why": "it sent no change, so there was nothing to judge"}
        report = {key: spread(values, moved, idle.get(key, 0.0)) for key, values in told.items()}
        report["reputation"] = [judged.reputation.get(client, 0.0) for client in cohort.ids]
        return np.array(spread(weights, moved, 0.0)), judged, report

    def finish(self, state: HardenedState, updates: Updates, update: Matrix) -> HardenedState:
        course = self.memory * state.course + (1 - self.memory) * kernels.host(update)
        held = np.clip(course, -LARGEST, LARGEST).astype(np.float32)  # an update may be of float64
        return replace(state, direction=kernels.sign(update), course=held)

    def _welcomed(self, cohort: Cohort, state: HardenedState) -> HardenedState:
        """The state with those on probation who have just come, if the federation is older than that."""
        if not self.probation or state.age < self.probation:
            return state
        new = {client: self.probation for client in cohort.ids if client not in state.seen}
        return replace(state, probation={**state.probation, **new})

    def _scores(self, gram: Float64s, of_each: Float64s, cohort: Cohort, state: HardenedState) -> dict[str, Float64s]:
        """What each kind of evidence says about this round alone."""
        cosines, energy, (flips, sums, along, way) = evidence.cosines(gram), np.diagonal(gram), of_each
        norms = np.sqrt(energy)
        every = {
            "agreement": evidence.agreement(cosines, self._weights(cohort, state)),
            "company": evidence.company(cosines),
            "flip": np.divide(flips, energy, out=np.zeros(cohort.n), where=energy > 0),
            "length": evidence.length(norms),
            "flatness": evidence.flatness(sums, norms),
            "course": evidence.course(along, norms, float(np.sqrt(way[0]))),
        }
        return {kind: every[kind] for kind in self.kinds}

    def _judged(
        self, scores: dict[str, Float64s], guilt: Float64s, cohort: Cohort, state: HardenedState
    ) -> HardenedState:
        reputation = score.judge(state.reputation, cohort, guilt, reward=self.redemption, decay=self.decay, highest=0.0)
        memory = {
            kind: {**state.memory.get(kind, {}), **dict(zip(cohort.ids, values.tolist(), strict=True))}
            for kind, values in scores.items()
        }
        seen = {**state.seen, **{client: state.seen.get(client, 0) + 1 for client in cohort.ids}}
        passed = {client for client, blame in zip(cohort.ids, guilt, strict=True) if not blame}
        left = {client: rounds - (client in passed) for client, rounds in state.probation.items()}
        probation = {client: rounds for client, rounds in left.items() if rounds > 0}
        return replace(state, reputation=reputation, memory=memory, seen=seen, probation=probation, age=state.age + 1)

    def _weights(self, cohort: Cohort, state: HardenedState) -> Float64s:
        """softmax(RS), newcomers held down to their share.

        Only while the established have most of the weight: a few of them must not carry a young or sparsely sampled
        federation, least of all those who are cut off.
        """
        weights = score.softmax(np.array([state.reputation.get(client, 0.0) for client in cohort.ids]))
        new = np.array([client in state.probation for client in cohort.ids], np.bool_)
        share = weights[new].sum()
        if self.newcomers < share < 0.5:
            weights[new] *= self.newcomers / share
            weights[~new] *= (1 - self.newcomers) / (1 - share)
        return weights

    def _limits(self, cohort: Cohort, state: HardenedState) -> list[str]:
        """For a person: who is on probation, and for how long."""
        held = f"newcomers weigh at most {self.newcomers:.0%} together"
        left = [state.probation.get(client, 0) for client in cohort.ids]
        return [f"on probation, {rounds} rounds to go: {held}" if rounds else "" for rounds in left]


def joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def spread(values: Sequence[Any] | Float64s, places: Bools, otherwise: Any) -> list[Any]:
    """The values at their places, something else at the others.

    >>> spread([1, 2], np.array([True, False, True]), 0)
    [1, 0, 2]
    """
    found = iter(values)
    return [next(found) if here else otherwise for here in places]
