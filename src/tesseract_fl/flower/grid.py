"""A Grid that hands replies on as they arrive, and that no node can stop: neither by what it sends nor by what not."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator
from copy import copy
from logging import WARNING
from typing import Any, cast

import httpx
from flwr.app import Error, Message
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.serverapp import Grid
from flwr.supercore import log
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

UNDECODABLE = -1  # an error code of ours; Flower's own start at 0
SECONDS = 1.0


class StreamingGrid(Grid):
    """Everything is the inner grid's, except that replies are pulled one by one."""

    def __init__(self, inner: Grid, seconds: float | None = None) -> None:
        self._inner = inner
        self._seconds = getattr(inner, "pull_interval", SECONDS) if seconds is None else seconds

    def set_run(self, run: Any) -> None:
        self._inner.set_run(run)

    @property
    def run(self) -> Any:
        return self._inner.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self._inner.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        ids: Iterable[int] = self._inner.get_node_ids()
        return ids

    def get_nodes(self) -> Iterable[Any]:
        nodes: Iterable[Any] = self._inner.get_nodes()
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids: Iterable[str] = self._inner.push_messages(messages)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies: Iterable[Message] = self._inner.pull_messages(message_ids)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """A generator: a reply is there when it arrives. What is not there in time is never pulled."""
        sent = list(messages)
        pushed = {str(id) for id in self._inner.push_messages(sent) if id}
        waiting = {message.metadata.message_id: message for message in sent if message.metadata.message_id in pushed}
        end = float("inf") if timeout is None else time.monotonic() + timeout
        grid = guarded(self._inner)
        while waiting:
            last = time.monotonic() >= end  # whoever answers while others are pulled is still in time
            for id in list(waiting):
                for reply in _pulled(grid, id, waiting[id]):
                    if reply.metadata.reply_to_message_id == id:
                        waiting.pop(id, None)
                    yield reply
            if not waiting or last:
                return
            time.sleep(max(0.0, min(self._seconds, end - time.monotonic())))


def _pulled(grid: Grid, id: str, asked: Message) -> list[Message]:
    try:
        return list(grid.pull_messages([id]))
    except IncompleteError:
        return []
    except (httpx.HTTPError, OSError):  # the SuperLink can't be reached: not the client's doing
        raise
    except Exception as error:
        log(WARNING, "a reply from node %d can't be decoded: %s", asked.metadata.dst_node_id, type(error).__name__)
        reason = f"the reply can't be decoded: {type(error).__name__}: {error}"
        return [Message(Error(code=UNDECODABLE, reason=reason[:300]), reply_to=asked)]


def guarded(grid: Grid) -> Grid:
    """The same grid, pulling through a `Mailbox` if it is Flower's own over HTTP; others wait for nothing anyway."""
    connection = getattr(grid, "_runtime_client", None)
    if connection is None:
        return grid
    pulling: Any = copy(grid)
    pulling._client = Mailbox(connection)
    return cast(Grid, pulling)


class IncompleteError(Exception):
    """A reply was announced, and not all of its parts have been sent yet."""


class Mailbox:
    """Flower's connection to the SuperLink, for a pull in which no node decides about another one's reply.

    With any reply the SuperLink gives out whatever messages nodes have put there that answer nothing. They are dropped;
    otherwise each would be taken for that reply, or end the pull if it can't be decoded. And a node announces a reply
    before it sends the parts, if it sends them. Flower waits for minutes; here the reply is looked for again later.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._announced: dict[tuple[str, ...], PullAppMessagesResponse] = {}  # the SuperLink gives them out once
        self._missing: dict[str, Any] = {}  # requests for parts that were not there, by their ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802
        asked = tuple(request.message_ids)
        if asked not in self._announced:
            answer = _replies(self._connection.PullMessages(request), asked)
            if not answer.messages_list:
                return answer
            self._announced[asked] = answer
        for tree in self._announced[asked].message_object_trees:
            for part in iterate_object_tree(tree):
                if part.object_id in self._missing:
                    self.PullObject(self._missing[part.object_id])
        return self._announced[asked]

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        answer = self._connection.PullObject(request)
        if answer.object_found and not answer.object_available:
            self._missing[request.object_id] = request
            raise IncompleteError
        self._missing.pop(request.object_id, None)
        return cast(PullObjectResponse, answer)


def _replies(answer: PullAppMessagesResponse, asked: Container[str]) -> PullAppMessagesResponse:
    """What of an answer are replies to these messages."""
    replies = PullAppMessagesResponse()
    for message, tree in zip(answer.messages_list, answer.message_object_trees, strict=True):
        if message.metadata.reply_to_message_id in asked:
            replies.messages_list.append(message)
            replies.message_object_trees.append(tree)
    if dropped := len(answer.messages_list) - len(replies.messages_list):
        log(WARNING, "%d messages that answer nothing were dropped", dropped)
    return replies
