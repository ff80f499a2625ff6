"""What a ledger says of the clients of a round."""

from __future__ import annotations

import numpy as np

from tesseract_fl.flower.verdicts import verdicts_of
from tesseract_fl.rules.transforms import NormClipping
from tesseract_fl.types import Updates


def test_a_client_weighs_what_it_counts_for_not_by_how_much_its_update_was_shortened() -> None:
    rule = NormClipping()
    matrix = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    matrix[0] *= 1e6
    updates = Updates(matrix=matrix, ids=tuple("abcd"), round=1)
    out = rule.aggregate(updates, rule.init(9))
    assert out.weights is not None
    assert out.weights[0] < 1e-5
    assert [verdict.weight for verdict in verdicts_of(updates, out, (), out.state, 1)] == [0.25] * 4
