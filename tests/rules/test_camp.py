"""The experimenter's rule that knows who is malicious."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tesseract_fl.rules.camp import CampMean
from tesseract_fl.types import ConfigError, PreconditionError, Updates
from tests.naive import oracles

SENT = np.array([[8.0, -2.0], [4.0, -6.0], [-1.0, 3.0], [-3.0, 5.0], [-2.0, -1.0]], np.float32)


def updates(ids: tuple[str, ...] = ("0", "1~3", "2", "3", "4")) -> Updates:
    return Updates(matrix=SENT, ids=ids, round=1)


@pytest.mark.parametrize(("camp", "mean"), [("benign", [-2.0, 7 / 3]), ("malicious", [6.0, -4.0])])
def test_one_camp_is_averaged_and_everybody_is_scored(camp: str, mean: list[float]) -> None:
    rule = CampMean(f=2, camp=camp)
    first = rule.aggregate(updates(), rule.init(2))
    np.testing.assert_allclose(first.update, mean, rtol=1e-6)
    second = rule.aggregate(updates(), first.state)
    np.testing.assert_allclose(
        second.report["flip_score"], oracles.flip_scores(SENT.tolist(), np.sign(mean).astype(int).tolist())
    )


def test_a_camp_that_is_not_there_is_an_error() -> None:
    rule = CampMean(f=2, camp="malicious")
    with pytest.raises(PreconditionError, match="needs a malicious client"):
        rule.aggregate(updates(("2", "3", "4", "5", "6")), rule.init(2))
    with pytest.raises(PreconditionError, match="needs a malicious client"):
        rule.aggregate(updates(("evil", "3", "4", "5", "6")), rule.init(2))
    with pytest.raises(ConfigError, match="camp must be one of benign, malicious"):
        CampMean(f=2, camp="good")


def test_a_camp_is_averaged_by_sample_counts_as_fedsgd_does() -> None:
    counted = replace(updates(), samples=np.array([1.0, 3.0, 9.0, 9.0, 9.0]))
    rule = CampMean(f=2, camp="malicious")
    np.testing.assert_allclose(rule.aggregate(counted, rule.init(2)).update, [5.0, -5.0], rtol=1e-6)
