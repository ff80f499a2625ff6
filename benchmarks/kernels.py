"""Each hot kernel as numba has it here and as torch would write it, side by side: why numba was chosen.

    python benchmarks/kernels.py --shape 100x266060

Both sides read float32 and sum in float64, and their results are compared first. Torch has every thread that it wants.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tesseract_fl import kernels

Way = Callable[[], Any]


def pairs(n: int, d: int) -> dict[str, tuple[Way, Way]]:
    rng = np.random.default_rng(0)
    U = rng.standard_normal((n, d), np.float32)
    s = rng.integers(-1, 2, d).astype(np.int8)
    w = rng.random(n)
    f = n // 5
    tensor, signs, weights = torch.from_numpy(U), torch.from_numpy(s), torch.from_numpy(w)

    def columns() -> Any:
        wide = tensor.double()
        return torch.stack([wide.mean(0), wide.std(0, correction=0), tensor.amin(0).double(), tensor.amax(0).double()])

    def gram() -> Any:
        X = tensor.double()
        X -= X.mean(dim=0)
        return X @ X.T

    return {
        "flip-scores": (
            lambda: kernels.flip_scores(U, s),
            lambda: ((torch.sign(tensor) != signs) * tensor.double().square()).sum(dim=1),
        ),
        "squared norms": (lambda: kernels.squared_norms(U), lambda: tensor.double().square().sum(dim=1)),
        "weighted sum": (lambda: kernels.weighted_sum(w, U), lambda: (weights @ tensor.double()).float()),
        "trimmed mean": (
            lambda: kernels.trimmed_mean(U, f),
            lambda: tensor.sort(dim=0).values[f : n - f].double().mean(dim=0).float(),
        ),
        "median": (
            lambda: kernels.median(U),
            lambda: tensor.sort(dim=0).values[(n - 1) // 2 : n // 2 + 1].double().mean(dim=0).float(),
        ),
        "Gram matrix": (lambda: kernels.gram(U, centre="mean"), gram),
        "column statistics": (lambda: np.stack(kernels.column_statistics(U)), columns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="100x266060", help="clients x parameters")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the result here too")
    given = parser.parse_args()
    n, d = map(int, given.shape.split("x"))
    found: dict[str, dict[str, float]] = {}
    for name, (ours, theirs) in pairs(n, d).items():
        np.testing.assert_allclose(ours(), np.asarray(theirs()), rtol=1e-4, atol=1e-4)
        best = {"numba": float("inf"), "torch": float("inf")}
        for _ in range(given.repeat):
            for side, way in (("numba", ours), ("torch", theirs)):
                start = time.perf_counter()
                way()
                best[side] = min(best[side], time.perf_counter() - start)
        found[name] = best
        print(f"{name:18} numba {best['numba'] * 1e3:8.1f} ms   torch {best['torch'] * 1e3:8.1f} ms   "
              f"{best['torch'] / best['numba']:5.1f}×", flush=True)  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps({"n": n, "d": d, "seconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
