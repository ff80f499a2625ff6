from __future__ import annotations

import numpy as np
import pytest
import torch

from tesseract_fl.layout import Layout
from tesseract_fl.models.gru import Gru
from tesseract_fl.models.resnet import ResNet18
from tesseract_fl.models.small import Dnn, LeafCnn, Logistic, Mlp, Model
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import ConfigError


@pytest.mark.parametrize(
    ("model", "shape", "classes", "d"),
    [
        (Dnn(), (1, 28, 28), 10, 266_060),
        (LeafCnn(), (1, 28, 28), 62, 6_603_710),
        (ResNet18(), (3, 32, 32), 10, 5_206_218),
        (ResNet18(width=16), (3, 32, 32), 10, 327_738),
        (Mlp(), (1, 28, 28), 10, 784 * 100 + 100 + 100 * 10 + 10),
        (Logistic(), (30,), 2, 62),
    ],
)
def test_parameter_counts(model: Model, shape: tuple[int, ...], classes: int, d: int) -> None:
    flat = FlatModel.create(model, shape, classes, seed=1)
    assert flat.layout.d == flat.vector.size == d
    assert flat.module(torch.zeros(3, *shape)).shape == (3, classes)


def test_the_gru_guesses_every_next_character() -> None:
    flat = FlatModel.create(Gru(), (200,), 100, seed=1)
    assert flat.layout.d == 141_300
    text = torch.randint(0, 100, (2, 30), generator=torch.Generator().manual_seed(0))
    scores = flat.module(text)
    assert scores.shape == (2, 100, 30)
    changed = text.clone()
    changed[:, 20] = (changed[:, 20] + 1) % 100
    assert torch.equal(flat.module(changed)[..., :20], scores[..., :20])  # it can't see what comes
    assert not torch.equal(flat.module(changed)[..., 20:], scores[..., 20:])


@pytest.mark.parametrize("model", [Dnn(), LeafCnn(), ResNet18()])
def test_models_for_images_want_images(model: Model) -> None:
    with pytest.raises(ConfigError, match="takes images of at least"):
        model.build((30,), 2)


def test_the_gru_wants_symbols() -> None:
    with pytest.raises(ConfigError, match="gru takes sequences of symbols, this data has inputs of shape"):
        Gru().build((1, 28, 28), 10)
    with pytest.raises(ConfigError, match="this data has numbers"):
        Gru().build((30,), 2)(torch.zeros(1, 30))
    for model in (Gru, ResNet18):
        with pytest.raises(ConfigError, match="width must be at least 1"):
            model(width=0)


def test_buffers_are_a_row_of_their_own() -> None:
    flat = FlatModel.create(ResNet18(width=2), (3, 8, 8), 10, seed=0)
    before, parameters = flat.buffers, flat.vector.copy()
    assert before.shape == (2 * (2 * 4 + 4 * 4 + 8 * 8) + 16,)  # mean and variance of each channel, 16 counters
    flat.module.train()
    flat.module(torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    after = flat.buffers
    assert not np.array_equal(after, before)
    np.testing.assert_array_equal(flat.vector, parameters)
    other = flat.replica()
    flat.buffers = before
    np.testing.assert_array_equal(flat.buffers, before)
    np.testing.assert_array_equal(other.buffers, after)
    state = other.module.state_dict()
    arrays = other.arrays()
    assert set(arrays) == set(state)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, state[name].numpy())
        assert array.dtype == state[name].numpy().dtype


def test_counters_stay_whole_numbers() -> None:
    flat = FlatModel(torch.nn.BatchNorm1d(1))
    flat.buffers = np.array([0.5, 2.0, 6.9999999])
    counts = flat.arrays()
    assert counts["num_batches_tracked"] == 7
    assert counts["num_batches_tracked"].dtype == np.int64
    assert counts["running_mean"].tolist() == [0.5]


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
