"""Pulling replies through Flower's own SuperLink and grid, while nodes do there what they are not meant to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tesseract_fl.flower.grid import UNDECODABLE, StreamingGrid
from tests.flower.fake import record, small_model
from tests.flower.superlink import SuperLink


@pytest.fixture
def link() -> Iterator[SuperLink]:
    before = TaskIdentity.run_id
    made = SuperLink(4)
    TaskIdentity.run_id = made.run
    yield made
    TaskIdentity.run_id = before


def arrays() -> RecordDict:
    return RecordDict({"arrays": record(small_model())})


class Federation:
    """All nodes are asked, and all but the first, which is the hostile one, answer at once. It is looked for first."""

    def __init__(self, link: SuperLink) -> None:
        self.link = link
        self.hostile, *self.honest = link.nodes
        self.asked = [Message(arrays(), dst_node_id=node, message_type="train") for node in link.nodes]

    def reply(self) -> Message:
        return Message(arrays(), reply_to=self.asked[0])

    def replies(self, timeout: float = 0.0, then: Callable[[], object] = lambda: None) -> Iterator[Message]:
        """What is pulled; `then` is what the hostile node does once all have been asked."""
        push = self.link.grid.push_messages

        def push_and_answer(messages: Any) -> Any:
            ids = push(messages)
            for node, message in zip(self.honest, self.asked[1:], strict=True):
                self.link.push(node, Message(arrays(), reply_to=message))
            then()
            return ids

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.link.grid, "push_messages", push_and_answer)
            yield from StreamingGrid(self.link.grid, 0.01).send_and_receive(self.asked, timeout=timeout)


def senders(replies: list[Message]) -> list[int]:
    return [reply.metadata.src_node_id for reply in replies]


@pytest.mark.parametrize("root", [None, ConfigRecord({"no": "message"})], ids=["a message", "no message at all"])
def test_messages_that_answer_nothing_cost_nobody_its_reply(link: SuperLink, root: Any) -> None:
    ours = Federation(link)
    replies = list(ours.replies(then=lambda: link.push(ours.hostile, link.instruction(), root=root)))
    assert senders(replies) == ours.honest
    assert not any(reply.has_error() for reply in replies)


def test_a_flood_of_them_while_replies_are_pulled(link: SuperLink) -> None:
    ours = Federation(link)
    replies = []
    for reply in ours.replies():
        replies.append(reply)
        for number in range(3):
            link.push(ours.hostile, link.instruction(), root=ConfigRecord({"no": [number, len(replies)]}))
    assert senders(replies) == ours.honest
    assert not any(reply.has_error() for reply in replies)


def test_a_reply_that_can_not_be_decoded_is_its_senders(link: SuperLink) -> None:
    ours = Federation(link)
    first, *others = ours.replies(
        then=lambda: link.push(ours.hostile, ours.reply(), root=ConfigRecord({"no": "message"}))
    )
    assert first.metadata.reply_to_message_id == ours.asked[0].metadata.message_id
    assert first.error.code == UNDECODABLE
    assert senders(others) == ours.honest
    assert not any(reply.has_error() for reply in others)


def test_nobody_waits_for_parts_that_were_announced(link: SuperLink) -> None:
    ours = Federation(link)
    start = time.monotonic()
    assert senders(list(ours.replies(0.2, lambda: link.push(ours.hostile, ours.reply(), parts=False)))) == ours.honest
    assert time.monotonic() - start < 2


def test_a_reply_counts_once_its_parts_are_there(link: SuperLink) -> None:
    ours = Federation(link)
    sent = []

    def announce() -> None:
        sent.append(ours.reply())
        sent.append(link.push(ours.hostile, sent[0], parts=False))

    replies = []
    for reply in ours.replies(5, announce):
        replies.append(reply)
        if len(replies) == len(ours.honest):
            link.push_parts(ours.hostile, *sent)
    assert senders(replies) == [*ours.honest, ours.hostile]
    assert replies[-1].content.array_records


def test_whoever_answers_while_others_are_pulled_is_in_time(link: SuperLink) -> None:
    ours = Federation(link)
    replies: list[Message] = []
    for reply in ours.replies(0.1):
        if not replies:
            link.push(ours.hostile, ours.reply())  # it was looked for already
            time.sleep(0.1)
        replies.append(reply)
    assert senders(replies) == [*ours.honest, ours.hostile]


def test_the_servers_own_grid_is_left_as_it_is(link: SuperLink) -> None:
    before = link.grid._client
    assert list(Federation(link).replies())
    assert link.grid._client is before
