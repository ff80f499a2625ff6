"""Partitions deal every sample out once, leave nobody empty, and have the distribution they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl import registry
from tesseract_fl.data.partition import Dirichlet, Iid, LabelBiased, Partition
from tesseract_fl.types import ConfigError

PARTITIONS = [LabelBiased(), LabelBiased(bias=1.0), LabelBiased(bias=0.0), Iid(), Dirichlet(alpha=0.01)]


@given(
    st.sampled_from(PARTITIONS),
    st.integers(0, 99),
    st.integers(1, 40),
    st.integers(2, 12),
    st.integers(0, 200),
)
def test_every_sample_has_one_owner_and_nobody_is_empty(
    partition: Partition, seed: int, n: int, classes: int, more: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, n + more)
    parts = partition.split(labels, n, classes, np.random.default_rng(seed))
    assert len(parts) == n
    assert all(len(part) > 0 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(n + more))
    again = partition.split(labels, n, classes, np.random.default_rng(seed))
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def class_shares(partition: Partition, n: int, classes: int = 10) -> Any:
    labels = np.repeat(np.arange(classes), 3000)
    parts = partition.split(labels, n, classes, np.random.default_rng(1))
    return np.array([np.bincount(labels[part], minlength=classes) / len(part) for part in parts])


@pytest.mark.parametrize("n", [10, 25, 100])
@pytest.mark.parametrize("bias", [0.1, 0.5, 0.8])
def test_label_bias_is_the_share_of_a_client_s_own_class(n: int, bias: float) -> None:
    shares = class_shares(LabelBiased(bias=bias), n)
    if bias == 0.1:  # 1 / classes is IID
        np.testing.assert_allclose(shares, 0.1, atol=0.1)
        return
    np.testing.assert_allclose(shares.max(axis=1), bias, atol=0.12)
    favourites = np.bincount(shares.argmax(axis=1), minlength=10)
    assert favourites.min() >= n // 10
    others = np.sort(shares, axis=1)[:, :-1]
    np.testing.assert_allclose(others, (1 - bias) / 9, atol=0.08)


def test_fewer_clients_than_classes_share_groups() -> None:
    shares = class_shares(LabelBiased(bias=1.0), n=5)
    assert (shares > 0).sum(axis=1).tolist() == [2] * 5


def test_client_numbers_say_nothing_about_classes() -> None:
    order = [class_shares(LabelBiased(bias=0.9), 10).argmax(axis=1).tolist()]
    assert order[0] != sorted(order[0])


def test_dirichlet_is_skewed_by_a_small_alpha() -> None:
    skewed, even = (class_shares(Dirichlet(alpha=a), 10).max(axis=1).mean() for a in (0.05, 1000.0))
    assert skewed > 0.5
    assert even < 0.15


def test_iid_shares_are_equal() -> None:
    sizes = [len(p) for p in Iid().split(np.zeros(103, np.int64), 10, 2, np.random.default_rng(0))]
    assert sorted(sizes) == [10] * 7 + [11] * 3


def test_too_few_samples() -> None:
    with pytest.raises(ConfigError, match="3 samples can't be dealt out to 4 clients"):
        Iid().split(np.zeros(3, np.int64), 4, 2, np.random.default_rng(0))


@pytest.mark.parametrize("spec", [{"name": "label_biased", "bias": 1.5}, {"name": "dirichlet", "alpha": 0.0}])
def test_settings_that_make_no_sense(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        registry.build("partitions", spec)
