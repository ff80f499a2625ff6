"""Runs read back as columns: while they grow, and whatever wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl.reports.history import STANDINGS, sampled
from tesseract_fl.reports.overview import client, overview, shown, suspects
from tesseract_fl.reports.page import write_report
from tesseract_fl.reports.sources import explained as explained_in
from tesseract_fl.reports.sources import opened
from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.reputation.records import Entry, Verdict
from tesseract_fl.reputation.suspects import explained
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.hardened import Hardened
from tesseract_fl.rules.krum import Krum
from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
from tesseract_fl.rules.transforms import NormClipping
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
    config = run.directory / "config.toml"
    config.write_text(config.read_text().replace("rounds = 40", "rounds = 60"))
    assert source.read()
    assert len(source.history.rounds) == 4
    assert (source.planned, source.about["rounds"]) == (60, "60")


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


# what became of a client round by round, and where that leaves it; "light" was admitted with next to no weight
BECAME = {
    ("rewarded", "rewarded", "rewarded"): ("good", None, ""),
    ("penalised", "rewarded", "rewarded"): ("good", None, "round 1: penalised"),
    ("rewarded", "rewarded", "penalised"): ("good", None, "round 3: penalised"),
    ("rewarded", "penalised", "penalised"): ("suspected", 2, "round 3: penalised"),
    ("penalised", "absent", "penalised"): ("suspected", 1, "round 3: penalised"),
    ("penalised", "", "penalised"): ("suspected", 1, "round 3: penalised"),
    ("penalised", "ignored", "penalised"): ("good", None, "round 3: penalised"),
    ("rewarded", "rewarded", "rejected"): ("cut off", 3, "round 3: code_rejected"),
    ("rewarded", "penalised", "light"): ("cut off", 2, "round 2: penalised"),
    ("rejected", "rejected", "absent"): ("absent", None, "round 3: code_absent"),
}


def test_where_clients_stand_and_since_when(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, {"rule": "r"})
    names = {became: f"key:{place}" for place, became in enumerate(BECAME)}
    for t in range(3):
        verdicts = [
            Verdict(
                round=t + 1,
                client=name,
                verdict="rewarded" if became[t] == "light" else became[t],
                code=f"code_{became[t]}" if became[t] in ("rejected", "ignored", "absent") else "",
                weight={"rewarded": 0.3, "penalised": 0.1, "light": 1e-60}.get(became[t]),
            )
            for became, name in names.items()
            if became[t]
        ]
        ledger.commit(Entry(round=t + 1, outcome="aggregated", verdicts=verdicts))
    source = opened(tmp_path)
    source.read()
    told = {one["client"]: one for one in suspects(source)}
    found = {
        became: tuple(told[name][key] for key in ("standing", "since", "reason")) for became, name in names.items()
    }
    assert found == BECAME
    light = names["rewarded", "penalised", "light"]
    assert told[light]["weight"] == 1e-60, "as the ledger has it"
    ledger.act("ban", light, "enough")
    assert next(one for one in suspects(source) if one["client"] == light)["standing"] == "banned"
    ledger.act("pardon", light, "a mistake")
    order = [one["standing"] for one in suspects(source)]
    assert order == sorted(order, key=STANDINGS.index)


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
    assert len(source.verdicts_in(1)) == len(ledger.verdicts(round=2))


def test_of_two_replies_the_first_counts(tmp_path: Path) -> None:
    twice = [
        Verdict(round=1, client="a", verdict="rewarded", weight=1.0, reputation=1.0),
        Verdict(round=1, client="a", verdict="rejected", code="duplicate_id"),
    ]
    Ledger.open(tmp_path, {"rule": "r"}).commit(Entry(round=1, outcome="aggregated", verdicts=twice))
    source = opened(tmp_path)
    source.read()
    told = overview(source)
    (one,) = told["clients"]
    assert (one["standing"], one["since"], one["weight"], one["reason"]) == ("good", None, 1.0, "")
    assert told["turned_away"][0]["code"] == "duplicate_id"


@pytest.mark.parametrize(
    ("rule", "judges_by_it"),
    [
        (Tesseract(f=1), True),
        (NormClipping(inner=Tesseract(f=1)), True),
        (ReputationFilter(f=1, inner=Krum(f=1)), True),
        (Hardened(f=1), False),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_band_is_that_of_rules_that_judge_by_it(tmp_path: Path, rule: Rule[Any], judges_by_it: bool) -> None:
    written_ledger(tmp_path, rule=repr(rule))
    source = opened(tmp_path)
    source.read()
    told = overview(source)["lines"]
    assert "score_unknown_mid" in told
    assert ("flip_score_low" in told, "flip_score_high" in told) == (judges_by_it, judges_by_it)


def test_a_simulation_tells_why_its_rule_suspects_a_client(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    line = run.record()
    line["why"] = ["length +3 from the median" if bad else "" for bad in line["penalised"]]
    line["rejected"].append({"client": "11", "code": "duplicate_id", "detail": "one is there"})
    (run.directory / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    source = opened(run.directory)
    source.read()
    told = {verdict.client: verdict for verdict in reversed(source.verdicts_in(0))}
    assert [told[str(number)].detail for number in range(12)] == line["why"]
    assert (told[HOSTILE].code, told[HOSTILE].detail) == ("not_finite", f"in {HOSTILE}")
    assert "  why: length +3 from the median" in explained_in(source, "0")
    assert source.history.tally.rejected[source.history.clients["11"]] == 0


def test_the_suspected_of_a_round_are_among_its_clients(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, {"rule": "r"})
    for t, bad in enumerate(("a", "b", "c"), start=1):
        verdicts = [
            Verdict(round=t, client="good", verdict="admitted", weight=1.0),
            Verdict(round=t, client=bad, verdict="rejected", code="not_finite"),
        ]
        ledger.commit(Entry(round=t, outcome="aggregated", verdicts=verdicts))
    source = opened(tmp_path)
    source.read()
    told = overview(source)
    assert told["lines"]["suspected"] == [1, 1, 1]
    assert told["headline"]["suspected"] == 3, "of all clients, as they last stood"


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
    [
        ("not json", "line 1 of"),
        ("[]", "line 1 of"),
        ("{}", "'clients'"),
        ('{"clients": []}', "'round'"),
        ('{"round": "last", "clients": []}', "line 1 of"),
        ('{"round": 1, "clients": [7]}', "line 1 of"),
        ('{"round": 1, "clients": ["0", "1"], "penalised": [true]}', "line 1 of"),
        ('{"round": 1, "clients": ["0", "1"], "weights": [1.0]}', "weights is not a number for each of 2 clients"),
        ('{"round": 1, "clients": ["0"], "weights": [0.5, 0.5]}', "weights is not a number for each of 1 clients"),
        ('{"round": 1, "clients": ["0"], "weights": ["0.5"]}', "weights is not a number for each of 1 clients"),
    ],
)
def test_a_damaged_journal_is_refused_with_the_line(tmp_path: Path, line: str, message: str) -> None:
    run = Writer(tmp_path / "run")
    (run.directory / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        opened(run.directory).read()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", b"clients = 12\nmalicious = 3\n"),
        ("config.toml", b"clients = '\xff'\n"),
        ("config.toml", b"rule =\n"),
        ("timings.jsonl", b"nonsense\n"),
        ("timings.jsonl", b"\xff\n"),
        ("timings.jsonl", b"{}\n"),
        ("summary.json", b"[]"),
        ("summary.json", b"{"),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    run = Writer(tmp_path / "run")
    run.play(3)
    (run.directory / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        write_report([run.directory], tmp_path / "report.html", "")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="neither a run directory"):
        opened(tmp_path)
