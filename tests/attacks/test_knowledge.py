"""Knowledge is granted, stated and enforced."""

from __future__ import annotations

import numpy as np
import pytest

from tesseract_fl import registry
from tesseract_fl.attacks.base import BLIND, FULL, Attack, Knowledge, View
from tesseract_fl.attacks.fang import FullTrim
from tesseract_fl.attacks.schedule import Sleeper, Whitewash
from tesseract_fl.attacks.simple import SignFlip
from tesseract_fl.simulation.config import Config, merged
from tesseract_fl.types import ConfigError, KnowledgeError, Matrix

OWN = np.ones((2, 3), np.float32)


def test_what_a_view_grants_is_what_it_holds() -> None:
    assert View(round=1, trained=OWN, n=9, report=None).knowledge == BLIND
    assert View(round=1, trained=OWN, benign=OWN).knowledge == Knowledge(updates="all", defence="report")
    assert View(round=1, trained=OWN, benign=OWN, ask=lambda *_: None).knowledge == FULL  # type: ignore[arg-type]


def test_asking_for_more_than_granted_is_an_error() -> None:
    partial = View(round=1, trained=OWN, n=9, report=None)
    with pytest.raises(KnowledgeError, match='FullTrim needs to know updates = "all" \\(granted: "own"\\)'):
        FullTrim().craft(partial, np.random.default_rng(0))
    np.testing.assert_array_equal(SignFlip().craft(partial, np.random.default_rng(0)), -OWN)


def test_an_attack_that_does_not_say_needs_everything() -> None:
    class Silent(Attack):
        def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
            return view.own

    with pytest.raises(KnowledgeError, match=r"updates.*defence"):
        Silent().craft(View(round=1, trained=OWN, n=9, report=None), np.random.default_rng(0))


def test_wrappers_need_what_their_attack_needs() -> None:
    assert Sleeper(inner=Whitewash(inner=FullTrim())).needs == FullTrim().needs


@pytest.mark.parametrize("name", ["flip_band", "adaptive_trim", "full_krum", "mimic", "line_search"])
def test_a_run_with_too_little_knowledge_is_refused_before_it_starts(name: str) -> None:
    with pytest.raises(KnowledgeError, match="--knowledge full"):
        Config.from_table({"attack": name, "knowledge": "partial"})
    Config.from_table({"attack": name, "knowledge": "full"})


def test_the_report_without_the_rule_is_enough_for_flip_band_but_not_for_the_search() -> None:
    granted = {"updates": "all", "defence": "report"}
    Config.from_table({"attack": "flip_band", "knowledge": granted})
    with pytest.raises(KnowledgeError, match="rule"):
        Config.from_table({"attack": "line_search", "knowledge": granted})


def test_with_partial_knowledge_the_own_updates_stand_in_for_the_others() -> None:
    own = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    sent = registry.build("attacks", {"name": "ipm"}).craft(
        View(round=1, trained=own, n=20, report=None), np.random.default_rng(0)
    )
    np.testing.assert_allclose(sent[0], -3 * own.mean(axis=0), rtol=1e-5)


def test_levels_that_do_not_exist_are_errors() -> None:
    with pytest.raises(ConfigError, match="own, all"):
        Knowledge(updates="some")
    with pytest.raises(ConfigError, match="knowledge"):
        Config.from_table({"knowledge": "none"})
    with pytest.raises(ConfigError, match="did you mean 'defence'"):
        Config.from_table({"knowledge": {"defense": "rule"}})


def test_a_level_can_be_set_apart_from_the_rest() -> None:
    table = merged({"knowledge": "full"}, {"knowledge": {"defence": "report"}})
    assert Config.from_table(table).knowledge == Knowledge(updates="all", defence="report")


@pytest.mark.parametrize("name", ["gaussian", "alie", "min_max", "min_sum"])
def test_a_spread_that_can_not_be_seen_is_refused_before_the_run_starts(name: str) -> None:
    alone = {"attack": name if name != "alie" else {"name": "alie", "z": 1.0}, "malicious": 1}
    Config.from_table(alone)
    with pytest.raises(ConfigError, match=r"needs to know 2 of them instead of 1.*--knowledge full"):
        Config.from_table(alone | {"knowledge": "partial"})
