"""The red team's mod: nothing unless armed, and no more than a client, or a group of them, can know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from tesseract_fl.flower import RedTeam
from tesseract_fl.flower.redteam import by_node_config
from tesseract_fl.flower.replies import named_arrays
from tesseract_fl.types import ConfigError, KnowledgeError
from tests.flower.fake import FakeGrid, config, honest, record, reply, small_model


def message(round: int = 1) -> Message:
    asked = config()
    asked["server-round"] = round
    content = RecordDict({"arrays": record(small_model()), "config": asked})
    made = Message(content, dst_node_id=1, message_type="train")
    FakeGrid({}).push_messages([made])
    return made


def context(node: int = 1) -> Context:
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def app(asked: Message, at: Context) -> Message:
    return reply(asked, honest(at.node_id)(named_arrays(asked.content.array_records["arrays"]), 1))


def sent(mod: Any, at: Context, round: int = 1) -> Any:
    answer = mod(message(round), at, app)
    arrays = named_arrays(answer.content.array_records["arrays"])
    return np.concatenate([arrays["w"].reshape(-1), arrays["b"]])


def own(at: Context) -> Any:
    return sent(lambda asked, where, call_next: call_next(asked, where), at)


def test_nothing_happens_unless_a_node_is_armed(tmp_path: Path) -> None:
    at = context()
    np.testing.assert_array_equal(sent(RedTeam("sign_flip"), at), own(at))
    np.testing.assert_array_equal(sent(RedTeam("full_trim", pool=tmp_path / "pool"), at), own(at))
    np.testing.assert_array_equal(sent(by_node_config, at), own(at))
    assert not (tmp_path / "pool").exists()
    with pytest.raises(ConfigError, match="off, observed, armed"):
        sent(RedTeam("sign_flip", role="on"), at)


def test_an_armed_node_attacks_with_what_it_has() -> None:
    at = context()
    np.testing.assert_allclose(sent(RedTeam("sign_flip", role="armed"), at), -own(at), rtol=1e-6)
    assert not np.isfinite(sent(RedTeam("non_finite", role="armed"), at)).all()
    drilled = Context(run_id=1, node_id=1, node_config={"red-team": "sign_flip"}, state=RecordDict(), run_config={})
    np.testing.assert_allclose(sent(by_node_config, drilled), -own(drilled), rtol=1e-6)


def test_evaluation_is_left_alone() -> None:
    asked = message()
    asked.metadata.message_type = "evaluate"
    answer = RedTeam("sign_flip", role="armed")(asked, context(), app)
    np.testing.assert_array_equal(named_arrays(answer.content.array_records["arrays"])["b"], own(context())[12:])


@pytest.mark.parametrize("attack", ["full_trim", "full_krum", "oversized", "flip_band"])
def test_what_needs_more_than_a_client_knows_is_refused(attack: str) -> None:
    with pytest.raises(KnowledgeError, match="its own update only"):
        RedTeam(attack, role="armed")


@pytest.mark.parametrize("attack", ["whitewash+sign_flip", "sleeper+whitewash+sign_flip"])
def test_a_mod_can_t_change_who_its_node_is(attack: str) -> None:
    with pytest.raises(ConfigError, match="start the SuperNode again with another key"):
        RedTeam(attack, role="armed")


def test_what_the_server_does_no_client_knows(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match="defence"):
        RedTeam("flip_band", pool=tmp_path)
    with pytest.raises(ConfigError, match="LabelFlip poisons training data"):
        RedTeam({"name": "sleeper", "inner": "sign_flip", "cover": {"name": "label_flip"}})
    with pytest.raises(ConfigError, match="poisons training data"):
        RedTeam("label_flip")
    with pytest.raises(ConfigError, match="poisons training data"):
        RedTeam({"name": "sleeper+label_flip", "until": 3})


def test_a_group_that_shares_a_folder_acts_as_one(tmp_path: Path) -> None:
    def role(at: Context) -> str:
        return "armed" if at.node_id < 2 else "observed"

    mod = RedTeam("full_trim", role=role, pool=tmp_path)
    for node in range(2, 10):
        np.testing.assert_array_equal(sent(mod, context(node)), own(context(node)))
    benign = np.stack([own(context(node)) for node in range(2, 10)])
    first, second = sent(mod, context(0)), sent(mod, context(1))
    assert (first <= benign.min(axis=0)).all(), "below everybody where everybody goes up"
    assert (second <= benign.min(axis=0)).all()
    assert not np.array_equal(first, second)


def test_armed_ones_alone_take_their_own_for_the_others(tmp_path: Path) -> None:
    mod = RedTeam("full_trim", role="armed", pool=tmp_path)
    sent(mod, context(0))
    lowest = np.minimum(own(context(0)), own(context(1)))
    assert (np.where(lowest > 0, sent(mod, context(1)) - lowest, 0) <= 0).all()
    stale = RedTeam("full_trim", role="armed", pool=tmp_path)
    alone = own(context(1))
    late = sent(stale, context(1), round=7)
    assert (np.sign(alone) * late <= np.abs(alone)).all(), "what is too old is not used"


def test_where_too_few_are_known_it_stays_honest(tmp_path: Path) -> None:
    mod = RedTeam("full_krum", role="armed", pool=tmp_path)
    sent(mod, context(0))
    np.testing.assert_array_equal(sent(mod, context(1)), own(context(1)))
