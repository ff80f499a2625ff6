"""FoolsGold where its weights hang on the last digit, because everybody sent the same, and with another confidence."""

from __future__ import annotations

import numpy as np
import pytest

from tesseract_fl.rules.foolsgold import FoolsGold
from tesseract_fl.types import Updates
from tests.naive import oracles


@pytest.mark.parametrize("memory", [True, False])
@pytest.mark.parametrize("longest", [1.0, 10.0])
def test_where_everybody_sends_the_same_direction_the_model_stays(memory: bool, longest: float) -> None:
    rule = FoolsGold(memory=memory)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(2, 30)), int(rng.integers(1, 600))
        lengths = rng.uniform(1.0, longest, size=(n, 1)).astype(np.float32)
        state = rule.init(d)
        for t in (1, 2):
            row = rng.normal(scale=10.0 ** rng.integers(-6, 6), size=d).astype(np.float32)
            sent = Updates(matrix=lengths * row, ids=tuple(str(i) for i in range(n)), round=t)
            out = rule.aggregate(sent, state)
            state = out.state
            assert not out.update.any(), (seed, t)


@pytest.mark.parametrize("confidence", [0.3, 1.0, 2.0])
def test_confidence_is_the_papers(confidence: float) -> None:
    rng = np.random.default_rng(0)
    sent = rng.normal(size=(12, 5)) + 1.0
    rule = FoolsGold(confidence=confidence)
    out = rule.aggregate(Updates(matrix=sent, ids=tuple(f"{i:02}" for i in range(12)), round=1), rule.init(5))
    alpha = np.array(oracles.foolsgold_alpha(sent.tolist(), confidence))
    assert ((alpha > 0) & (alpha < 1)).any()
    assert out.weights is not None
    np.testing.assert_allclose(out.weights, alpha / alpha.sum(), rtol=1e-9)
