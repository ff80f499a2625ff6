"""Rounds in columns: what became of every client, and where each stands; it grows round by round.

A federation of 1,000 clients and 2,000 rounds has two million verdicts. As columns they take 30 MB and are cut and
counted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tesseract_fl.types import Bools, ClientId, Float64s, Ints

VERDICTS = ("", "rewarded", "penalised", "admitted", "rejected", "ignored", "absent", "banned")
CODES = {name: code for code, name in enumerate(VERDICTS)}
PENALISED, REJECTED, IGNORED, ABSENT = (CODES[name] for name in ("penalised", "rejected", "ignored", "absent"))
NOT_ADMITTED = VERDICTS[REJECTED:]
COLUMNS = ("score", "weight", "reputation")
STANDINGS = ("banned", "cut off", "suspected", "absent", "good")  # the most suspicious first
NEGLIGIBLE = 1e-3  # of the largest weight in a round: whoever has less is as good as cut off

Bytes: TypeAlias = npt.NDArray[np.uint8]
Float32s: TypeAlias = npt.NDArray[np.float32]
Objects: TypeAlias = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: `clients` are places in `History.clients`, the columns beside them belong to these; NaN is unknown."""

    number: int
    clients: Ints
    verdict: Bytes
    score: Float32s
    weight: Float32s
    reputation: Float32s
    figures: Mapping[str, float | None]


@dataclass(slots=True)
class TurnedAway:
    """How often a client was turned away, ignored or absent for one reason, and what was said the last time."""

    client: ClientId
    code: str
    verdict: str
    detail: str
    first: int
    last: int
    times: int = 0


@dataclass(frozen=True, kw_only=True)
class Happened:
    """What a source tells about a round, a row per client. Of two rows about one client the first counts."""

    number: int
    clients: Sequence[ClientId]
    verdicts: Sequence[str]
    codes: Sequence[str]
    details: Sequence[str]
    scores: Sequence[float | None] | None = None
    weights: Sequence[float | None] | None = None
    reputations: Sequence[float | None] | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    skipped: str = ""


class History:
    """Every round so far. `is_malicious` says of a client whether it is, None where nobody knows."""

    def __init__(self, is_malicious: Callable[[ClientId], bool | None] = lambda client: None) -> None:
        self._is_malicious = is_malicious
        self.rounds: list[Round] = []
        self.clients: dict[ClientId, int] = {}
        self.malicious: list[bool | None] = []
        self._roles: list[int] = []  # the same as a place in ("benign", "malicious", "unknown")
        self.turned_away: dict[tuple[int, str], TurnedAway] = {}
        self.skipped: list[tuple[int, str]] = []
        self.tally = Tally()

    def add(self, happened: Happened) -> None:
        rows = zip(happened.clients, happened.verdicts, happened.codes, happened.details, strict=True)
        away = [row for row in rows if row[1] in NOT_ADMITTED]
        for client in happened.clients:
            if client not in self.clients:
                self._place(client)
        places = np.array([*map(self.clients.__getitem__, happened.clients)], np.int64)
        once = np.sort(np.unique(places, return_index=True)[1])  # of two replies the first counts
        verdict = np.array([CODES[name] for name in happened.verdicts], np.uint8)[once]
        score, weight, reputation = (
            _floats(values, len(places))[once] for values in (happened.scores, happened.weights, happened.reputations)
        )
        places = places[once]
        said = [*map(_said, happened.verdicts, happened.codes, happened.details)]
        self.tally.add(
            happened.number, len(self.clients), places, verdict, np.array(said, np.object_)[once], weight, reputation
        )
        figures = dict(happened.figures) | {
            **self._by_role(places, score, weight),
            "admitted": int(((verdict > 0) & (verdict < REJECTED)).sum()),
            "turned_away": int((verdict == REJECTED).sum()),
            "suspected": int(self.tally.suspicious[places].sum()),
        }
        columns = (score.astype(np.float32), weight.astype(np.float32), reputation.astype(np.float32))
        self.rounds.append(Round(happened.number, places, verdict, *columns, figures))
        for client, name, code, detail in away:
            self._turn_away(happened.number, client, name, code, detail)
        if happened.skipped:
            self.skipped.append((happened.number, happened.skipped))

    @property
    def round(self) -> int:
        """The last round; 0 before the first."""
        return self.rounds[-1].number if self.rounds else 0

    @property
    def roles_known(self) -> bool:
        return any(role is not None for role in self.malicious)

    def table(self, column: str, rounds: Sequence[int], clients: Ints) -> npt.NDArray[Any]:
        """Clients × rounds of one column; NaN, or verdict 0, where a client took no part."""
        nothing, kind = (0, np.uint8) if column == "verdict" else (np.nan, np.float32)
        whole: npt.NDArray[Any] = np.full((len(rounds), len(self.clients)), nothing, kind)
        for row, index in zip(whole, rounds, strict=True):
            row[self.rounds[index].clients] = getattr(self.rounds[index], column)
        return np.ascontiguousarray(whole[:, clients].T)

    def figure(self, name: str, rounds: Sequence[int]) -> list[float | None]:
        return [self.rounds[index].figures.get(name) for index in rounds]

    def of_client(self, place: int) -> list[tuple[Round, int]]:
        """The rounds that a client was in, and its row in each."""
        found = ((one, np.flatnonzero(one.clients == place)) for one in self.rounds)
        return [(one, int(rows[0])) for one, rows in found if len(rows)]

    def _place(self, client: ClientId) -> int:
        if client not in self.clients:
            self.clients[client] = len(self.clients)
            self.malicious.append(self._is_malicious(client))
            self._roles.append({False: 0, True: 1, None: 2}[self.malicious[-1]])
        return self.clients[client]

    def _by_role(self, places: Ints, score: Float64s, weight: Float64s) -> dict[str, float]:
        """How flip-scores and weights spread among benign and malicious clients, or among all where nobody knows."""
        known = np.array(self._roles, np.int64)[places]
        found: dict[str, float] = {}
        share = 1 / max(1, int((~np.isnan(weight)).sum()))
        for code, role in enumerate(("benign", "malicious", "unknown")):
            scores = np.sort(score[(known == code) & ~np.isnan(score)])
            if len(scores):
                for name, at in (("low", 0.05), ("mid", 0.5), ("high", 0.95)):
                    found[f"score_{role}_{name}"] = float(scores[round(at * (len(scores) - 1))])
            weights = weight[(known == code) & ~np.isnan(weight)]
            if len(weights):
                found[f"weight_{role}"] = float(weights.mean(dtype=np.float64) / share)
        return found

    def _turn_away(self, number: int, client: ClientId, verdict: str, code: str, detail: str) -> None:
        key = self._place(client), code
        found = self.turned_away.setdefault(key, TurnedAway(client, code, verdict, detail, number, number))
        found.times += 1
        found.last, found.detail = number, detail


