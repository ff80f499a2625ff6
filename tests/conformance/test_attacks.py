"""What every attack in the registry must do; a new attack is tested by being in the registry."""

from __future__ import annotations

import numpy as np
import pytest

from tesseract_fl import registry
from tesseract_fl.attacks.base import Attack, View
from tesseract_fl.types import ConfigError

ATTACKS: dict[str, Attack] = {name: registry.build("attacks", {"name": name}) for name in registry.table("attacks")}
HARMFUL = {name: attack for name, attack in ATTACKS.items() if name != "none"}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def seen(round: int = 1, n: int = 20, c: int = 4, d: int = 30) -> View:
    matrix = np.random.default_rng(round).normal(0.5, 1, size=(n, d)).astype(np.float32)
    return View(round=round, benign=matrix[c:], own=matrix[:c])


@every_attack
def test_crafted_rows_are_finite_of_the_right_shape_and_reproducible(attack: Attack) -> None:
    view = seen()
    before = view.benign.copy(), view.own.copy()
    first, second = (attack.craft(view, np.random.default_rng(5)) for _ in range(2))
    assert first.shape == (4, 30)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(view.benign, before[0])
    np.testing.assert_array_equal(view.own, before[1])


@every_attack
def test_nobody_malicious_crafts_nothing(attack: Attack) -> None:
    assert attack.craft(seen(c=0), np.random.default_rng(0)).shape == (0, 30)


@pytest.mark.parametrize("attack", HARMFUL.values(), ids=HARMFUL)
def test_nobody_honest_is_an_error(attack: Attack) -> None:
    with pytest.raises(ConfigError):
        attack.craft(seen(n=4, c=4), np.random.default_rng(0))


def quadratic_loss(attack: Attack) -> float:
    """Gradient descent on ½‖w − w*‖² with the plain mean of noisy clients; the loss after 60 rounds."""
    target, w = np.ones(30), np.zeros(30)
    for t in range(1, 61):
        rng = np.random.default_rng(t)
        matrix = (0.1 * (target - w + 0.3 * rng.normal(size=(20, 30)))).astype(np.float32)
        rows = attack.craft(View(round=t, benign=matrix[4:], own=matrix[:4]), rng)
        w = w + np.concatenate([rows, matrix[4:]]).mean(axis=0)
    return float(0.5 * np.square(w - target).sum())


@pytest.mark.parametrize("attack", HARMFUL.values(), ids=HARMFUL)
def test_each_attack_hurts_the_plain_mean_on_a_quadratic(attack: Attack) -> None:
    assert quadratic_loss(attack) > 1.5 * quadratic_loss(ATTACKS["none"])
