"""The server: three lines are Tesseract's, the rest is what any Flower ServerApp has."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from federation import task
from tesseract_fl.flower import RobustStrategy
from tesseract_fl.registry import build

app = ServerApp()


def strategy(run: dict) -> Strategy:
    nodes = int(run["min-nodes"])
    common = {"fraction_evaluate": 0.0, "min_train_nodes": nodes, "min_available_nodes": nodes}
    if run["rule"] == "fedavg":
        return FedAvg(**common)
    rule = build("rules", {"name": run["rule"]}, f=run["f"], decay=run["decay"])
    return RobustStrategy(rule, ledger=run["ledger"] or None, **common)


def accuracy_of(arrays: ArrayRecord) -> float:
    return task.accuracy({name: array.numpy() for name, array in arrays.items()}, *task.data(-1, 2000))


@app.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    initial = ArrayRecord({name: Array(array) for name, array in task.initial().items()})
    result = strategy(run).start(
        grid,
        initial,
        num_rounds=int(run["num-server-rounds"]),
        timeout=float(run["timeout"]),
        evaluate_fn=lambda t, arrays: MetricRecord({"accuracy": accuracy_of(arrays)}),
    )
    if run["report"]:
        Path(str(run["report"])).write_text(json.dumps({"accuracy": accuracy_of(result.arrays)}) + "\n")
