"""What a terminal shows while a run goes on, and what a log gets."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

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


def test_rounds_that_were_there_already_say_nothing_about_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [0.0], []

    def bar(*columns: Any, **settings: Any) -> Progress:
        made.append(Progress(*columns, get_time=lambda: now[0], **settings))
        return made[-1]

    monkeypatch.setattr(progress, "Progress", bar)
    with progress.cells("grid", 1000) as (on_round, _):
        on_round(900, False)
        for _ in range(11):
            now[0] += 2
            on_round(1, True)
        (task,) = made[0].tasks
        assert task.completed == 911
        assert task.time_remaining == 2 * 89
