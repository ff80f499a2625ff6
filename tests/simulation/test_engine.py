"""The round loop: local training, attacks in place, skipped rounds, and what a run leaves behind."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy

from tesseract_fl.attacks.base import View
from tesseract_fl.data.base import Dataset
from tesseract_fl.models.small import Dnn, Mlp
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation.config import Config
from tesseract_fl.simulation.engine import Simulation
from tesseract_fl.simulation.gradients import Clients, channels_last
from tesseract_fl.simulation.run import run
from tesseract_fl.types import Aggregate, Blend, CheckpointError, ConfigError, RoundSkipped
from tests.conformance.contract import PROMISES

SMALL: dict[str, Any] = {
    "data": "breast_cancer",
    "model": "logistic",
    "clients": 12,
    "malicious": 3,
    "rounds": 10,
    "batch": 8,
    "lr": 0.1,
    "eval_every": 5,
    "attack": "full_trim",
}


@pytest.fixture(scope="module")
def cancer() -> Dataset:
    return Config.from_table(SMALL).data.read()


def config(**changes: Any) -> Config:
    return Config.from_table({**SMALL, **changes})


def test_one_local_step_is_minus_lr_times_the_gradient() -> None:
    model = FlatModel.create(Mlp(hidden=6), (5,), 3, seed=1)
    before = model.vector.copy()
    x, y = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 1])
    out = np.empty((1, model.layout.d), np.float32)
    losses = Clients(model).updates([[(x, y)]], 0.5, out)
    loss = cross_entropy(model.module(x), y)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)])
    np.testing.assert_allclose(out[0], -0.5 * gradient.numpy(), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.vector, before)
    assert losses == [pytest.approx(loss.item())]


def test_several_local_steps_equal_torch_s_own_optimiser() -> None:
    rng = torch.Generator().manual_seed(0)
    batches = [(torch.randn(4, 5, generator=rng), torch.tensor([0, 1, 2, 1])) for _ in range(3)]
    model = FlatModel.create(Mlp(hidden=6), (5,), 3, seed=1)
    before = model.vector.copy()
    out = np.empty((1, model.layout.d), np.float32)
    Clients(model).updates([batches], 0.1, out)
    np.testing.assert_array_equal(model.vector, before)

    optimiser = torch.optim.SGD(model.module.parameters(), lr=0.1)
    for x, y in batches:
        optimiser.zero_grad()
        torch.autograd.backward(cross_entropy(model.module(x), y))
        optimiser.step()
    np.testing.assert_allclose(out[0], model.vector - before, rtol=1e-4, atol=1e-6)


def test_updates_do_not_depend_on_the_number_of_threads() -> None:
    rng = torch.Generator().manual_seed(0)
    model = FlatModel.create(Dnn(), (1, 28, 28), 10, seed=1)
    clients = [[(torch.randn(16, 1, 28, 28, generator=rng), torch.arange(16) % 10)] for _ in range(7)]
    one, three = (np.empty((7, model.layout.d), np.float32) for _ in range(2))
    Clients(model, threads=1).updates(clients, 0.1, one)
    Clients(model, threads=3).updates(clients, 0.1, three)
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_changes_the_order_in_memory_only(channels: int) -> None:
    x = torch.randn(5, channels, 28, 28, generator=torch.Generator().manual_seed(0))
    moved = channels_last(x)
    assert torch.equal(moved, x)
    assert moved.stride()[1] == 1
    transposed = x.transpose(2, 3)
    assert torch.equal(channels_last(transposed), transposed)
    model = FlatModel.create(Dnn(), (channels, 28, 28), 10, seed=1)
    torch.testing.assert_close(model.module(moved), model.module(x), rtol=1e-4, atol=1e-5)


def test_each_client_walks_its_samples_round_robin(cancer: Dataset) -> None:
    simulation = Simulation(config(), cancer)
    own = simulation.samples[4]
    seen: list[int] = []
    for simulation.round in range(1, 20):
        for x, _ in simulation._batches(own):
            matches = (simulation.train[0][torch.from_numpy(own)][:, None] == x[None]).all(dim=2)
            seen += [int(own[int(column.nonzero()[0])]) for column in matches.T]
    cycle = [int(i) for i in own]
    assert seen == (cycle * 20)[: len(seen)]


def test_local_epochs_pass_over_everything(cancer: Dataset) -> None:
    simulation = Simulation(config(local_epochs=2), cancer)
    simulation.round = 1
    batches = list(simulation._batches(simulation.samples[0]))
    assert len(batches) == 2 * -(-len(simulation.samples[0]) // 8)


def test_participation_samples_clients_and_counts_f_among_them(cancer: Dataset) -> None:
    simulation = Simulation(config(participation=0.5), cancer)
    seen = set()
    for _ in range(10):
        record = simulation.step()
        assert len(record["clients"]) == 6
        assert sum(record["penalised"]) == 2 * 2  # a quarter of 6, rounded up
        seen |= set(record["clients"])
    assert len(seen) == 12


def test_nobody_malicious_present_is_fine(cancer: Dataset) -> None:
    simulation = Simulation(config(participation=0.2, malicious=1), cancer)
    for _ in range(10):
        simulation.step()


def test_a_round_that_can_t_be_aggregated_is_skipped_and_the_model_kept(cancer: Dataset) -> None:
    simulation = Simulation(config(gate={"quorum": 13}), cancer)
    before = simulation.model.vector.copy()
    record = simulation.step()
    assert "quorum is 13" in record["skipped"]
    np.testing.assert_array_equal(simulation.model.vector, before)
    assert simulation.step()["round"] == 2


def test_an_attack_that_is_not_possible_with_those_sampled_leaves_them_honest(cancer: Dataset) -> None:
    simulation = Simulation(config(participation=0.34, malicious=5, attack="full_krum", rule="fedsgd"), cancer)
    records = [simulation.step() for _ in range(30)]
    assert any("full_krum needs" in record.get("not_attacked", "") for record in records)
    assert not any("skipped" in record for record in records)


def test_attackers_that_give_up_are_on_record(cancer: Dataset) -> None:
    attack = {"name": "sleeper+full_trim", "until": 2}
    simulation = Simulation(config(attack=attack), cancer)
    records = [simulation.step() for _ in range(4)]
    assert ["not_attacked" in record for record in records] == [True, True, False, False]


def test_what_the_attacker_may_see_of_the_last_round_has_its_weights(cancer: Dataset) -> None:
    simulation = Simulation(config(participation=0.5), cancer)
    record = simulation.step()
    for name in ("clients", "weights", "reputation", "flip_score_high"):
        assert simulation.report[name] == record[name]


def test_an_attack_without_a_target_in_the_test_set_is_an_error(cancer: Dataset) -> None:
    settings = [config(attack={"name": "label_flip", "source": s, "target": 1 - s}, eval_samples=1) for s in (0, 1)]
    with pytest.raises(ConfigError, match="eval_samples"):
        [Simulation(each, cancer) for each in settings]  # the one sample is of one of the two classes


@pytest.mark.parametrize(("attack", "trained"), [("full_trim", 9), ("sign_flip", 12), ("none", 12)])
def test_malicious_clients_train_only_where_their_attack_looks_at_it(
    cancer: Dataset, monkeypatch: pytest.MonkeyPatch, attack: str, trained: int
) -> None:
    counted: list[int] = []
    updates = Clients.updates

    def count(self: Clients, clients: Any, *rest: Any) -> list[float]:
        counted.append(len(clients))
        return updates(self, clients, *rest)

    monkeypatch.setattr(Clients, "updates", count)
    record = Simulation(config(attack=attack, rule="fedsgd"), cancer).step()
    assert sum(counted) == trained
    assert record["train_loss"] > 0


def test_a_skipped_round_says_who_was_turned_away_and_they_lose_by_it(
    cancer: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(config(rule={"f": 5}, malicious=3), cancer)

    def poison(matrix: Any, *_: Any) -> dict[str, Any]:
        matrix[:3] = np.nan
        return {}

    monkeypatch.setattr(simulation, "_attack", poison)
    record = simulation.step()
    assert "2f < n" in record["skipped"]
    assert [rejection["client"] for rejection in record["rejected"]] == ["0", "1", "2"]
    assert set(simulation.state.reputation) == {"0", "1", "2"}
    assert max(simulation.state.reputation.values()) < 0


def test_a_model_that_would_become_infinite_is_kept(cancer: Dataset) -> None:
    simulation = Simulation(config(attack="none"), cancer)
    simulation.step()
    largest = np.finfo(np.float32).max
    simulation.model.vector[:] = largest
    before = simulation.state
    out = Aggregate(update=np.full_like(simulation.model.vector, largest), weights=None, state=None, report={})
    with pytest.raises(RoundSkipped, match="infinite"), np.errstate(over="ignore"):
        simulation._apply(out)
    assert simulation.state is before
    np.testing.assert_array_equal(simulation.model.vector, largest)


def test_tesseract_recovers_what_the_mean_loses() -> None:
    digits = Config.from_table({"data": "mnist_5k"}).data.read()

    def accuracy(rule: str, attack: str) -> float:
        settings = config(model="mlp", rule=rule, attack=attack, rounds=60, clients=40, malicious=8, eval_every=60)
        found = run(settings, digits)["accuracy"]
        assert isinstance(found, float)
        return found

    clean = accuracy("fedsgd", "none")
    assert clean > 0.8
    assert accuracy("fedsgd", "full_trim") < clean - 0.2
    assert accuracy("tesseract", "full_trim") > clean - 0.05
    assert accuracy("tesseract", "full_krum") > clean - 0.1


@pytest.mark.parametrize("name", PROMISES)
def test_every_rule_works_in_a_run(name: str, cancer: Dataset) -> None:
    rule = {"name": name, **PROMISES[name].settings}
    summary = run(config(rule=rule, malicious=2, attack="full_trim", rounds=20, eval_every=20), cancer)
    assert summary["skipped"] == 0
    assert summary["accuracy"] > 0.6


def test_the_server_trains_on_a_root_set_of_its_own(cancer: Dataset) -> None:
    simulation = Simulation(config(rule="fltrust", root=30, batch=30), cancer)
    assert simulation.root is not None
    assert len(set(simulation.root.tolist())) == 30
    simulation.round = 1
    x, y = simulation.train[0][simulation.root], simulation.train[1][simulation.root]
    loss = cross_entropy(simulation.model.module(x), y)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, simulation.model.parameters)])
    update = simulation._server_update()
    assert update is not None
    np.testing.assert_allclose(update, -0.1 * gradient.numpy(), rtol=1e-4, atol=1e-7)
    with pytest.raises(ConfigError, match="root set of 9999"):
        Simulation(config(rule="fltrust", root=9999), cancer)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "timings.jsonl"}


def test_two_runs_of_one_seed_leave_the_same_bytes(cancer: Dataset, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(config(), cancer, tmp_path / name)
    one = files(tmp_path / "one")
    assert set(one) == {
        "config.toml",
        "metrics.jsonl",
        "model.safetensors",
        "checkpoint.safetensors",
        "summary.json",
    }
    assert one == files(tmp_path / "two")
    run(config(seed=1), cancer, tmp_path / "other")
    assert files(tmp_path / "other")["metrics.jsonl"] != one["metrics.jsonl"]


def test_what_a_run_leaves_behind(cancer: Dataset, tmp_path: Path) -> None:
    settings = config()
    summary = run(settings, cancer, tmp_path / "run")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["round"] for record in records] == list(range(1, 11))
    assert [record["round"] for record in records if "accuracy" in record] == [5, 10]
    for record in records:
        assert len(record["weights"]) == len(record["flip_score"]) == len(record["clients"]) == 12
    assert summary["accuracy"] == records[-1]["accuracy"]
    again = Config.from_table(tomllib.loads((tmp_path / "run/config.toml").read_text()))
    assert again == settings
    model = load_file(tmp_path / "run/model.safetensors")
    assert {name: array.shape for name, array in model.items()} == {"1.weight": (2, 30), "1.bias": (2,)}


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_that_stopped_and_goes_on_ends_like_one_that_did_not(cancer: Dataset, tmp_path: Path, every: int) -> None:
    settings = config(checkpoint_every=every, participation=0.6)
    run(settings, cancer, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def kill_after(rounds: int) -> Any:
        def on_round(record: dict[str, Any], seconds: float) -> None:
            if record["round"] == rounds:
                raise KilledError

        return lambda title, total, done: on_round

    for rounds in (3, 5, 9):
        with pytest.raises(KilledError):
            run(settings, cancer, tmp_path / "torn", resume=True, on_start=kill_after(rounds))
        with (tmp_path / "torn/metrics.jsonl").open("a") as file:
            file.write('{"round":99,"torn')
    run(settings, cancer, tmp_path / "torn", resume=True)
    assert files(tmp_path / "torn") == files(tmp_path / "whole")


def test_a_run_can_be_made_longer_but_not_otherwise_changed(cancer: Dataset, tmp_path: Path) -> None:
    run(config(rounds=4), cancer, tmp_path / "run")
    summary = tmp_path / "run/summary.json"
    ended = []

    def start(title: str, total: int, done: int) -> Any:
        return lambda record, seconds: ended.append(summary.exists())

    run(config(rounds=10), cancer, tmp_path / "run", resume=True, on_start=start)
    assert ended == [False] * 6, "while rounds remain there is no summary"
    assert json.loads(summary.read_text())["rounds"] == 10
    with pytest.raises(CheckpointError, match="is at round 10 already"):
        run(config(rounds=5), cancer, tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match="another lr"):
        run(config(lr=0.2), cancer, tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match=r"is not empty.*--resume"):
        run(config(), cancer, tmp_path / "run")


def test_a_journal_that_is_behind_its_checkpoint_says_what_to_do(cancer: Dataset, tmp_path: Path) -> None:
    run(config(rounds=4), cancer, tmp_path / "run")
    journal = tmp_path / "run/metrics.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(CheckpointError, match=r"has 2 rounds but the checkpoint is at round 4; delete .* to play"):
        run(config(rounds=6), cancer, tmp_path / "run", resume=True)


def test_a_run_is_not_continued_on_other_data(cancer: Dataset, tmp_path: Path) -> None:
    run(config(rounds=3), cancer, tmp_path / "run")
    other = dataclasses.replace(cancer, train_x=cancer.train_x + 1)
    with pytest.raises(CheckpointError, match="on other data"):
        run(config(), other, tmp_path / "run", resume=True)


def test_a_damaged_checkpoint_is_refused_and_never_reset(cancer: Dataset, tmp_path: Path) -> None:
    run(config(rounds=3), cancer, tmp_path / "run")
    path = tmp_path / "run/checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        run(config(), cancer, tmp_path / "run", resume=True)


def test_two_processes_do_not_play_one_run(cancer: Dataset, tmp_path: Path) -> None:
    def start(title: str, total: int, done: int) -> Any:
        with pytest.raises(ConfigError, match="another process is playing"):
            run(config(), cancer, tmp_path / "run", resume=True)
        return lambda record, seconds: None

    run(config(), cancer, tmp_path / "run", on_start=start)
    run(config(), cancer, tmp_path / "run", resume=True)  # free again


def test_a_journal_whose_rounds_are_not_in_order_is_refused(cancer: Dataset, tmp_path: Path) -> None:
    run(config(rounds=4), cancer, tmp_path / "run")
    path = tmp_path / "run/metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1], lines[1], lines[2]]))
    with pytest.raises(CheckpointError, match=r"its rounds are not 1, 2, …; delete .*run to play the run again"):
        run(config(), cancer, tmp_path / "run", resume=True)


@pytest.mark.parametrize("rule", ["krum", "hardened", "nnm+trimmed_mean"])
def test_who_asks_is_told_what_the_rule_does_also_where_the_gate_turns_some_questions_away(
    cancer: Dataset, rule: str
) -> None:
    """The honest rows are settled between questions; what the gate leaves out must not be taken for one of them."""
    settings = config(rule=rule, attack="line_search", gate={"max_norm_ratio": 2.0})
    simulation = Simulation(settings, cancer)
    answers: list[tuple[Any, Any]] = []

    def craft(view: View, rng: np.random.Generator) -> Any:
        assert view.ask is not None
        one = view.own[:1]
        for scale in (1, 100, -1, 100, 0.5):
            for rows in (scale * view.own, view.rows(scale * view.own[0])):
                asked = view.ask(rows.astype(np.float32))
                plain = np.concatenate([rows, view.benign]).astype(np.float32)
                names = [str(client) for client in range(12)]
                alone = settings.gate.screen(plain, names, round=view.round)
                answers.append((asked.update, settings.rule.aggregate(alone, simulation.state).update))
            told = view.verdict(Blend(scale, view.own, scale, one))
            by_rows = view.ask((scale * (view.own + one)).astype(np.float32)).report
            assert told.get("penalised") == by_rows.get("penalised")
            assert told["rejected"] == by_rows["rejected"]
        return view.own

    object.__setattr__(settings.attack, "_craft", craft)
    simulation.step()
    assert len(answers) == 10
    for asked, alone in answers:
        np.testing.assert_allclose(asked, alone, rtol=1e-4, atol=1e-7)


def test_a_checkpoint_is_of_the_code_that_was_loaded(
    cancer: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(config(), cancer)
    simulation.save(tmp_path / "before")
    monkeypatch.setattr("tesseract_fl.simulation.numerics.NUMERICS", 99)
    simulation.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert Simulation(config(), cancer).numerics == 99
