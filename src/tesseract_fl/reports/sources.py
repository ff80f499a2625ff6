"""Where rounds are read from: the journal of a simulation or the ledger of a federation, also while it is written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

from tesseract_fl.registry import title
from tesseract_fl.reports.history import VERDICTS, Happened, History
from tesseract_fl.reports.journal import Run, reading
from tesseract_fl.reputation.ledger import FILE, Ledger
from tesseract_fl.reputation.records import Action, Entry, Verdict
from tesseract_fl.reputation.suspects import explanation
from tesseract_fl.types import ClientId, DataError

GRID = "results.csv"  # what a sweep leaves


class Source(Protocol):
    """A run that can be read again and again; `read` takes in what is new and says whether there was anything."""

    directory: Path
    kind: str
    history: History
    about: dict[str, str]
    settings: str
    title: str
    again: str  # the command that would do it once more; empty if there is none

    def read(self) -> bool: ...

    @property
    def planned(self) -> int | None: ...

    @property
    def finished(self) -> bool: ...

    @property
    def summary(self) -> Mapping[str, Any]: ...

    @property
    def actions(self) -> Sequence[Action]: ...

    def verdicts_of(self, client: ClientId) -> list[Verdict]: ...

    def verdicts_in(self, index: int) -> list[Verdict]: ...


def opened(directory: Path) -> Source:
    """The run in a directory, whatever wrote it; nothing is read yet."""
    if (directory / FILE).is_file():
        return Federation(directory)
    if (directory / "config.toml").is_file():
        return Simulation(directory)
    raise DataError(
        f"{directory} is neither a run directory (config.toml) nor a federation's folder ({FILE}); "
        f"what a sweep leaves ({GRID}) is for `tesseract-fl report`"
    )


def explained(source: Source, client: ClientId) -> list[str]:
    """What a client weighed in the last round that it was in, in words and numbers."""
    history = source.history
    place = history.clients[client]
    for index in range(len(history.rounds) - 1, -1, -1):
        if place in history.rounds[index].clients:
            number = history.rounds[index].number
            return list(explanation(client, number, source.verdicts_in(index), source.verdicts_of(client)))
    return [f"Nothing has become of {client} yet."]


class Simulation:
    """A run directory. A run that is resumed replaces its journal; then everything is read anew."""

    kind = "simulation"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._inode: int | None = None
        self._start_over()
        self.again = shlex.join(["tesseract-fl", "run", "--config", str(directory / "config.toml"), "--out", "again"])

    def read(self) -> bool:
        metrics = self.directory / "metrics.jsonl"
        try:
            state = metrics.stat()
        except FileNotFoundError:
            return False
        if self._offsets[-1] > state.st_size or self._inode not in (None, state.st_ino):
            self._start_over()
        self._inode = state.st_ino
        if self._offsets[-1] == state.st_size:
            return False
        before = len(self._offsets)
        self._seconds = _seconds(self.directory / "timings.jsonl")
        with metrics.open("rb") as file:
            file.seek(self._offsets[-1])
            for line in file:
                if not line.endswith(b"\n"):
                    break  # it is being written
                number = len(self._offsets)
                with reading(f"line {number} of {metrics}"):
                    self.history.add(_happened(json.loads(line), self._seconds_of(number - 1)))
                self._offsets.append(self._offsets[-1] + len(line))
        return len(self._offsets) > before

    @property
    def finished(self) -> bool:
        return (self.directory / "summary.json").exists()

    @property
    def summary(self) -> Mapping[str, Any]:
        path = self.directory / "summary.json"
        with reading(path), suppress(FileNotFoundError):
            return dict[str, Any](json.loads(path.read_text()).items())
        return {}

    @property
    def actions(self) -> Sequence[Action]:
        return ()

    def verdicts_of(self, client: ClientId) -> list[Verdict]:
        rows = self.history.of_client(self.history.clients[client])
        return [
            Verdict(
                round=one.number, client=client, verdict=VERDICTS[one.verdict[row]], score=_known(one.score[row]),
                weight=_known(one.weight[row]), reputation=_known(one.reputation[row]),
            )
            for one, row in rows
        ]  # fmt: skip

    def verdicts_in(self, index: int) -> list[Verdict]:
        with (self.directory / "metrics.jsonl").open("rb") as file:
            file.seek(self._offsets[index])
            happened = _happened(json.loads(file.readline()), None)
        nothing = [None] * len(happened.clients)
        columns = {
            "client": happened.clients,
            "verdict": happened.verdicts,
            "code": happened.codes,
            "detail": happened.details,
            "score": happened.scores or nothing,
            "weight": happened.weights or nothing,
            "reputation": happened.reputations or nothing,
        }
        rows = zip(*columns.values(), strict=True)
        return [Verdict(round=happened.number, **dict(zip(columns, row, strict=True))) for row in rows]

    def _start_over(self) -> None:
        config = Run(self.directory).config  # a run that is resumed may plan more rounds than before
        with reading(self.directory / "config.toml"):
            self.history = History(_malicious_in(config))
            self.planned = int(config["rounds"])
            self.title = f"{title(config['rule'])} + {title(config['attack'])}"
            self.about = _about(config)
            self.settings = (self.directory / "config.toml").read_text()
        self._offsets = [0]  # where each round's line begins, and where the next one will
        self._inode = None

    def _seconds_of(self, index: int) -> float | None:
        return self._seconds[index] if index < len(self._seconds) else None


class Federation:
    """A Flower federation's ledger. It knows verdicts and weights; accuracy stays with the app."""

    kind = "federation"
    planned: int | None = None
    finished = False
    again = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ledger = Ledger.existing(directory)
        self.history = History()
        self._rows = [0]  # the last row of each round in the ledger's table, after that of no round
        self._acted = 0  # how many actions had been taken when it was last read
        self.about = {key: value for key, value in self._ledger.about.items() if key != "layout"}
        self.settings = "\n".join(f"{key} = {value}" for key, value in self._ledger.about.items())
        rule = self._ledger.about.get("rule", "federation")
        self.title = rule.partition("(")[0].lower()
        self._by_band = bool(_BY_BAND.search(rule))

    def read(self) -> bool:
        before, self._acted = self._acted, len(self.actions)
        numbers = [one.number for one in self.history.rounds]
        entries = self._ledger.entries(after=numbers[-1] if numbers else 0)
        if not entries:
            return self._acted != before
        told = groupby(self._ledger.rows_after(self._rows[-1]), itemgetter(1))
        number, rows = next(told, (0, iter(())))
        for entry in entries:  # the ledger may have more rounds by now: they are for the next time
            mine = list(rows) if number == entry.round else []
            if mine:
                number, rows = next(told, (0, iter(())))
            self._rows.append(mine[-1][0] if mine else self._rows[-1])
            self.history.add(_committed(entry, mine, self._by_band))
        return True

    @property
    def summary(self) -> Mapping[str, Any]:
        return {}

    @property
    def actions(self) -> Sequence[Action]:
        return self._ledger.actions()

    def verdicts_of(self, client: ClientId) -> list[Verdict]:
        return self._ledger.verdicts(client=client)

    def verdicts_in(self, index: int) -> list[Verdict]:
        rows = self._ledger.rows_after(self._rows[index], self._rows[index + 1])
        return [Verdict(**dict(zip(_FIELDS, row[1:], strict=True))) for row in rows]


