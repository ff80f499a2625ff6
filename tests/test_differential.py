"""Our rules against independent public implementations: byzfl's, and Flower's own strategies.

Where the definitions agree, the numbers must. Where they differ, the test says how, and shows it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tesseract_fl import kernels
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.centred_clipping import CentredClipping
from tesseract_fl.rules.coordinate import MeanAroundMedian, Median, TrimmedMean
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.geometric_median import GeometricMedian
from tesseract_fl.rules.krum import Bulyan, Krum, MultiKrum, krum_scores
from tesseract_fl.rules.transforms import NearestNeighbourMixing, NormClipping
from tesseract_fl.types import Updates

N, F, D = 15, 3, 30
rounds = settings(max_examples=6)
seeds = given(st.integers(0, 10_000))


def rows(seed: int) -> Any:
    matrix = np.random.default_rng(seed).normal(0.3, 1, size=(N, D))
    matrix[:F] *= -4
    return matrix


def ours(rule: Rule[Any], matrix: Any) -> Any:
    sent = Updates(matrix=matrix, ids=tuple(str(i) for i in range(len(matrix))), round=1)
    return rule.aggregate(sent, rule.init(matrix.shape[1])).update


# ---- byzfl --------------------------------------------------------------------------------------------------------


def byzfl(module: str = "aggregators") -> Any:
    """byzfl's aggregators without its package: that one imports torchvision, which they don't need."""
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        assert spec is not None
        assert spec.origin is not None
        package = types.ModuleType("byzfl")
        package.__path__ = [str(Path(spec.origin).parent)]
        sys.modules["byzfl"] = package
    return importlib.import_module(f"byzfl.aggregators.{module}")


AGREE: dict[str, tuple[Rule[Any], Callable[[], Any]]] = {
    "mean": (FedSGD(), lambda: byzfl().Average()),
    "median": (Median(), lambda: byzfl().Median()),
    "trimmed mean": (TrimmedMean(f=F), lambda: byzfl().TrMean(f=F)),
    "mean around median": (MeanAroundMedian(f=F), lambda: byzfl().Meamed(f=F)),
    "geometric median, converged": (GeometricMedian(smoothing=1e-9), lambda: byzfl().GeometricMedian(nu=1e-9, T=3000)),
    "centred clipping": (CentredClipping(tau=3.0, iterations=4), lambda: byzfl().CenteredClipping(tau=3.0, L=4)),
}


@pytest.mark.parametrize(("rule", "theirs"), AGREE.values(), ids=AGREE.keys())
@rounds
@seeds
def test_byzfl_agrees(rule: Rule[Any], theirs: Callable[[], Any], seed: int) -> None:
    np.testing.assert_allclose(ours(rule, rows(seed)), theirs()(rows(seed)), rtol=1e-5, atol=1e-6)


@rounds
@seeds
def test_byzfl_s_krum_counts_one_neighbour_more(seed: int) -> None:
    """Theirs sums n − f − 1 nearest others, ours n − f − 2 as in the paper: theirs at f is ours at f − 1."""
    np.testing.assert_allclose(ours(Krum(f=F - 1), rows(seed)), byzfl().Krum(f=F)(rows(seed)), rtol=1e-6)
    # theirs takes the n − f best of that score
    ours_like_theirs = ours(MultiKrum(f=F - 1, q=N - F), rows(seed))
    np.testing.assert_allclose(ours_like_theirs, byzfl().MultiKrum(f=F)(rows(seed)), rtol=1e-6)


def test_byzfl_s_krum_is_another_rule() -> None:
    chosen = [np.array_equal(ours(Krum(f=F), rows(s)), byzfl().Krum(f=F)(rows(s))) for s in range(200)]
    assert not all(chosen)


@rounds
@seeds
def test_byzfl_s_nearest_neighbour_mixing_agrees(seed: int) -> None:
    mixed = byzfl("preaggregators").NNM(f=F)(rows(seed))
    rule = NearestNeighbourMixing(f=F, inner=TrimmedMean(f=F))
    np.testing.assert_allclose(ours(rule, rows(seed)), byzfl().TrMean(f=F)(mixed), rtol=1e-6)


@rounds
@seeds
def test_byzfl_s_clipping_agrees(seed: int) -> None:
    clipped = byzfl("preaggregators").Clipping(c=2.5)(rows(seed))
    np.testing.assert_allclose(ours(NormClipping(tau=2.5), rows(seed)), clipped.mean(axis=0), rtol=1e-6, atol=1e-9)


# ---- Flower --------------------------------------------------------------------------------------------------------


def flower(strategy: Any, matrix: Any) -> Any:
    """A round of one of Flower's strategies, through its public method, with one reply per row."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a ServerApp's process is given
    replies = []
    for i, row in enumerate(matrix):
        asked = Message(content=RecordDict(), dst_node_id=i + 1, message_type="train")
        arrays = ArrayRecord({"a": Array(row[:10].reshape(2, 5).copy()), "b": Array(row[10:].copy())})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        replies.append(Message(content, reply_to=asked))
    arrays, _ = strategy.aggregate_train(1, replies)
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


