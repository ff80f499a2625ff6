"""The line search asks the rule that is there, and does it at least as much harm as any strength that it tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.fang import FullKrum
from tesseract_fl.attacks.search import Camouflage, LineSearch
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.coordinate import TrimmedMean
from tesseract_fl.rules.krum import Krum
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.types import Aggregate, ConfigError, Matrix, PreconditionError, Updates


def asking(rule: Rule[Any], n: int = 20, c: int = 4, d: int = 40, benign: Matrix = None) -> tuple[View, list[Matrix]]:
    if benign is None:
        benign = np.random.default_rng(0).normal(0.4, 1, size=(n - c, d)).astype(np.float32)
    own = np.random.default_rng(1).normal(0.4, 1, size=(c, d)).astype(np.float32)
    asked: list[Matrix] = []

    def ask(rows: Matrix, state: Any = None) -> Aggregate:
        asked.append(rows)
        updates = Updates(matrix=np.concatenate([rows, benign]), ids=tuple(map(str, range(n))), round=1)
        return rule.aggregate(updates, rule.init(d) if state is None else state)

    return View(round=1, benign=benign, trained=own, ask=ask), asked


def progress(view: View, rows: Matrix) -> float:
    assert view.ask is not None
    return float(view.ask(rows).update @ view.columns.mean)


@pytest.mark.parametrize("rule", [TrimmedMean(f=4), Krum(f=4), Tesseract(f=4)], ids=["trimmed", "krum", "tesseract"])
@pytest.mark.parametrize("deviation", ["sign", "std", "unit"])
def test_nothing_that_was_tried_does_more_harm(rule: Rule[Any], deviation: str) -> None:
    view, asked = asking(rule)
    sent = LineSearch(deviation=deviation).craft(view, np.random.default_rng(0))
    tried = list(asked)
    assert len(tried) == 17
    assert progress(view, sent) == pytest.approx(min(progress(view, rows) for rows in tried))
    assert progress(view, sent) < progress(view, view.own)


def test_it_finds_how_far_krum_can_be_pushed() -> None:
    """Too strong an update is not chosen; the search stays below and is."""
    view, _ = asking(Krum(f=4))
    assert progress(view, LineSearch().craft(view, np.random.default_rng(0))) < 0
    assert progress(view, view.rows(-100 * view.columns.mean)) > 0


def test_it_finds_what_full_krum_finds_where_honest_updates_differ_in_length() -> None:
    """Krum then lives among the short ones, far from the mean."""
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        benign = rng.normal(0.2, 1, size=(32, 50)) * rng.lognormal(0, 1.2, size=(32, 1))
        view, _ = asking(Krum(f=8), n=40, c=8, d=50, benign=benign.astype(np.float32))
        directed = FullKrum().craft(view, np.random.default_rng(0))
        if view.gave_up:
            continue
        found += 1
        assert progress(view, LineSearch().craft(view, np.random.default_rng(0))) <= 0.5 * progress(view, directed) < 0
    assert found > 3


def test_a_rule_that_nothing_harms_is_left_alone() -> None:
    view, _ = asking(Krum(f=4))
    mean = view.columns.mean

    def unmoved(rows: Matrix, state: Any = None) -> Aggregate:
        return Aggregate(update=mean, state=None, weights=None, report={})

    told = replace(view, ask=unmoved)
    assert LineSearch().craft(told, np.random.default_rng(0)) is told.own
    assert "no strength" in told.gave_up[0]


def test_looking_ahead_passes_the_state_on() -> None:
    view, asked = asking(Tesseract(f=4))
    LineSearch(horizon=3, refinements=0).craft(view, np.random.default_rng(0))
    assert len(asked) == 3 * 13


def test_a_rule_that_skips_the_round_is_harmless_not_fatal() -> None:
    def refuse(rows: Matrix, state: Any = None) -> Aggregate:
        raise PreconditionError("no")

    seen, _ = asking(Krum(f=4))
    view = View(round=1, benign=seen.benign, trained=seen.own, ask=refuse)
    assert LineSearch().craft(view, np.random.default_rng(0)).shape == (4, 40)


@pytest.mark.parametrize("wrong", [{"horizon": 0}, {"refinements": -1}, {"deviation": "up"}])
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="line_search"):
        LineSearch(**wrong)


def push(view: View, rows: Matrix) -> Matrix:
    """How far each row goes against where an honest round would go."""
    return -(rows @ view.direction) / np.linalg.norm(view.direction)


def judged_by(limit: float, **report: Any) -> View:
    """Asks a rule that penalises whoever pushes by more than `limit`."""
    seen, _ = asking(TrimmedMean(f=4))

    def ask(rows: Matrix, state: Any = None) -> Aggregate:
        verdicts = [*(push(seen, rows) > limit).tolist(), *[False] * 16]
        return Aggregate(update=rows[0], state=None, weights=None, report={"penalised": verdicts, **report})

    return View(round=1, benign=seen.benign, trained=seen.own, ask=ask, ids=("0", "1", "2", "3"))


@pytest.mark.parametrize("limit", [0.0, 2.0, 4.0])
def test_camouflage_goes_as_far_as_nobody_is_penalised(limit: float) -> None:
    view = judged_by(limit)
    sent = Camouflage(halvings=12).craft(view, np.random.default_rng(0))
    reached = float(push(view, sent).max())
    assert limit - 0.01 < reached <= limit
    assert len({row.tobytes() for row in sent}) == view.c
    assert not view.gave_up


def test_camouflage_may_sacrifice_some() -> None:
    view = judged_by(2.0)
    all_pass, some_fall = (Camouflage(halvings=12, sacrifice=s).craft(view, np.random.default_rng(0)) for s in (0, 0.3))
    assert (push(view, all_pass) > 2.0).sum() == 0
    assert (push(view, some_fall) > 2.0).sum() == 1


def test_camouflage_that_no_push_gets_past_is_honest_and_says_so() -> None:
    for view in (judged_by(-99.0), judged_by(99.0, rejected=[{"client": "2", "code": "norm", "detail": ""}])):
        assert Camouflage().craft(view, np.random.default_rng(0)) is view.own
        assert "unpunished" in view.gave_up[0]


def test_camouflage_finds_a_push_where_only_a_large_one_passes() -> None:
    """A rule that punishes the outermost on either side may let pass what is far, and not what is near."""
    seen, _ = asking(TrimmedMean(f=4))

    def ask(rows: Matrix, state: Any = None) -> Aggregate:
        verdicts = [*(np.abs(push(seen, rows) - 5) > 1.0).tolist(), *[False] * 16]
        return Aggregate(update=rows[0], state=None, weights=None, report={"penalised": verdicts})

    view = replace(seen, ask=ask, ids=("0", "1", "2", "3"))
    sent = Camouflage().craft(view, np.random.default_rng(0))
    assert not view.gave_up
    assert np.abs(push(view, sent) - 5).max() <= 1.0


def test_camouflage_is_punished_no_more_than_the_honest_are() -> None:
    seen, _ = asking(TrimmedMean(f=4))

    def ask(rows: Matrix, state: Any = None) -> Aggregate:
        verdicts = [*(push(seen, rows) > [0.0, 9, 9, 9]).tolist(), *[True] * 8, *[False] * 8]
        return Aggregate(update=rows[0], state=None, weights=None, report={"penalised": verdicts})

    view = replace(seen, ask=ask, ids=("0", "1", "2", "3"))
    assert push(view, Camouflage().craft(view, np.random.default_rng(0))).min() > 2
    assert not view.gave_up


def test_camouflage_goes_all_the_way_where_nobody_looks() -> None:
    view, asked = asking(TrimmedMean(f=4))
    sent = Camouflage().craft(view, np.random.default_rng(0))
    assert len(asked) == 1
    np.testing.assert_allclose(sent, view.rows(sent[0]), rtol=1e-6)


def test_camouflage_can_be_longer_at_the_same_angle() -> None:
    view, _ = asking(TrimmedMean(f=4))
    plain, longer = (Camouflage(most=0.5, boost=boost).craft(view, np.random.default_rng(0)) for boost in (None, 2.0))
    np.testing.assert_allclose(longer, 2 * plain, rtol=1e-6)
    pushes_less = Camouflage(halvings=12, boost=2.0).craft(judged_by(2.0), np.random.default_rng(0))
    assert 1.99 < float(push(view, pushes_less).max()) <= 2.0


def test_camouflage_can_push_elsewhere_by_each_client() -> None:
    """Each as hard as in all coordinates, and each time in others, so that few signs are common."""
    view, _ = asking(TrimmedMean(f=4))
    whole, first, again = (
        Camouflage(most=0.6, part=part).craft(view, np.random.default_rng(seed)) - 0.8 * np.asarray(view.own)
        for part, seed in ((None, 0), (0.25, 0), (0.25, 1))
    )
    pushed = np.abs(first) > 1e-6
    assert pushed.mean() == pytest.approx(0.25, abs=0.1)
    assert len({row.tobytes() for row in [*pushed, *(np.abs(again) > 1e-6)]}) == 2 * view.c
    np.testing.assert_allclose(first[pushed], 2 * whole[pushed], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"deviation": "up"},
        {"steps": 0},
        {"halvings": -1},
        {"sacrifice": 1.0},
        {"most": 0.0},
        {"boost": 0.0},
        {"part": 0.0},
        {"part": 1.1},
    ],
)
def test_camouflage_that_makes_no_sense_is_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="camouflage"):
        Camouflage(**settings)
