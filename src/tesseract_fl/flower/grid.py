"""A Grid that hands replies on as they arrive, and that one undecodable reply can't end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from logging import WARNING
from typing import Any

import httpx
from flwr.app import Error, Message
from flwr.serverapp import Grid
from flwr.supercore import log

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
        end = None if timeout is None else time.monotonic() + timeout
        while waiting:
            for id in list(waiting):
                for reply in self._pull(id, waiting[id]):
                    waiting.pop(id, None)
                    yield reply
            if not waiting or (end is not None and time.monotonic() >= end):
                return
            time.sleep(self._seconds)

    def _pull(self, id: str, asked: Message) -> list[Message]:
        try:
            return list(self._inner.pull_messages([id]))
        except (httpx.HTTPError, OSError):  # the SuperLink can't be reached: not the client's doing
            raise
        except Exception as error:
            log(WARNING, "a reply from node %d can't be decoded: %s", asked.metadata.dst_node_id, type(error).__name__)
            reason = f"the reply can't be decoded: {type(error).__name__}: {error}"
            return [Message(Error(code=UNDECODABLE, reason=reason[:300]), reply_to=asked)]
