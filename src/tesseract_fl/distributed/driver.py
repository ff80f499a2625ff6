"""The side that decides: it sees n or n × n numbers and the small part of a state, never a column.

shards = LocalShards(d, parts=4)                         # or RayShards(d, workers=4)
state  = init(rule, shards)
intake = Intake(shards, round=1, capacity=100)
for client, row in …: intake.add(client, row)            # the row is cut by columns; no matrix exists here
out    = aggregate(rule, shards, intake.cohort(), state)
out.update, out.weights, out.state, out.report
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol
from uuid import uuid4

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.distributed.shard import Shard, cut
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.plan import NOTHING, S, State, converse, settle
from tesseract_fl.types import Aggregate, Cohort, Floats, Matrix, PreconditionError, Updates


class Shards(Protocol):
    """Shards somewhere. `call` asks all of them at once, each with its own arguments, and answers in column order."""

    d: int
    blocks: list[slice]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]: ...


class LocalShards:
    """Shards in this process: for tests, and to see what a cluster would answer."""

    def __init__(self, d: int, parts: int) -> None:
        self.d, self.blocks = d, cut(d, parts)
        self.shards = [Shard(block, d) for block in self.blocks]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [getattr(shard, method)(*own) for shard, own in zip(self.shards, arguments, strict=True)]


def ask(shards: Shards, method: str, *same: Any) -> list[Any]:
    """The same to every shard."""
    return shards.call(method, [same] * len(shards.blocks))


@dataclass(frozen=True, eq=False)
class ShardedState(Generic[S]):
    """A state whose columns lie in the shards under the name `version`; `small` is what is left without them."""

    version: str
    small: S


def init(rule: Rule[S], shards: Shards) -> ShardedState[S]:
    """The state before the first round; its columns are made where they stay."""
    state = ShardedState(uuid4().hex, rule.init(shards.d).columns(NOTHING))
    ask(shards, "init", rule, state.version)
    return state


def scatter(state: S, shards: Shards) -> ShardedState[S]:
    """A whole state, for example from a checkpoint, cut up and sent to the shards."""
    sharded = ShardedState(uuid4().hex, state.columns(NOTHING))
    shards.call("restore", [(state.columns(block), sharded.version) for block in shards.blocks])
    return sharded


def gather(state: ShardedState[S], shards: Shards) -> S:
    """The whole state in this process, for example for a checkpoint."""
    return state.small.over(State.join(ask(shards, "state", state.version)))


def gather_update(state: ShardedState[Any], shards: Shards) -> Matrix:
    """The global update that came with this state, whole and in this process."""
    return kernels.concatenate(ask(shards, "update", state.version))


def aggregate(
    rule: Rule[S],
    shards: Shards,
    cohort: Cohort,
    state: ShardedState[S],
    *,
    trusted: Floats | None = None,
    whole: bool = True,
) -> Aggregate:
    """`rule.aggregate` over shards: the same plan, each question summed over shards in column order.

    Bit-equal to one process that goes through the same blocks (`Updates.block_bytes`). Only if every shard has
    answered is there a next state; until a later round begins, the old one can be gone on from as well.
    `whole=False` leaves the global update where it is, for `gather_update` or for the shards' own use.
    """
    plan = rule.begin(cohort, state.small, trusted=trusted is not None)
    pieces = [None if trusted is None else trusted[block] for block in shards.blocks]
    shards.call("begin", [(cohort, state.version, state.small, piece) for piece in pieces])
    verdict = converse(plan, lambda question: np.asarray(sum(ask(shards, "total", question))))

    _, small = settle(verdict.finish, _no_columns(cohort, trusted), state.small)
    after = ShardedState(uuid4().hex, small)
    if not all(ask(shards, "settle", verdict.finish, after.version)):
        raise PreconditionError(kernels.NOT_FINITE)
    return verdict.aggregate(gather_update(after, shards) if whole else None, after, cohort)


def _no_columns(cohort: Cohort, trusted: Floats | None) -> Updates:
    """The block that the deciding side holds itself: all clients and no columns."""
    return Updates(
        matrix=np.empty((cohort.n, 0), np.float32),
        ids=cohort.ids,
        round=cohort.round,
        samples=cohort.samples,
        rejected=cohort.rejected,
        trusted=None if trusted is None else trusted[NOTHING],
    )
