"""`tesseract-fl watch` as a process: it prints an address, answers there, and stops when it is told to."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tesseract_fl.cli import main, report
from tests.reports.made import Writer


def test_it_serves_the_run_until_it_is_interrupted(tmp_path: Path) -> None:
    run = Writer(tmp_path / "run")
    run.play(3)
    command = [sys.executable, "-m", "tesseract_fl", "watch", str(run.directory), "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )
    assert process.stdout is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found
        with urlopen(f"{found[0]}data", timeout=30) as answer:
            assert json.load(answer)["runs"][0]["round"] == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["watch", "report"])
def test_what_is_no_run_is_an_error_with_an_answer(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, str(tmp_path)])
    assert ended.value.code == 3
    assert "neither a run directory (config.toml) nor a federation's folder" in capsys.readouterr().err


def test_the_example_of_report_takes_what_demo_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fedsgd", "tesseract"):
        Writer(tmp_path / "demo" / name).play(5)
    (tmp_path / "demo/accuracy.png").touch()
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in (report.command.help or "").splitlines() if "demo/" in line]
    _, *words = shlex.split(line)
    arguments = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert (tmp_path / "demo.html").exists()


def test_a_report_that_cannot_be_written_is_an_error_with_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Writer(tmp_path / "run")
    run.play(3)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run.directory), "--out", str(tmp_path / "file/report.html")])
    assert ended.value.code == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
