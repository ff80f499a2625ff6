"""Attacks on reputation: they sit where the rule rewards, and the paper's rule falls to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.reputation import FlipBand, Steering
from tesseract_fl.kernels import flip_scores
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.types import ConfigError, Updates


def view(seed: int, round: int = 2, n: int = 20, c: int = 4, d: int = 60, reported: bool = True) -> View:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(0.2, 1.0, size=(n, d)).astype(np.float32)
    reference = rng.choice(np.array([-1, 0, 1, 1], np.int8), size=d)
    report = {"flip_score": rng.uniform(20, 40, size=n).tolist()} if reported else {}
    return View(round=round, benign=matrix[c:], trained=matrix[:c], reference=reference, report=report)


@given(st.integers(0, 300), st.booleans())
def test_flip_band_has_the_median_flip_score_and_goes_against_the_honest(seed: int, reported: bool) -> None:
    seen = view(seed, reported=reported)
    sent = FlipBand().craft(seen, np.random.default_rng(0))
    known = seen.report["flip_score"] if seen.report else flip_scores(seen.benign, seen.reference)
    np.testing.assert_allclose(flip_scores(sent, seen.reference), np.median(known), rtol=1e-5)
    np.testing.assert_array_equal(np.sign(sent[0]), -seen.direction)


@given(st.integers(0, 300), st.integers(1, 250))
def test_steering_has_the_median_flip_score_and_turns_the_weakest_coordinates(seed: int, round: int) -> None:
    seen = view(seed, round)
    mean = seen.columns.mean
    sent = Steering(over=200).craft(seen, np.random.default_rng(0))
    assert seen.report is not None
    if seen.gave_up:
        assert sent is seen.own
    else:
        turned = np.sign(sent[0]) == -seen.direction
        np.testing.assert_allclose(flip_scores(sent, seen.reference), np.median(seen.report["flip_score"]), rtol=1e-5)
        assert turned.sum() == -(-min(round, 200) * 60 // 200)
        assert np.abs(mean[turned]).max() <= np.abs(mean[~turned]).min(initial=np.inf)


def test_the_paper_s_rule_rewards_flip_band_as_often_as_the_honest() -> None:
    """Against Full-Trim the malicious clients end with no weight; against flip_band with a full share or more."""
    rule, n, c, d = Tesseract(f=4), 20, 4, 200
    state, reference = rule.init(d), np.zeros(d, np.int8)
    report: dict[str, Any] = {}
    drift = np.random.default_rng(0).normal(size=d)
    for t in range(1, 200):
        rng = np.random.default_rng(t)
        matrix = (0.3 * drift + rng.normal(size=(n, d))).astype(np.float32)
        seen = View(round=t, benign=matrix[c:], trained=matrix[:c].copy(), reference=reference, report=report)
        matrix[:c] = FlipBand().craft(seen, rng)
        out = rule.aggregate(Updates(matrix=matrix, ids=tuple(map(str, range(n))), round=t), state)
        state, reference, report = out.state, np.sign(out.update).astype(np.int8), dict(out.report)
    assert out.weights is not None
    assert out.weights[:c].sum() > c / n


def test_steering_needs_rounds() -> None:
    with pytest.raises(ConfigError, match="over must be"):
        Steering(over=0)
