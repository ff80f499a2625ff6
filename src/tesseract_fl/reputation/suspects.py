"""What the ledger's history says about a client, in words: pure functions of its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.reputation.records import Verdict
from tesseract_fl.types import ClientId, ConfigError


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


def _counted(history: Iterable[Verdict]) -> list[Verdict]:
    """A client's verdicts, the first of each round: a reply beside the one that counted is not held against it."""
    return [next(of_round) for _, of_round in groupby(history, attrgetter("round"))]


def _reputation(history: Sequence[Verdict], round: int) -> Iterator[str]:
    upto = _counted(verdict for verdict in history if verdict.round <= round)
    known = [verdict.reputation for verdict in upto if verdict.reputation is not None]
    if known:
        before = f", from {known[-2]:+.3f} before" if len(known) > 1 else ""
        yield f"  reputation {known[-1]:+.3f} after this round{before}"
    counts = {name: sum(verdict.verdict == name for verdict in upto) for name in _WORDS}
    yield "  so far: " + ", ".join(f"{count} × {name}" for name, count in counts.items() if count)
