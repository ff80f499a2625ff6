"""The ledger: what is committed stays, what is not ours is refused, nothing is ever rewritten."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tesseract_fl.reputation.ledger import FILE, Ledger
from tesseract_fl.reputation.records import Entry, Verdict
from tesseract_fl.types import CheckpointError, ConfigError

ABOUT = {"rule": "Tesseract(f=1)", "model": "m"}


def play(ledger: Ledger, round: int) -> None:
    verdict = Verdict(round=round, client="a", verdict="rewarded", score=0.1, weight=0.5)
    entry = Entry(round=round, outcome="aggregated", verdicts=[verdict])
    ledger.commit(entry, {"model": np.full(3, round, np.float32)}, {"round": round, "reputation": {"a": 0.1 * round}})


def test_it_goes_on_where_it_ended(tmp_path: Path) -> None:
    with_two = Ledger.open(tmp_path, ABOUT)
    play(with_two, 1)
    play(with_two, 2)
    with_two.close()
    again = Ledger.open(tmp_path, ABOUT)
    arrays, meta = again.load()
    assert again.round == 2
    assert arrays["model"].tolist() == [2, 2, 2]
    assert meta == {"round": 2, "reputation": {"a": 0.2}}
    assert [verdict.round for verdict in again.verdicts(client="a")] == [1, 2]


def test_a_large_snapshot_is_cut_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tesseract_fl.reputation.ledger._PART", 100)
    ledger = Ledger.open(tmp_path, ABOUT)
    ledger.commit(Entry(round=1, outcome="aggregated"), {"model": np.arange(500.0)}, {})
    np.testing.assert_array_equal(ledger.load()[0]["model"], np.arange(500.0))


def test_only_the_last_snapshots_are_kept_but_all_of_the_history(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, ABOUT)
    for round in range(1, 8):
        play(ledger, round)
    kept = sqlite3.connect(tmp_path / FILE).execute("SELECT round FROM snapshots").fetchall()
    assert kept == [(6,), (7,)]
    assert len(ledger.entries()) == len(ledger.verdicts()) == 7


def test_the_history_of_one_client_is_found_by_its_index(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, ABOUT)
    play(ledger, 1)
    asked: list[str] = []
    ledger._connection.set_trace_callback(asked.append)
    assert len(ledger.verdicts(client="a")) == len(ledger.verdicts(client="a", round=1)) == 1
    ledger._connection.set_trace_callback(None)
    for query in asked:
        plan = [row[-1] for row in ledger._connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert len(plan) == 1, f"nothing is sorted: {plan}"
        assert plan[0].startswith("SEARCH verdicts USING INDEX verdicts_of_client (client=?")


def test_the_history_is_of_one_client_one_round_or_both() -> None:
    ledger = Ledger.open(None, ABOUT)
    for t in (1, 2):
        verdicts = [Verdict(round=t, client=client, verdict="rewarded") for client in ("b", "a")]
        ledger.commit(Entry(round=t, outcome="aggregated", verdicts=verdicts))

    def found(client: str | None = None, round: int | None = None) -> list[tuple[int, str]]:
        return [(verdict.round, verdict.client) for verdict in ledger.verdicts(client, round)]

    assert found() == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert found("b") == [(1, "b"), (2, "b")]
    assert found(round=2) == [(2, "a"), (2, "b")]
    assert found("b", 2) == [(2, "b")]


def test_a_round_is_committed_once(tmp_path: Path) -> None:
    one, other = Ledger.open(tmp_path, ABOUT), Ledger.open(tmp_path, ABOUT)
    play(one, 1)
    with pytest.raises(CheckpointError, match="another ServerApp"):
        play(other, 1)
    assert len(one.verdicts()) == 1


@pytest.mark.parametrize("table", ["rounds", "verdicts", "actions"])
def test_history_is_append_only(tmp_path: Path, table: str) -> None:
    ledger = Ledger.open(tmp_path, ABOUT)
    play(ledger, 1)
    ledger.act("ban", "a", "caught")
    other = sqlite3.connect(tmp_path / FILE)
    for change in (f"DELETE FROM {table}", f"UPDATE {table} SET time = 'then'".replace("time", _column(table))):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(change)


def _column(table: str) -> str:
    return "detail" if table == "verdicts" else "time"


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    play(Ledger.open(tmp_path, ABOUT), 1)
    with pytest.raises(CheckpointError, match=r"another rule: Tesseract\(f=1\), not Tesseract\(f=2\)"):
        Ledger.open(tmp_path, {**ABOUT, "rule": "Tesseract(f=2)"})
    with pytest.raises(CheckpointError, match="no ledger"):
        Ledger.existing(tmp_path / "elsewhere")


def test_a_foreign_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(CheckpointError, match="not a ledger"):
        Ledger.open(tmp_path, ABOUT)
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "cut", "middle"])
def test_a_damaged_file_is_refused_never_reset(tmp_path: Path, damage: str) -> None:
    ledger = Ledger.open(tmp_path, ABOUT)
    for round in range(1, 40):
        play(ledger, round)
    ledger.close()
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content[:] = b"not a database at all" * 1000
    elif damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[4096:] = bytes(255 - byte for byte in content[4096:])
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged|can't be used"):
        Ledger.open(tmp_path, ABOUT).load()
    assert path.read_bytes() == bytes(content)


def test_a_changed_snapshot_is_noticed(tmp_path: Path) -> None:
    play(Ledger.open(tmp_path, ABOUT), 1)
    other = sqlite3.connect(tmp_path / FILE)
    (content,) = other.execute("SELECT content FROM snapshots").fetchone()
    other.execute("UPDATE snapshots SET content = ?", (content[:-1] + b"\xff",))
    other.commit()
    with pytest.raises(CheckpointError, match="another checksum"):
        Ledger.open(tmp_path, ABOUT).load()


def test_operators_must_say_why(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, ABOUT)
    with pytest.raises(ConfigError, match="say why"):
        ledger.act("ban", "a", " ")
    with pytest.raises(ConfigError, match="one of ban, pardon"):
        ledger.act("praise", "a", "why not")
    ledger.act("ban", "a", "sends NaN since Tuesday")
    (action,) = Ledger.existing(tmp_path).actions()
    assert (action.action, action.client, action.reason) == ("ban", "a", "sends NaN since Tuesday")
