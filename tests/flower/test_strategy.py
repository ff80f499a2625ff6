"""The strategy in process: Flower's own messages, a grid whose nodes are functions."""

from __future__ import annotations

import json
import tracemalloc
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tesseract_fl.flower import Newcomers, RobustStrategy
from tesseract_fl.flower.grid import StreamingGrid
from tesseract_fl.flower.intake import Intake
from tesseract_fl.flower.replies import as_numpy, clean, named_arrays
from tesseract_fl.gate import Gate
from tesseract_fl.registry import build
from tesseract_fl.reports.overview import suspects
from tesseract_fl.reports.sources import opened
from tesseract_fl.reputation.records import Verdict
from tesseract_fl.reputation.suspects import explained
from tesseract_fl.rules.base import Rule
from tesseract_fl.rules.hardened import Hardened
from tesseract_fl.rules.krum import Krum
from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
from tesseract_fl.simulation.buffers import REACH, bounded
from tesseract_fl.types import ConfigError, Updates
from tests.flower.fake import (
    Arrays,
    FakeGrid,
    Node,
    client,
    config,
    context,
    everyone,
    honest,
    record,
    reply,
    rounds,
    small_model,
)

NEUTRAL = Newcomers(policy="neutral")


def strategy(rule: Rule[Any] | None = None, **options: Any) -> RobustStrategy:
    return RobustStrategy(rule or Tesseract(f=1), fraction_evaluate=0.0, **options)


def verdicts(of: RobustStrategy, round: int) -> dict[str, Verdict]:
    return {verdict.client: verdict for verdict in of.federation.ledger.verdicts(round=round)}


def standing(folder: Path) -> list[dict[str, Any]]:
    source = opened(folder)
    source.read()
    return suspects(source)


def flat(arrays: Arrays) -> Any:
    return np.concatenate([arrays[name].reshape(-1) for name in arrays])


@pytest.mark.parametrize(
    "name", ["tesseract", "hardened", "fedsgd", "krum", "median", "trimmed_mean", "foolsgold", "nnm+krum"]
)
def test_it_is_the_rule_run_directly(name: str) -> None:
    rule = build("rules", {"name": name}, f=1)
    ours = strategy(rule, newcomers=NEUTRAL, gate=Gate())
    model, state = small_model(), rule.init(16)
    for t, (got, _) in enumerate(rounds(ours, FakeGrid(everyone(7)), small_model(), 4), start=1):
        matrix = np.stack([flat(honest(i)(model, t)) - flat(model) for i in range(7)]).astype(np.float32)
        ids = tuple(f"node:{100 + i}" for i in range(7))
        samples = np.full(7, 10.0)
        out = rule.aggregate(Updates(matrix=matrix, ids=ids, round=t, samples=samples), state)
        state = out.state
        step = np.split(out.update, [12])
        model = {"w": model["w"] + step[0].reshape(3, 4), "b": model["b"] + step[1]}
        for key, array in named_arrays(got).items():
            np.testing.assert_allclose(array, model[key], rtol=1e-6)


def test_the_ledger_says_why_the_hardened_rule_suspects_somebody() -> None:
    nodes = everyone(10) | {100: client(honest(0, scale=-1.0))}
    ours = strategy(Hardened(f=1), newcomers=NEUTRAL)
    list(rounds(ours, FakeGrid(nodes), small_model(), 8))
    last = verdicts(ours, 8)
    assert last["node:100"].verdict == "penalised"
    assert "deviations" in last["node:100"].detail
    assert all(verdict.detail == "" for name, verdict in last.items() if name != "node:100")
    told = "\n".join(explained(ours.federation.ledger, "node:100", 8))
    assert "it stood out" in told
    assert "deviations" in told


