from __future__ import annotations

import numpy as np
import pytest
import torch

from tesseract_fl.layout import Layout
from tesseract_fl.models.small import Dnn, Logistic, Mlp, Model
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import ConfigError


@pytest.mark.parametrize(
    ("model", "shape", "classes", "d"),
    [
        (Dnn(), (1, 28, 28), 10, 266_060),
        (Mlp(), (1, 28, 28), 10, 784 * 100 + 100 + 100 * 10 + 10),
        (Logistic(), (30,), 2, 62),
    ],
)
def test_parameter_counts(model: Model, shape: tuple[int, ...], classes: int, d: int) -> None:
    flat = FlatModel.create(model, shape, classes, seed=1)
    assert flat.layout.d == flat.vector.size == d
    assert flat.module(torch.zeros(3, *shape)).shape == (3, classes)


def test_dnn_wants_images() -> None:
    with pytest.raises(ConfigError, match="dnn takes images"):
        Dnn().build((30,), 2)


def test_the_vector_is_the_model() -> None:
    flat = FlatModel.create(Logistic(), (3,), 2, seed=0)
    x = torch.ones(1, 3)
    flat.vector[:] = 0
    assert flat.module(x).tolist() == [[0.0, 0.0]]
    flat.vector[-2:] = [1, 2]
    assert flat.module(x).tolist() == [[1.0, 2.0]]


def test_the_seed_decides_and_torch_s_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (FlatModel.create(Mlp(hidden=5), (4,), 2, seed).vector for seed in (7, 7, 8))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_layout_round_trip() -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7.0, np.float32)}
    layout = Layout.of(arrays)
    again = layout.unflatten(layout.flatten(arrays))
    assert list(again) == ["a", "b"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].shape == array.shape
