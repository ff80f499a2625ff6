"""Transforms: the matrix that the inner rule sees, and what it costs to form it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tesseract_fl import kernels
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.coordinate import TrimmedMean
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.krum import MultiKrum
from tesseract_fl.rules.plan import converse
from tesseract_fl.rules.tesseract import ReputationFilter
from tesseract_fl.rules.transforms import Mixing, NearestNeighbourMixing, NormClipping
from tesseract_fl.types import Cohort, Updates

N, D = 30, 200


@dataclass(frozen=True, kw_only=True)
class DenselyClipped(NormClipping):
    """The same with all n × n entries written out."""

    def mixing(self, cohort: Cohort) -> Mixing:
        return np.diag((yield from super().mixing(cohort)))


def sent(kind: type) -> Any:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(N, D)) * np.exp(rng.normal(size=(N, 1)))
    rows[3] = 0
    return rows.astype(kind)


@pytest.mark.parametrize("inner", [FedSGD(), TrimmedMean(f=4), MultiKrum(f=4)], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_clipped_rows_are_the_product_with_a_diagonal_matrix(inner: Rule[Any], kind: type) -> None:
    matrix = sent(kind)
    updates = Updates(matrix=matrix, ids=tuple(str(i) for i in range(N)), round=1, block_bytes=N * 4 * 64)
    ours, dense = (rule(inner=inner).aggregate(updates, inner.init(D)) for rule in (NormClipping, DenselyClipped))
    np.testing.assert_allclose(ours.update, dense.update, rtol=1e-6, atol=1e-12)
    assert ours.update.dtype == kind
    assert (ours.weights is None) == (dense.weights is None)
    if ours.weights is not None and dense.weights is not None:
        np.testing.assert_allclose(ours.weights, dense.weights, rtol=1e-14)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_tensor_is_scaled_in_kind(on_cpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    factors = np.linspace(0, 1, N)
    monkeypatch.setattr(kernels, "on_cpu", lambda U: on_cpu or isinstance(U, np.ndarray))
    scaled = kernels.mix(factors, torch.from_numpy(sent(np.float32)))
    assert scaled.dtype == torch.float32
    np.testing.assert_array_equal(scaled.numpy(), (factors[:, None] * sent(np.float32)).astype(np.float32))


def test_clipping_needs_a_number_per_client_and_no_square_matrix() -> None:
    cohort = Cohort(ids=tuple(str(i) for i in range(N)), round=1)
    squared = kernels.squared_norms(sent(np.float32))
    assert converse(NormClipping().mixing(cohort), lambda question: squared).shape == (N,)


@pytest.mark.parametrize("outer", [NearestNeighbourMixing, ReputationFilter])
def test_shares_of_a_rule_inside_are_told_outside(outer: Any) -> None:
    """Clipping scales updates; what stands before it mixes rows, or leaves some out."""
    rule: Rule[Any] = outer(f=4, inner=NormClipping())
    updates = Updates(matrix=sent(np.float32), ids=tuple(str(i) for i in range(N)), round=1)
    out = rule.aggregate(updates, rule.init(D))
    assert out.shares is not None
    assert out.weights is not None
    assert out.shares.sum() == pytest.approx(1)
    assert out.shares.min() >= 0
    assert out.weights.sum() < 0.99