_FIELDS = tuple(field.name for field in fields(Verdict))
_BY_BAND = re.compile(r"\b(Tesseract|ReputationFilter)\(")  # rules that penalise whoever is outside the band


def _happened(record: Mapping[str, Any], seconds: float | None) -> Happened:
    """A line of a journal: those who were admitted, then those who were turned away."""
    rejected = record.get("rejected", [])
    skipped = record.get("skipped", "")
    inside = [] if skipped else record["clients"]
    penalised = record.get("penalised")
    judged = ["admitted"] * len(inside) if penalised is None else ["penalised" if p else "rewarded" for p in penalised]
    said = record.get("why") or [""] * len(inside)
    nothing = [None] * len(rejected)

    def column(name: str) -> list[float | None] | None:
        values = record.get(name)
        if skipped or values is None:
            return None
        if len(values) != len(inside) or not set(map(type, values)) <= {float, int, NoneType}:
            raise ValueError(f"{name} is not a number for each of {len(inside)} clients")
        return [*values, *nothing]

    return Happened(
        number=int(record["round"]),
        clients=[*inside, *(one["client"] for one in rejected)],
        verdicts=[*judged, *("rejected" for _ in rejected)],
        codes=[*("" for _ in inside), *(one["code"] for one in rejected)],
        details=[*said, *(one["detail"] for one in rejected)],
        scores=column("flip_score"),
        weights=column("share" if "share" in record else "weights"),
        reputations=column("reputation"),
        figures={key: value for key, value in record.items() if isinstance(value, float)} | {"seconds": seconds},
        skipped=skipped,
    )