class Tally:
    """Where every client stands, kept up to date as rounds come in."""

    def __init__(self) -> None:
        self.seen = np.zeros(0, np.int64)  # rounds in which something became of the client
        self.penalised = np.zeros(0, np.int64)
        self.rejected = np.zeros(0, np.int64)
        self.since = np.zeros(0, np.int64)  # first round of the unbroken series of bad ones; 0: there is none
        self.series = np.zeros(0, np.int64)  # how long that is
        self.last = np.zeros(0, np.uint8)  # verdict
        self.light = np.zeros(0, np.bool_)  # whether it last weighed next to nothing
        self.weight = np.zeros(0, np.float64)
        self.reputation = np.zeros(0, np.float64)
        self.reason = np.zeros(0, np.object_)  # why it was last penalised or not admitted
        self.reason_round = np.zeros(0, np.int64)  # and when; 0: never

    def add(
        self, number: int, n: int, places: Ints, verdict: Bytes, said: Objects, weight: Float64s, reputation: Float64s
    ) -> None:
        self._grow(n)
        known = weight[~np.isnan(weight)]
        light = weight < NEGLIGIBLE * (known.max() if len(known) else 0)
        bad = (verdict == PENALISED) | (verdict == REJECTED) | light
        here = verdict != ABSENT
        self.seen[places] += 1
        self.penalised[places] += verdict == PENALISED
        self.rejected[places] += verdict == REJECTED
        still, broken = places[here & bad], places[here & ~bad]
        self.since[still] = np.where(self.since[still] == 0, number, self.since[still])
        self.series[still] += 1
        self.since[broken] = self.series[broken] = 0
        self.last[places], self.light[places], self.weight[places] = verdict, light, weight
        judged = ~np.isnan(reputation)
        self.reputation[places[judged]] = reputation[judged]
        why = np.isin(verdict, (PENALISED, REJECTED, IGNORED, ABSENT))
        self.reason[places[why]], self.reason_round[places[why]] = said[why], number

    @property
    def suspicious(self) -> Bools:
        """Those who are as good as cut off."""
        found: Bools = (self.last != ABSENT) & (self.light | (self.last == REJECTED))
        return found

    def standing(self, place: int, banned: bool = False) -> str:
        if banned:
            return "banned"
        if self.last[place] == ABSENT:
            return "absent"
        if self.light[place] or self.last[place] == REJECTED:
            return "cut off"
        return "suspected" if self.series[place] > 1 else "good"

    def _grow(self, n: int) -> None:
        more = n - len(self.seen)
        for name, values in vars(self).items():
            fill = np.nan if values.dtype == np.float64 else 0
            setattr(self, name, np.concatenate([values, np.full(more, fill, values.dtype)]))


def _said(verdict: str, code: str, detail: str) -> str:
    """Why, in a few words: the gate's code, or the first thing that the rule says of whom it penalised."""
    first = detail.partition("; ")[0] if verdict == "penalised" else ""
    return code or " — ".join(filter(None, (verdict, first)))


def _floats(values: Sequence[float | None] | None, n: int) -> Float64s:
    return np.full(n, np.nan) if values is None else np.array(values, np.float64)


def sampled(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly spread, the first and the last among them.

    >>> sampled(10, 4)
    [0, 3, 6, 9]
    """
    if count <= most:
        return list(range(count))
    return [int(place) for place in np.linspace(0, count - 1, most).round()]
