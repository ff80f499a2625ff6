"""The command line as a user meets it: in a process of its own, from an empty folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tesseract_fl import registry

SMALL = [
    *("--data", "breast_cancer", "--model", "logistic", "--clients", "12", "--malicious", "3"),
    *("--batch", "8", "--lr", "0.1", "--attack", "full_trim", "--threads", "1"),
]


def tesseract(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tesseract_fl", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_help_is_quick_and_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from tesseract_fl.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "import time; print(time.process_time())\n"  # of the processor: a busy machine is not our fault
        "print(sorted({'torch', 'numba', 'numpy', 'rich'} & set(sys.modules)))"
    )
    seconds = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
        *_, spent, imported = done.stdout.splitlines()
        assert imported == "[]", done.stdout + done.stderr
        seconds.append(float(spent))
    assert min(seconds) < 0.5


def test_run_leaves_a_run_directory(tmp_path: Path) -> None:
    done = tesseract("run", *SMALL, "--rounds", "20", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert summary["rounds"] == 20
    assert summary["accuracy"] > 0.5
    assert (tmp_path / summary["directory"] / "metrics.jsonl").exists()
    assert summary["directory"] == "runs/breast_cancer-tesseract-full_trim-seed0"


def test_settings_from_a_file_from_options_and_from_set(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(
        'data = "breast_cancer"\nmodel = "logistic"\nclients = 9\nmalicious = 2\nrounds = 50\n[rule]\ndecay = 0.5\n'
    )
    options = ("--config", "my.toml", "--rounds", "2", "--set", "rule.f=3", "--set", "partition.name=iid")
    tesseract("run", *options, "--out", "here", cwd=tmp_path)
    text = (tmp_path / "here/config.toml").read_text()
    for line in ("rounds = 2", "f = 3", "decay = 0.5", 'name = "iid"', "clients = 9"):
        assert line in text
    tesseract("run", "--config", "here/config.toml", "--rule", "fedsgd", "--out", "there", cwd=tmp_path)
    assert 'name = "fedsgd"' in (tmp_path / "there/config.toml").read_text()


def test_without_a_terminal_progress_is_plain_lines(tmp_path: Path) -> None:
    done = tesseract("run", *SMALL, "--rounds", "20", cwd=tmp_path)
    assert "tesseract + full_trim: round 10/20, accuracy" in done.stderr
    assert "\x1b" not in done.stderr
    assert "everything about it is in runs/" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["rn"], 2, "did you mean 'run'?"),
        (["run", "--rule", "tesserakt"], 2, "did you mean 'tesseract'?"),
        (["run", "--set", "rule.decai=1"], 2, "did you mean 'decay'?"),
        (["run", "--set", "nonsense"], 2, "--set takes KEY=VALUE"),
        (["run", "--config", "absent.toml"], 2, "absent.toml can't be read"),
        (["run", "--resume"], 2, "--resume needs --out"),
        (["run", "--set", "rule.f=50"], 2, "f may be at most 49"),
        (["run", "--data", "mnist", "--data-dir", "."], 3, "could not be fetched"),
        (["list", "rulez"], 2, "'rules'"),
    ],
)
def test_mistakes_have_an_exit_code_and_an_answer(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERACT_FL_MIRROR", "http://127.0.0.1:9/")
    done = tesseract(*arguments, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--rule", "tesserakt"], "did you mean"), (["--resume"], "--resume needs --out"), (["--rounds", "x"], "'x'")],
)
def test_errors_are_json_when_asked_for(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = tesseract("run", *arguments, "--json", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert message in json.loads(done.stderr)["error"]


@pytest.mark.parametrize("kind", ["rules", "attacks", "data", "partitions", "models"])
def test_list_names_everything_with_one_line(kind: str, tmp_path: Path) -> None:
    entries = json.loads(tesseract("list", kind, "--json", cwd=tmp_path).stdout)
    assert [entry["name"] for entry in entries] == list(registry.table(kind))
    assert all(entry["summary"].endswith(".") for entry in entries)
    assert all(entry["name"] in tesseract("list", kind, cwd=tmp_path).stdout for entry in entries[:1])


def test_a_run_killed_with_sigkill_loses_at_most_the_current_round(tmp_path: Path) -> None:
    """Real kills at arbitrary moments; what remains is always whole, and the end is bit-identical."""
    options = [*SMALL, "--rounds", "150", "--eval-every", "25"]
    tesseract("run", *options, "--out", "whole", cwd=tmp_path)
    command = [sys.executable, "-m", "tesseract_fl", "run", *options, "--out", "torn", "--resume"]
    metrics = tmp_path / "torn/metrics.jsonl"
    kills = 0
    for target in (1, 30, 70, 110):
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            written = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            if written >= target:
                break
            time.sleep(0.001)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        written = metrics.read_bytes().count(b"\n")
        assert round_of_checkpoint(tmp_path / "torn") >= written - 1
    assert kills >= 3
    tesseract("run", "--out", "torn", "--resume", "--threads", "1", cwd=tmp_path)
    for name in ("metrics.jsonl", "model.safetensors", "checkpoint.safetensors", "summary.json"):
        assert (tmp_path / "torn" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def round_of_checkpoint(directory: Path) -> int:
    from tesseract_fl.checkpoint import read

    path = directory / "checkpoint.safetensors"
    found: Any = read(path)[1]["round"] if path.exists() else 0
    return int(found)
