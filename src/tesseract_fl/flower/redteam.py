"""Attack your own federation: an attack as a client mod. It does nothing unless the node is explicitly armed.

A client sees its own update and no more, so attacks that need the others' are refused, unless the armed clients share a
folder: then each knows what all of them computed, and what clients that agreed to be `observed` are about to send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType

from tesseract_fl import checkpoint, registry
from tesseract_fl.attacks.base import Attack, Knowledge, View
from tesseract_fl.attacks.schedule import Covered, Scheduled
from tesseract_fl.flower.model import Model
from tesseract_fl.flower.replies import named_arrays
from tesseract_fl.randomness import generator
from tesseract_fl.types import CheckpointError, ConfigError, Floats, KnowledgeError

ROLES = ("off", "observed", "armed")
CallNext = Callable[[Message, Context], Message]

_log = logging.getLogger("flwr.tesseract")


class RedTeam:
    """`ClientApp(mods=[echo, RedTeam("sign_flip", role=lambda context: …)])`.

    `role` is what a node is: "off" (nothing happens), "armed" (it attacks), or "observed" (it behaves, and lets armed
    ones see its update). `pool` is a folder that armed and observed clients share.
    """

    def __init__(
        self,
        attack: Attack | str | Mapping[str, Any],
        *,
        role: str | Callable[[Context], str] = "off",
        pool: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        self.attack = attack if isinstance(attack, Attack) else _named(attack)
        self.pool = None if pool is None else Pool(Path(pool))
        self._role = role
        self._seed = seed
        check_possible(self.attack, pooled=pool is not None)

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Let the app train, then replace what it sends."""
        role = self._role if isinstance(self._role, str) else self._role(context)
        if role not in ROLES:
            raise ConfigError(f"a node's role is one of {', '.join(ROLES)}, got {role!r}")
        reply = call_next(message, context)
        training = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
        if role == "off" or not training or not reply.has_content():
            return reply
        self._replace(message, reply, role, str(context.node_id))
        return reply

    def _replace(self, message: Message, reply: Message, role: str, name: str) -> None:
        model = Model.of(named_arrays(next(iter(message.content.array_records.values()))))
        key, record = next(iter(reply.content.array_records.items()))
        sent = named_arrays(record)
        own = model.update(sent)
        round = round_of(message)
        if self.pool is not None:
            self.pool.share(name, role, round, own)
        if role == "armed":
            buffers = np.empty(model.buffers.d, np.float64)
            model.buffers.flatten(sent, out=buffers)
            moved = model.moved(self._crafted(own, name, round), buffers)
            reply.content[key] = ArrayRecord({name: Array(array) for name, array in moved.items()})

    def _crafted(self, own: Floats, name: str, round: int) -> Floats:
        """This client's row of what all armed clients send."""
        armed, observed = ({name: own}, {}) if self.pool is None else self.pool.known(round)
        rows = np.stack([armed[client] for client in sorted(armed)])
        benign = np.stack(list(observed.values())) if observed else rows  # without anybody else's: their own, honest
        pooled = self.pool is not None
        view = View(round=round, trained=rows, benign=benign if pooled else None, n=len(rows) + 1, report=None)
        try:
            crafted: Floats = self.attack.craft(view, generator(self._seed, "attack", round))
        except KnowledgeError:
            raise
        except ConfigError as impossible:  # too few are known yet
            crafted = view.honest(str(impossible))
        for why in view.gave_up:
            _log.warning("not attacked in round %d: %s", round, why)
        row: Floats = crafted[sorted(armed).index(name)]
        return row


class Pool:
    """Updates in a folder: one file per client, replaced in each round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def share(self, client: str, role: str, round: int, update: Floats) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        meta = {"client": client, "role": role, "round": round}
        checkpoint.write(self.folder / f"{client}.safetensors", {"update": update}, meta)

    def known(self, round: int) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """The updates of armed and of observed clients, of this round or of the last where they are not there yet."""
        found: dict[str, dict[str, Floats]] = {"armed": {}, "observed": {}}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                arrays, meta = checkpoint.read(path)
            except CheckpointError:  # being replaced just now
                continue
            if round - meta["round"] in (0, 1):
                found[meta["role"]][meta["client"]] = arrays["update"]
        return found["armed"], found["observed"]


def by_node_config(message: Message, context: Context, call_next: CallNext) -> Message:
    """A mod that whoever starts a SuperNode arms, with `--node-config "red-team='sign_flip'"` and a `red-team-pool`."""
    named = str(context.node_config.get("red-team", ""))
    if not named:
        return call_next(message, context)
    pool = context.node_config.get("red-team-pool")
    role, attack = ("observed", "none") if named == "observed" else ("armed", named)
    mod = RedTeam(attack, role=role, pool=None if pool is None else str(pool))
    return mod(message, context, call_next)


def check_possible(attack: Attack, *, pooled: bool) -> None:
    """Refuse what a client mod can't do."""
    if attack.alias("node", 10**9) != "node":
        raise ConfigError(
            "a mod can't change who its node is, and so it can't whitewash: "
            "start the SuperNode again with another key, or without one, which gives it another id"
        )
    poisoner = next((one for one in _innermost(attack) if type(one).poison is not Attack.poison), None)
    if poisoner is not None:
        raise ConfigError(
            f"{type(poisoner).__name__} poisons training data, which a mod does not see: "
            "call its poison() where your client makes its batches"
        )
    lacking = Knowledge(updates="all" if pooled else "own", defence="nothing").lacks(attack.needs)
    if lacking:
        raise KnowledgeError(
            f"{type(attack).__name__} needs to know {lacking}: a client sees its own update only. "
            "Armed clients that share a folder (pool=…) know each other's; what the server does, none of them sees"
        )
    if not pooled:
        attack.check_known(1)


def _innermost(attack: Attack) -> Iterator[Attack]:
    """What the wrappers around it strike with, now or later."""
    if not isinstance(attack, Scheduled):
        yield attack
        return
    yield from _innermost(attack.inner)
    if isinstance(attack, Covered) and attack.cover is not None:
        yield from _innermost(attack.cover)


def round_of(message: Message) -> int:
    """The round that the server says it is; 1 if it says nothing."""
    for record in message.content.config_records.values():
        if "server-round" in record:
            return int(str(record["server-round"]))
    return 1


def _named(attack: str | Mapping[str, Any]) -> Attack:
    spec = {"name": attack} if isinstance(attack, str) else attack
    built: Attack = registry.build("attacks", spec)
    return built
