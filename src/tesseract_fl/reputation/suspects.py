"""What the ledger's history says about clients, in words: pure functions of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.reputation.records import Action, Verdict
from tesseract_fl.types import ClientId, ConfigError

NEGLIGIBLE = 1e-3  # of the largest weight in a round: whoever has less is as good as cut off
BAD = ("penalised", "rejected")
_ORDER = ("banned", "cut off", "suspected", "absent", "good")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a client stands. `since`: the first round of the unbroken series that makes it suspicious."""

    client: ClientId
    standing: str
    since: int | None
    weight: float | None
    reputation: float | None
    reason: str


def standings(verdicts: Sequence[Verdict], actions: Sequence[Action]) -> list[Standing]:
    """Every client, the most suspicious first."""
    largest: dict[int, float] = {}
    histories: dict[ClientId, list[Verdict]] = {}
    for verdict in verdicts:
        largest[verdict.round] = max(largest.get(verdict.round, 0.0), verdict.weight or 0.0)
        histories.setdefault(verdict.client, []).append(verdict)
    banned = {client for client in histories if _is_banned(client, actions)}
    found = [_standing(_counted(history), largest, client in banned) for client, history in histories.items()]
    return sorted(found, key=lambda one: (_ORDER.index(one.standing), one.reputation or 0.0, one.client))


def _is_banned(client: ClientId, actions: Sequence[Action]) -> bool:
    decided = [action.action for action in actions if action.client == client]
    return bool(decided) and decided[-1] == "ban"


def _counted(history: Iterable[Verdict]) -> list[Verdict]:
    """A client's verdicts, the first of each round: a reply beside the one that counted is not held against it."""
    return [next(of_round) for _, of_round in groupby(history, attrgetter("round"))]


def _standing(history: Sequence[Verdict], largest: dict[int, float], banned: bool) -> Standing:
    last = history[-1]
    series = _unbroken([v for v in history if v.verdict != "absent"], largest)
    cut_off = last.weight is not None and last.weight < NEGLIGIBLE * largest[last.round]
    standing = (
        "banned" if banned
        else "absent" if last.verdict == "absent"
        else "cut off" if cut_off or last.verdict == "rejected"
        else "suspected" if series and len(series) > 1
        else "good"
    )  # fmt: skip
    bad = [verdict for verdict in history if verdict.verdict in (*BAD, "ignored", "absent")]
    reason = f"round {bad[-1].round}: {bad[-1].code or bad[-1].verdict}" if bad else ""
    known = [verdict.reputation for verdict in history if verdict.reputation is not None]
    return Standing(
        client=last.client,
        standing=standing,
        since=series[0].round if series and standing in ("cut off", "suspected", "banned") else None,
        weight=last.weight,
        reputation=known[-1] if known else None,
        reason=reason,
    )


def _unbroken(history: Sequence[Verdict], largest: dict[int, float]) -> list[Verdict]:
    """The last rounds in a row in which a client was penalised, turned away, or weighed next to nothing."""
    series: list[Verdict] = []
    for verdict in reversed(history):
        light = verdict.weight is not None and verdict.weight < NEGLIGIBLE * largest[verdict.round]
        if verdict.verdict not in BAD and not light:
            break
        series.insert(0, verdict)
    return series


def explained(ledger: Ledger, client: ClientId, round: int) -> Iterator[str]:
    """Why a client weighed what it weighed in a round."""
    yield from explanation(client, round, ledger.verdicts(round=round), ledger.verdicts(client=client))


def explanation(
    client: ClientId, round: int, of_round: Sequence[Verdict], of_client: Sequence[Verdict]
) -> Iterator[str]:
    """The same from the verdicts of the round and the history of the client, wherever they were kept."""
    own = [verdict for verdict in of_round if verdict.client == client]
    if not own:
        raise ConfigError(f"the ledger has nothing about {client} in round {round}: it was not asked, or banned")
    counted, *beside = own
    yield from _explained(counted, of_round)
    for verdict in beside:
        yield f"  beside that, a reply that did not count: {_why(verdict)}"
    yield from _reputation(of_client, round)


_WORDS = {
    "rewarded": "was admitted, and nothing about it stood out",
    "penalised": "was admitted, but it stood out: its reputation fell",
    "admitted": "was admitted; this rule judges nobody",
    "rejected": "was turned away by the gate",
    "ignored": "sent something that was not counted, and not held against it",
    "absent": "did not answer, which is not held against it",
    "banned": "was not asked: an operator had banned it",
}


def _explained(verdict: Verdict, of_round: Sequence[Verdict]) -> Iterator[str]:
    yield f"In round {verdict.round} client {verdict.client} {_WORDS[verdict.verdict]}."
    if verdict.code or verdict.detail:
        yield f"  why: {_why(verdict)}"
    if verdict.score is not None:
        scores = sorted(v.score for v in of_round if v.score is not None)
        yield f"  flip-score {verdict.score:.6g}, number {scores.index(verdict.score) + 1} of {len(scores)} from below"
    if verdict.weight is not None:
        weights = [v.weight for v in of_round if v.weight is not None]
        yield f"  weight {verdict.weight:.3g} of 1; an equal share would be {1 / len(weights):.3g}"
    if verdict.samples is not None:
        yield f"  it claims {verdict.samples:g} samples"


def _why(verdict: Verdict) -> str:
    return " — ".join(part for part in (verdict.code, verdict.detail) if part)


def _reputation(history: Sequence[Verdict], round: int) -> Iterator[str]:
    upto = _counted(verdict for verdict in history if verdict.round <= round)
    known = [verdict.reputation for verdict in upto if verdict.reputation is not None]
    if known:
        before = f", from {known[-2]:+.3f} before" if len(known) > 1 else ""
        yield f"  reputation {known[-1]:+.3f} after this round{before}"
    counts = {name: sum(verdict.verdict == name for verdict in upto) for name in _WORDS}
    yield "  so far: " + ", ".join(f"{count} × {name}" for name, count in counts.items() if count)
