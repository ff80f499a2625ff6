"""The line search asks the rule that is there, and does it at least as much harm as any strength that it tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.search import Camouflage, LineSearch
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.coordinate import TrimmedMean
from tesseract_fl.rules.hardened import Hardened
from tesseract_fl.rules.krum import Krum
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.types import Aggregate, ConfigError, Matrix, PreconditionError, Updates


def asking(rule: Rule[Any], n: int = 20, c: int = 4, d: int = 40) -> tuple[View, list[Matrix]]:
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
    assert len(tried) == 10
    assert progress(view, sent) == pytest.approx(min(progress(view, rows) for rows in tried))
    assert progress(view, sent) < progress(view, view.own)


def test_it_finds_how_far_krum_can_be_pushed() -> None:
    """Too strong an update is not chosen; the search stays below and is."""
    view, _ = asking(Krum(f=4))
    assert progress(view, LineSearch().craft(view, np.random.default_rng(0))) < 0
    assert progress(view, view.rows(-100 * view.columns.mean)) > 0


def test_looking_ahead_passes_the_state_on() -> None:
    view, asked = asking(Tesseract(f=4))
    LineSearch(horizon=3, doublings=2, refinements=0).craft(view, np.random.default_rng(0))
    assert len(asked) == 6


def test_a_rule_that_skips_the_round_is_harmless_not_fatal() -> None:
    def refuse(rows: Matrix, state: Any = None) -> Aggregate:
        raise PreconditionError("no")

    seen, _ = asking(Krum(f=4))
    view = View(round=1, benign=seen.benign, trained=seen.own, ask=refuse)
    assert LineSearch().craft(view, np.random.default_rng(0)).shape == (4, 40)


@pytest.mark.parametrize("wrong", [{"horizon": 0}, {"doublings": 0}, {"refinements": -1}, {"deviation": "up"}])
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="line_search"):
        LineSearch(**wrong)


@pytest.mark.parametrize("rule", [Tesseract(f=4), Hardened(f=4, cut=1.0)], ids=["tesseract", "hardened"])
def test_camouflage_goes_as_far_as_nobody_is_penalised(rule: Rule[Any]) -> None:
    view, asked = asking(rule)
    sent = Camouflage(halvings=8).craft(view, np.random.default_rng(0))
    assert view.ask is not None
    caught = {rows.tobytes(): any(view.ask(rows).report["penalised"][: view.c]) for rows in list(asked)}
    if sent is view.own:
        assert all(caught.values())
    else:
        assert not caught[sent.tobytes()]
        assert progress(view, sent) < progress(view, view.own)


def test_camouflage_goes_all_the_way_where_nobody_looks() -> None:
    view, asked = asking(TrimmedMean(f=4))
    sent = Camouflage().craft(view, np.random.default_rng(0))
    assert len(asked) == 1
    np.testing.assert_allclose(sent, view.rows(sent[0]), rtol=1e-6)


def test_colluders_under_camouflage_differ() -> None:
    view, _ = asking(Hardened(f=4, cut=0.5))
    sent = Camouflage().craft(view, np.random.default_rng(0))
    assert len({row.tobytes() for row in sent}) == view.c


@pytest.mark.parametrize("settings", [{"deviation": "up"}, {"halvings": 0}, {"sacrifice": 1.0}])
def test_camouflage_that_makes_no_sense_is_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="camouflage"):
        Camouflage(**settings)
