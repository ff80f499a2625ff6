"""Partitions deal every sample out once, leave nobody empty, and have the distribution they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tesseract_fl import registry
from tesseract_fl.data.partition import ByWriter, Consecutive, Dirichlet, Iid, LabelBiased, LoneClass, Partition, Shards
from tesseract_fl.types import ConfigError

PARTITIONS = [
    LabelBiased(),
    LabelBiased(bias=1.0),
    LabelBiased(bias=0.0),
    Iid(),
    Dirichlet(alpha=0.01),
    Consecutive(),
    Shards(per_client=1),
    LoneClass(label=1),
]


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
    assume(not isinstance(partition, LoneClass) or np.count_nonzero(labels != partition.label) >= n)
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


@pytest.mark.parametrize(
    "spec",
    [{"name": "label_biased", "bias": 1.5}, {"name": "dirichlet", "alpha": 0.0}, {"name": "shards", "per_client": 0}],
)
def test_settings_that_make_no_sense(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        registry.build("partitions", spec)


def test_shards_leave_a_client_with_few_classes() -> None:
    shares = class_shares(Shards(per_client=2), n=10)
    assert ((shares > 0).sum(axis=1) <= 2).all()
    sizes = [len(p) for p in Shards().split(np.arange(1000) % 10, 20, 10, np.random.default_rng(0))]
    assert sizes == [50] * 20
    with pytest.raises(ConfigError, match="30 samples can't be cut into 40 shards"):
        Shards().split(np.zeros(30, np.int64), 20, 2, np.random.default_rng(0))


def test_writers_are_dealt_round_robin_and_never_shared() -> None:
    writers = np.random.default_rng(0).permutation(np.repeat(np.arange(17) * 3, 11))
    labels = np.zeros(len(writers), np.int64)
    parts = ByWriter().split(labels, 5, 2, np.random.default_rng(0), writers)
    owners = [sorted(set(writers[part].tolist())) for part in parts]
    assert sorted(owner for whose in owners for owner in whose) == sorted(set(writers.tolist()))
    assert sorted(map(len, owners)) == [3, 3, 3, 4, 4]
    for whose in owners:
        assert len({(writer // 3) % 5 for writer in whose}) == 1


def test_by_writer_needs_enough_writers_that_are_known() -> None:
    labels = np.zeros(20, np.int64)
    with pytest.raises(ConfigError, match="4 writers can't be dealt out to 5 clients; ask at most 4"):
        ByWriter().split(labels, 5, 2, np.random.default_rng(0), np.arange(20) % 4)
    with pytest.raises(ConfigError, match="by_writer needs data that says who made each sample"):
        ByWriter().split(labels, 5, 2, np.random.default_rng(0))


def test_a_text_is_cut_into_consecutive_parts() -> None:
    sequences = np.zeros((103, 7), np.int64)
    parts = Consecutive().split(sequences, 10, 100, np.random.default_rng(0))
    for part in parts:
        assert sorted(part.tolist()) == list(range(part.min(), part.max() + 1))
    assert sorted(map(len, parts)) == [10] * 7 + [11] * 3


def test_sequences_have_no_label_to_deal_by() -> None:
    with pytest.raises(ConfigError, match="use the partition consecutive, iid"):
        LabelBiased().split(np.zeros((20, 7), np.int64), 5, 100, np.random.default_rng(0))
    assert len(Iid().split(np.zeros((20, 7), np.int64), 5, 100, np.random.default_rng(0))) == 5


def test_one_client_alone_has_the_lone_class() -> None:
    labels = np.arange(1000) % 10
    parts = LoneClass(label=3).split(labels, 20, 10, np.random.default_rng(0))
    assert sum((labels[part] == 3).any() for part in parts) == 1
    for few, n, bias in ((labels, 20, 1.0), (labels[:120], 40, 0.5)):  # somebody would be left without any
        scarce = LoneClass(label=3, bias=bias).split(few, n, 10, np.random.default_rng(0))
        assert sum((few[part] == 3).any() for part in scarce) == 1
        assert min(map(len, scarce)) > 0
    with pytest.raises(ConfigError, match="too few"):
        LoneClass(label=3).split(np.array([3, 3, 3, 1]), 4, 10, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="lone_class"):
        LoneClass(label=10).split(labels, 20, 10, np.random.default_rng(0))
