"""Who a node is: reputation must outlast connections, and must not be washed off by a new one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from tesseract_fl.types import ClientId

Identify = Callable[[Any], ClientId | None]


def client_of(node: Any, identify: Identify | None = None) -> ClientId:
    """What the app says, else the SuperNode's authenticated public key, else the node id.

    >>> from types import SimpleNamespace
    >>> client_of(SimpleNamespace(node_id=7, public_key=b""))
    'node:7'
    """
    named = identify(node) if identify is not None else None
    if named is not None:
        return named
    if node.public_key:
        return "key:" + hashlib.sha256(node.public_key.strip()).hexdigest()[:32]
    return f"node:{node.node_id}"


class Directory:
    """Every node that was ever seen, and the client that it is; the first node of a client counts."""

    def __init__(self, identify: Identify | None = None) -> None:
        self._identify = identify
        self._clients: dict[int, ClientId] = {}

    def online(self, nodes: Iterable[Any]) -> dict[ClientId, int]:
        """The nodes that are there now, by client, in an order that does not depend on node ids."""
        for node in nodes:
            if node.node_id not in self._clients:
                self._clients[node.node_id] = client_of(node, self._identify)
        present: dict[ClientId, int] = {}
        for node in sorted(nodes, key=lambda node: int(node.node_id)):
            present.setdefault(self._clients[node.node_id], int(node.node_id))
        return dict(sorted(present.items()))