def _committed(entry: Entry, rows: Sequence[tuple[Any, ...]], by_band: bool) -> Happened:
    """A round of a ledger, from the rows of its verdicts."""
    columns = dict(zip(_FIELDS, zip(*(row[1:] for row in rows), strict=True), strict=False))
    clients, verdicts, codes, details = (columns.get(name, ()) for name in ("client", "verdict", "code", "detail"))
    band = _band(verdicts, columns.get("score", ())) if by_band else {}
    return Happened(
        number=entry.round,
        clients=clients,
        verdicts=verdicts,
        codes=codes,
        details=details,
        scores=columns.get("score"),
        weights=columns.get("weight"),
        reputations=columns.get("reputation"),
        figures={"seconds": entry.seconds, **band},
        skipped=entry.detail or entry.outcome if entry.outcome == "skipped" else "",
    )


def _band(verdicts: Sequence[str], scores: Sequence[float | None]) -> dict[str, float]:
    pairs = zip(verdicts, scores, strict=True)
    rewarded = [score for verdict, score in pairs if verdict == "rewarded" and score is not None]
    return {"flip_score_low": min(rewarded), "flip_score_high": max(rewarded)} if rewarded else {}


def _malicious_in(config: Mapping[str, Any]) -> Callable[[ClientId], bool | None]:
    """The first `malicious` clients of a simulation attack; "7~2" is client 7 in its third life."""
    attackers = int(config["malicious"]) if config["attack"]["name"] != "none" else 0

    def is_malicious(client: ClientId) -> bool | None:
        number = client.partition("~")[0]
        return int(number) < attackers if number.isascii() and number.isdecimal() and len(number) < 10 else None

    return is_malicious


def _about(config: Mapping[str, Any]) -> dict[str, str]:
    attackers = f", {config['malicious']} of them malicious" if config["attack"]["name"] != "none" else ""
    present = f", {float(config['participation']):.0%} of them in a round" if config["participation"] < 1 else ""
    return {
        "data": f"{title(config['data'])}, dealt out {title(config['partition'])}",
        "model": title(config["model"]),
        "rule": _with_settings(config["rule"]),
        "attack": _with_settings(config["attack"]),
        "clients": f"{config['clients']}{attackers}{present}",
        "rounds": str(config["rounds"]),
        "training": f"batch {config['batch']}, learning rate {config['lr']}, {_steps(config)}",
        "seed": str(config["seed"]),
    }


def _steps(config: Mapping[str, Any]) -> str:
    count, what = (config["local_epochs"], "epoch") if config["local_epochs"] else (config["local_steps"], "step")
    return f"{count} local {what}{'' if count == 1 else 's'}"


def _with_settings(spec: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key} = {value}" for key, value in spec.items() if key not in ("name", "inner"))
    return f"{title(spec)} ({given})" if given else title(spec)


def _seconds(path: Path) -> list[float]:
    with reading(path):
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [float(json.loads(line)["seconds"]) for line in lines]


def _known(value: Any) -> float | None:
    return None if value != value else float(value)
