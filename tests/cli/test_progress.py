"""What a terminal shows while a run goes on, and what a log gets."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tesseract_fl.cli import progress
from tesseract_fl.reports.journal import suspected


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"round": number, "clients": ["a", "b", "c"], "weights": [0.5, 0.5, 1e-9], "rejected": []} | more


def test_suspected_are_the_light_and_those_who_were_turned_away() -> None:
    away = [{"client": "d"}, {"client": "d"}, {"client": "c"}]
    assert suspected(record(1)) == 1
    assert suspected(record(1, rejected=away)) == 2
    assert suspected({"clients": ["a"], "weights": None, "rejected": away}) == 2
    assert suspected({"clients": ["a"], "skipped": "too few"}) == 0


def test_the_table_has_the_last_evaluations_and_the_round_just_played() -> None:
    board = progress.Board(rows=2)
    for number in range(1, 8):
        board.add(record(number, **({"accuracy": number / 10} if number % 2 == 0 else {})), 0.125)
    out = io.StringIO()
    Console(file=out, width=100).print(board)
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert " ".join(rows[0]) == "round accuracy suspected clients seconds a round"
    assert rows[1:] == [["4", "40.0%", "1", "0.12"], ["6", "60.0%", "1", "0.12"], ["7", "1", "0.12"]]
    board.start()
    Console(file=out, width=100).print(board)
    assert out.getvalue().splitlines()[-1].split()[0] == "round", "another run begins with an empty table"


def test_a_terminal_gets_bar_and_table(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=out, force_terminal=True, width=120))
    with progress.rounds() as start:
        report = start("tesseract + full_trim", 2, 0)
        report(record(1, skipped="too [few]"), 0.1)
        report(record(2, accuracy=0.75), 0.1)
    shown = out.getvalue()
    assert "suspected clients" in shown
    assert "75.0%" in shown
    assert "skipped: too [few]" in shown


def test_a_log_gets_lines_and_a_quiet_run_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with progress.rounds(quiet=quiet) as start:
            report = start("title", 2, 0)
            report(record(1), 0.1)
            report(record(2, accuracy=0.75), 0.1)
        told = capsys.readouterr().err
        assert ("title: round 2/2, accuracy 75.0%, 1 suspected" in told) is not quiet
        assert "\x1b" not in told
        assert len(told.splitlines()) == (0 if quiet else 1)


def test_rounds_that_were_there_already_say_nothing_about_the_speed() -> None:
    now = [100.0]
    estimate = progress.Estimate({"small": 1000, "large": 10}, now=lambda: now[0])
    assert str(estimate) == ""
    estimate.add("small", 900, None)
    assert str(estimate) == ""
    now[0] += 20
    estimate.add("small", 20, seconds=40.0)  # two at a time
    assert str(estimate) == "over 80 s left", "how long the large ones take is not known yet"
    now[0] += 30
    estimate.add("large", 1, seconds=60.0)
    assert str(estimate) == f"{progress.duration(50 / 100 * (80 * 2 + 9 * 60))} left"
    estimate.add("large", 9, None)
    estimate.add("small", 80, None)
    assert str(estimate) == "0 s left"


def test_a_log_of_a_grid_has_the_estimate_in_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.cells("grid", {"a": 10}) as (on_round, say):
        on_round("a", 5, 1.0)
        say("one is done")
    assert capsys.readouterr().err == "one is done (0 s left)\n"
