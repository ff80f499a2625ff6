"""Label flips and backdoors: what clients are taught, and what counts as success."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tesseract_fl.attacks.poisoning import Backdoor, LabelFlip
from tesseract_fl.attacks.schedule import OnOff, Sleeper
from tesseract_fl.types import ConfigError


def batch(size: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(size, 1, 8, 8), torch.arange(size) % 10


def test_untargeted_labels_are_mirrored() -> None:
    x, y = batch()
    px, py = LabelFlip().poison(x, y, classes=10, round=1)
    assert torch.equal(py, 9 - y)
    assert px is x
    assert LabelFlip().aim(x, y, 10) is None


def test_targeted_labels_change_one_class_only_and_success_is_measured_on_it() -> None:
    x, y = batch()
    before = y.clone()
    attack = LabelFlip(source=7, target=1)
    _, py = attack.poison(x, y, classes=10, round=1)
    assert torch.equal(py, torch.where(y == 7, 1, y))
    aim = attack.aim(x, y, 10)
    assert aim is not None
    assert aim[1].tolist() == [1, 1]
    assert torch.equal(y, before)


def test_a_backdoor_stamps_a_share_of_the_batch_and_leaves_the_rest() -> None:
    x, y = batch()
    px, py = Backdoor(target=3, share=0.25, size=2).poison(x, y, classes=10, round=1)
    assert (px[:5, :, -2:, -2:] == 2.8).all()
    assert px.sum() == pytest.approx(5 * 4 * 2.8, rel=1e-5)
    assert py[:5].tolist() == [3] * 5
    assert torch.equal(py[5:], y[5:])
    assert x.sum() == 0


def test_a_backdoor_aims_at_every_other_class() -> None:
    x, y = batch()
    aim = Backdoor(target=3).aim(x, y, 10)
    assert aim is not None
    assert len(aim[0]) == 18
    assert (aim[1] == 3).all()
    assert (aim[0][..., -3:, -3:] == 2.8).all()


def test_features_without_rows_have_their_trigger_in_the_last_ones() -> None:
    px, _ = Backdoor(target=1, size=2).poison(torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64), classes=2, round=1)
    assert px.tolist() == 2 * [[0, 0, 0, 0, px[0, 4], px[0, 4]]] + 2 * [[0] * 6]


def test_wrappers_poison_only_in_their_rounds() -> None:
    x, y = batch()
    sleeper, duty = Sleeper(inner=LabelFlip(), until=3), OnOff(inner=LabelFlip(), on=1, off=2)
    assert [torch.equal(sleeper.poison(x, y, classes=10, round=t)[1], y) for t in (1, 3, 4)] == [True, True, False]
    assert [torch.equal(duty.poison(x, y, classes=10, round=t)[1], y) for t in (1, 2, 3, 4)] == [
        False,
        True,
        True,
        False,
    ]
    assert Sleeper(inner=Backdoor()).aim(x, y, 10) is not None


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (LabelFlip, {"source": 1}),
        (LabelFlip, {"source": 2, "target": 2}),
        (LabelFlip, {"source": 2, "target": 12}),
        (Backdoor, {"target": 10}),
        (Backdoor, {"size": 0}),
        (Backdoor, {"size": 28}),
        (Backdoor, {"share": 0.0}),
        (Backdoor, {"boost": float("inf")}),
    ],
)
def test_what_makes_no_sense_is_an_error(kind: Any, wrong: dict[str, Any]) -> None:
    x, y = batch()
    with pytest.raises(ConfigError):
        kind(**wrong).poison(x, y, classes=10, round=1)
