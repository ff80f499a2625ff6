"""Wrappers: when an attack strikes, under which name, and what round it is for the one inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tesseract_fl import registry
from tesseract_fl.attacks.base import View
from tesseract_fl.attacks.hidden import Mimic
from tesseract_fl.attacks.poisoning import LabelFlip
from tesseract_fl.attacks.reputation import Steering
from tesseract_fl.attacks.schedule import OnOff, Sleeper
from tesseract_fl.attacks.search import Camouflage
from tesseract_fl.attacks.simple import Gaussian, SignFlip
from tesseract_fl.types import Aggregate, ConfigError


def view(round: int) -> View:
    rng = np.random.default_rng(0)
    matrix = rng.normal(0.2, 1.0, size=(20, 60)).astype(np.float32)
    reference = rng.choice(np.array([-1, 1, 1], np.int8), size=60)
    return View(round=round, benign=matrix[4:], trained=matrix[:4], reference=reference)


def test_a_sleeper_is_honest_and_says_so_until_it_strikes() -> None:
    sleeper = Sleeper(inner=SignFlip(), until=3)
    asleep, awake = view(3), view(4)
    assert sleeper.craft(asleep, np.random.default_rng(0)) is asleep.own
    assert asleep.gave_up == ["sleeper: not in this round"]
    np.testing.assert_array_equal(sleeper.craft(awake, np.random.default_rng(0)), -awake.own)
    assert awake.gave_up == []


def test_a_sleeper_may_do_something_else_than_honest_work_until_it_strikes() -> None:
    told = {"name": "sleeper", "until": 3, "inner": {"name": "sign_flip"}, "cover": {"name": "gaussian"}}
    sleeper = registry.build("attacks", told)
    assert sleeper == Sleeper(inner=SignFlip(), until=3, cover=Gaussian())
    assert registry.describe("attacks", sleeper)["cover"] == {"name": "gaussian", "scale": 1.0}
    asleep, awake = view(3), view(4)
    np.testing.assert_array_equal(
        sleeper.craft(asleep, np.random.default_rng(0)), Gaussian().craft(view(3), np.random.default_rng(0))
    )
    np.testing.assert_array_equal(sleeper.craft(awake, np.random.default_rng(0)), -awake.own)
    assert not asleep.gave_up
    assert sleeper.least_known == 2, "to be gaussian takes two"


def test_a_sleeper_needs_what_its_cover_needs_and_poisons_as_its_cover_does() -> None:
    hidden = Sleeper(inner=SignFlip(), until=3, cover=Mimic())
    assert hidden.needs == Mimic().needs
    with pytest.raises(ConfigError, match="all 4 are malicious"):
        hidden.check(4, 4)
    x, y = torch.zeros(2, 3), torch.tensor([0, 9])
    flipping = Sleeper(inner=SignFlip(), until=3, cover=LabelFlip())
    assert [flipping.poison(x, y, classes=10, round=t)[1].tolist() for t in (3, 4)] == [[9, 0], [0, 9]]


def test_for_the_attack_inside_of_a_sleeper_time_begins_when_it_wakes() -> None:
    late, early = view(104), view(4)
    np.testing.assert_array_equal(
        Sleeper(inner=Steering(over=200), until=100).craft(late, np.random.default_rng(0)),
        Steering(over=200).craft(early, np.random.default_rng(0)),
    )


def test_a_sleeper_keeps_its_name_until_it_strikes() -> None:
    attack = registry.build("attacks", {"name": "sleeper+whitewash+full_trim", "until": 100})
    assert [attack.alias("3", t) for t in (1, 50, 100, 110, 111, 121)] == ["3", "3", "3", "3", "3~1", "3~2"]


def test_on_and_off() -> None:
    attack = OnOff(inner=SignFlip(), on=2, off=1)
    struck = [not _honest(attack, t) for t in range(1, 7)]
    assert struck == [True, True, False, True, True, False]


def test_what_comes_in_between_may_be_something_else_than_honest_work() -> None:
    paying = Camouflage(deviation="along", boost=0.02)
    told = {"name": "camouflage", "deviation": "along", "boost": 0.02}
    attack = registry.build("attacks", {"name": "on_off+sign_flip", "on": 1, "off": 1, "cover": told})
    assert attack == OnOff(inner=SignFlip(), on=1, off=1, cover=paying)
    assert OnOff(inner=SignFlip()).needs == SignFlip().needs
    assert attack.needs == paying.needs
    between = view(2)
    seen = replace(between, ask=lambda rows: Aggregate(update=rows[0], weights=None, state=None, report={}))
    sent = attack.craft(seen, np.random.default_rng(0))
    mean, length = between.columns.mean, np.median(np.linalg.norm(between.known, axis=1))
    np.testing.assert_allclose(sent, np.tile(0.02 * length * mean / np.linalg.norm(mean), (4, 1)), rtol=1e-5)
    assert not seen.gave_up


def _honest(attack: OnOff, round: int) -> bool:
    seen = view(round)
    return attack.craft(seen, np.random.default_rng(0)) is seen.own
