"""Transforms in front of any rule: it then sees mixtures of the updates instead of the updates.

A transform is a matrix A, n′ × n, of which `mixing` says the entries; the inner rule works on A·U, block by block.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.randomness import generator
from tesseract_fl.reputation.evidence import rank
from tesseract_fl.rules.base import HonestMajority, Rule, resolve_f, shrinking
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.plan import Plan, Question, S, behind
from tesseract_fl.types import ClientId, Cohort, ConfigError, Float64s, PreconditionError, Rejection

Mixing: TypeAlias = Generator[Question[Any], Float64s, Float64s]


@dataclass(frozen=True, kw_only=True)
class Transform(Rule[S]):
    """Puts something in front of a rule; its state is the inner rule's."""

    inner: Rule[S]

    @abstractmethod
    def mixing(self, cohort: Cohort) -> Mixing:
        """A, n′ × n: what the inner rule's rows are made of; like a plan it may ask the blocks first.

        A vector stands for a diagonal A, which only scales the rows and costs n·d instead of n²·d.
        """

    def ids(self, cohort: Cohort, rows: int) -> tuple[ClientId, ...] | None:
        """The names of the rows, if they are no longer the clients'."""
        return None

    @property
    def remembers_clients(self) -> bool:
        return self.inner.remembers_clients

    @property
    def needs_trusted(self) -> bool:
        return self.inner.needs_trusted

    def init(self, d: int) -> S:
        return self.inner.init(d)

    def turned_away(self, rejected: Sequence[Rejection], n: int, state: S) -> S:
        return self.inner.turned_away(rejected, n, state)

    def check(self, n: int) -> None:
        self.inner.check(n)

    @final
    def plan(self, cohort: Cohort, state: S) -> Plan[S]:
        A = yield from self.mixing(cohort)
        ids = self.ids(cohort, len(A))
        mixed = cohort if ids is None else replace(cohort, ids=ids, samples=None)
        inner = self.inner.plan(mixed, state)
        verdict = yield from behind(inner, lambda updates: updates.through(lambda block: kernels.mix(A, block), ids))
        if verdict.weights is None:
            return verdict
        share = np.array(verdict.report.get("share", verdict.weights))
        if A.ndim == 1:
            return replace(verdict, weights=A * verdict.weights, report={**verdict.report, "share": share.tolist()})
        scaled = {"share": (A.T @ share).tolist()} if "share" in verdict.report else {}
        return replace(verdict, weights=A.T @ verdict.weights, report={**verdict.report, **scaled})


@dataclass(frozen=True, kw_only=True)
class NearestNeighbourMixing(HonestMajority, Transform[S]):
    """Each update is replaced by the mean of its n − f nearest, itself included, before `inner` sees it.

    Allouah et al., Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity, 2023.
    """

    name = "nnm"

    def check(self, n: int) -> None:
        super().check(n)
        self.inner.check(n)

    def mixing(self, cohort: Cohort) -> Mixing:
        gram = yield lambda updates, _: kernels.gram(updates.matrix, settled=updates.settled)
        distances = kernels.squared_distances(gram)
        k = cohort.n - resolve_f(self.f, cohort.n)
        A = np.zeros((cohort.n, cohort.n))
        for i, row in enumerate(distances):
            row[i] = -1.0  # itself first, also among duplicates
            A[i, rank(row, cohort)[:k]] = 1 / k
        return A


@dataclass(frozen=True, kw_only=True)
class Bucketing(Transform[S]):
    """Clients are put into random buckets of `size`, anew each round; `inner` sees the buckets' means.

    One malicious client spoils one bucket, so `inner` should assume as many as there are malicious clients.

    Karimireddy, He, Jaggi: Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, 2022.
    """

    size: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"bucketing: size must be at least 1, got {self.size}")
        if self.inner.remembers_clients:
            raise ConfigError(
                f"bucketing can't stand in front of {type(self.inner).__name__}, which remembers clients: "
                "a bucket has other clients in every round"
            )

    def check(self, n: int) -> None:
        try:
            self.inner.check(-(-n // self.size))
        except PreconditionError as error:
            raise PreconditionError(f"{n} clients in buckets of {self.size}: {error}") from error

    def ids(self, cohort: Cohort, rows: int) -> tuple[ClientId, ...]:
        return tuple(f"bucket-{k}" for k in range(rows))

    def mixing(self, cohort: Cohort) -> Mixing:
        yield from ()  # there is nothing to ask
        # the order of the ids, not of their arrival, so that a client can't choose its bucket
        by_name = np.argsort(np.array(cohort.ids))
        shuffled = by_name[generator(self.seed, "bucketing", cohort.round).permutation(cohort.n)]
        buckets = np.array_split(shuffled, range(self.size, cohort.n, self.size))
        A = np.zeros((len(buckets), cohort.n))
        for k, bucket in enumerate(buckets):
            A[k, bucket] = 1 / len(bucket)
        return A


@dataclass(frozen=True, kw_only=True)
class NormClipping(Transform[Any]):
    """Updates longer than τ are scaled down to it before `inner`, the mean if nothing is said, sees them.

    u_i ← u_i · min(1, τ/‖u_i‖).  `tau` is τ; the median of the round's norms if not given.

    Sun et al., Can You Really Backdoor Federated Learning?, 2019.
    """

    inner: Rule[Any] = field(default_factory=FedSGD)
    tau: float | None = None

    def __post_init__(self) -> None:
        if self.tau is not None and not self.tau > 0:
            raise ConfigError(f"norm_clipping: tau must be above 0, got {self.tau}")

    def mixing(self, cohort: Cohort) -> Mixing:
        norms = np.sqrt((yield lambda updates, _: kernels.squared_norms(updates.matrix)))
        tau = float(np.median(norms)) if self.tau is None else self.tau
        return shrinking(norms, tau)
