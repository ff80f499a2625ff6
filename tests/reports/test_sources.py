"""Runs read back as columns: while they grow, and whatever wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tesseract_fl.reports.history import sampled
from tesseract_fl.reports.overview import client, overview, shown
from tesseract_fl.reports.sources import opened
from tesseract_fl.reputation.suspects import explained, standings
from tesseract_fl.types import DataError
from tests.reports.made import HOSTILE, Writer, written_ledger


def test_new_rounds_are_taken_in_and_torn_lines_are_left(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    source = opened(run.directory)
    assert not source.read(), "a run that has begun but played nothing is no error"
    run.play(7)
    assert source.read()
    assert not source.read()
    line = json.dumps(run.record()) + "\n"
    metrics = run.directory / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write(line[:100])
    assert not source.read()
    with metrics.open("a") as file:
        file.write(line[100:])
    assert source.read()
    assert [one.number for one in source.history.rounds] == list(range(1, 9))


def test_a_journal_that_was_replaced_by_a_resumed_run_is_read_anew(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    run.play(9)
    source = opened(run.directory)
    source.read()
    metrics = run.directory / "metrics.jsonl"
    kept = metrics.read_text().splitlines(keepends=True)[:4]
    shorter = tmp_path / "shorter"
    shorter.write_text("".join(kept))
    shorter.replace(metrics)
    assert source.read()
    assert len(source.history.rounds) == 4


def test_columns_hold_what_the_journal_says(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    run.play(5)
    source = opened(run.directory)
    source.read()
    history = source.history
    records = [json.loads(line) for line in (run.directory / "metrics.jsonl").read_text().splitlines()]
    places = np.array([history.clients[str(number)] for number in range(12)])
    for column, name in (("weight", "weights"), ("score", "flip_score"), ("reputation", "reputation")):
        told = np.array([record[name] for record in records], np.float32).T
        np.testing.assert_array_equal(history.table(column, range(5), places), told)
    away = np.array([history.clients[HOSTILE]])
    assert np.isnan(history.table("weight", range(5), away)).all()
    assert [history.malicious[place] for place in places[:4]] == [True, True, True, False]
    assert history.malicious[away[0]] is None
    found = history.turned_away[int(away[0]), "not_finite"]
    assert (found.times, found.first, found.last, found.detail) == (5, 1, 5, f"in {HOSTILE}")


@pytest.mark.parametrize("seed", range(8))
def test_standings_agree_with_those_of_the_ledger(tmp_path: Path, seed: int) -> None:
    """The columns are counted as rounds come in; `suspects.standings` looks at the whole history at once."""
    ledger = written_ledger(tmp_path, rounds=6, seed=seed)
    ledger.act("ban", "key:3", "enough")
    ledger.act("ban", "key:4", "enough")
    ledger.act("pardon", "key:4", "a mistake")
    source = opened(tmp_path)
    source.read()
    ours = {one["client"]: (one["standing"], one["since"]) for one in overview(source)["clients"]}
    theirs = standings(ledger.verdicts(), ledger.actions())
    assert ours == {one.client: (one.standing, one.since) for one in theirs}


def test_a_client_of_a_federation_is_explained_as_the_ledger_does(tmp_path: Path) -> None:
    ledger = written_ledger(tmp_path)
    source = opened(tmp_path)
    source.read()
    told = client(source, "key:0")
    assert told is not None
    assert told["why"] == list(explained(ledger, "key:0", 6))
    assert told["rounds"] == [1, 2, 3, 4, 5, 6]
    assert client(source, "nobody") is None


def test_a_ledger_is_followed_while_it_is_written(tmp_path: Path) -> None:
    from tesseract_fl.reputation.records import Entry, Verdict

    ledger = written_ledger(tmp_path, rounds=2)
    source = opened(tmp_path)
    assert source.read()
    assert not source.read()
    ledger.commit(Entry(round=3, outcome="skipped", detail="too few", asked=8))
    ledger.commit(
        Entry(round=4, outcome="aggregated", verdicts=[Verdict(round=4, client="new", verdict="admitted", weight=1.0)])
    )
    assert source.read()
    assert [one.number for one in source.history.rounds] == [1, 2, 3, 4]
    assert source.history.skipped == [(3, "too few")]
    assert [verdict.client for verdict in source.verdicts_in(3)] == ["new"]
    assert len(source.verdicts_in(1)) == 8


def test_of_two_replies_the_first_counts(tmp_path: Path) -> None:
    from tesseract_fl.reputation.ledger import Ledger
    from tesseract_fl.reputation.records import Entry, Verdict

    twice = [
        Verdict(round=1, client="a", verdict="rewarded", weight=1.0, reputation=1.0),
        Verdict(round=1, client="a", verdict="rejected", code="duplicate_id"),
    ]
    Ledger.open(tmp_path, {"rule": "r"}).commit(Entry(round=1, outcome="aggregated", verdicts=twice))
    source = opened(tmp_path)
    source.read()
    told = overview(source)
    assert told["clients"][0]["standing"] == "good"
    assert told["turned_away"][0]["code"] == "duplicate_id"


def test_many_rounds_and_clients_are_sampled(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run", clients=1200, malicious=200)
    run.play(60)
    source = opened(run.directory)
    source.read()
    told = overview(source, cells=20_000)
    assert told["clients_in_all"] == 1201
    assert len(told["clients"]) == 400
    assert (told["heat"]["rounds"][0], told["heat"]["rounds"][-1]) == (1, 60)
    assert len(told["heat"]["rounds"]) == 50
    assert len(overview(source)["clients"]) == 1000
    weights = source.history.tally.weight[shown(source.history)]
    known = weights[~np.isnan(weights)]
    assert (np.diff(known) <= 0).all(), "the heaviest first"
    assert sampled(5, 10) == [0, 1, 2, 3, 4]


def test_sampling_passes_over_no_evaluation(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    run.play(1207)
    source = opened(run.directory)
    source.read()
    told = overview(source)["lines"]
    evaluated = [t for t, accuracy in zip(told["round"], told["accuracy"], strict=True) if accuracy is not None]
    assert evaluated == list(range(5, 1207, 5))
    assert len(told["round"]) < 800


@pytest.mark.parametrize(
    ("line", "message"),
    [("not json", "line 1 of"), ("[]", "line 1 of"), ("{}", "'clients'"), ('{"clients": []}', "'round'")],
)
def test_a_damaged_journal_is_refused_with_the_line(tmp_path: Path, line: str, message: str) -> None:
    run = Writer(tmp_path / "run")
    (run.directory / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        opened(run.directory).read()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a run directory"):
        opened(tmp_path)
