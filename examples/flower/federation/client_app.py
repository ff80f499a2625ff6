"""The client: trains on its own points. The first mod returns the server's nonce, the second is the red team's."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federation import task
from tesseract_fl.flower import echo


def red_team(message: Message, context: Context, call_next):  # type: ignore[no-untyped-def]
    """Armed by the SuperNode's own --node-config, or in simulation by the run; otherwise nothing is even imported."""
    node, run = context.node_config, context.run_config
    if node.get("red-team"):
        from tesseract_fl.flower.redteam import by_node_config

        return by_node_config(message, context, call_next)
    if not run.get("red-team"):
        return call_next(message, context)
    from tesseract_fl.flower import RedTeam

    role = "armed" if int(node["partition-id"]) < int(run["red-team-nodes"]) else "observed"
    pool = str(run["red-team-pool"]) or None
    if pool is None and role == "observed":
        role = "off"
    return RedTeam(str(run["red-team"]), role=role, pool=pool)(message, context, call_next)


app = ClientApp(mods=[echo, red_team])


def arrays_of(message: Message) -> task.Arrays:
    return {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}


@app.train()
def train(message: Message, context: Context) -> Message:
    x, y = task.data(int(context.node_config["partition-id"]))
    round = int(message.content.config_records["config"]["server-round"])
    model, loss = task.train(arrays_of(message), x, y, float(context.run_config["learning-rate"]), round)
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()}),
            "metrics": MetricRecord({"num-examples": len(y), "train-loss": loss}),
        }
    )
    return Message(content, reply_to=message)
