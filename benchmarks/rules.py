"""How long aggregation takes: our rules, byzfl's and Flower's, side by side, and what the machine can do at all.

    python benchmarks/rules.py --json rules.json --plot rules.png
    python benchmarks/rules.py --shape 100x266060 --repeat 9

Everything is measured in one process, in turns; the best of several repetitions counts, because other work on the
machine can only add time. Each library gets the round in the form that it takes: we and byzfl a matrix, Flower one
reply message per client. The limits: one read of the matrix (w @ U), and the rate of a large matrix product.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import logging
import platform
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl import registry
from tesseract_fl.types import Updates

Way = Callable[[], object]
SHAPES = ("100x266060", "35x6603710", "1000x100000")
SLOW = 20.0  # seconds; what took longer is not measured again


def best_of(ways: dict[str, Way], repeat: int) -> dict[str, float]:
    """The best time of each, measured in turns; the first turn, which compiles, does not count for the quick ones."""
    best = dict.fromkeys(ways, float("inf"))
    for turn in range(repeat + 1):
        for name, way in ways.items():
            if SLOW < best[name] < float("inf"):
                continue
            start = time.perf_counter()
            way()
            seconds = time.perf_counter() - start
            if turn or seconds > SLOW:
                best[name] = min(best[name], seconds)
    return best


def byzfl() -> Any:
    """byzfl's aggregators without its package, which imports torchvision for other things."""
    if "byzfl" in sys.modules:
        return sys.modules["byzfl.aggregators.aggregators"]
    spec = importlib.util.find_spec("byzfl")
    if spec is None or spec.origin is None:
        raise SystemExit("this compares with byzfl: pip install --no-deps byzfl, or --no-peers")
    package = types.ModuleType("byzfl")
    package.__path__ = [str(Path(spec.origin).parent)]
    sys.modules["byzfl"] = package
    return importlib.import_module("byzfl.aggregators.aggregators")


def replies(U: np.ndarray) -> list[Any]:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a ServerApp's process is given
    sent = []
    for i, row in enumerate(U):
        asked = Message(content=RecordDict(), dst_node_id=i + 1, message_type="train")
        content = {"arrays": ArrayRecord({"w": Array(row)}), "metrics": MetricRecord({"num-examples": 1})}
        sent.append(Message(RecordDict(content), reply_to=asked))
    return sent


def flower(strategy: Any, sent: list[Any]) -> Way:
    """Flower's median and trimmed mean take the arrays out of the messages: they are put back, at no cost."""

    def way() -> object:
        kept = [dict(message.content["arrays"]) for message in sent]
        out = strategy.aggregate_train(1, sent)
        for message, arrays in zip(sent, kept, strict=True):
            message.content["arrays"].update(arrays)
        return out

    return way


def measure(n: int, d: int, repeat: int, peers: bool) -> dict[str, Any]:
    import torch
    from flwr.serverapp import strategy as theirs

    logging.getLogger("flwr").setLevel(logging.WARNING)

    f = n // 5
    b = (n - 3) // 4  # Bulyan can bear fewer
    U = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    updates = Updates(matrix=U, ids=tuple(map(str, range(n))), round=1)

    def ours(name: str, **parameters: Any) -> Way:
        rule = registry.build("rules", {"name": name, **parameters}, f=f)
        state = rule.init(d)
        return lambda: rule.aggregate(updates, state)

    w = np.full(n, 1 / n, np.float32)
    big = torch.randn(2048, 2048)
    limits = best_of({"read": lambda: w @ U, "matmul": lambda: big @ big}, max(repeat, 5))
    median_norm = float(np.sqrt(d))
    comparisons: dict[str, dict[str, Way]] = {
        "tesseract": {"ours": ours("tesseract")},
        "mean": {"ours": ours("fedsgd")},
        "median": {"ours": ours("median")},
        "trimmed_mean": {"ours": ours("trimmed_mean")},
        "krum": {"ours": ours("krum")},
        "hardened": {"ours": ours("hardened")},
        "multi_krum": {"ours": ours("multi_krum")},
        "bulyan": {"ours": ours("bulyan", f=b)},
        "geometric_median": {"ours": ours("geometric_median")},
        "centred_clipping": {"ours": ours("centred_clipping", tau=median_norm)},
    }
    if peers:
        tensor, library, sent = torch.from_numpy(U), byzfl(), replies(U)
        for name, aggregator in {
            "mean": library.Average(),
            "median": library.Median(),
            "trimmed_mean": library.TrMean(f=f),
            "krum": library.Krum(f=f),
            "multi_krum": library.MultiKrum(f=f),
            "geometric_median": library.GeometricMedian(),
            "centred_clipping": library.CenteredClipping(tau=median_norm),
        }.items():
            comparisons[name]["byzfl"] = lambda aggregator=aggregator: aggregator(tensor)
        for name, strategy in {
            "mean": theirs.FedAvg(),
            "median": theirs.FedMedian(),
            "trimmed_mean": theirs.FedTrimmedAvg(beta=f / n),
            "krum": theirs.Krum(num_malicious_nodes=f),
            "multi_krum": theirs.MultiKrum(num_malicious_nodes=f, num_nodes_to_select=n - f),
            "bulyan": theirs.Bulyan(num_malicious_nodes=b),
        }.items():
            comparisons[name]["flower"] = flower(strategy, sent)
    seconds = {}
    for name, ways in comparisons.items():
        seconds[name] = best_of(ways, repeat)
        show(name, seconds[name], limits["read"])
    rate = 2 * 2048**3 / limits["matmul"]
    print(f"limits: one read {limits['read']:.4f} s, {U.nbytes / limits['read'] / 1e9:.1f} GB/s; "
          f"matrix product {rate / 1e9:.0f} GFLOP/s", flush=True)  # fmt: skip
    return {"n": n, "d": d, "f": f, "read_seconds": limits["read"], "flops": rate, "seconds": seconds}


