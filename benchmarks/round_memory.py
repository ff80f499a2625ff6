"""How much memory a simulated round takes, beside what it can't do without: the n × d matrix and the data.

    python benchmarks/round_memory.py --data-dir DIRECTORY_WITH_MNIST --rule tesseract --attack full_trim

The paper's setting on MNIST. The baseline is this process after a tiny run of the same kind, so that the interpreter,
its libraries and compiled kernels do not count; peak is the kernel's own high-water mark (VmHWM) over reading the data,
the first rounds and an evaluation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from memory import resident

from tesseract_fl.data.base import Dataset
from tesseract_fl.experiments.presets import settings_of
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation


def play(settings: dict[str, Any], dataset: Dataset, rounds: int) -> Simulation:
    simulation = Simulation(Config.from_table(settings), dataset)
    for _ in range(rounds):
        simulation.step()
    return simulation


def warm_up(settings: dict[str, Any]) -> None:
    """The same kind of run on forty random images."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 1, 28, 28), np.float32), np.arange(40) % 10
    tiny = Dataset(name="tiny", train_x=x, train_y=y, test_x=x, test_y=y, classes=10)
    small = {"clients": 10, "malicious": 2, "batch": 2, "rounds": 2, "eval_every": 1, "root": 10}
    play(settings | small, tiny, 2)


def measure(settings: dict[str, Any], data_dir: Path | None, rounds: int) -> dict[str, Any]:
    warm_up(settings)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    dataset = Config.from_table(settings).data.read(data_dir)
    read = resident("VmHWM") - before
    simulation = play(settings | {"eval_every": rounds}, dataset, rounds)
    matrix = simulation.model.layout.d * 4 * simulation.config.clients_per_round
    data = sum(array.nbytes for array in (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y))
    peak = resident("VmHWM") - before
    return {
        "matrix_bytes": matrix, "data_bytes": data, "peak_bytes": peak, "peak_after_reading_bytes": read,
        "ratio": peak / (matrix + data),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="tesseract")
    parser.add_argument("--attack", default="full_trim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, help="write the result here too")
    given = parser.parse_args()
    settings = settings_of("mnist") | {"rule": given.rule, "attack": given.attack}
    result = {"rule": given.rule, "attack": given.attack} | measure(settings, given.data_dir, given.rounds)
    megabytes = {key: f"{value / 1e6:.0f} MB" for key, value in result.items() if key.endswith("_bytes")}
    print(
        f"{given.rule} + {given.attack}: matrix {megabytes['matrix_bytes']}, data {megabytes['data_bytes']}, peak "
        f"{megabytes['peak_bytes']} = {result['ratio']:.2f} × both "
        f"(reading alone {megabytes['peak_after_reading_bytes']})"
    )
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
