"""Flower's own processes on loopback, started and ended by tests: by their process groups, never by name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/flower"
BIN = Path(sys.executable).parent


def environment(home: Path) -> dict[str, str]:
    """Everything local: no telemetry, no update check, no virtual environment per run."""
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `condition` gives once it gives something; an assertion fails if it takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"after {seconds} s: {what}")


class Processes:
    """Each in a session of its own, so that what it starts ends with it; output goes to a file per process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = environment(folder / "home")
        (folder / "home").mkdir(parents=True, exist_ok=True)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        return self.running[name]

    def kill(self, name: str, with_signal: int = signal.SIGKILL) -> None:
        """End a process and everything in its session that is still in its group."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, with_signal)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def flwr(self, *arguments: str, timeout: float = 60) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *arguments: str) -> str:
        """Start a run; its id."""
        return str(json.loads(self.flwr("run", *arguments, "--format", "json"))["run-id"])

    def ended(self, link: str, run: str) -> str:
        """The status of a run that has ended, with its log if it failed; empty while it goes on."""
        status = self.statuses(link)[run]
        if not status.startswith("finished"):
            time.sleep(4)  # asking starts a process, too
            return ""
        return status if status == "finished:completed" else status + self.flwr("log", run, link, "--show")

    def statuses(self, link: str) -> dict[str, str]:
        """Run id → status. `flwr run` exits 0 even if the run failed, so this is where to look."""
        runs = json.loads(self.flwr("list", link, "--format", "json"))["runs"]
        return {str(run["run-id"]): str(run["status"]) for run in runs}


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    started = Processes(folder)
    try:
        yield started
    finally:
        for name in reversed(list(started.running)):
            started.kill(name, signal.SIGTERM)


def app_copy(folder: Path, **replaced: str) -> Path:
    """The example app, with some of its modules replaced."""
    copy = folder / "app"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "deployment"))
    for module, source in replaced.items():
        (copy / "federation" / f"{module}.py").write_text(source)
    return copy


def connections(home: Path, **addresses: str) -> None:
    """Flower's own configuration: names of SuperLinks."""
    text = "".join(f"[superlink.{name}]\n{body}\n" for name, body in addresses.items())
    (home / "config.toml").write_text(text)
