"""The ledger: what a federation must not lose, in one SQLite file that a kill at any moment leaves whole.

A round is one transaction: the snapshot from which the next round goes on, and a line for every client that was asked.
History is append-only; triggers in the database see to it. Nothing is pickled: snapshots are safetensors.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tesseract_fl import checkpoint
from tesseract_fl.checkpoint import Arrays
from tesseract_fl.reputation.records import Action, Entry, Verdict
from tesseract_fl.types import CheckpointError, ClientId, ConfigError

FILE = "ledger.sqlite"
KEPT = 2  # snapshots: the last, and the one before it
ACTIONS = ("ban", "pardon")
_MARK = 0x7E55AC70  # SQLite's application_id: whose database this is
_VERSION = 1
_PART = 64 * 2**20  # bytes; SQLite takes no blob above a gigabyte
_APPEND_ONLY = ("rounds", "verdicts", "actions")

_SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY, time TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL,
    asked INTEGER NOT NULL, admitted INTEGER NOT NULL, seconds REAL NOT NULL
);
CREATE TABLE verdicts (
    round INTEGER NOT NULL REFERENCES rounds, client TEXT NOT NULL, verdict TEXT NOT NULL, code TEXT NOT NULL,
    detail TEXT NOT NULL, score REAL, weight REAL, reputation REAL, samples REAL
);
CREATE INDEX verdicts_of_client ON verdicts (client, round);
CREATE TABLE actions (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, action TEXT NOT NULL, client TEXT NOT NULL, reason TEXT NOT NULL
);
CREATE TABLE snapshots (round INTEGER NOT NULL, part INTEGER NOT NULL, sha256 TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (round, part));
""" + "".join(
    f"CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
    "BEGIN SELECT RAISE(ABORT, 'history is append-only'); END;\n"
    for table in _APPEND_ONLY
    for verb in ("UPDATE", "DELETE")
)


