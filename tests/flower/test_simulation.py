"""Flower's own simulation engine: ten nodes, two of them armed, the plain mean beside ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl.layout import Layout
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.types import Updates
from tests.flower.processes import EXAMPLE, app_copy, connections, free_port, processes, wait_until

ROUNDS, NODES = 15, 10

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from federation import task
from tesseract_fl.flower import RedTeam, echo

def drill(message, context, call_next):
    config = message.content.config_records["config"]
    if not config["attack"]:
        return call_next(message, context)
    role = "armed" if int(context.node_config["partition-id"]) < 2 else "observed"
    return RedTeam(config["attack"], role=role, pool=config["pool"])(message, context, call_next)

app = ClientApp(mods=[echo, drill])

@app.train()
def train(message, context):
    part = int(context.node_config["partition-id"])
    x, y = task.data(part)
    arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
    model, loss = task.train(arrays, x, y, 0.01, int(message.content.config_records["config"]["server-round"]))
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
    numbers = MetricRecord({"num-examples": len(y), "partition": part})
    return Message(RecordDict({"arrays": record, "metrics": numbers}), reply_to=message)
"""

SERVER = '''
import json
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from federation import task
from tesseract_fl.flower import Newcomers, RobustStrategy
from tesseract_fl.rules.tesseract import Tesseract

app = ServerApp()
COMMON = {"fraction_evaluate": 0.0, "min_train_nodes": 10, "min_available_nodes": 10}

class Recording(RobustStrategy):
    """Keeps what arrived, so that the rule can be run on it directly."""

    def aggregate_train(self, server_round, replies):
        rows, parts, asked = {}, {}, self._round.asked
        def kept():
            for reply in replies:
                client = next(a.client for a in asked
                              if a.message.metadata.message_id == reply.metadata.reply_to_message_id)
                arrays = reply.content.array_records["arrays"]
                rows[client] = np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])
                parts[client] = int(reply.content.metric_records["metrics"]["partition"])
                yield reply
        out = super().aggregate_train(server_round, kept())
        order = sorted(rows)
        np.savez(self.folder / f"round-{server_round}.npz", sent=np.stack([rows[c] for c in order]), ids=order,
                 partitions=[parts[c] for c in order],
                 model=np.concatenate([a.numpy().reshape(-1) for a in out[0].values()]))
        return out

def accuracy(arrays):
    return task.accuracy({name: array.numpy() for name, array in arrays.items()}, *task.data(-1, 2000))

@app.main()
def main(grid, context):
    out = Path(context.run_config["report"])
    found = {}
    for attack in ("full_trim", "full_krum"):
        for name in ("fedavg", "ours"):
            if name == "fedavg":
                strategy = FedAvg(**COMMON)
            else:
                strategy = Recording(Tesseract(f=2, decay=0.9), newcomers=Newcomers(policy="neutral"), **COMMON)
                strategy.folder = out / attack
                strategy.folder.mkdir(parents=True)
            config = ConfigRecord({"attack": attack, "pool": str(out / f"pool-{attack}-{name}")})
            initial = ArrayRecord({key: Array(array) for key, array in task.initial().items()})
            result = strategy.start(grid, initial, num_rounds=15, timeout=120, train_config=config)
            found[f"{name} {attack}"] = accuracy(result.arrays)
            if name == "ours":
                last = strategy.federation.ledger.verdicts(round=15)
                found[f"weights {attack}"] = {v.client: v.weight for v in last}
    (out / "found.json").write_text(json.dumps(found))
'''


def unattacked(rule: str) -> float:
    """The same federation without an attack, played without Flower."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        from federation import task  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(EXAMPLE))
    from tesseract_fl.registry import build

    layout = Layout.of(task.initial())
    chosen = build("rules", {"name": rule}, f=2, decay=0.9)
    state, model = chosen.init(layout.d), task.initial()
    data = [task.data(part) for part in range(NODES)]
    for t in range(1, ROUNDS + 1):
        flat = layout.flatten(model)
        rows = np.stack([layout.flatten(task.train(model, x, y, 0.01, t)[0]) - flat for x, y in data])
        out = chosen.aggregate(Updates(matrix=rows, ids=tuple(map(str, range(NODES))), round=t), state)
        state, model = out.state, layout.unflatten(flat + out.update)
    return float(task.accuracy(model, *task.data(-1, 2000)))


def test_two_armed_of_ten(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the simulation engine needs ray: pip install 'flwr[simulation]'")
    app, out, port = app_copy(tmp_path, client_app=CLIENT, server_app=SERVER), tmp_path / "out", free_port()
    out.mkdir()
    with processes(tmp_path) as started:
        connections(tmp_path / "home", sim=f'address = "127.0.0.1:{port}"\ninsecure = true')
        link = ("flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port))
        started.start("superlink", *link, "--database", str(tmp_path / "state.db"))
        wait_until(lambda: _answers(port), 60, "no SuperLink")
        config = f"num-supernodes={NODES} client-resources-num-cpus=1"
        run = started.run(str(app), "sim", "--run-config", f"report='{out}'", "--federation-config", config)
        status = wait_until(lambda: started.ended("sim", run), 500, "the run does not end")
    assert status == "finished:completed", status
    found = json.loads((out / "found.json").read_text())
    plain, ours = unattacked("fedsgd"), unattacked("tesseract")
    assert found["fedavg full_trim"] < found["ours full_trim"] - 0.1
    for attack in ("full_trim", "full_krum"):
        assert found[f"fedavg {attack}"] < plain - 0.03, "the attack hurts the plain mean"
        assert found[f"ours {attack}"] > ours - 0.06, "and not ours"  # among 10 clients a few carry most of the weight
        _check_rounds(out / attack, found[f"weights {attack}"])


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _check_rounds(folder: Path, weights: dict[str, float]) -> None:
    """The rule run directly on what arrived agrees with the strategy; the armed nodes weigh next to nothing."""
    rule = Tesseract(f=2, decay=0.9)
    model = np.zeros(7850, np.float32)
    state = rule.init(7850)
    for t in range(1, ROUNDS + 1):
        kept = np.load(folder / f"round-{t}.npz")
        ids = tuple(str(name) for name in kept["ids"])
        out = rule.aggregate(Updates(matrix=kept["sent"] - model, ids=ids, round=t), state)
        state, model = out.state, kept["model"]
        np.testing.assert_allclose(kept["model"], _sent_in(t, folder) + out.update, rtol=1e-5, atol=1e-7)
    armed = {name for name, part in zip(ids, kept["partitions"], strict=True) if part < 2}
    assert len(armed) == 2
    assert sum(weights[name] for name in armed) < 1e-3


def _sent_in(t: int, folder: Path) -> Any:
    """The model that was sent in round t."""
    return np.zeros(7850, np.float32) if t == 1 else np.asarray(np.load(folder / f"round-{t - 1}.npz")["model"])
