"""Real Flower processes on loopback, with TLS and node authentication. `make system` runs this."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tesseract_fl.reputation.ledger import Ledger
from tesseract_fl.types import CheckpointError
from tests.flower.processes import EXAMPLE, app_copy, free_port, wait_until
from tests.system.faults import SOURCE as FAULTS
from tests.system.hostile import Hostile

pytestmark = pytest.mark.system


def deploy_module() -> Any:
    """The example's own script: what the documentation tells operators to run is what is tested."""
    spec = importlib.util.spec_from_file_location("deploy", EXAMPLE / "deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Any]:
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    made = deploy_module().Deployment(tmp_path, free_port(), app_copy(tmp_path, client_app=FAULTS))
    try:
        yield made
    finally:
        made.stop()


def config(deployment: Any, rounds: int, nodes: int, timeout: float = 60.0) -> str:
    ledger = deployment.folder / "ledger"
    return f'num-server-rounds={rounds} min-nodes={nodes} f=1 timeout={timeout} ledger="{ledger}"'


def ledger_of(deployment: Any) -> Ledger | None:
    try:
        return Ledger.existing(deployment.folder / "ledger")
    except CheckpointError:
        return None


def round_of(deployment: Any) -> int:
    ledger = ledger_of(deployment)
    return ledger.round if ledger else 0


def found_in(deployment: Any) -> dict[tuple[int, str], tuple[str, str]]:
    """(round, client) → (verdict, code)."""
    ledger = ledger_of(deployment)
    assert ledger is not None
    return {(v.round, v.client): (v.verdict, v.code) for v in ledger.verdicts()}


def assert_ends_well(deployment: Any, run: str, seconds: float) -> None:
    status = deployment.wait(run, seconds)
    assert status == "finished:completed", status + deployment.flwr("log", run, "here", "--show")[-6000:]


def test_only_nodes_with_a_registered_key_are_let_in_and_a_reply_must_return_the_nonce(deployment: Any) -> None:
    deployment.superlink()
    for number in range(3):
        deployment.supernode(number)
    deployment.supernode(3, 'faults="no-nonce,"')
    deployment.supernode(9, register=False)
    run = deployment.run(config(deployment, rounds=2, nodes=4))
    assert_ends_well(deployment, run, 240)
    found = found_in(deployment)
    clients = {client for _, client in found}
    assert len(clients) == 4, "the fifth has no registered key"
    assert all(client.startswith("key:") for client in clients)
    assert deployment.running["supernode9"].poll() is not None or "ermission" in _log(deployment, "supernode9")
    first = [verdict for (round, _), verdict in found.items() if round == 1]
    assert first.count(("ignored", "no_nonce")) == 1
    assert len([verdict for verdict, _ in first if verdict in ("rewarded", "penalised")]) == 3
    second = [verdict for (round, _), (verdict, _) in found.items() if round == 2]
    assert len([verdict for verdict in second if verdict in ("rewarded", "penalised")]) == 4


def _log(deployment: Any, name: str) -> str:
    return str((deployment.folder / f"{name}.log").read_text(errors="replace"))


def test_a_storm_of_faults(deployment: Any) -> None:
    """Everything that a client can do wrong in one run; every round completes, and the ledger says why."""
    deployment.superlink()
    for number in range(3):
        deployment.supernode(number)
    deployment.supernode(3, 'faults="nan,extra,undecodable,die,"')
    deployment.supernode(4, 'faults="shape,samples,raise,,"')
    run = deployment.run(config(deployment, rounds=5, nodes=5, timeout=50.0))
    assert_ends_well(deployment, run, 420)
    ledger = ledger_of(deployment)
    assert ledger is not None
    assert [entry.outcome for entry in ledger.entries()] == ["aggregated"] * 5
    expected = {
        1: {("rejected", "not_finite"), ("rejected", "wrong_shape")},
        2: {("rejected", "unknown_array"), ("rejected", "bad_samples")},
        3: {("rejected", "undecodable"), ("rejected", "client_error")},
    }
    for round, codes in expected.items():
        bad = {(v.verdict, v.code) for v in ledger.verdicts(round=round) if v.code}
        assert bad == codes
        assert all(v.detail for v in ledger.verdicts(round=round) if v.code)
    assert [v.verdict for v in ledger.verdicts(round=4)].count("absent") == 1
    last = [v.verdict for v in ledger.verdicts(round=5)]
    assert len(last) == 5
    assert set(last) <= {"rewarded", "penalised"}, "whoever died came back"


def test_a_node_that_does_not_keep_to_the_protocol_takes_nobody_out(deployment: Any) -> None:
    """It announces replies that never come, and puts what is no message beside the others' replies."""
    deployment.superlink()
    for number in range(3):
        deployment.supernode(number)
    key = deployment.folder / "hostile"
    deploy_module().make_node_key(key)
    deployment.flwr("supernode", "register", str(key.with_suffix(".pub")), "here", "--name", "hostile")
    hostile = Hostile(f"127.0.0.1:{deployment.port}", deployment.folder / "ca.crt", key)
    hostile.start()
    run = deployment.run(config(deployment, rounds=2, nodes=4, timeout=40.0))
    assert_ends_well(deployment, run, 300)
    hostile.join(30)
    assert not hostile.is_alive()
    assert hostile.announced >= 2
    assert hostile.injected > 20
    for round in (1, 2):
        verdicts = [verdict for (at, _), (verdict, _) in found_in(deployment).items() if at == round]
        assert sorted(verdict if verdict == "absent" else "admitted" for verdict in verdicts) == [
            "absent", "admitted", "admitted", "admitted",
        ]  # fmt: skip
    assert "that answer nothing were dropped" in deployment.flwr("log", run, "here", "--show")


def test_a_killed_serverapp_and_a_killed_supernode_go_on_from_the_ledger(deployment: Any) -> None:
    """Twice the ServerApp is killed in the middle of a run; a SuperNode is killed and comes back as who it was."""
    deployment.superlink()
    for number in range(4):
        deployment.supernode(number)
    seen = 0
    for _ in range(2):
        run = deployment.run(config(deployment, rounds=6, nodes=4))
        wait_until(partial(_is_past, deployment, seen), 150, "no round was committed")
        _kill_serverapp(deployment)
        now = round_of(deployment)
        assert now > seen
        assert now < 6
        seen = now
        deployment.flwr("stop", run, "here")
    deployment.kill("supernode3")
    time.sleep(65)  # until its heartbeat has lapsed it would be refused
    deployment.supernode(3)
    run = deployment.run(config(deployment, rounds=6, nodes=4))
    assert_ends_well(deployment, run, 240)
    ledger = ledger_of(deployment)
    assert ledger is not None
    assert [entry.round for entry in ledger.entries()] == list(range(1, 7)), "none lost, none twice"
    assert len({v.client for v in ledger.verdicts()}) == 4, "the SuperNode that came back is who it was"


def test_a_killed_superlink_loses_no_round(deployment: Any) -> None:
    """With its SuperLink a run may survive or end; either way the ledger goes on where it was, each round once."""
    deployment.superlink()
    for number in range(3):
        deployment.supernode(number)
    run = deployment.run(config(deployment, rounds=5, nodes=3))
    wait_until(partial(_is_past, deployment, 0), 150, "no round was committed")
    deployment.kill("superlink")
    before = round_of(deployment)
    assert 0 < before < 5
    deployment.superlink()
    status = deployment.wait(run, 150)
    if status != "finished:completed":
        assert_ends_well(deployment, deployment.run(config(deployment, rounds=5, nodes=3)), 240)
    ledger = ledger_of(deployment)
    assert ledger is not None
    assert [entry.round for entry in ledger.entries()] == [1, 2, 3, 4, 5]
    assert len({v.client for v in ledger.verdicts()}) == 3, "the nodes are who they were"


def _is_past(deployment: Any, round: int) -> bool:
    return round_of(deployment) > round


def _kill_serverapp(deployment: Any) -> None:
    """SIGKILL the ServerApp's process, which the SuperLink started: found among its descendants, not by name alone."""
    links = {deployment.running["superlink"].pid}
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue
    descendants = set(links)
    while more := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= more
    apps = [pid for pid in descendants - links if "flwr-serverapp" in commands[pid] or "serverapp" in commands[pid]]
    assert apps, [commands[pid] for pid in descendants]
    for pid in apps:
        os.kill(pid, signal.SIGKILL)