def test_the_answer_has_the_models_own_names_shapes_and_dtypes() -> None:
    model: Arrays = {
        "temperature": np.array(1.0, np.float32),
        "half": np.ones((2, 3), np.float16),
        "double": np.ones(3, np.float64),
        "bn.running_mean": np.zeros(3, np.float32),
        "bn.num_batches_tracked": np.array(0, np.int64),
        "mask": np.array([True, False]),
    }

    def train(number: int) -> Any:
        def step(arrays: Arrays, round: int) -> Arrays:
            return {
                "temperature": np.asarray(arrays["temperature"] + np.float32(1)),
                "half": arrays["half"] + np.float16(0.5),
                "double": arrays["double"] + 1e-9,
                "bn.running_mean": np.full(3, number, np.float32),
                "bn.num_batches_tracked": np.array(10 * number, np.int64),
                "mask": np.array([True, number > 1]),
            }

        return step

    ours = strategy(build("rules", {"name": "fedsgd"}))
    (got, _) = next(rounds(ours, FakeGrid({i: client(train(i)) for i in range(4)}), model, 1))
    arrays = named_arrays(got)
    assert list(arrays) == list(model)
    assert {name: (a.shape, a.dtype) for name, a in arrays.items()} == {
        name: (a.shape, a.dtype) for name, a in model.items()
    }
    assert arrays["half"].tolist() == [[1.5] * 3] * 2
    np.testing.assert_allclose(arrays["double"] - 1, 1e-9, rtol=1e-6)  # lost if weights were rounded to float32 first
    assert arrays["bn.running_mean"].tolist() == [1.5] * 3
    assert arrays["bn.num_batches_tracked"] == 15
    assert arrays["mask"].tolist() == [True, True]


def test_buffers_are_never_scored() -> None:
    def with_buffer(value: float) -> Node:
        return client(
            lambda arrays, t: {"w": honest(1)({"w": arrays["w"]}, t)["w"], "running_mean": np.full(2, value, "f4")}
        )

    ours = strategy()
    model: Arrays = {"w": np.zeros(5, np.float32), "running_mean": np.zeros(2, np.float32)}
    nodes = {i: with_buffer(1e6 if i == 0 else 1.0) for i in range(5)}
    next(rounds(ours, FakeGrid(nodes), model, 1))
    assert len({verdict.score for verdict in verdicts(ours, 1).values()}) == 1


def test_a_client_that_is_cut_off_moves_no_statistic() -> None:
    def with_variance(value: float, number: int) -> Node:
        return client(
            lambda arrays, t: {
                "w": honest(number)({"w": arrays["w"]}, t)["w"],
                "running_var": np.full(2, value + number / 10, "f4"),
            }
        )

    ours = strategy()
    model: Arrays = {"w": np.zeros(5, np.float32), "running_var": np.ones(2, np.float32)}
    grid = FakeGrid({i: with_variance(-3e38 if i == 0 else 1.0, i) for i in range(7)})
    ours.configure_train(1, record(model), config(), grid)
    ours.federation.state = replace(ours.federation.state, reputation={"node:0": -60.0})
    (got, _) = next(rounds(ours, grid, model, 1))
    assert 0 < (ours.federation.ledger.verdicts(round=1)[0].weight or 0) < 1e-20
    assert (named_arrays(got)["running_var"] > 1).all()
    assert (named_arrays(got)["running_var"] < 2).all()


