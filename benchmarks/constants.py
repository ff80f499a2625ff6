"""The constants of docs/scaling.md: bytes per second of memory, disk, loopback and Ray, and of each statistic.

    python benchmarks/constants.py --json constants.json

Each is the best of several repetitions, because other work on the machine can only add time. Statistics run on
one thread and are counted in seconds of that core, which other processes can't take away.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from tesseract_fl import kernels

N, COLUMNS = 1000, 65_536
PIECE = 2**20


def best(work: Callable[[], object], repeat: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds."""
    times = []
    for _ in range(repeat):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def disk(directory: Path, size: int, repeat: int) -> dict[str, float]:
    """Bytes per second, written and read, past the page cache."""
    block = np.random.default_rng(0).bytes(PIECE)
    with tempfile.NamedTemporaryFile(dir=directory) as file:

        def write() -> None:
            file.seek(0)
            for _ in range(size // PIECE):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())

        def read() -> None:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            while file.read(8 * PIECE):
                pass

        return {"disk_write": size / best(write, repeat), "disk_read": size / best(read, repeat)}


def loopback(size: int, repeat: int) -> float:
    """Bytes per second of one TCP connection on this machine."""
    block = bytes(PIECE)

    def transfer() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def send() -> None:
                with socket.create_connection(server.getsockname()) as out:
                    for _ in range(size // PIECE):
                        out.sendall(block)

            sender = threading.Thread(target=send)
            sender.start()
            incoming, _ = server.accept()
            buffer = bytearray(PIECE)
            while incoming.recv_into(buffer):
                pass
            incoming.close()
            sender.join()

    return size / best(transfer, repeat)


def statistics(repeat: int) -> dict[str, float]:
    """Bytes of updates, of 1,000 clients, per second of one core."""
    U = np.random.default_rng(0).standard_normal((N, COLUMNS), np.float32)
    direction = np.sign(U[0]).astype(np.int8)
    weights = np.full(N, 1 / N)
    ways: dict[str, Callable[[], object]] = {
        "memory_copy": lambda: U.copy(),
        "flip_scores": lambda: kernels.flip_scores(U, direction),
        "weighted_sum": lambda: kernels.weighted_sum(weights, U),
        "trimmed_mean": lambda: kernels.trimmed_mean(U, N // 5),
        "gram": lambda: kernels.gram(U),
    }
    numba.set_num_threads(1)
    with threadpool_limits(1):
        for work in ways.values():
            work()  # compile first
        return {name: U.nbytes / best(work, repeat, time.process_time) for name, work in ways.items()}


def ray_rows(d: int, rows: int) -> float:
    """Bytes per second of rows that are cut and put into two Ray workers of this machine."""
    import ray

    from tesseract_fl.distributed.intake import Intake
    from tesseract_fl.distributed.ray import RayShards

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=512 * 2**20)
    shards = RayShards(d, workers=2)
    intake = Intake(shards, round=1, capacity=rows + 1)
    row = np.ones(d, np.float32)
    intake.add("first", row)
    start = time.perf_counter()
    for i in range(rows):
        intake.add(str(i), row)
    seconds = time.perf_counter() - start
    ray.shutdown()
    return rows * row.nbytes / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--size", type=int, default=2**30, help="bytes for disk and loopback")
    parser.add_argument("--directory", type=Path, default=Path("/tmp"), help="a place on the disk to measure")
    parser.add_argument("--ray", action="store_true", help="also start a local Ray cluster")
    parser.add_argument("--json", type=Path, help="where to write the result")
    given = parser.parse_args()
    found = statistics(given.repeat)
    found |= disk(given.directory, given.size, given.repeat)
    found["loopback"] = loopback(given.size, given.repeat)
    if given.ray:
        found["ray_rows"] = ray_rows(6_603_710, 40)
    for name, rate in found.items():
        print(f"{name:>14} {rate / 1e9:8.3f} GB/s")
    print(f"{'gram':>14} {found['gram'] / 4 * 2 * N / 1e9:8.1f} Gflop/s")
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if given.json:
        given.json.write_text(json.dumps({"bytes_per_second": found, "n": N, "machine": machine}, indent=2) + "\n")


if __name__ == "__main__":
    main()
