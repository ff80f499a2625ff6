"""Flower's SuperLink in this process, without HTTP: its own state and handlers, for ServerApps and for SuperNodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import InflatableObject, get_all_nested_objects, get_object_tree
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation.noop_federation_manager import NoOpFederationManager
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.servicer.fleet import fleet_handlers as fleet
from flwr.superlink.servicer.runtime import runtime_handlers as runtime

TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what Flower's processes set before an app runs


class SuperLink:
    """`grid` is what a ServerApp is given; SuperNodes `push`."""

    def __init__(self, nodes: int) -> None:
        state: Any = InMemoryLinkState(NoOpFederationManager(), InMemoryObjectStore())
        self.state = state
        self.nodes = [state.create_node("aid", "name", bytes([number]), 1000) for number in range(nodes)]
        for node in self.nodes:
            state.activate_node(node, 1000)
        self.run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, "aid", TaskType.SERVER_APP)
        task = state.run_ids[self.run].run.primary_task_id
        state.claim_task(task)
        state.activate_task(task)
        self.grid = HttpGrid(token="any")
        self.grid.set_run(Run.create_empty(self.run))
        self.grid._client = Handlers(state, SimpleNamespace(run_id=self.run))  # type: ignore[assignment]

    def push(self, node: int, message: Message, *, root: InflatableObject | None = None, parts: bool = True) -> Any:
        """What a SuperNode does with a reply. A hostile one may send anything as its `root`, or no `parts` at all."""
        root = message if root is None else root
        announced = fleet.push_messages(announcement(node, message, root), self.state)
        if parts:
            self.push_parts(node, root, announced)
        return announced

    def push_parts(self, node: int, root: InflatableObject, announced: Any) -> None:
        for id, part in get_all_nested_objects(root).items():
            if id in announced.objects_to_push:
                request = PushObjectRequest(
                    node=Node(node_id=node), run_id=self.run, object_id=id, object_content=part.deflate(),
                    session_id=announced.session_id,
                )  # fmt: skip
                assert fleet.push_object(request, self.state).stored

    def instruction(self) -> Message:
        return instruction(self.run)


def instruction(run: int) -> Message:
    """A message that answers nothing, from a node that says that it is the SuperLink, to the SuperLink."""
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    message.metadata.__dict__["_run_id"] = run
    return message


def announcement(node: int, message: Message, root: InflatableObject) -> PushMessagesRequest:
    """What a SuperNode says before it sends the parts."""
    message.metadata.__dict__["_message_id"] = root.object_id
    return PushMessagesRequest(
        node=Node(node_id=node),
        messages_list=[message_to_proto(remove_content_from_message(message))],
        message_object_trees=[get_object_tree(root)],
    )


class Handlers:
    """The connection of a grid: each call goes to the handler of that name."""

    def __init__(self, state: Any, task: Any) -> None:
        self._state, self._task = state, task

    def __getattr__(self, name: str) -> Any:
        handler = getattr(runtime, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:])
        return lambda request: handler(request, self._state, self._task)
