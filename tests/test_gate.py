"""Hostile input is the normal case: a reason for each bad update, and the round goes on with the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tesseract_fl.distributed.driver import LocalShards
from tesseract_fl.distributed.intake import Intake as ShardsIntake
from tesseract_fl.flower.intake import Intake as FlowerIntake
from tesseract_fl.flower.model import Model
from tesseract_fl.gate import Gate, Submission, is_id
from tesseract_fl.layout import Layout
from tesseract_fl.rules.fedsgd import FedSGD
from tesseract_fl.rules.tesseract import Tesseract
from tesseract_fl.types import Cohort, ConfigError, Floats, QuorumError, Updates

MODEL = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)}


def admitted(sent: Sequence[Submission], gate: Gate | None = None, *, round: int = 1, base: float = 0.0) -> Updates:
    """What becomes of replies in a Flower round."""
    clients = sorted({submission.client for submission in sent if is_id(submission.client)})
    matrix = np.empty((len(clients), 8), np.float32)
    intake = FlowerIntake(gate or Gate(), Model.of(good(base)), clients, round, None, matrix)
    for submission in sent:
        intake.offer(submission)
    return intake.close()[0]


def admitted_as_rows(sent: Sequence[Submission], gate: Gate | None = None, *, round: int = 1) -> Updates:
    """What becomes of updates in a simulated round."""
    matrix = np.stack([flat(submission) for submission in sent])
    ids, samples = [submission.client for submission in sent], [submission.samples for submission in sent]
    return (gate or Gate()).screen(matrix, ids, round=round, samples=samples)


def admitted_to_shards(sent: Sequence[Submission], gate: Gate | None = None, *, round: int = 1) -> Cohort:
    intake = ShardsIntake(LocalShards(8, parts=3), round=round, capacity=len(sent), gate=gate)
    for submission in sent:
        intake.add(submission.client, flat(submission), submission.samples)
    return intake.cohort()


every_door = pytest.mark.parametrize("door", [admitted, admitted_as_rows, admitted_to_shards])
Door = Callable[..., Cohort]


def flat(submission: Submission) -> Floats:
    return Layout.of(MODEL).flatten(submission.arrays)


def good(value: float = 1.0) -> dict[str, Any]:
    return {name: np.full_like(array, value) for name, array in MODEL.items()}


class Strange:
    """Something that a deserialiser might hand us."""


BAD: dict[str, list[Any]] = {
    "empty": [{}, None, b"", 3, [], Strange()],
    "missing_array": [{"weight": good()["weight"]}],
    "unknown_array": [good() | {"more": np.zeros(1)}, good() | {7: np.zeros(1)}, {"x" * 10_000: 1}],
    "not_an_array": [good() | {"bias": [1.0, 1.0]}, good() | {"bias": None}, good() | {"bias": Strange()}],
    "wrong_shape": [
        good() | {"bias": np.zeros(3, np.float32)},
        good() | {"bias": np.zeros((1, 2), np.float32)},
        good() | {"bias": np.zeros((), np.float32)},
        good() | {"weight": np.zeros((3, 2), np.float32)},
    ],
    "wrong_dtype": [
        good() | {"bias": np.zeros(2, np.float64)},
        good() | {"bias": np.zeros(2, np.int64)},
        good() | {"bias": np.zeros(2, np.complex64)},
        good() | {"bias": np.array([Strange(), None], dtype=object)},
        good() | {"bias": np.array(["a", "b"])},
        good() | {"bias": np.zeros(2, ">f4")},
    ],
    "not_finite": [
        good() | {"bias": np.array([0, np.nan], np.float32)},
        good() | {"bias": np.array([0, -np.inf], np.float32)},
    ],
}


@pytest.mark.parametrize(("code", "arrays"), [(code, arrays) for code, all_ in BAD.items() for arrays in all_])
def test_each_defect_has_its_reason(code: str, arrays: Any) -> None:
    sent = [Submission("honest", good()), Submission("bad", arrays), Submission("last", good(2.0))]
    updates = admitted(sent)
    assert updates.ids == ("honest", "last")
    assert [(r.client, r.code) for r in updates.rejected] == [("bad", code)]
    assert 0 < len(updates.rejected[0].detail) < 300
    np.testing.assert_array_equal(updates.matrix, [[1.0] * 8, [2.0] * 8])


@every_door
@pytest.mark.parametrize("count", [0, -1, math.nan, math.inf, "12", True, 10**400, [1], 1j, b"5"])
def test_a_sample_count_must_be_a_positive_finite_number(door: Door, count: Any) -> None:
    sent = [Submission("honest", good(), 10), Submission("bad", good(), count)]
    updates = door(sent)
    assert [(r.client, r.code) for r in updates.rejected] == [("bad", "bad_samples")]


@every_door
def test_a_claim_is_capped_and_a_missing_one_counts_as_the_lower_median(door: Door) -> None:
    sent = [Submission(str(i), good(), count) for i, count in enumerate([10, 20, 30, 1e15, None])]
    updates = door(sent, Gate(max_sample_ratio=4))
    assert updates.samples is not None
    assert updates.samples.tolist() == [10, 20, 30, 80, 20]


@every_door
def test_the_first_update_of_a_client_counts_and_repeats_are_turned_away(door: Door) -> None:
    sent = [Submission("a", good(1.0)), Submission("b", good()), Submission("a", good(9.0))]
    updates = door(sent)
    assert updates.ids == ("a", "b")
    assert not isinstance(updates, Updates) or updates.matrix[0, 0] == 1.0
    assert [(r.client, r.code) for r in updates.rejected] == [("a", "duplicate_id")]


@every_door
def test_a_bad_update_does_not_use_up_the_client_s_turn(door: Door) -> None:
    sent = [Submission("a", good(math.nan)), Submission("a", good(2.0))]
    updates = door(sent)
    assert updates.ids == ("a",)
    assert [r.code for r in updates.rejected] == ["not_finite"]


@every_door
def test_norm_limit_is_off_unless_asked_for(door: Door) -> None:
    sent = [Submission(str(i), good()) for i in range(4)] + [Submission("huge", good(1e30))]
    assert door(sent).n == 5
    updates = door(sent, Gate(max_norm_ratio=10))
    assert [(r.client, r.code) for r in updates.rejected] == [("huge", "norm_too_large")]


@every_door
def test_those_who_send_nothing_have_no_vote_on_what_is_too_large(door: Door) -> None:
    idle = [Submission(f"idle {i}", good(0.0)) for i in range(6)]
    sent = [*idle, *(Submission(str(i), good()) for i in range(5)), Submission("huge", good(1e30))]
    assert [r.client for r in door(sent, Gate(max_norm_ratio=10)).rejected] == ["huge"]
    assert door(idle, Gate(max_norm_ratio=10)).n == 6


@every_door
def test_a_count_too_long_to_print(door: Door) -> None:
    sent = [Submission("honest", good(), 10), Submission("bad", good(), 10**5000)]
    assert [r.code for r in door(sent).rejected] == ["bad_samples"]


@every_door
@pytest.mark.parametrize("copies", [0.0, 1e20])
def test_repeats_have_no_vote_on_what_is_too_large(door: Door, copies: float) -> None:
    sent = [Submission(str(i), good()) for i in range(5)] + [Submission("evil", good(copies))] * 6
    updates = door(sent, Gate(max_norm_ratio=10))
    assert set(updates.ids) - {"evil"} == set("01234")
    assert ("evil" in updates.ids) == (copies == 0)


@every_door
@pytest.mark.parametrize("client", ["\ud800", 7, None, ["a"], b"a"])
def test_a_client_id_must_be_a_text(door: Door, client: Any) -> None:
    cohort = door([Submission("honest", good()), Submission(client, good())])
    assert cohort.ids == ("honest",)
    assert [r.code for r in cohort.rejected] == ["bad_id"]
    updates = admitted([Submission("honest", good()), Submission(client, None)])
    assert [r.code for r in updates.rejected] == ["bad_id"]
    rule = Tesseract(f=0)
    assert np.isfinite(rule.aggregate(updates, rule.init(8)).update).all()


def test_claims_near_the_largest_float() -> None:
    sent = [Submission(str(i), good(), claim) for i, claim in enumerate([1.7e308, 1.7e308, None])]
    updates = admitted(sent)
    assert np.isfinite(FedSGD().aggregate(updates, FedSGD().init(8)).update).all()


def test_weights_become_updates_against_the_base() -> None:
    updates = admitted([Submission("a", good(3.5))], base=3.0)
    np.testing.assert_array_equal(updates.matrix, [[0.5] * 8])


def test_too_few_updates_skip_the_round_and_say_what_to_do() -> None:
    sent = [Submission("a", good()), Submission("b", None)]
    with pytest.raises(QuorumError, match=r"round 7: 1 updates were admitted and 1 turned away \(1 empty\)") as caught:
        admitted(sent, Gate(quorum=2), round=7)
    assert [rejection.client for rejection in caught.value.rejected] == ["b"]
    with pytest.raises(QuorumError, match="1 updates were admitted and 2 turned away") as caught:
        admitted([Submission("a", good()), Submission("a", good()), Submission("b", None)], Gate(quorum=2))
    assert [rejection.client for rejection in caught.value.rejected] == ["b"], "a second one of a is no offence"
    with pytest.raises(QuorumError):
        admitted([])


@pytest.mark.parametrize("settings", [{"quorum": 0}, {"max_norm_ratio": 0.5}, {"max_sample_ratio": math.nan}])
def test_a_gate_that_makes_no_sense_is_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="gate"):
        Gate(**settings)


anything = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | hnp.arrays(hnp.scalar_dtypes() | st.just(np.dtype(object)), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    | hnp.arrays(np.float32, st.sampled_from([(2,), (2, 3)]), elements=st.floats(width=32))
)
submissions = st.builds(
    Submission,
    client=st.sampled_from(["a", "b", "c", "<b>", ""]),
    arrays=anything
    | st.dictionaries(st.sampled_from(["weight", "bias", "other", 3]), anything)
    | st.fixed_dictionaries({"weight": anything, "bias": anything}),
    samples=anything,
)


@settings(max_examples=200)
@given(st.lists(submissions, max_size=8))
def test_200_rounds_of_malformed_input(hostile: list[Submission]) -> None:
    """No crash, a reason for each that is turned away, and no NaN in what reaches the model."""
    honest = [Submission(f"honest-{i}", good(1.0 + i), 10) for i in range(12)]
    updates = admitted([*hostile, *honest])
    assert updates.n + len(updates.rejected) == len(hostile) + len(honest)
    assert all(rejection.code and rejection.detail for rejection in updates.rejected)
    rule = Tesseract(f=0.3)
    out = rule.aggregate(updates, rule.init(8))
    assert np.isfinite(out.update).all()
    assert len(out.report["rejected"]) == len(updates.rejected)
    for rejection in updates.rejected:
        assert rejection.client in out.state.reputation
