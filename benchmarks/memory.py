"""A round that is larger than the memory: seconds, peak resident memory and bytes per second of a rule.

    python benchmarks/memory.py --rule tesseract --json memory.json

The updates lie in a file of n × d float32 numbers, which is made if it is not there (26 GB for 1,000 clients
of 6.6 million parameters). Peak resident memory is the kernel's own high-water mark of this process (VmHWM): anonymous
memory, the interpreter with its libraries, and every page of the file that is mapped at the time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl import mapped, registry
from tesseract_fl.types import Updates


def make(path: Path, n: int, d: int, f: int) -> None:
    """Honest clients agree on a direction and add noise; the last f send the opposite, ten times as large."""
    if path.exists() and path.stat().st_size == 4 * n * d:
        return
    direction = np.random.default_rng(0).standard_normal(d, np.float32)
    with path.open("wb") as file:
        for i in range(n):
            noise = np.random.default_rng(i + 1).standard_normal(d, np.float32)
            file.write((0.1 * direction + noise if i < n - f else -10 * direction).astype(np.float32))


def resident(field: str) -> int:
    """Bytes: VmRSS what this process has now, VmHWM the most that it ever had; getrusage would count its parent too."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def forget_cached_pages(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(name: str, path: Path, n: int, d: int, f: int, budget: int) -> dict[str, Any]:
    rule = registry.build("rules", {"name": name}, f=f)
    ids = tuple(map(str, range(n)))
    small = np.random.default_rng(0).standard_normal((n, 4), np.float32)
    rule.aggregate(Updates(matrix=small, ids=ids, round=1), rule.init(4))  # compile first
    before = resident("VmHWM")

    matrix = np.memmap(path, np.float32, "r", shape=(n, d))
    sent = Updates(matrix=matrix, ids=ids, round=1, block_bytes=budget)
    start, cpu = time.perf_counter(), time.process_time()
    out = rule.aggregate(sent, rule.init(d))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return {
        "rule": name, "n": n, "d": d, "f": f, "bytes": matrix.nbytes, "block_bytes": budget,
        "blocks": len(sent.blocks()), "seconds": seconds, "cpu_seconds": cpu_seconds,
        "gb_per_second": matrix.nbytes / seconds / 1e9,
        "peak_rss_bytes": resident("VmHWM"), "peak_rss_before_bytes": before,
        "malicious_weight": None if out.weights is None else float(out.weights[n - f :].sum()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", default="tesseract")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--d", type=int, default=6_603_710)
    parser.add_argument("--f", type=int, help="default: a fifth of n")
    parser.add_argument("--budget", type=int, default=mapped.BLOCK_BYTES, help="bytes of one block of columns")
    parser.add_argument("--file", type=Path, default=Path("/tmp/tesseract-updates.f32"))
    parser.add_argument("--make-only", action="store_true", help="make the file and stop")
    parser.add_argument("--json", type=Path, help="where to write the result")
    given = parser.parse_args()
    f = given.n // 5 if given.f is None else given.f
    make(given.file, given.n, given.d, f)
    if given.make_only:
        return
    forget_cached_pages(given.file)
    result = measure(given.rule, given.file, given.n, given.d, f, given.budget)
    print(
        f"{result['rule']}: {result['bytes'] / 1e9:.1f} GB in {result['seconds']:.1f} s ({result['gb_per_second']:.2f} "
        f"GB/s), {result['cpu_seconds']:.1f} s of cores, peak RSS {result['peak_rss_bytes'] / 1e9:.2f} GB"
    )
    if given.json:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
