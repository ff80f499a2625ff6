"""The operator's view: who is suspected, since when, why, and what was decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tesseract_fl.cli import cli, main
from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.reputation.records import Entry, Verdict


@pytest.fixture
def run(tmp_path: Path) -> Path:
    ledger = Ledger.open(tmp_path, {"rule": "Tesseract(f=1)"})
    for t in range(1, 5):
        verdicts = [
            Verdict(round=t, client="key:aa", verdict="rewarded", score=1.0, weight=0.5, reputation=t / 2, samples=10),
            Verdict(round=t, client="key:ab", verdict="rewarded", score=2.0, weight=0.5, reputation=t / 2),
            Verdict(
                round=t,
                client="key:evil",
                verdict="rewarded" if t == 1 else "penalised",
                detail="" if t == 1 else "flip-score 9 among the highest; the rewarded ones were below 3",
                score=9.0,
                weight=0.2 / 10 ** (2 * t),
                reputation=-float(t),
            ),
            Verdict(round=t, client="key:nan", verdict="rejected", code="not_finite", detail="NaN", reputation=-1.0),
            Verdict(round=t, client="key:away", verdict="absent", code="no_reply", detail="no reply in time"),
        ]
        ledger.commit(Entry(round=t, outcome="aggregated", asked=5, admitted=3, verdicts=verdicts))
    ledger.close()
    return tmp_path


def tell(*arguments: object) -> str:
    result = CliRunner().invoke(cli, ["ledger", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output


def test_who_is_suspected_and_since_when(run: Path) -> None:
    told = json.loads(tell("show", run, "--json"))
    clients = {one["client"]: (one["standing"], one["since"]) for one in told["clients"]}
    assert told["round"] == 4
    assert clients == {
        "key:evil": ("cut off", 2),
        "key:nan": ("cut off", 1),
        "key:away": ("absent", None),
        "key:aa": ("good", None),
        "key:ab": ("good", None),
    }
    assert told["clients"][0]["client"] == "key:evil", "the most suspicious first"
    reason = "round 4: penalised — flip-score 9 among the highest"
    evil = {"weight": 0.2 / 10**8, "reputation": -4.0, "reason": reason}
    assert told["clients"][0] | evil == told["clients"][0]
    lines = tell("show", run).splitlines()
    assert lines[0] == "round 4, Tesseract(f=1)"
    assert lines[2].split() == ["key:evil", "cut", "off", "2", "2e-09", "-4.00", *reason.split()]
    assert lines[3].split() == ["key:nan", "cut", "off", "1", "—", "-1.00", "round", "4:", "not_finite"]


def test_a_weight_is_explained_in_words_and_numbers(run: Path) -> None:
    told = tell("why", run, "key:e", 3)
    assert "its reputation fell" in told
    assert "number 3 of 3 from below" in told
    assert "weight 2e-07 of 1" in told
    assert "-3.000 after this round, from -2.000 before" in told
    assert "1 × rewarded, 2 × penalised" in told
    assert "not_finite — NaN" in tell("why", run, "key:nan", 1)
    assert "not held against it" in tell("why", run, "key:away", 1)


def test_bans_and_pardons_are_recorded_with_a_reason(run: Path) -> None:
    assert "counts from round 5" in tell("ban", run, "key:evil", "--reason", "attacks since round 2")
    assert {one["client"]: one["standing"] for one in json.loads(tell("show", run, "--json"))["clients"]}[
        "key:evil"
    ] == "banned"
    tell("pardon", run, "key:evil", "--reason", "it was a drill")
    actions = [(action.action, action.reason) for action in Ledger.existing(run).actions()]
    assert actions == [("ban", "attacks since round 2"), ("pardon", "it was a drill")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["ban", "RUN", "key:a", "--reason", "x"], 2, "the names of 3 clients begin"),
        (["ban", "RUN", "nobody", "--reason", "x"], 2, "no client's name begins"),
        (["ban", "RUN", "key:evil", "--reason", " "], 2, "say why"),
        (["why", "RUN", "key:evil", "99"], 2, "nothing about key:evil in round 99"),
        (["show", "RUN/elsewhere"], 4, "no ledger"),
    ],
)
def test_what_is_wrong_is_said(
    run: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ledger", *(argument.replace("RUN", str(run)) for argument in arguments)])
    assert ended.value.code == code
    assert message in capsys.readouterr().err
