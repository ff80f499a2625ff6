"""What every rule in the registry must do; a new rule is tested by being in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tesseract_fl import checkpoint, registry
from tesseract_fl.rules.base import Rule
from tesseract_fl.types import PreconditionError, Updates

N, D, F = 12, 40, 2
EXTRA: dict[str, dict[str, Any]] = {"reputation_filter": {"inner": {"name": "fedsgd"}}}
RULES = {name: registry.build("rules", {"name": name, **EXTRA.get(name, {})}, f=F) for name in registry.table("rules")}
NOT_ROBUST = {"fedsgd"}

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def cohort(matrix: Any, round: int = 1) -> Updates:
    return Updates(
        matrix=np.asarray(matrix, np.float32),
        ids=tuple(f"c{i}" for i in range(len(matrix))),
        round=round,
        samples=np.ones(len(matrix)),
    )


def honest(round: int, n: int = N) -> Any:
    rng = np.random.default_rng(round)
    return rng.normal(1.0, 1.0, size=(n, D)).astype(np.float32)


def play(rule: Rule[Any], rounds: range, state: Any = None) -> tuple[list[Any], Any]:
    state = rule.init(D) if state is None else state
    updates = []
    for t in rounds:
        out = rule.aggregate(cohort(honest(t), t), state)
        state = out.state
        updates.append(out.update)
    return updates, state


@every_rule
def test_inputs_and_state_are_never_mutated(rule: Rule[Any]) -> None:
    _, state = play(rule, range(1, 4))
    sent = cohort(honest(4), 4)
    before, packed = sent.matrix.copy(), checkpoint.pack(state)
    arrays = {name: array.copy() for name, array in packed[0].items()}
    first = rule.aggregate(sent, state)
    second = rule.aggregate(sent, state)
    np.testing.assert_array_equal(sent.matrix, before)
    for name, array in checkpoint.pack(state)[0].items():
        np.testing.assert_array_equal(array, arrays[name])
    assert checkpoint.pack(state)[1] == packed[1]
    np.testing.assert_array_equal(first.update, second.update)


@every_rule
def test_a_state_that_went_through_disk_goes_on_the_same(rule: Rule[Any], tmp_path: Path) -> None:
    whole, _ = play(rule, range(1, 9))
    _, half = play(rule, range(1, 5))
    checkpoint.write(tmp_path / "state", *checkpoint.pack(half))
    again = checkpoint.unpack(rule.init(D), *checkpoint.read(tmp_path / "state"))
    resumed, _ = play(rule, range(5, 9), again)
    np.testing.assert_array_equal(whole[4:], resumed)


@every_rule
def test_unanimity(rule: Rule[Any]) -> None:
    same = np.tile(honest(1)[0], (N, 1))
    out = rule.aggregate(cohort(same), rule.init(D))
    np.testing.assert_allclose(out.update, same[0], rtol=1e-6)


@every_rule
def test_positive_scaling(rule: Rule[Any]) -> None:
    once, twice = (rule.aggregate(cohort(k * honest(1)), rule.init(D)) for k in (1, 4))
    np.testing.assert_allclose(4 * once.update, twice.update, rtol=1e-5, atol=1e-6)


@every_rule
def test_arrival_order_does_not_matter(rule: Rule[Any]) -> None:
    sent = cohort(honest(1))
    order = np.random.default_rng(0).permutation(N)
    shuffled = Updates(
        matrix=sent.matrix[order],
        ids=tuple(sent.ids[i] for i in order),
        round=1,
        samples=np.ones(N),
    )
    straight, mixed = (rule.aggregate(u, rule.init(D)) for u in (sent, shuffled))
    np.testing.assert_allclose(straight.update, mixed.update, rtol=1e-5, atol=1e-6)


@every_rule
def test_weights_are_what_the_update_is_made_of(rule: Rule[Any]) -> None:
    sent = cohort(honest(1))
    out = rule.aggregate(sent, rule.init(D))
    assert out.update.shape == (D,)
    assert out.update.dtype == np.float32
    if out.weights is not None:
        assert out.weights.min() >= 0
        assert out.weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(out.update, out.weights @ sent.matrix, rtol=1e-4, atol=1e-5)


@every_rule
def test_f_arbitrary_rows_move_a_robust_rule_by_a_bounded_amount(rule: Rule[Any]) -> None:
    """After 300 rounds of 1e30 from f clients, what they move is small; the plain mean must fail this."""
    state = rule.init(D)
    for t in range(1, 301):
        matrix = honest(t)
        matrix[:F] = 1e30
        out = rule.aggregate(cohort(matrix, t), state)
        state = out.state
    moved = np.abs(out.update - honest(300)[F:].mean(axis=0)).max()
    assert out.weights is not None
    if type(rule) is type(RULES["tesseract"]):
        # a weighted mean has no breakdown point: 1e30 times any positive weight is large, so the weight is judged
        assert out.weights[:F].max() < 1e-10
    elif rule in [RULES[name] for name in NOT_ROBUST]:
        assert moved > 1e20
    else:
        assert moved < 10


@every_rule
def test_nobody_is_a_precondition_error(rule: Rule[Any]) -> None:
    with pytest.raises(PreconditionError):
        rule.aggregate(cohort(np.empty((0, D))), rule.init(D))


@pytest.mark.parametrize("name", RULES)
def test_configuration_prints_compares_hashes_and_round_trips(name: str) -> None:
    rule = RULES[name]
    spec = registry.describe("rules", rule)
    assert spec["name"] == name
    again = registry.build("rules", spec)
    assert again == rule
    assert hash(again) == hash(rule)
    assert type(rule).__name__ in repr(rule)
