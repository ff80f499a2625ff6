"""Beyond plain SGD on labelled vectors: augmentation, schedules, Adam, sequences, and batch-norm statistics."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tesseract_fl.data.augment import Augmentation, CropAndFlip
from tesseract_fl.data.base import Dataset
from tesseract_fl.data.shakespeare import chunks
from tesseract_fl.models.gru import Gru
from tesseract_fl.models.small import Mlp
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation.buffers import combined
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation
from tesseract_fl.simulation.evaluate import evaluate
from tesseract_fl.simulation.gradients import Clients
from tesseract_fl.simulation.run import run
from tesseract_fl.simulation.schedule import learning_rate
from tesseract_fl.types import CheckpointError, ConfigError, DataError, Updates

SMALL: dict[str, Any] = {
    "model": {"name": "resnet18", "width": 2},
    "clients": 6,
    "malicious": 1,
    "rounds": 6,
    "batch": 4,
    "lr": 0.1,
    "schedule": "cifar",
    "eval_every": 3,
    "attack": "full_trim",
}


def config(**changes: Any) -> Config:
    return Config.from_table({**SMALL, **changes})


@pytest.fixture(scope="module")
def images() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4
    x = rng.normal(size=(80, 3, 8, 8)).astype(np.float32) + y[:, None, None, None].astype(np.float32) - 1.5
    return Dataset(
        name="colours", train_x=x[:60], train_y=y[:60], test_x=x[60:], test_y=y[60:], classes=4,
        augment=CropAndFlip(padding=2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def text() -> Dataset:
    x, y = chunks(np.arange(4001) % 7, 20)
    return Dataset(name="count", train_x=x[:180], train_y=y[:180], test_x=x[180:], test_y=y[180:], classes=7)


# --- schedules and optimisers


def test_the_rate_rises_to_its_peak_at_a_quarter_and_falls_to_nearly_nothing() -> None:
    rates = [learning_rate("cifar", 0.1, t, 400) for t in range(1, 401)]
    assert max(rates) == pytest.approx(0.1, rel=2e-3)
    assert rates.index(max(rates)) in (99, 100)
    assert rates[49] == pytest.approx(0.1 * (1 - np.exp(-25 / 8)))
    assert rates[199] == pytest.approx(0.1 * np.exp(-0.5))
    assert rates[-1] == pytest.approx(0.1 * np.exp(-4.5))
    assert {learning_rate("constant", 0.1, t, 400) for t in range(1, 401)} == {0.1}


def test_clients_follow_the_schedule(images: Dataset) -> None:
    constant, scheduled = (Simulation(config(schedule=name, attack="none"), images) for name in ("constant", "cifar"))
    for simulation in (constant, scheduled):
        simulation.step()
    ratio = learning_rate("cifar", 0.1, 1, 6) / 0.1
    np.testing.assert_allclose(scheduled._matrix, constant._matrix * ratio, rtol=1e-4, atol=1e-8)


def test_adam_equals_torch_s_own_and_starts_afresh_for_every_client() -> None:
    rng = torch.Generator().manual_seed(0)
    batches = [(torch.randn(4, 5, generator=rng), torch.tensor([0, 1, 2, 1])) for _ in range(3)]
    model = FlatModel.create(Mlp(hidden=6), (5,), 3, seed=1)
    before = model.vector.copy()
    out = np.empty((2, model.layout.d), np.float32)
    clients = Clients(model, threads=1, optimiser="adam")
    for _ in range(2):
        clients.updates([batches, batches], 0.01, out)
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(model.vector, before)

    module = model.replica().module
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for x, y in batches:
        optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(module(x), y))
        optimiser.step()
    moved = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()]).numpy() - before
    np.testing.assert_allclose(out[0], moved, rtol=1e-5, atol=1e-8)


def test_one_step_of_adam_is_nearly_a_sign() -> None:
    model = FlatModel.create(Mlp(hidden=6), (5,), 3, seed=1)
    x, y = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 1])
    sgd, adam = (np.empty((1, model.layout.d), np.float32) for _ in range(2))
    Clients(model).updates([[(x, y)]], 1.0, sgd)
    Clients(model, optimiser="adam").updates([[(x, y)]], 0.01, adam)
    np.testing.assert_allclose(adam, 0.01 * sgd / (np.abs(sgd) + 1e-8), rtol=1e-3, atol=1e-7)


def test_vmap_can_t_do_adam() -> None:
    model = FlatModel.create(Mlp(hidden=6), (5,), 3, seed=1)
    batch = torch.zeros(2, 5), torch.tensor([0, 1])
    with pytest.raises(ConfigError, match="gradients = 'vmap' can't do adam"):
        Clients(model, strategy="vmap", optimiser="adam").updates(
            [[batch]], 0.1, np.empty((1, model.layout.d), np.float32)
        )


# --- sequences


def test_the_loss_of_a_sequence_is_the_mean_over_its_positions(text: Dataset) -> None:
    model = FlatModel.create(Gru(width=8), text.shape, text.classes, seed=0)
    x, y = torch.from_numpy(text.test_x), torch.from_numpy(text.test_y)
    quality = evaluate(Clients(model), x, y, batch=3)
    scores = model.module(x).detach()
    flat = scores.transpose(1, 2).reshape(-1, 7)
    assert quality.loss == pytest.approx(cross_entropy(flat, y.reshape(-1)).item(), rel=1e-5)
    assert quality.accuracy == pytest.approx((flat.argmax(dim=1) == y.reshape(-1)).float().mean().item())


def test_a_federation_learns_to_count(text: Dataset) -> None:
    settings = config(
        data="shakespeare", model={"name": "gru", "width": 8}, optimiser="adam", schedule="constant",
        lr=0.05, rounds=25, eval_every=25,
    )  # fmt: skip
    assert run(settings, text)["accuracy"] > 0.8


def test_the_wrong_model_or_partition_for_a_text_is_an_error(text: Dataset, images: Dataset) -> None:
    with pytest.raises(ConfigError, match="deals by label"):
        Simulation(config(model="gru"), text)
    with pytest.raises(ConfigError, match="by_writer needs data"):
        Simulation(config(partition="by_writer"), images)
    for attack in ("backdoor", {"name": "label_flip", "source": 1, "target": 2}):
        with pytest.raises(ConfigError, match="needs one label per sample"):
            Simulation(config(data="shakespeare", model="gru", attack=attack), text)


# --- augmentation


def test_augmentation_depends_on_seed_round_and_client_alone(images: Dataset) -> None:
    def seen(seed: int, round: int, client: int | None) -> Tensor:
        simulation = Simulation(config(seed=seed), images)
        simulation.round = round
        return next(iter(simulation._batches(np.arange(60), client)))[0]

    assert torch.equal(seen(0, 1, 2), seen(0, 1, 2))
    for other in ((1, 1, 2), (0, 16, 2), (0, 1, 3), (0, 1, None)):  # in round 16 the same samples come again
        assert not torch.equal(seen(0, 1, 2), seen(*other))
    plain = Simulation(config(), dataclasses.replace(images, augment=None))
    plain.round = 1
    assert torch.equal(next(iter(plain._batches(np.arange(60), 2)))[0], plain.train[0][:4])


def test_a_trigger_is_stamped_on_what_was_augmented(images: Dataset) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Blank(Augmentation):
        def apply(self, x: Any, rng: np.random.Generator) -> Any:
            return np.zeros_like(x)

    blank = dataclasses.replace(images, augment=Blank())
    simulation = Simulation(config(attack={"name": "backdoor", "share": 1.0}), blank)
    simulation.round = 1
    assert (next(iter(simulation._batches(np.arange(60), 0)))[0][:, :, -1, -1] == 2.8).all()


# --- batch-norm statistics


def test_statistics_are_combined_like_the_updates() -> None:
    rows, before = np.array([[1.0, 10.0], [2.0, 20.0], [9.0, 90.0]]), np.array([0.0, 1.0])
    np.testing.assert_allclose(combined(rows, np.array([0.5, 0.5, 0.0]), before), [1.5, 15.0])
    np.testing.assert_allclose(combined(rows, np.array([1.0, 1.0, 0.0]), before), [1.5, 15.0])  # not deltas
    np.testing.assert_array_equal(combined(rows, None, before), [2.0, 20.0])
    np.testing.assert_array_equal(combined(rows, np.zeros(3), before), [2.0, 20.0])
    rows[2] = np.nan, np.inf
    np.testing.assert_allclose(combined(rows, None, before), [1.5, 15.0])
    np.testing.assert_allclose(combined(rows, np.array([0.1, 0.1, 0.8]), before), [1.5, 15.0])
    for nobody in (None, np.zeros(1), np.ones(1)):
        np.testing.assert_array_equal(combined(rows[2:], nobody, before), before)
    np.testing.assert_array_equal(combined(rows, np.array([0.0, 0.0, 1.0]), before), before)


@pytest.mark.parametrize("rule", ["tesseract", "median", "krum", "nnm+trimmed_mean"])
def test_the_global_statistics_are_the_weighted_mean_of_the_clients_or_their_median(images: Dataset, rule: str) -> None:
    simulation = Simulation(config(rule=rule, attack="none"), images)
    for _ in range(3):
        record = simulation.step()
        weights, sent = record["weights"], simulation._buffers
        expected = np.array(weights) @ sent / sum(weights) if weights else np.median(sent, axis=0)
        np.testing.assert_allclose(simulation.model.buffers, expected, rtol=1e-5, atol=1e-6)
    counters = {name: int(b) for name, b in simulation.model.module.named_buffers() if b.ndim == 0}
    assert set(counters.values()) == {3}


@pytest.mark.parametrize("strategy", ["auto", "vmap", "loop"])
def test_each_client_starts_from_the_global_statistics(strategy: str) -> None:
    model = FlatModel(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)))
    x, y = torch.randn(8, 2, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    out, buffers = np.empty((3, model.layout.d), np.float32), np.empty((3, model.buffer_layout.d))
    before = model.buffers
    clients = Clients(model, threads=1, strategy=strategy)
    for steps in (1, 3):
        clients.updates([[(x, y)] * steps] * 3, 0.1, out, buffers)
        np.testing.assert_array_equal(buffers[0], buffers[2])
        np.testing.assert_allclose(buffers[0][:2], (1 - 0.9**steps) * x.mean(dim=0).numpy(), rtol=1e-5)
        assert buffers[0][-1] == steps
        np.testing.assert_array_equal(model.buffers, before)


def test_those_turned_away_do_not_count(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(config(rule="median", malicious=2, attack="sign_flip"), images)

    def poison(matrix: Any, *_: Any) -> dict[str, Any]:
        matrix[:2] = np.nan
        simulation._buffers[:2] = 1e30
        return {}

    monkeypatch.setattr(simulation, "_attack", poison)
    simulation.step()
    expected = np.median(simulation._buffers[2:], axis=0)
    np.testing.assert_allclose(simulation.model.buffers, expected, rtol=1e-5, atol=1e-6)


def test_a_skipped_round_changes_no_statistics(images: Dataset) -> None:
    simulation = Simulation(config(gate={"quorum": 7}), images)
    before = simulation.model.buffers
    assert "skipped" in simulation.step()
    np.testing.assert_array_equal(simulation.model.buffers, before)


def test_statistics_never_enter_a_score(images: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(config(attack="none"), images)
    seen: list[Updates] = []
    aggregate = type(simulation.config.rule).aggregate

    def watch(rule: Any, updates: Updates, state: Any) -> Any:
        seen.append(updates)
        return aggregate(rule, updates, state)

    monkeypatch.setattr(type(simulation.config.rule), "aggregate", watch)
    simulation.step()
    assert seen[0].d == simulation.model.layout.d == sum(p.numel() for p in simulation.model.module.parameters())


def test_evaluation_uses_the_statistics_and_leaves_them_alone(images: Dataset) -> None:
    simulation = Simulation(config(), images)
    simulation.step()
    before = simulation.model.buffers
    one = evaluate(simulation.clients, *simulation.test)
    np.testing.assert_array_equal(simulation.model.buffers, before)
    assert evaluate(simulation.clients, *simulation.test, batch=7).loss == pytest.approx(one.loss, rel=1e-5)
    simulation.model.buffers = before + 1
    assert evaluate(simulation.clients, *simulation.test).loss != pytest.approx(one.loss, rel=1e-3)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "timings.jsonl"}


def test_a_run_with_all_of_this_resumes_bit_for_bit(images: Dataset, tmp_path: Path) -> None:
    settings = config(local_steps=2, participation=0.9)
    run(settings, images, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill(title: str, total: int, done: int) -> Any:
        def on_round(record: dict[str, Any], seconds: float) -> None:
            if record["round"] in (2, 3, 5):
                raise KilledError

        return on_round

    for _ in range(3):
        with pytest.raises(KilledError):
            run(settings, images, tmp_path / "torn", resume=True, on_start=kill)
    summary = run(settings, images, tmp_path / "torn", resume=True)
    assert files(tmp_path / "torn") == files(tmp_path / "whole")
    assert summary["data"] == "colours"
    stored = load_file(tmp_path / "whole/model.safetensors")
    settings.model.build(images.shape, images.classes).load_state_dict(
        {name: torch.from_numpy(array) for name, array in stored.items()}
    )
    assert int(stored["2.first_norm.num_batches_tracked"]) == 12


def test_a_scheduled_run_can_t_be_made_longer(images: Dataset, tmp_path: Path) -> None:
    run(config(rounds=2), images, tmp_path / "run")
    with pytest.raises(CheckpointError, match="another rounds"):
        run(config(rounds=3), images, tmp_path / "run", resume=True)


def test_a_run_is_not_continued_with_another_optimiser(images: Dataset, tmp_path: Path) -> None:
    run(config(rounds=2, optimiser="adam", schedule="constant"), images, tmp_path / "run")
    with pytest.raises(CheckpointError, match="another optimiser"):
        run(config(rounds=2, schedule="constant"), images, tmp_path / "run", resume=True)


# --- evaluation on a part, and data that contradicts itself


def test_evaluation_on_a_part_of_the_test_set(images: Dataset) -> None:
    simulation = Simulation(config(eval_samples=7), images)
    assert len(simulation.test[1]) == 7
    again = Simulation(config(eval_samples=7), images)
    assert torch.equal(simulation.test[0], again.test[0])
    with pytest.raises(ConfigError, match="eval_samples is 21, but the test set has 20"):
        Simulation(config(eval_samples=21), images)


def test_a_data_set_checks_itself(images: Dataset) -> None:
    with pytest.raises(DataError, match="60 training inputs and 59 labels"):
        dataclasses.replace(images, train_y=images.train_y[1:])
    with pytest.raises(DataError, match="labels from 0 to 3, not 0 to 2"):
        dataclasses.replace(images, classes=3)