class Ledger:
    """One federation's memory. `directory` None keeps it in this process only, without snapshots.

    >>> ledger = Ledger.open(None, about={"rule": "Tesseract(f=1)"})
    >>> ledger.commit(Entry(round=1, outcome="aggregated", verdicts=[Verdict(round=1, client="a", verdict="rewarded")]))
    >>> ledger.round, ledger.verdicts(client="a")[0].verdict
    (1, 'rewarded')
    """

    def __init__(self, connection: sqlite3.Connection, source: str, lasting: bool) -> None:
        self._connection = connection
        self.source = source
        self.lasting = lasting

    @classmethod
    def open(cls, directory: Path | None, about: Mapping[str, str]) -> Self:
        """Open a ledger or start one. `about` must be what it was started with: rule, model and the like."""
        if directory is None:
            ledger = cls(_connect(":memory:"), "the ledger in memory", lasting=False)
        else:
            directory.mkdir(parents=True, exist_ok=True)
            ledger = cls(_connect(str(directory / FILE)), str(directory / FILE), lasting=True)
        with ledger._refusing():
            ledger._prepare(about)
        return ledger

    @classmethod
    def existing(cls, directory: Path) -> Self:
        """Open the ledger of a federation that is running or has run, to look at it or to act on a client."""
        path = directory / FILE
        if not path.is_file():
            raise CheckpointError(f"there is no ledger at {path}: name the folder that the ServerApp keeps it in")
        ledger = cls(_connect(str(path)), str(path), lasting=True)
        with ledger._refusing():
            ledger._check()
        return ledger

    def close(self) -> None:
        self._connection.close()

    @property
    def round(self) -> int:
        """The last round that was committed; 0 before the first."""
        return int(self._one("SELECT coalesce(max(round), 0) FROM rounds"))

    @property
    def about(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM about"))

    def commit(self, entry: Entry, arrays: Arrays | None = None, meta: Mapping[str, Any] | None = None) -> None:
        """Make a round last, all of it or nothing. A round can be committed once."""
        content = checkpoint.encode(arrays or {}, meta or {}) if self.lasting else b""
        try:
            with self._transaction():
                self._insert_round(entry)
                self._insert_snapshot(entry.round, content)
        except sqlite3.IntegrityError as error:
            raise CheckpointError(
                f"round {entry.round} is already in {self.source}: another ServerApp is using this ledger; "
                "let only one run on a folder"
            ) from error

    def load(self) -> tuple[Arrays, dict[str, Any]]:
        """The snapshot of the last committed round."""
        with self._refusing():
            last = self.round
            parts = self._connection.execute(
                "SELECT content, sha256 FROM snapshots WHERE round = ? ORDER BY part", (last,)
            ).fetchall()
        for content, digest in parts:
            if hashlib.sha256(content).hexdigest() != digest:
                raise self._damaged(f"the snapshot of round {last} has another checksum than when it was written")
        if not parts:
            raise self._damaged(f"it has no snapshot of round {last}")
        return checkpoint.decode(b"".join(content for content, _ in parts), f"the snapshot in {self.source}")

    def verdicts(self, client: ClientId | None = None, round: int | None = None) -> list[Verdict]:
        """The history, oldest first; of one client, of one round, or of both.

        Of a client's verdicts in a round the one that was committed first counts, and comes first.
        """
        wanted = {name: value for name, value in (("client", client), ("round", round)) if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "TRUE"
        query = f"SELECT {_NAMES} FROM verdicts WHERE {where} ORDER BY round, client, rowid"  # noqa: S608
        rows = self._connection.execute(query, tuple(wanted.values())).fetchall()
        return [Verdict(**dict(zip(_FIELDS, row, strict=True))) for row in rows]

    def rows_after(self, row: int, upto: int | None = None) -> Iterator[tuple[Any, ...]]:
        """The history after a row of its table: (row, *fields of a verdict). What came since somebody last looked;
        plain rows, because they may be millions."""
        query = f"SELECT rowid, {_NAMES} FROM verdicts WHERE rowid > ? AND rowid <= ? ORDER BY rowid"  # noqa: S608
        yield from self._connection.execute(query, (row, 2**62 if upto is None else upto))

    def entries(self, after: int = 0) -> list[Entry]:
        """Every round, or those after one of them, without verdicts."""
        query = "SELECT round, outcome, detail, asked, admitted, seconds FROM rounds WHERE round > ? ORDER BY round"
        rows = self._connection.execute(query, (after,))
        names = ("round", "outcome", "detail", "asked", "admitted", "seconds")
        return [Entry(**dict(zip(names, row, strict=True))) for row in rows]

    def act(self, action: str, client: ClientId, reason: str) -> None:
        """Record that an operator bans or pardons a client; the next round heeds it."""
        if action not in ACTIONS:
            raise ConfigError(f"an action is one of {', '.join(ACTIONS)}, got {action!r}")
        if not reason.strip():
            raise ConfigError("say why: a ban or a pardon without a reason can't be audited")
        with self._transaction():
            self._connection.execute(
                "INSERT INTO actions (time, action, client, reason) VALUES (?, ?, ?, ?)",
                (_now(), action, client, reason),
            )

    def actions(self) -> list[Action]:
        """Everything that operators decided, oldest first."""
        rows = self._connection.execute("SELECT id, time, action, client, reason FROM actions ORDER BY id")
        return [Action(*row) for row in rows]

    def _prepare(self, about: Mapping[str, str]) -> None:
        if not self._one("SELECT count(*) FROM sqlite_master"):
            self._connection.execute("PRAGMA journal_mode = WAL")
            with self._transaction():
                for statement in _statements(_SCHEMA):
                    self._connection.execute(statement)
                rows = [*about.items(), ("created", _now())]
                self._connection.executemany("INSERT INTO about VALUES (?, ?)", rows)
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
                self._connection.execute(f"PRAGMA application_id = {_MARK}")
        self._check()
        stored = self.about
        for key, value in about.items():
            if stored.get(key) != value:
                raise CheckpointError(
                    f"{self.source} belongs to a federation with another {key}: {stored.get(key)}, not {value}. "
                    "Go on with what it was started with, or name another folder"
                )

    def _check(self) -> None:
        if self._one("PRAGMA application_id") != _MARK:
            raise CheckpointError(f"{self.source} is not a ledger of tesseract-fl; name another folder")
        if self._one("PRAGMA user_version") != _VERSION:
            raise CheckpointError(
                f"{self.source} was written by another version of tesseract-fl "
                f"(format {self._one('PRAGMA user_version')}, this one reads {_VERSION})"
            )
        self._connection.execute("PRAGMA synchronous = FULL")  # a committed round survives a power cut too
        self._connection.execute("PRAGMA foreign_keys = ON")
        found = self._one("PRAGMA quick_check(1)")
        if found != "ok":
            raise self._damaged(str(found))

    def _insert_round(self, entry: Entry) -> None:
        self._connection.execute(
            "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?)",
            (entry.round, _now(), entry.outcome, entry.detail, entry.asked, entry.admitted, entry.seconds),
        )
        marks = ", ".join("?" * len(_FIELDS))
        rows = [astuple(verdict) for verdict in entry.verdicts]
        self._connection.executemany(f"INSERT INTO verdicts ({_NAMES}) VALUES ({marks})", rows)  # noqa: S608

    def _insert_snapshot(self, round: int, content: bytes) -> None:
        for part, start in enumerate(range(0, len(content), _PART)):
            piece = content[start : start + _PART]
            row = (round, part, hashlib.sha256(piece).hexdigest(), piece)
            self._connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", row)
        self._connection.execute("DELETE FROM snapshots WHERE round <= ?", (round - KEPT,))

    def _one(self, query: str) -> Any:
        return self._connection.execute(query).fetchone()[0]

    def _damaged(self, how: str) -> CheckpointError:
        return CheckpointError(
            f"{self.source} is damaged: {how}. Nothing was changed; put a copy of it back, or name another folder "
            "to start without its history"
        )

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """A file that SQLite can't read is refused, never replaced."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CheckpointError(f"{self.source} can't be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


_FIELDS = tuple(field.name for field in fields(Verdict))
_NAMES = ", ".join(_FIELDS)


def describe_layout(layout: Sequence[tuple[str, tuple[int, ...], str]]) -> str:
    """A model's names, shapes and dtypes in few characters, to tell one model from another."""
    text = json.dumps(layout)
    return f"{len(layout)} arrays, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)


def _statements(script: str) -> list[str]:
    """The statements of a script; a trigger's own semicolons stay inside it."""
    found, statement = [], ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
