"""The contract of an attack: a frozen configuration, and `craft(view, rng)` → rows for the malicious clients.

`view` is what the threat model grants, `needs` what the attack can't do without. The public call is final: it
checks what it was given, lets the attack craft, and checks the shape and type of what came out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from tesseract_fl import kernels
from tesseract_fl.types import Aggregate, Blend, ClientId, ConfigError, KnowledgeError, Matrix

if TYPE_CHECKING:
    from torch import Tensor

UPDATES = ("own", "all")
DEFENCE = ("nothing", "report", "rule")


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What an attacker sees beyond the models that the server sends out, which every client sees.

    `updates`: "own", what the malicious clients compute themselves, or "all", those of the honest clients too.
    `defence`: "nothing"; "report", who took part in the last round, with the rule's scores, cuts and weights; or
    "rule", all of that and the rule itself with its state, to be asked "what if".

    >>> Knowledge(updates="own", defence="nothing").lacks(Knowledge(updates="all", defence="nothing"))
    'updates = "all" (granted: "own")'
    """

    updates: str = "all"
    defence: str = "rule"

    def __post_init__(self) -> None:
        for name, levels in (("updates", UPDATES), ("defence", DEFENCE)):
            if getattr(self, name) not in levels:
                raise ConfigError(f"knowledge.{name} must be one of {', '.join(levels)}, got {getattr(self, name)!r}")
        if (self.updates, self.defence) == ("own", "rule"):
            raise ConfigError(
                'knowledge: whoever asks the rule what it would do learns what the others send; defence = "rule" needs '
                'updates = "all"'
            )

    def lacks(self, needs: Knowledge) -> str:
        """What is missing for `needs`, in words; empty if nothing is."""
        return " and ".join(
            f'{name} = "{getattr(needs, name)}" (granted: "{getattr(self, name)}")'
            for name, levels in (("updates", UPDATES), ("defence", DEFENCE))
            if levels.index(getattr(self, name)) < levels.index(getattr(needs, name))
        )

    def and_also(self, other: Knowledge) -> Knowledge:
        """What both need.

        >>> Knowledge(updates="own", defence="report").and_also(Knowledge(updates="all", defence="nothing"))
        Knowledge(updates='all', defence='report')
        """
        return Knowledge(
            updates=max(self.updates, other.updates, key=UPDATES.index),
            defence=max(self.defence, other.defence, key=DEFENCE.index),
        )


FULL = Knowledge()
BLIND = Knowledge(updates="own", defence="nothing")
ALL_UPDATES = Knowledge(updates="all", defence="nothing")
ALL_UPDATES_AND_REPORT = Knowledge(updates="all", defence="report")


