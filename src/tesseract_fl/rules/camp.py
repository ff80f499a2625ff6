"""For experiments: the mean of one camp, by a server that knows who is who."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tesseract_fl.kernels import flip_scores, sign
from tesseract_fl.rules.base import State, WeightingRule, check_f, resolve_f
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.tesseract import TesseractState
from tesseract_fl.types import Cohort, ConfigError, Float64s, Matrix, PreconditionError, Updates

CAMPS = ("benign", "malicious")


@dataclass(frozen=True, kw_only=True)
class CampMean(WeightingRule[TesseractState]):
    """FedSGD of the benign or of the malicious clients alone; for experiments, because no real server knows them.

    As in a simulation, the clients numbered 0 … f − 1 are the malicious ones, and whoever has no number is benign.
    Everybody has to take part in every round: where some do not, f is the number of malicious ones expected in a round,
    and the camps are mixed up. The report has the flip-scores of all.

    >>> rule = CampMean(f=1)
    >>> sent = Updates(matrix=np.array([[9.0], [1.0], [3.0]]), ids=("0", "1", "2"), round=1)
    >>> rule.aggregate(sent, rule.init(1)).update.tolist()
    [2.0]

    Sharma et al., TESSERACT: Gradient flip score to secure federated learning against model poisoning attacks, 2021:
    the experiment that motivates the rule.
    """

    by_row = True

    f: int | float
    camp: str = "benign"

    def __post_init__(self) -> None:
        check_f("camp_mean", self.f)
        if self.camp not in CAMPS:
            raise ConfigError(f"camp_mean: camp must be one of {', '.join(CAMPS)}, got {self.camp!r}")

    def check(self, n: int) -> None:
        if n <= resolve_f(self.f, n):
            raise PreconditionError(f"camp_mean needs a benign client besides f = {resolve_f(self.f, n)}, but n = {n}")

    def init(self, d: int) -> TesseractState:
        return TesseractState(direction=np.zeros(d, np.int8))

    def statistic(self, updates: Updates, state: TesseractState) -> Float64s:
        return flip_scores(updates.matrix, state.direction, settled=updates.settled)

    def weigh(
        self, statistic: Float64s, cohort: Cohort, state: TesseractState
    ) -> tuple[Float64s, TesseractState, dict[str, Any]]:
        f = resolve_f(self.f, cohort.n)
        malicious = {str(number) for number in range(f)}
        bad = np.array([client.partition("~")[0] in malicious for client in cohort.ids])
        camp = bad if self.camp == "malicious" else ~bad
        if not camp.any():
            raise PreconditionError(f"camp_mean needs a {self.camp} client, and there is none in this round")
        shares, _, _ = FedSGD().weigh(statistic, cohort, State())
        weights = np.where(camp, shares, 0.0)
        return weights / weights.sum(), state, {"flip_score": statistic.tolist()}

    def finish(self, state: TesseractState, updates: Updates, update: Matrix) -> TesseractState:
        return replace(state, direction=sign(update))
