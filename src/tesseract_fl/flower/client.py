"""The client's side of the nonce. Light on purpose: Flower starts a process for each message."""

from __future__ import annotations

from collections.abc import Callable

from flwr.app import ConfigRecord, Context, Message

RECORD = "tesseract"  # the record in both directions
NONCE = "nonce"


def echo(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Return the server's nonce with the reply: `ClientApp(mods=[echo])`."""
    asked = message.content.config_records.get(RECORD) if message.has_content() else None
    reply = call_next(message, context)
    if asked is not None and reply.has_content():
        reply.content[RECORD] = ConfigRecord({NONCE: asked[NONCE]})
    return reply
