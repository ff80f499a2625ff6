"""What the ledger keeps about rounds, clients and operators' decisions: plain records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tesseract_fl.types import ClientId


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of one client in one round.

    `verdict`: rewarded, penalised or admitted (by a rule that judges nobody); rejected, with the gate's code;
    ignored, a reply that can't be held against anybody; absent; banned.
    """

    round: int
    client: ClientId
    verdict: str
    code: str = ""
    detail: str = ""
    score: float | None = None
    weight: float | None = None
    reputation: float | None = None
    samples: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One round: `outcome` is aggregated or skipped, `detail` says why it was skipped.

    `seconds`: from when clients were asked to when it was aggregated.
    """

    round: int
    outcome: str
    detail: str = ""
    asked: int = 0
    admitted: int = 0
    seconds: float = 0.0
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """What an operator decided about a client."""

    id: int
    time: str
    action: str
    client: ClientId
    reason: str