@dataclass(frozen=True, eq=False)
class Late:
    """Updates of a known shape that are computed once somebody looks at them."""

    compute: Callable[[], Matrix]
    shape: tuple[int, int]
    dtype: np.dtype[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What an attacker sees in a round; what it was not granted is None.

    `trained`: what the malicious clients' own training gives, c × d, which `own` waits for. `benign`: the updates that
    the honest clients are about to send, n−c × d. `reference`: the sign of the last global update, zeros before the
    first. `report`: the rule's report of the last round, empty before the first. `ask`: what the rule would make of
    this round if the malicious clients sent these rows, from its present state or from another one; `judge`: what it
    would report if they sent this blend, which is told sooner. `ids`: the names under which the malicious clients come,
    where they have any. `gave_up`: why an attack had nothing to send.
    """

    round: int
    trained: Matrix | Late
    benign: Matrix = None
    n: int = 0
    reference: Matrix = None
    report: Mapping[str, Any] | None = field(default_factory=dict)
    ask: Callable[..., Aggregate] | None = None
    judge: Callable[[Blend], Mapping[str, Any]] | None = None
    ids: Sequence[ClientId] = ()
    gave_up: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.benign is not None:
            object.__setattr__(self, "n", int(self.benign.shape[0]) + self.c)
        if self.reference is None:
            object.__setattr__(self, "reference", np.zeros(self.d, np.int8))

    @property
    def c(self) -> int:
        return int(self.trained.shape[0])

    @property
    def d(self) -> int:
        return int(self.trained.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.trained.dtype

    @cached_property
    def own(self) -> Matrix:
        return self.trained.compute() if isinstance(self.trained, Late) else self.trained

    @property
    def knowledge(self) -> Knowledge:
        defence = "rule" if self.ask is not None else "report" if self.report is not None else "nothing"
        return Knowledge(updates="own" if self.benign is None else "all", defence=defence)

    @cached_property
    def known(self) -> Matrix:
        """The honest updates that the attacker knows, if they are finite: those of the others, else its own."""
        rows = self.benign if self.benign is not None and len(self.benign) else self.own
        finite = np.isfinite(kernels.squared_norms(rows))
        return rows if finite.all() else rows[finite]

    @cached_property
    def columns(self) -> kernels.Columns:
        """Mean, spread and range of every coordinate over the known honest updates."""
        return kernels.column_statistics(self.known)

    @cached_property
    def direction(self) -> npt.NDArray[np.int8]:
        """s_j = sign(Σ_i u_ij) over the known honest updates: where an honest round would go."""
        return kernels.sign(kernels.weighted_sum(np.ones(len(self.known)), self.known))

    def verdict(self, blend: Blend) -> Mapping[str, Any]:
        """The rule's report, asked what it would make of this blend."""
        if self.judge is not None:
            return self.judge(blend)
        assert self.ask is not None
        return self.ask(kernels.blend(blend)).report

    def rows(self, row: Matrix) -> Matrix:
        """The same row from every malicious client."""
        return np.tile(row.astype(self.dtype, copy=False), (self.c, 1))

    def honest(self, why: str) -> Matrix:
        """What the malicious clients send in a round in which they do not attack, which is put down as such."""
        self.gave_up.append(why)
        return self.own


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Crafts what the malicious clients send.

    An attack may also poison what they train on (`poison`), change the names under which they come (`alias`),
    and say what it wants the model to get wrong (`aim`).
    """

    requires: ClassVar[Knowledge] = FULL  # everything, unless an attack says otherwise

    @property
    def needs(self) -> Knowledge:
        """What the attack must be granted."""
        return self.requires

    @property
    def least_known(self) -> int:
        """How many honest updates it must know: 2 where it measures their spread."""
        return 1

    @final
    def craft(self, view: View, rng: np.random.Generator) -> Matrix:
        """The c × d rows that the malicious clients send in this round."""
        if view.c == 0:
            return view.own
        self.check_granted(view.knowledge)
        self.check(view.n, view.c)
        if not len(view.known):
            return view.own  # the model is ruined: the attack has succeeded, and there is nothing left to go against
        self.check_known(len(view.known))
        rows = self._craft(view, rng)
        if rows.shape != (view.c, view.d) or rows.dtype != view.dtype:
            raise TypeError(
                f"{type(self).__name__} crafted {rows.shape} {rows.dtype}, not {(view.c, view.d)} {view.dtype}"
            )
        return rows

    @final
    def check_granted(self, knowledge: Knowledge) -> None:
        """Raise KnowledgeError if the attack needs more than this."""
        lacking = knowledge.lacks(self.needs)
        if lacking:
            raise KnowledgeError(f"{type(self).__name__} needs to know {lacking}; grant it with --knowledge full")

    @final
    def check_known(self, updates: int) -> None:
        """Raise ConfigError if the attack needs to know more honest updates than these."""
        if updates < self.least_known:
            raise ConfigError(
                f"{type(self).__name__} measures how far honest updates are spread, and needs to know "
                f"{self.least_known} of them instead of {updates}: let more take part, or grant --knowledge full"
            )

    def check(self, n: int, c: int) -> None:
        """Raise ConfigError unless the attack is defined for c malicious among n clients."""
        if n == c and self.needs.updates == "all":
            raise ConfigError(f"{type(self).__name__} goes by the honest clients' updates, but all {n} are malicious")

    @abstractmethod
    def _craft(self, view: View, rng: np.random.Generator) -> Matrix: ...

    def poison(self, x: Tensor, y: Tensor, *, classes: int, round: int) -> tuple[Tensor, Tensor]:
        """The batch that a malicious client trains on, from the one that it has."""
        return x, y

    def alias(self, client: ClientId, round: int) -> ClientId:
        """The name under which a malicious client comes to this round."""
        return client

    def aim(self, x: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor] | None:
        """From a test set: the inputs that the model shall get wrong, and the answers that it shall give."""
        return None


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """The malicious clients behave honestly."""

    requires = BLIND

    def check(self, n: int, c: int) -> None:
        pass

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.own
