"""The shared words: updates, aggregates, client ids, errors. No logic beyond checking themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tesseract_fl import mapped

ClientId: TypeAlias = str
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Float64s: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Matrix: TypeAlias = Any  # n × d, one row per client: a numpy array or a torch tensor


LENS_COLUMNS = 16_384
DTYPES = ("float32", "float64", "torch.float32", "torch.float64")


class TesseractError(Exception):
    """Everything that this package raises on purpose."""


class ConfigError(TesseractError, ValueError):
    """Something that the user set is wrong; the message says what would be right."""


class KnowledgeError(ConfigError):
    """An attack needs to see more than it was granted."""


class DataError(TesseractError):
    """A data set is missing, damaged or of another format."""


class CheckpointError(TesseractError):
    """A stored state is missing, damaged or belongs to something else."""


class ShardError(TesseractError):
    """A shard of the columns is lost or does not hold what it should: nothing was added up, no state moved on."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """An update that was turned away: `code` is for machines, `detail` for people."""

    client: ClientId
    code: str
    detail: str


class RoundSkipped(TesseractError):  # noqa: N818  (it is an outcome of a round, not a defect)
    """This round can't be aggregated: the model stays as it was. `rejected`: those whom the gate turned away."""

    def __init__(self, message: str, rejected: tuple[Rejection, ...] = ()) -> None:
        super().__init__(message)
        self.rejected = rejected


class QuorumError(RoundSkipped):
    """Too few updates were admitted."""


