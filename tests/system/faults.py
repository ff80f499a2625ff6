"""A ClientApp that does to the server whatever its node's configuration says: for the fault storm."""

SOURCE = '''
import os
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app.message import array as array_module
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from federation import task
from tesseract_fl.flower import echo

def maybe_echo(message, context, call_next):
    round = int(message.content.config_records["config"]["server-round"])
    if fault_of(context, round) == "no-nonce":
        return call_next(message, context)
    return echo(message, context, call_next)

def fault_of(context, round):
    """node-config faults="nan,,shape": in round 1 NaN, in round 2 nothing, in round 3 a wrong shape."""
    faults = str(context.node_config.get("faults", "")).split(",")
    return faults[round - 1] if round <= len(faults) else ""

app = ClientApp(mods=[maybe_echo])

@app.train()
def train(message, context):
    round = int(message.content.config_records["config"]["server-round"])
    arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
    x, y = task.data(int(context.node_config["partition-id"]))
    model, _ = task.train(arrays, x, y, 0.01, round)
    samples = len(y)
    fault = fault_of(context, round)
    if fault == "nan":
        model["bias"][:] = np.nan
    elif fault == "shape":
        model["weight"] = model["weight"][:1]
    elif fault == "extra":
        model["more"] = model["bias"]
    elif fault == "samples":
        samples = 10**15
    elif fault == "raise":
        raise RuntimeError("a client's own mistake")
    elif fault == "die":
        os._exit(1)
    elif fault == "undecodable":
        array_module.Array.deflate = lambda self: add_header_to_object_body(object_body=b"not JSON", obj=self)
    record = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
    content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": samples})})
    return Message(content, reply_to=message)
'''
