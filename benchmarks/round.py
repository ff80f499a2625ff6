"""How long the honest clients of a round take: the usual loop, this package's ways, and the evaluation.

    python benchmarks/round.py --json round.json
    python benchmarks/round.py --model dnn --data DIRECTORY_WITH_MNIST

Models and sizes are the paper's: its DNN on MNIST, the CNN on FEMNIST, the GRU on Shakespeare. The usual loop is what
most simulators do: for every client a deep copy of the model, one optimiser step, the parameters' difference; then the
evaluation by the module. Everything is measured in one process, in turns; the best of several repetitions counts,
because other work on the machine can only add time. Images are random and half of the pixels are 0, unless MNIST's
own are named with --data; texts are random. Only their shape matters for time.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl import registry
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation.evaluate import evaluate
from tesseract_fl.simulation.gradients import Clients, channels_last

Batch = tuple[Tensor, Tensor]
LR = 0.01
# inputs, classes, clients, samples of each in a round, samples of an evaluation
SETTINGS: dict[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "dnn": ((1, 28, 28), 10, 100, 32, 10_000),
    "leaf_cnn": ((1, 28, 28), 62, 35, 32, 2_000),
    "gru": ((200,), 100, 10, 100, 200),
}


def usual_updates(module: torch.nn.Module, clients: list[Batch], out: np.ndarray) -> None:
    before = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    for (x, y), row in zip(clients, out, strict=True):
        own = deepcopy(module)
        optimiser = torch.optim.SGD(own.parameters(), lr=LR)
        optimiser.zero_grad()
        cross_entropy(own(x), y).backward()
        optimiser.step()
        after = torch.cat([parameter.detach().reshape(-1) for parameter in own.parameters()])
        row[:] = (after - before).numpy()


@torch.no_grad()
def usual_evaluation(module: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    parts = zip(torch.split(x, 100), torch.split(y, 100), strict=True)
    return sum(int((module(inputs).argmax(dim=1) == labels).sum()) for inputs, labels in parts) / y.numel()


def samples(count: int, shape: tuple[int, ...], classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Texts where a sample is one sequence, else images."""
    rng = torch.Generator().manual_seed(seed)
    if len(shape) == 1:
        text = torch.randint(0, classes, (count, shape[0] + 1), generator=rng)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()
    images = torch.rand(count, *shape, generator=rng).sub_(0.5).relu_()
    return images, torch.randint(0, classes, (count,), generator=rng)


def in_turns(ways: dict[str, Callable[[], object]], repeat: int, clock: Callable[[], float]) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeat + 1):  # the first turn warms up: compilation, first pages
        for name, way in ways.items():
            start = clock()
            way()
            best[name] = min(best[name], clock() - start)
    return best


def measure(model: str, repeat: int, data: Path | None, cpu: bool) -> dict[str, Any]:
    shape, classes, clients, batch, tests = SETTINGS[model]
    clock = time.process_time if cpu else time.perf_counter
    if data is None or model != "dnn":
        x, y = samples(clients * batch, shape, classes, 1)
        test_x, test_y = samples(tests, shape, classes, 2)
    else:
        held = registry.build("data", {"name": "mnist"}).read(data)
        x, y = torch.from_numpy(held.train_x[: clients * batch]), torch.from_numpy(held.train_y[: clients * batch])
        test_x, test_y = torch.from_numpy(held.test_x[:tests]), torch.from_numpy(held.test_y[:tests])
    plain = list(zip(torch.split(x, batch), torch.split(y, batch), strict=True))
    ours = [[(channels_last(images), labels)] for images, labels in plain]
    flat = FlatModel.create(registry.build("models", {"name": model}), shape, classes, seed=0)
    out = np.zeros((clients, flat.layout.d), np.float32)
    names = ("loop", "vmap", "auto") if model == "dnn" else ("loop", "auto")  # vmap would take minutes
    ways = {name: Clients(flat, strategy=name) for name in names}
    updates: dict[str, Callable[[], object]] = {"usual": lambda: usual_updates(flat.module, plain, out)}
    for name, way in ways.items():
        updates[name] = lambda way=way: way.updates(ours, LR, out)
    evaluation: dict[str, Callable[[], object]] = {
        "usual": lambda: usual_evaluation(flat.module, test_x, test_y),
        "auto": lambda: evaluate(ways["auto"], channels_last(test_x), test_y),
    }
    return {
        "model": model, "clients": clients, "batch": batch, "tests": tests, "parameters": flat.layout.d,
        "clock": "cpu" if cpu else "wall", "threads": torch.get_num_threads(),
        "torch": torch.__version__, "machine": platform.processor(),
        "updates_seconds": in_turns(updates, repeat, clock), "evaluation_seconds": in_turns(evaluation, repeat, clock),
    }  # fmt: skip


def rounds(updates: dict[str, float], evaluation: dict[str, float], every: int) -> dict[str, float]:
    """A round with its share of an evaluation; only `auto` has an evaluation of its own."""
    return {name: seconds + evaluation.get(name, evaluation["usual"]) / every for name, seconds in updates.items()}


def show(result: dict[str, Any]) -> None:
    updates, evaluation = result["updates_seconds"], result["evaluation_seconds"]
    tables = {
        f"{result['model']}: updates of {result['clients']} clients, {result['batch']} samples each": updates,
        f"evaluation on {result['tests']} samples": evaluation,
        "a round, evaluated every time": rounds(updates, evaluation, 1),
        "a round, evaluated every tenth time": rounds(updates, evaluation, 10),
    }
    for title, seconds in tables.items():
        print(title)
        for name, value in seconds.items():
            print(f"  {name:8}{value:8.3f} s {seconds['usual'] / value:6.1f}× as fast as usual")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=SETTINGS, help="all three if not given")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--data", type=Path, help="a directory with MNIST's own files")
    parser.add_argument("--json", type=Path, help="write the result here too")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="count processor time; with --threads 1, on a busy machine")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = []
    for model in args.model or SETTINGS:
        results.append(measure(model, args.repeat, args.data, args.cpu))
        show(results[-1])
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
