"""A registered node without a SuperNode: it says to the SuperLink what no SuperNode would."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tests.flower.superlink import announcement, instruction


class Hostile(threading.Thread):
    """Announces every reply and never sends it, and puts what is no message beside the others' replies all the time."""

    def __init__(self, address: str, root_certificates: Path, private_key: Path) -> None:
        super().__init__(daemon=True)
        key = load_ssh_private_key(private_key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.fleet = FleetHttpClient.from_server_address(
            address, False, root_certificates.read_bytes(), [NodeAuthHttpInterceptor(key, key.public_key())]
        )
        activate = ActivateNodeRequest(public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=1800)
        self.node = self.fleet.ActivateNode(activate).node_id
        self.announced = self.injected = 0

    def run(self) -> None:
        run = 0
        with suppress(httpx.HTTPStatusError):  # of a run that has ended nothing is taken
            while True:
                time.sleep(0.2)
                for asked in self.fleet.PullMessages(PullMessagesRequest(node=Node(node_id=self.node))).messages_list:
                    run = asked.metadata.run_id
                    self._announce(run, asked.metadata.message_id)
                if run:
                    self._inject(run)
        self.fleet.close()

    def _announce(self, run: int, message_id: str) -> None:
        reply = instruction(run)
        own = {"_reply_to_message_id": message_id, "_src_node_id": self.node, "_dst_node_id": 1, "_ttl": 600.0}
        reply.metadata.__dict__.update(own)
        self.fleet.PushMessages(announcement(self.node, reply, reply))
        self.announced += 1

    def _inject(self, run: int) -> None:
        root = ConfigRecord({"number": self.injected})
        pushed = self.fleet.PushMessages(announcement(self.node, instruction(run), root))
        part = PushObjectRequest(
            node=Node(node_id=self.node), run_id=run, object_id=root.object_id, object_content=root.deflate(),
            session_id=pushed.session_id,
        )  # fmt: skip
        self.fleet.PushObject(part)
        self.injected += 1
