"""One round of messages: who was asked with which nonce, and what came back."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from tesseract_fl.flower.client import NONCE, RECORD
from tesseract_fl.flower.intake import Intake
from tesseract_fl.flower.replies import Content, Fault, read
from tesseract_fl.gate import Submission
from tesseract_fl.reputation.records import Verdict
from tesseract_fl.types import ClientId

UNKNOWN = "unknown"  # who sent a reply that answers no message of this round


@dataclass(frozen=True, slots=True)
class Asked:
    client: ClientId
    nonce: str
    message: Message


@dataclass(kw_only=True)
class Round:
    """Collects replies; whatever they are, it never raises."""

    number: int
    began: float  # by time.perf_counter
    asked: Sequence[Asked]
    samples_key: str
    nonce_required: bool
    intake: Intake | None = None  # None in a round of evaluation
    metrics: dict[ClientId, Mapping[str, Any]] = field(default_factory=dict)
    others: list[Verdict] = field(default_factory=list)
    _by_id: dict[str, Asked] = field(default_factory=dict)
    _answered: set[ClientId] = field(default_factory=set)

    def take(self, reply: Message) -> None:
        """Take one reply in."""
        if not self._by_id:  # ids are given when messages are pushed
            self._by_id = {asked.message.metadata.message_id: asked for asked in self.asked}
        asked = self._by_id.get(reply.metadata.reply_to_message_id)
        if asked is None:
            self._note(UNKNOWN, Fault("ignored", "unasked", "a reply to no message of this round, or a late one"))
            return
        found = read(
            reply,
            asked.nonce,
            samples_key=self.samples_key,
            nonce_required=self.nonce_required,
            with_arrays=self.intake is not None,
        )
        if isinstance(found, Content):
            self._accept(asked.client, found)
        elif found.kind == "rejected" and self.intake is not None:
            self.intake.refuse(asked.client, found.code, found.detail)
        else:
            self._note(asked.client, found)
        self._answered.add(asked.client)

    def _accept(self, client: ClientId, content: Content) -> None:
        if self.intake is not None and self.intake.offer(Submission(client, content.arrays, content.samples)):
            return
        self.metrics.setdefault(client, content.metrics)

    def finish(self) -> None:
        """No more replies: whoever has not answered is absent, which is no offence."""
        for asked in self.asked:
            if asked.client not in self._answered:
                self._note(asked.client, Fault("absent", "no_reply", "no reply in time"))

    def _note(self, client: ClientId, fault: Fault) -> None:
        verdict = Verdict(round=self.number, client=client, verdict=fault.kind, code=fault.code, detail=fault.detail)
        self.others.append(verdict)


def messages(
    nodes: Mapping[ClientId, int],
    arrays: ArrayRecord,
    config: ConfigRecord,
    *,
    arrays_key: str,
    config_key: str,
    message_type: str,
) -> list[Asked]:
    """A message to every node, each with a nonce of its own beside what the user sends."""
    asked = []
    for client, node in nodes.items():
        nonce = secrets.token_hex(16)
        content = RecordDict({arrays_key: arrays, config_key: config, RECORD: ConfigRecord({NONCE: nonce})})
        asked.append(Asked(client, nonce, Message(content, dst_node_id=node, message_type=message_type)))
    return asked