class PreconditionError(RoundSkipped):
    """The rule is not defined for this many clients, for example 2f ≥ n."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cohort:
    """Who takes part in a round, in row order: the part of a round that is small.

    `samples` are the clients' own claims about how much data they have. `rejected` are those whom the
    gate turned away; they have no row.
    """

    ids: tuple[ClientId, ...]
    round: int
    samples: Float64s | None = None
    rejected: tuple[Rejection, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.ids)) != self.n:
            raise ConfigError("client ids must be unique within a round; the gate turns duplicates away")
        if self.samples is not None and self.samples.shape != (self.n,):
            raise ConfigError(f"{self.n} client ids but sample counts of shape {self.samples.shape}")

    @property
    def n(self) -> int:
        return len(self.ids)

    def only(self, keep: Bools) -> Cohort:
        """The same round with only some of its clients; a second update of one of the others is no offence either."""
        samples = None if self.samples is None else self.samples[keep]
        kept = tuple(compress(self.ids, keep))
        others = set(self.ids) - set(kept)
        rejected = tuple(rejection for rejection in self.rejected if rejection.client not in others)
        return replace(self, ids=kept, samples=samples, rejected=rejected)


@dataclass(frozen=True, eq=False)
class Blend:
    """The rows a·x_i + b·y_i; a `y` of one row serves all of them."""

    a: float
    x: Matrix
    b: float
    y: Matrix


@dataclass(frozen=True, eq=False)
class Settled:
    """The rows from `first` on are the same in every round that shares this, as when somebody asks a rule "what if".

    `kept` is what was computed of them, so that only what has to do with the other rows is computed again. Those may be
    a `blend` of the same x and y in every such round: then what is linear in them need not be computed again either.
    """

    first: int
    blend: Blend | None = None
    kept: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Updates(Cohort):
    """What the clients of one round sent: row i of `matrix` is the model delta of client `ids[i]`.

    `trusted` is an update that the server computed itself on clean data. `offset` is the number of the first
    column, where this is a block of a larger round. With a `lens`, the rows that count are lens(matrix): it
    works on any block of columns, so that a transformed round never has to exist as a whole.

    `settled` says which rows the same attacker, asking again, will not have changed.

    The matrix may be, or be a view of, a file that is mapped into memory (`np.memmap`). A rule then reads it in
    blocks of at most `block_bytes`, 256 MiB if not given, and at any time no more than that is resident.

    >>> Updates(matrix=np.zeros((2, 3), np.float32), ids=("a", "b"), round=1).d
    3
    """

    matrix: Matrix
    trusted: Floats | None = None
    offset: int = 0
    lens: Callable[[Matrix], Matrix] | None = None
    block_bytes: int | None = None
    settled: Settled | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matrix.ndim != 2 or (self.lens is None and self.matrix.shape[0] != self.n):
            shape = tuple(self.matrix.shape)
            raise ConfigError(f"{self.n} client ids need a matrix of {self.n} rows, got shape {shape}")
        if str(self.matrix.dtype) not in DTYPES:
            raise ConfigError(f"updates must be float32 or float64, got {self.matrix.dtype}; convert them first")
        if self.block_bytes is not None and self.block_bytes < 1:
            raise ConfigError(f"block_bytes must be at least 1, got {self.block_bytes}")
        if self.trusted is not None and tuple(self.trusted.shape) != (self.d,):
            raise ConfigError(f"the trusted update must have shape ({self.d},), got {tuple(self.trusted.shape)}")

    @property
    def d(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def cohort(self) -> Cohort:
        """The small part of this round."""
        return Cohort(ids=self.ids, round=self.round, samples=self.samples, rejected=self.rejected)

    def blocks(self) -> list[slice]:
        """The blocks of columns in which a rule goes through this round; in memory one block is fastest."""
        in_memory = isinstance(self.matrix, np.ndarray) or self.matrix.device.type == "cpu"
        widest = self.d if self.lens is None and in_memory else LENS_COLUMNS
        in_file = mapped.mapping(self.matrix) is not None
        budget = self.block_bytes or (mapped.BLOCK_BYTES if in_file else sys.maxsize)
        return mapped.blocks(self.matrix, widest, budget)

    def columns(self, block: slice) -> Updates:
        """The same round seen through some of the model's parameters, its lens applied."""
        return replace(
            self,
            matrix=self._read(block) if self.lens is None else self.lens(self._read(block)),
            trusted=None if self.trusted is None else self.trusted[block],
            offset=self.offset + block.start,
            lens=None,
            settled=self.settled if (block.start, block.stop) == (0, self.d) else None,
        )

    def _read(self, block: slice) -> Matrix:
        if mapped.mapping(self.matrix) is not None:
            return mapped.read(self.matrix, block)
        matrix = self.matrix[:, block]
        # without gaps between rows, sums go the same way in a block of this process, of a file and of a worker
        cut = isinstance(matrix, np.ndarray) and matrix.shape != self.matrix.shape
        return np.ascontiguousarray(matrix) if cut and self.lens is None else matrix

    def through(self, lens: Callable[[Matrix], Matrix], ids: tuple[ClientId, ...] | None = None) -> Updates:
        """The same round behind one more lens; `ids` names its rows if they are no longer the clients'."""
        before = self.lens
        both = lens if before is None else lambda block: lens(before(block))
        seen = replace(self, lens=both, settled=None)
        return seen if ids is None else replace(seen, ids=ids, samples=None)

    def only(self, keep: Bools) -> Updates:
        kept = self.cohort.only(keep)
        return replace(self.through(lambda block: block[keep], kept.ids), samples=kept.samples)


@dataclass(frozen=True, kw_only=True, eq=False)
class Aggregate:
    """What a rule made of a round.

    `weights[i]` is what client `ids[i]` contributed, None for coordinate-wise rules. `report` is flat
    and JSON-able; lists in it are in the order of the round's client ids. A rule that also scales updates to a length
    reports its clients' `share` apart from that.
    """

    update: Matrix
    weights: Float64s | None
    state: Any
    report: Mapping[str, Any]

    @property
    def shares(self) -> Float64s | None:
        """How much each client counts, however long its update is; None for coordinate-wise rules."""
        return np.array(self.report["share"]) if "share" in self.report else self.weights