def show(name: str, seconds: dict[str, float], read: float) -> None:
    mine = seconds["ours"]
    others = ", ".join(f"{peer} {time:.3f} s = {time / mine:.1f}×" for peer, time in seconds.items() if peer != "ours")
    print(f"  {name:17}{mine:9.4f} s ={mine / read:6.1f} reads   {others}", flush=True)


def curves(repeat: int) -> dict[str, Any]:
    """Seconds against n at one d and against d at one n, and the exponent of the last three points."""
    found: dict[str, Any] = {}
    for name in ("tesseract", "trimmed_mean", "krum", "bulyan"):
        points: dict[str, list[tuple[int, float]]] = {"n": [], "d": []}
        for axis, sizes in (("n", (25, 50, 100, 200, 400)), ("d", (25_000, 50_000, 100_000, 200_000, 400_000))):
            for size in sizes:
                n, d = (size, 100_000) if axis == "n" else (100, size)
                U = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
                rule = registry.build("rules", {"name": name}, f=n // 5)
                updates = Updates(matrix=U, ids=tuple(map(str, range(n))), round=1)
                state = rule.init(d)
                way = {"ours": lambda rule=rule, updates=updates, state=state: rule.aggregate(updates, state)}
                points[axis].append((size, best_of(way, repeat)["ours"]))
        exponents = {
            axis: float(np.polyfit(*np.log([list(column) for column in zip(*line[-3:], strict=True)]), 1)[0])
            for axis, line in points.items()
        }
        found[name] = {"points": points, "exponents": exponents}
        print(f"  {name:17} time ∝ n^{exponents['n']:.2f}, d^{exponents['d']:.2f}", flush=True)
    return found


def plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shapes = result["shapes"]
    figure, axes = pyplot.subplots(1, len(shapes), figsize=(5 * len(shapes), 4.8), layout="constrained", squeeze=False)
    for shape, axis in zip(shapes, axes[0], strict=True):
        names = list(shape["seconds"])
        for offset, (peer, colour) in enumerate((("ours", "#0072B2"), ("byzfl", "#E69F00"), ("flower", "#009E73"))):
            at = [i + 0.27 * (offset - 1) for i, name in enumerate(names) if peer in shape["seconds"][name]]
            times = [shape["seconds"][name][peer] for name in names if peer in shape["seconds"][name]]
            axis.barh(at, times, height=0.25, color=colour, label="Tesseract" if peer == "ours" else peer)
        axis.axvline(shape["read_seconds"], color="0.4", linestyle=":", label="one read of the matrix")
        axis.set(
            xscale="log", xlabel="seconds (log scale)", title=f"{shape['n']:,} clients × {shape['d']:,} parameters"
        )
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", action="append", help="clients x parameters; the three of the documentation if not given"
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true", help="only our own rules")
    parser.add_argument("--curves", action="store_true", help="also seconds against n and d")
    parser.add_argument("--json", type=Path, help="write the result here too")
    parser.add_argument("--plot", type=Path, help="draw it, as PNG or SVG")
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": platform.processor(), "numpy": np.__version__, "shapes": []}
    for shape in args.shape or SHAPES:
        n, d = map(int, shape.split("x"))
        print(f"{n:,} clients × {d:,} parameters", flush=True)
        result["shapes"].append(measure(n, d, args.repeat, not args.no_peers))
    if args.curves:
        result["curves"] = curves(args.repeat)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    if args.plot:
        plot(result, args.plot)


if __name__ == "__main__":
    main()
