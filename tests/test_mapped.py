"""Updates in a mapped file: the same results as in memory, from blocks that a budget of bytes sets."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl import checkpoint, mapped
from tesseract_fl.gate import Gate
from tesseract_fl.rules.base import Rule
from tesseract_fl.types import ConfigError, Updates
from tests.conformance.contract import RULES

N, D = 12, 1000
COLUMNS = 96


def in_memory(t: int) -> Updates:
    matrix = np.random.default_rng(t).normal(1, 1, (N, D)).astype(np.float32)
    ids = tuple(str(i) for i in range(N))
    return Updates(matrix=matrix, ids=ids, round=t, samples=np.arange(1.0, N + 1), trusted=np.ones(D, np.float32))


def in_file(sent: Updates, path: Path, budget: int | None = N * 4 * COLUMNS) -> Updates:
    np.asarray(sent.matrix).tofile(path)
    return replace(sent, matrix=np.memmap(path, np.float32, "r", shape=(N, D)), block_bytes=budget)


def assert_equal(one: Any, other: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    np.testing.assert_allclose(one.update, other.update, rtol=rtol, atol=atol)
    (arrays, _), (others, _) = checkpoint.pack(one.state), checkpoint.pack(other.state)
    for name in arrays:
        np.testing.assert_allclose(arrays[name], others[name], rtol=rtol, atol=atol)
    if rtol == 0:
        assert json.dumps(one.report) == json.dumps(other.report)
        assert checkpoint.pack(one.state)[1] == checkpoint.pack(other.state)[1]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_every_rule_gives_the_same_from_a_file(rule: Rule[Any], tmp_path: Path) -> None:
    """Bit for bit what the same blocks give in memory; as one block, up to the order of float64 sums."""
    states = [rule.init(D)] * 3
    for t in range(1, 4):
        sent = in_memory(t)
        cut = replace(sent, block_bytes=N * 4 * COLUMNS)
        ways = [in_file(sent, tmp_path / f"{t}"), cut, sent]
        from_file, blocks, whole = (rule.aggregate(way, state) for way, state in zip(ways, states, strict=True))
        assert_equal(from_file, blocks)
        assert_equal(from_file, whole, rtol=1e-5, atol=1e-6)
        states = [from_file.state, blocks.state, whole.state]


def test_a_budget_of_bytes_sets_the_width(tmp_path: Path) -> None:
    sent = in_memory(1)
    assert sent.blocks() == [slice(0, D)]
    assert {b.stop - b.start for b in in_file(sent, tmp_path / "a").blocks()} == {COLUMNS, D % COLUMNS}
    assert in_file(sent, tmp_path / "b", budget=1).blocks()[0] == slice(0, 1), "at least a column"
    assert in_file(sent, tmp_path / "c", budget=None).blocks() == [slice(0, D)], "less than 256 MiB"
    thousand = np.broadcast_to(np.float32(0), (1000, 10**6))
    assert mapped.blocks(thousand)[0].stop * 4 > 2**18, "pieces of a quarter of a MiB for a disk"
    with pytest.raises(ConfigError, match="block_bytes"):
        replace(sent, block_bytes=0)


def test_a_view_of_a_mapped_file_is_one_too(tmp_path: Path) -> None:
    whole = in_file(in_memory(1), tmp_path / "a").matrix
    views = [whole, np.asarray(whole), whole[2:7, 10:], whole[::-1, ::-2], np.asarray(whole)[::2], whole.T[:100]]
    for view in views:
        assert mapped.mapping(view) is not None
        np.testing.assert_array_equal(mapped.read(view, slice(3, 9)), np.array(view)[:, 3:9])
        assert mapped.mapping(mapped.read(view, slice(3, 9))) is None
    assert mapped.mapping(whole + 1) is None
    assert mapped.mapping(np.zeros((2, 2))) is None


def test_the_gate_leaves_rows_of_a_file_out_without_copying_it(tmp_path: Path) -> None:
    sent = in_memory(1)
    sent.matrix[4, 7] = np.nan
    admitted = [Gate().screen(way.matrix, way.ids, round=1) for way in (sent, in_file(sent, tmp_path / "a"))]
    assert admitted[0].ids == admitted[1].ids == tuple(i for i in sent.ids if i != "4")
    assert mapped.mapping(admitted[1].matrix) is not None
    one, other = (RULES["tesseract"].aggregate(updates, RULES["tesseract"].init(D)) for updates in admitted)
    np.testing.assert_allclose(one.update, other.update, rtol=1e-6)
    assert one.state.reputation == other.state.reputation


def test_changes_in_private_and_in_writable_mappings_are_seen_and_kept(tmp_path: Path) -> None:
    in_file(in_memory(1), tmp_path / "a")
    for mode in ("c", "r+"):
        matrix = np.memmap(tmp_path / "a", np.float32, mode, shape=(N, D))
        matrix[3, 5] = 77.0
        sent = Updates(matrix=matrix, ids=tuple(map(str, range(N))), round=1)
        for b in sent.blocks():
            sent.columns(b)
        assert sent.columns(slice(4, 6)).matrix[3, 1] == 77.0
        assert matrix[3, 5] == 77.0


MEASURE = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.memory import measure, make

path, name = Path(sys.argv[1]), sys.argv[2]
make(path, 30, 1_000_000, 6)
result = measure(name, path, 30, 1_000_000, 6, 8_000_000)
print((result["peak_rss_bytes"] - result["peak_rss_before_bytes"]) / 1e6)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize("name", ["tesseract", "trimmed_mean", "krum"])
def test_memory_stays_near_the_budget(name: str, tmp_path: Path) -> None:
    """120 MB in blocks of 8 MB: resident, file pages included, a few blocks and a few vectors of 4 MB on top."""
    asked = [sys.executable, "-c", MEASURE, str(tmp_path / "updates"), name]
    root = Path(__file__).parent.parent
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=root)
    assert float(done.stdout) < 80
