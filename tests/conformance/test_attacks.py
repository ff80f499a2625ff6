"""What every attack in the registry must do; a new attack is tested by being in the registry."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tesseract_fl import registry
from tesseract_fl.attacks.base import Attack, NoAttack, View
from tesseract_fl.attacks.hidden import Alie, Mimic
from tesseract_fl.attacks.search import Camouflage, LineSearch
from tesseract_fl.attacks.simple import Gaussian, NonFinite
from tesseract_fl.data.base import Dataset
from tesseract_fl.kernels import sign
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.run import run
from tesseract_fl.types import Aggregate, ConfigError, Matrix, Updates


def build(name: str) -> Attack:
    wraps = any(field.name == "inner" for field in dataclasses.fields(registry.lookup("attacks", name)))
    attack: Attack = registry.build("attacks", {"name": f"{name}+full_trim" if wraps else name})
    return attack


ATTACKS = {name: build(name) for name in registry.table("attacks")}
HARMFUL = {name: attack for name, attack in ATTACKS.items() if name != "none"}
every_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def seen(matrix: Matrix, c: int, round: int = 1, **more: Any) -> View:
    benign, d = matrix[c:].copy(), matrix.shape[1]

    def ask(rows: Matrix, state: Any = None) -> Aggregate:
        ids = tuple(map(str, range(len(matrix))))
        return FedSGD().aggregate(
            Updates(matrix=np.concatenate([rows, benign]), ids=ids, round=round), FedSGD().init(d)
        )

    return View(round=round, benign=benign, trained=matrix[:c].copy(), ask=ask, **more)


def noise(n: int = 20, d: int = 30) -> Matrix:
    return np.random.default_rng(1).normal(0.5, 1, size=(n, d)).astype(np.float32)


@every_attack
def test_crafted_rows_are_finite_of_the_right_shape_and_reproducible(attack: Attack) -> None:
    view = seen(noise(), 4)
    before = view.benign.copy(), view.own.copy()
    first, second = (attack.craft(view, np.random.default_rng(5)) for _ in range(2))
    assert first.shape == (4, 30)
    assert first.dtype == np.float32
    assert np.isfinite(first).all() == (not isinstance(attack, NonFinite))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(view.benign, before[0])
    np.testing.assert_array_equal(view.own, before[1])


@every_attack
def test_nobody_malicious_crafts_nothing(attack: Attack) -> None:
    assert attack.craft(seen(noise(), 0), np.random.default_rng(0)).shape == (0, 30)


@every_attack
def test_nobody_honest_is_an_error_for_whoever_goes_by_their_updates(attack: Attack) -> None:
    everybody = seen(noise(4), 4)
    if attack.needs.updates == "all":
        with pytest.raises(ConfigError, match=r"honest|malicious"):
            attack.craft(everybody, np.random.default_rng(0))
    elif not isinstance(attack, Alie):  # which needs an honest client to be won over
        assert attack.craft(everybody, np.random.default_rng(0)).shape == (4, 30)


@every_attack
def test_honest_updates_that_are_not_finite_are_left_out(attack: Attack) -> None:
    matrix = noise(21)
    matrix[4] = np.nan
    whole, hurt = (attack.craft(seen(m, 4), np.random.default_rng(5)) for m in (np.delete(matrix, 4, 0), matrix))
    if not isinstance(attack, Mimic | LineSearch | Camouflage | Alie):  # who copy it, ask with it, or count it
        np.testing.assert_array_equal(hurt, whole)


@every_attack
def test_where_no_honest_update_is_finite_there_is_nothing_left_to_attack(attack: Attack) -> None:
    matrix = noise()
    matrix[4:] = np.nan
    view = seen(matrix, 4)
    assert attack.craft(view, np.random.default_rng(5)) is view.own
    assert not view.gave_up


WRAPPERS = [name for name, attack in ATTACKS.items() if hasattr(attack, "inner")]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@every_attack
def test_wrappers_go_around_any_attack(wrapper: str, attack: Attack) -> None:
    wrapped = registry.lookup("attacks", wrapper)(inner=attack)
    assert wrapped.needs == attack.needs
    assert wrapped.least_known == attack.least_known
    early, late = (seen(noise(), 4, round=round) for round in (1, 1001))
    for view in (early, late):
        struck = wrapped.active(view.round)
        as_told = attack.craft(dataclasses.replace(view, round=wrapped.clock(view.round)), np.random.default_rng(5))
        np.testing.assert_array_equal(wrapped.craft(view, np.random.default_rng(5)), as_told if struck else view.own)


@every_attack
def test_a_table_makes_the_same_attack_again(attack: Attack) -> None:
    assert registry.build("attacks", registry.describe("attacks", attack)) == attack


@every_attack
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e30])
def test_extreme_rounds_give_rows_of_the_right_shape(attack: Attack, scale: float) -> None:
    with np.errstate(all="ignore"):
        rows = attack.craft(seen(np.float32(scale) * noise(), 4), np.random.default_rng(5))
    assert rows.shape == (4, 30)


class Absent(Attack):
    """As if the malicious clients had not come: what they send changes no mean."""

    def _craft(self, view: View, rng: np.random.Generator) -> Matrix:
        return view.rows(view.columns.mean)


CLASSES, LR, N, C = 30, 0.05, 20, 4


def quadratic_loss(attack: Attack, rounds: int = 150) -> float:
    """½‖w − w*‖² after learning, by a plain mean, how frequent each class is: ½‖w − onehot(y)‖² per sample.

    w* is that of the honest clients. They have different classes, and a batch is 32 labels, so poisoned data
    hurts as well as crafted updates. The malicious clients have what the honest ones have on average: as long as they
    behave, they do no harm.
    """
    frequencies = np.random.default_rng(0).dirichlet(np.linspace(2, 0.1, CLASSES), size=N)
    target, w = frequencies[C:].mean(axis=0), np.zeros(CLASSES)
    frequencies[:C] = target
    reference = np.zeros(CLASSES, np.int8)
    for t in range(1, rounds + 1):
        rng = np.random.default_rng(t)
        matrix = np.empty((N, CLASSES), np.float32)
        for i, own in enumerate(frequencies):
            counts = rng.multinomial(32, own)
            if i < C:
                x, y = torch.zeros(32, 4), torch.from_numpy(rng.permutation(np.repeat(np.arange(CLASSES), counts)))
                counts = np.bincount(attack.poison(x, y, classes=CLASSES, round=t)[1], minlength=CLASSES)
            matrix[i] = LR * (counts / 32 - w)
        matrix[:C] = attack.craft(seen(matrix, C, t, reference=reference), rng)
        moved = matrix.mean(axis=0, dtype=np.float64)
        w, reference = w + moved, sign(moved)
    return float(0.5 * np.square(w - target).sum())


@cache
def undisturbed() -> float:
    return quadratic_loss(Absent())


# gaussian looks like an honest client on purpose; what is not finite never gets past the gate (see test_simple.py)
SHARP = {name: attack for name, attack in HARMFUL.items() if name not in ("gaussian", "non_finite")}


def test_who_behaves_does_no_harm() -> None:
    assert quadratic_loss(NoAttack()) < 1.1 * undisturbed()


@pytest.mark.parametrize("attack", SHARP.values(), ids=SHARP)
def test_each_attack_hurts_the_plain_mean_on_a_quadratic(attack: Attack) -> None:
    assert quadratic_loss(attack) > 1.5 * undisturbed()


def test_gaussian_hurts_only_where_it_is_wider_than_the_honest_clients() -> None:
    assert quadratic_loss(Gaussian()) < 1.5 * undisturbed()
    assert quadratic_loss(Gaussian(scale=30.0)) > 1.5 * undisturbed()


MNIST: dict[str, Any] = {
    "data": "mnist_5k",
    "model": "mlp",
    "clients": 20,
    "malicious": 5,
    "batch": 16,
    "lr": 0.1,
    "rounds": 40,
    "eval_every": 40,
    "rule": "fedsgd",
    "partition": {"name": "label_biased", "bias": 0.8},
}
IN_TIME: dict[str, dict[str, Any]] = {"sleeper": {"until": 15}, "steering": {"over": 20}, "gaussian": {"scale": 30.0}}


@cache
def images() -> Dataset:
    return Config.from_table(MNIST).data.read()


@cache
def on_mnist(name: str) -> dict[str, Any]:
    table = registry.describe("attacks", ATTACKS[name]) | IN_TIME.get(name, {})
    config = Config.from_table({**MNIST, "attack": table})
    records: list[dict[str, Any]] = []
    summary = run(config, images(), on_start=lambda *_: lambda record, seconds: records.append(record))
    return summary | records[-1]


@pytest.mark.parametrize("name", [name for name in HARMFUL if name != "non_finite"])
def test_each_attack_hurts_the_plain_mean_on_real_images(name: str) -> None:
    attacked, quiet = on_mnist(name), on_mnist("none")
    got_what_it_wanted = attacked.get("attack_success", 0.0) > 0.9
    assert got_what_it_wanted or attacked["test_loss"] is None or attacked["test_loss"] > 1.05 * quiet["test_loss"]


def test_a_targeted_label_flip_gets_what_it_wanted_where_enough_take_part() -> None:
    """Fewer than half of the clients, without a boost, change the model's mind about one class only slowly."""
    flip = {"name": "label_flip", "source": 7, "target": 1}
    success = {}
    for malicious, attack in ((9, flip), (9, {"name": "sleeper", "inner": flip, "until": 1000})):
        table = {**MNIST, "malicious": malicious, "partition": "iid", "rounds": 80, "eval_every": 80, "attack": attack}
        success[attack["name"]] = run(Config.from_table(table), images())["attack_success"]
    assert success["label_flip"] > success["sleeper"] + 0.1


def test_what_is_not_finite_is_turned_away_and_the_run_goes_on() -> None:
    attacked = on_mnist("non_finite")
    assert attacked["skipped"] == 0
    assert attacked["detection"]["true_positive_rate"] == 1.0
    assert attacked["accuracy"] > on_mnist("none")["accuracy"] - 0.1
