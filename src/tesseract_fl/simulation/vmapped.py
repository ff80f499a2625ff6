"""Many clients at once, each with weights of its own: torch's vmap over their local steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import Float64s, Matrix

Batch = tuple[Tensor, Tensor]


class Vmapped:
    """The model as a function of one flat vector, and its gradient for many vectors at a time."""

    def __init__(self, model: FlatModel) -> None:
        self.model = model
        self.start = torch.from_numpy(model.vector)
        self.buffers = dict(model.module.named_buffers())
        self._gradients = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, 0))

    def _loss(self, vector: Tensor, buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        parameters = {slot.name: vector[slot.columns].view(slot.shape) for slot in self.model.layout}
        return cross_entropy(functional_call(self.model.module, (parameters, buffers), (x,)), y)

    def updates(self, clients: Sequence[Sequence[Batch]], lr: float, out: Matrix, learned: Float64s) -> list[float]:
        """Write u_i = w_i − w_global after one step of SGD per batch into `out`; the mean loss of each is returned.

        `learned` takes the buffers of each client's model, one row each.
        """
        total = torch.zeros(len(clients))
        moved = torch.from_numpy(out).zero_()
        buffers = {name: buffer.expand(len(clients), *buffer.shape).clone() for name, buffer in self.buffers.items()}
        for batches in zip(*clients, strict=True):
            x, y = (torch.stack(part) for part in zip(*batches, strict=True))
            gradients, losses = self._gradients(self.start + moved, buffers, x, y)
            moved.sub_(gradients, alpha=lr)
            total += losses
        for slot in self.model.buffer_layout:
            learned[:, slot.columns] = buffers[slot.name].reshape(len(clients), -1).numpy()
        return [float(loss) for loss in total / len(clients[0])]

    def works(self, batch: Batch) -> bool:
        """Whether vmap knows every operation of this model, and does none of them one client at a time."""
        x, y = (part[None] for part in batch)
        buffers = {name: buffer[None].clone() for name, buffer in self.buffers.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                self._gradients(self.start[None], buffers, x, y)
            except (RuntimeError, NotImplementedError, ValueError, UserWarning):
                return False
        return True


def alike(clients: Sequence[Sequence[Batch]]) -> bool:
    """Whether all clients take as many steps with batches of one shape."""
    shapes = [[(x.shape, y.shape) for x, y in batches] for batches in clients]
    return all(shape == shapes[0][0] for client in shapes for shape in client) and len(set(map(len, shapes))) == 1