@rounds
@seeds
def test_flower_s_median_and_trimmed_mean_agree(seed: int) -> None:
    from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg

    np.testing.assert_allclose(ours(Median(), rows(seed)), flower(FedMedian(), rows(seed)), rtol=1e-9)
    theirs = flower(FedTrimmedAvg(beta=F / N), rows(seed))
    np.testing.assert_allclose(ours(TrimmedMean(f=F), rows(seed)), theirs, rtol=1e-9)


def test_flower_s_trimmed_mean_trims_too_little_when_a_fraction_rounds_down() -> None:
    """0.07 of 15 is 1.05: they trim 1, a federation that may have 1.05 of 15 malicious needs 2."""
    from flwr.serverapp.strategy import FedTrimmedAvg

    theirs = flower(FedTrimmedAvg(beta=0.07), rows(0))
    np.testing.assert_allclose(ours(TrimmedMean(f=1), rows(0)), theirs, rtol=1e-9)
    assert not np.allclose(ours(TrimmedMean(f=0.07), rows(0)), theirs)


@rounds
@seeds
def test_flower_s_krum_and_multi_krum_agree_in_float64(seed: int) -> None:
    from flwr.serverapp.strategy import Krum as FlowerKrum
    from flwr.serverapp.strategy import MultiKrum as FlowerMultiKrum

    np.testing.assert_allclose(
        ours(Krum(f=F), rows(seed)), flower(FlowerKrum(num_malicious_nodes=F), rows(seed)), rtol=1e-9
    )
    theirs = flower(FlowerMultiKrum(num_malicious_nodes=F, num_nodes_to_select=5), rows(seed))
    np.testing.assert_allclose(ours(MultiKrum(f=F, q=5), rows(seed)), theirs, rtol=1e-9)


@rounds
@seeds
def test_flower_s_bulyan_scores_once_where_the_definition_scores_again(seed: int) -> None:
    """Theirs takes the θ best by one Krum score; from the same choice on, both do the same."""
    from flwr.serverapp.strategy import Bulyan as FlowerBulyan

    distances = kernels.squared_distances(kernels.gram(rows(seed)))
    once = np.argsort(krum_scores(distances, F))[: N - 2 * F]
    expected = kernels.mean_near_median(rows(seed), np.sort(once), N - 4 * F)
    theirs = flower(FlowerBulyan(num_malicious_nodes=F), rows(seed))
    np.testing.assert_allclose(expected, theirs, rtol=1e-9)
    assert ours(Bulyan(f=F), rows(seed)).shape == theirs.shape


def test_flower_s_bulyan_is_another_rule() -> None:
    from flwr.serverapp.strategy import Bulyan as FlowerBulyan

    theirs = FlowerBulyan(num_malicious_nodes=F)
    assert any(not np.allclose(ours(Bulyan(f=F), rows(s)), flower(theirs, rows(s))) for s in range(20))


# ---- where the others' arithmetic fails ------------------------------------------------------------------------------


def test_distances_of_small_updates_to_large_weights() -> None:
    """d = 200,000, weights of unit variance, updates of 1e-4: centred distances are right, the textbook's are not."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy.multikrum import compute_distances

    rng = np.random.default_rng(0)
    weights = rng.normal(size=200_000).astype(np.float32)
    sent = weights + (1e-4 * rng.normal(size=(8, 200_000))).astype(np.float32)
    exact = np.array([[np.square(x.astype(np.float64) - y).sum() for y in sent] for x in sent])
    apart = ~np.eye(8, dtype=bool)

    for matrix in (sent, sent - weights):  # even on raw weights
        found = kernels.squared_distances(kernels.gram(matrix))
        np.testing.assert_allclose(found[apart], exact[apart], rtol=1e-6)
    textbook = compute_distances([ArrayRecord({"w": Array(row)}) for row in sent])
    assert np.abs(textbook[apart] / exact[apart] - 1).max() > 1