@given(
    arrays(np.float64, st.tuples(st.integers(5, 12), st.just(2)), elements=st.floats(0.5, 3.0)),
    st.lists(st.sampled_from([-1e308, -1.0, 0.0, 1e-9, 10.0, 1e308]), max_size=4),
)
def test_a_minority_leaves_statistics_near_the_others_and_variances_positive(good: Any, bad: list[float]) -> None:
    bad = bad[: (len(good) - 1) // 2]
    sent = np.vstack([good, *[[[value, value]] for value in bad]])
    limited = bounded(sent)
    assert (limited >= 0).all()
    assert limited.max() <= 3.0 + REACH * 2.5
    means = bounded(sent - [0.0, 2.0])
    assert means.min() >= -1.5 - REACH * 2.5
    if not bad and np.ptp(good) < np.median(np.abs(good - np.median(good, axis=0)), axis=0).min() * REACH:
        np.testing.assert_array_equal(means, sent - [0.0, 2.0])


def test_where_a_rule_has_no_weights_buffers_are_combined_by_their_median() -> None:
    def train(number: float) -> Any:
        return lambda arrays, t: {"w": arrays["w"] + 1, "running_mean": np.full(2, number, "f4")}

    model: Arrays = {"w": np.zeros(5, np.float32), "running_mean": np.zeros(2, np.float32)}
    nodes = {i: client(train(number)) for i, number in enumerate((1, 2, 3, 4, 1e6))}
    (got, _) = next(rounds(strategy(build("rules", {"name": "median"})), FakeGrid(nodes), model, 1))
    assert named_arrays(got)["running_mean"].tolist() == [3.0, 3.0]


def test_the_order_of_arrival_does_not_matter() -> None:
    results = []
    for seed in range(3):
        *_, (last, _) = rounds(strategy(), FakeGrid(everyone(9), seed=seed), small_model(), 5)
        results.append([array.data for array in last.values()])
    assert results[0] == results[1] == results[2]


def raising(message: Message) -> list[Message]:
    return [Message(Error(code=2, reason="ZeroDivisionError\nin a long\x1b[31m story"), reply_to=message)]


def sends(change: Any) -> Node:
    """A client whose arrays are changed on the way out."""
    return client(lambda arrays, t: change(honest(0)(arrays, t)))


def twice(message: Message) -> list[Message]:
    return [*client(honest(0))(message), *client(honest(1))(message)]


def without_nonce(message: Message) -> list[Message]:
    return [reply(message, honest(0)(named_arrays(message.content.array_records["arrays"]), 1))]


def wrong_nonce(message: Message) -> list[Message]:
    (answer,) = without_nonce(message)
    answer.content["tesseract"] = ConfigRecord({"nonce": "0" * 32})
    return [answer]


def broken_array(message: Message) -> list[Message]:
    (answer,) = client(honest(0))(message)
    answer.content["arrays"] = ArrayRecord({"w": Array("float32", (3, 4), "numpy.ndarray", b"garbage")})
    return [answer]


def huge_header(message: Message) -> list[Message]:
    """An array that claims to have 10¹⁵ numbers: reading it must not allocate them."""
    (answer,) = client(honest(0))(message)
    data = Array(np.zeros(4, np.float32)).data.replace(b"(4,), }" + b" " * 15, b"(1000000000000000,), }")
    answer.content["arrays"] = ArrayRecord({"w": Array("float32", (4,), "numpy.ndarray", data)})
    return [answer]


def pickled(message: Message) -> list[Message]:
    (answer,) = client(honest(0))(message)
    arrays = answer.content.array_records["arrays"]
    arrays["w"] = Array("object", arrays["w"].shape, "pickle", arrays["w"].data)
    return [answer]


def two_records(message: Message) -> list[Message]:
    (answer,) = client(honest(0))(message)
    answer.content["more"] = record(small_model())
    return [answer]


def empty(message: Message) -> list[Message]:
    (answer,) = client(honest(0))(message)
    del answer.content["arrays"]
    return [answer]


def unasked(message: Message) -> list[Message]:
    (answer,) = client(honest(0))(message)
    answer.metadata.__dict__["_reply_to_message_id"] = "another"
    return [answer]


BAD: dict[str, tuple[Node, str, str]] = {
    "exception": (raising, "rejected", "client_error"),
    "nan": (sends(lambda a: {**a, "b": np.full(4, np.nan, "f4")}), "rejected", "not_finite"),
    "infinite": (sends(lambda a: {**a, "b": np.full(4, np.inf, "f4")}), "rejected", "not_finite"),
    "missing": (sends(lambda a: {"w": a["w"]}), "rejected", "missing_array"),
    "extra": (sends(lambda a: {**a, "c": a["b"]}), "rejected", "unknown_array"),
    "shape": (sends(lambda a: {**a, "w": a["w"][:1]}), "rejected", "wrong_shape"),
    "dtype": (sends(lambda a: {**a, "w": a["w"].astype("f8")}), "rejected", "wrong_dtype"),
    "too large": (sends(lambda a: {name: 1e6 * array for name, array in a.items()}), "rejected", "norm_too_large"),
    "samples": (client(honest(0), samples=1e15), "rejected", "bad_samples"),
    "negative samples": (client(honest(0), samples=-1), "rejected", "bad_samples"),
    "many samples": (client(honest(0), samples=[1, 2]), "rejected", "bad_samples"),
    "garbage": (broken_array, "rejected", "undecodable"),
    "huge header": (huge_header, "rejected", "undecodable"),
    "pickle": (pickled, "rejected", "undecodable"),
    "two records": (two_records, "rejected", "wrong_records"),
    "no record": (empty, "rejected", "wrong_records"),
    "no nonce": (without_nonce, "ignored", "no_nonce"),
    "wrong nonce": (wrong_nonce, "ignored", "wrong_nonce"),
    "silent": (lambda message: [], "absent", "no_reply"),
    "node gone": (lambda m: [Message(Error(code=5, reason="gone"), reply_to=m)], "absent", "node_unavailable"),
    "crash": (lambda m: [Message(Error(code=8, reason="crash"), reply_to=m)], "absent", "crashed"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("grid", [lambda inner: inner, StreamingGrid], ids=["plain", "streaming"])
def test_a_bad_reply_never_aborts_a_round(name: str, grid: Any) -> None:
    node, verdict, code = BAD[name]
    ours = strategy()
    good = everyone(5)
    sent = ours.configure_train(1, record(small_model()), config(), grid(FakeGrid({**good, 7: node})))
    inner = grid(FakeGrid({**good, 7: node}))
    new, metrics = ours.aggregate_train(1, inner.send_and_receive(sent, timeout=0.01))
    assert new is not None
    assert all(np.isfinite(array).all() for array in named_arrays(new).values())
    assert metrics is not None
    assert metrics["admitted"] == 5
    found = verdicts(ours, 1)["node:7"]
    assert (found.verdict, found.code) == (verdict, code)
    assert found.detail.isprintable()
    reputation = ours.federation.state.reputation
    assert ("node:7" in reputation) == (verdict == "rejected"), "only what can be held against a client is"


def test_a_long_reason_costs_no_memory() -> None:
    reason = "a\n" * 2_000_000
    tracemalloc.start()
    assert clean(reason) == "a " * 150
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_duplicate_counts_once_and_does_no_harm(tmp_path: Path) -> None:
    ours = strategy(ledger=tmp_path)
    (_, metrics) = next(rounds(ours, FakeGrid({**everyone(5), 7: twice}), small_model(), 1))
    assert metrics["admitted"] == 6
    codes = [(v.verdict, v.code) for v in ours.federation.ledger.verdicts(client="node:7")]
    assert ("rejected", "duplicate_id") in codes
    assert len(codes) == 2
    assert {one["standing"] for one in standing(tmp_path)} == {"good"}


@pytest.mark.parametrize("first", [[], BAD["nan"][0]], ids=["good", "bad"])
def test_a_reply_beside_a_good_one_does_no_harm_in_a_skipped_round_either(first: Any, tmp_path: Path) -> None:
    def several(message: Message) -> list[Message]:
        return [*(first(message) if first else ()), *twice(message)]

    ours = strategy(gate=Gate(quorum=5), ledger=tmp_path)
    next(rounds(ours, FakeGrid({**everyone(3), 7: several, 8: BAD["nan"][0]}), small_model(), 1))
    assert ours.federation.ledger.entries()[0].outcome == "skipped"
    assert set(ours.federation.state.reputation) == {"node:8"}
    assert [one["client"] for one in standing(tmp_path)] == ["node:8"]


@pytest.mark.parametrize("quorum", [1, 10], ids=["aggregated", "skipped"])
def test_a_round_lasts_from_asking_to_the_end_of_aggregation(quorum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def passing(seconds: float, then: Any) -> Any:
        def after(*given: Any) -> Any:
            nonlocal now
            now += seconds
            return then(*given)

        return after

    monkeypatch.setattr("time.perf_counter", lambda: now)
    monkeypatch.setattr(Intake, "close", passing(0.25, Intake.close))
    ours = strategy(gate=Gate(quorum=quorum))
    nodes = {**everyone(4), 104: passing(7.0, client(honest(4)))}
    for _ in rounds(ours, FakeGrid(nodes), small_model(), 2):
        now += 60  # evaluation, and whatever else is between two rounds
    assert [entry.seconds for entry in ours.federation.ledger.entries()] == [7.25, 7.25]


@pytest.mark.parametrize("grid", [lambda inner: inner, StreamingGrid], ids=["plain", "streaming"])
def test_a_reply_to_another_message_is_not_counted(grid: Any) -> None:
    ours = strategy()
    asking = grid(FakeGrid({**everyone(5), 7: unasked}))
    sent = ours.configure_train(1, record(small_model()), config(), asking)
    _, metrics = ours.aggregate_train(1, asking.send_and_receive(sent, timeout=0.01))
    assert metrics is not None
    assert metrics["admitted"] == 5
    assert verdicts(ours, 1)["unknown"].code == "unasked"
    assert verdicts(ours, 1)["node:7"].code == "no_reply"


def test_a_round_of_bad_replies_only_is_skipped_and_the_next_goes_on() -> None:
    ours = strategy()
    grid = FakeGrid(dict.fromkeys(range(4), BAD["nan"][0]))
    start = record(small_model())
    new, metrics = ours.aggregate_train(1, grid.send_and_receive(ours.configure_train(1, start, config(), grid)))
    assert new is None
    assert metrics is not None
    assert metrics["rejected"] == 4
    assert ours.federation.ledger.entries()[0].outcome == "skipped"
    assert all(score < 0 for score in ours.federation.state.reputation.values())
    grid.nodes = everyone(5)
    new, _ = ours.aggregate_train(2, grid.send_and_receive(ours.configure_train(2, start, config(), grid)))
    assert new is not None


def test_an_undecodable_message_is_one_bad_reply() -> None:
    class Poisoned(FakeGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            replies = super().pull_messages(message_ids)
            if any(answer.metadata.src_node_id == 102 for answer in replies):
                raise ValueError("Unexpected set of `children`")
            return replies

    ours = strategy()
    ours.start(Poisoned(everyone(6)), record(small_model()), num_rounds=2)
    for t in (1, 2):
        assert verdicts(ours, t)["node:102"].code == "undecodable"
        assert verdicts(ours, t)["node:101"].verdict in ("rewarded", "penalised")


def test_replies_are_taken_in_as_they_arrive() -> None:
    grid = FakeGrid(everyone(6))
    seen = []
    for _ in StreamingGrid(grid).send_and_receive(
        strategy().configure_train(1, record(small_model()), config(), grid), timeout=5
    ):
        seen.append(grid.pulled)
    assert seen == [1, 2, 3, 4, 5, 6]


def test_evaluation_survives_bad_replies_and_liars() -> None:
    def evaluating(loss: Any) -> Node:
        def node(message: Message) -> list[Message]:
            if message.metadata.message_type == "train":
                return list(client(honest(1))(message))
            numbers = MetricRecord({"num-examples": 10, "loss": loss})
            nonce = message.content.config_records["tesseract"]["nonce"]
            content = RecordDict({"metrics": numbers, "tesseract": ConfigRecord({"nonce": nonce})})
            return [Message(content, reply_to=message)]

        return node

    nodes = {i: evaluating(0.5 + i / 100) for i in range(5)} | {8: evaluating(1e30), 9: raising}
    result = RobustStrategy(Tesseract(f=1)).start(FakeGrid(nodes), record(small_model()), num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["loss"] == pytest.approx(0.525)


def test_evaluate_fn_and_results_count_rounds_from_the_first(tmp_path: Path) -> None:
    seen: list[int] = []

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(round)
        return MetricRecord({"round": round})

    strategy(ledger=tmp_path).start(FakeGrid(everyone()), record(small_model()), num_rounds=2, evaluate_fn=evaluate)
    again = strategy(ledger=tmp_path)
    result = again.start(FakeGrid(everyone()), record(small_model()), num_rounds=4, evaluate_fn=evaluate)
    assert seen == [0, 1, 2, 2, 3, 4]
    assert list(result.train_metrics_clientapp) == [3, 4]
    done = strategy(ledger=tmp_path).start(FakeGrid(everyone()), record(small_model()), num_rounds=4)
    assert [a.data for a in done.arrays.values()] == [a.data for a in result.arrays.values()]


def test_some_of_the_clients_are_sampled_the_same_ones_each_time() -> None:
    asked = []
    for _ in range(2):
        ours = RobustStrategy(Tesseract(f=1), fraction_train=0.5, fraction_evaluate=0.0, seed=3)
        list(rounds(ours, FakeGrid(everyone(12)), small_model(), 3))
        asked.append([set(verdicts(ours, t)) for t in (1, 2, 3)])
    assert asked[0] == asked[1]
    assert all(len(clients) == 6 for clients in asked[0])
    assert len(set(map(frozenset, asked[0]))) > 1


def test_nobody_can_foresee_who_is_asked() -> None:
    asked = []
    for _ in range(6):
        ours = RobustStrategy(Tesseract(f=1), fraction_train=0.5, fraction_evaluate=0.0)
        list(rounds(ours, FakeGrid(everyone(12)), small_model(), 1))
        asked.append(frozenset(verdicts(ours, 1)))
    assert len(set(asked)) > 1


def test_a_round_waits_for_as_many_as_the_rule_needs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = FakeGrid(everyone(2))
    late = list(everyone(7).items())[2:]
    monkeypatch.setattr("tesseract_fl.flower.strategy.time.sleep", lambda _: grid.nodes.update([late.pop(0)]))
    with caplog.at_level("INFO", logger="flwr"):
        for rule, needed in ((None, 3), (Krum(f=2), 7)):
            ours = RobustStrategy(rule, fraction_evaluate=0.0)
            (_, metrics) = next(rounds(ours, grid, small_model(), 1))
            assert metrics["admitted"] == needed
    assert "2 are there; 3 are needed" in caplog.text
    assert "krum needs n ≥ 2f + 3" in caplog.text


def test_fltrust_gets_the_servers_own_update() -> None:
    rule = build("rules", {"name": "fltrust"})
    with pytest.raises(ConfigError, match="needs trusted_fn"):
        strategy(rule)
    ours = strategy(rule, trusted_fn=lambda t, arrays: record(honest(99)(named_arrays(arrays), t)))
    evil = client(lambda arrays, t: {name: array - 1 for name, array in arrays.items()})
    (new, _) = next(rounds(ours, FakeGrid({**everyone(5), 7: evil}), small_model(), 1))
    assert verdicts(ours, 1)["node:7"].weight == 0
    assert named_arrays(new)["w"].mean() > 0


def test_what_is_set_wrongly_is_said() -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        strategy(ledger="runs")
    with pytest.raises(ConfigError, match="probation"):
        strategy(Krum(f=1), newcomers=Newcomers(policy="probation"))
    with pytest.raises(ConfigError, match="one of neutral, probation"):
        Newcomers(policy="nice")
    strategy(ReputationFilter(f=1, inner=Krum(f=1)))
    ours = strategy()
    with pytest.raises(ConfigError, match="goes on with round 1"):
        ours.configure_train(3, record(small_model()), config(), FakeGrid(everyone()))
    with pytest.raises(ConfigError, match="no floating-point"):
        strategy().configure_train(1, record({"n": np.arange(3)}), config(), FakeGrid(everyone()))


def test_arrays_are_read_as_flower_reads_them() -> None:
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3),
        np.zeros(0),
    ):
        got, expected = as_numpy(Array(array)), Array(array).numpy()
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_the_nonce_can_be_optional_for_clients_without_the_mod() -> None:
    ours = strategy(require_nonce=False)
    (_, metrics) = next(rounds(ours, FakeGrid({**everyone(5), 7: without_nonce, 8: wrong_nonce}), small_model(), 1))
    assert metrics["admitted"] == 6
    assert verdicts(ours, 1)["node:8"].code == "wrong_nonce"
    assert context().run_id == 1


def test_metrics_for_prometheus_are_off_by_default_and_on_loopback() -> None:
    assert strategy().exposition is None
    ours = strategy(metrics_port=0)
    exposition = ours.exposition
    assert exposition is not None
    try:
        list(rounds(ours, FakeGrid({**everyone(5), 7: BAD["nan"][0]}), small_model(), 2))
        with urllib.request.urlopen(f"http://127.0.0.1:{exposition.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        assert "tesseract_round 2\n" in text
        assert 'tesseract_verdicts_total{verdict="rejected",code="not_finite"} 2\n' in text
        assert 'tesseract_rounds_total{outcome="aggregated"} 2\n' in text
        assert text.count("tesseract_weight{client=") == 5
        assert exposition._server.server_address[0] == "127.0.0.1"
        for host in ("evil.example", f"evil.example:{exposition.port}"):
            foreign = urllib.request.Request(f"http://127.0.0.1:{exposition.port}/metrics", headers={"Host": host})
            with pytest.raises(urllib.error.HTTPError, match="421") as refused:
                urllib.request.urlopen(foreign, timeout=5)
            refused.value.close()
    finally:
        exposition.close()


def test_each_round_writes_a_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        list(rounds(strategy(), FakeGrid({**everyone(5), 7: BAD["silent"][0]}), small_model(), 1))
    lines = [json.loads(line) for line in caplog.messages if line.startswith("{")]
    assert lines[0]["event"] == "round"
    assert lines[0]["absent"] == 1
    assert lines[0]["admitted"] == 5


def test_without_a_rule_it_is_the_one_that_withstands_who_knows_it() -> None:
    nodes = everyone(10) | {100: client(honest(0, scale=-1.0))}
    ours = RobustStrategy(fraction_evaluate=0.0)
    assert ours.federation.rule == Hardened(f=0.2)
    list(rounds(ours, FakeGrid(nodes), small_model(), 8))
    assert {name for name, verdict in verdicts(ours, 8).items() if verdict.verdict == "penalised"} == {"node:100"}
