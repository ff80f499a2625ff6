"""What honest clients compute: their updates, written row by row into one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import Floats, Matrix

Batches = Iterable[tuple[Tensor, Tensor]]


def client_updates(model: FlatModel, clients: Sequence[Batches], lr: float, out: Matrix) -> list[float]:
    """Write u_i = w_i − w_global of every client into `out`; the mean training loss of each is returned."""
    model.module.train()
    return [local_update(model, batches, lr, row) for batches, row in zip(clients, out, strict=True)]


def local_update(model: FlatModel, batches: Batches, lr: float, out: Floats) -> float:
    """One step of plain SGD per batch from the global model, which is as before when this returns."""
    start = model.vector
    out[:] = 0
    losses: list[float] = []
    for x, y in batches:
        if losses:  # the first step starts from the global model itself
            if len(losses) == 1:
                start = model.vector.copy()
            model.vector[:] = start + out
        loss = cross_entropy(model.module(x), y)
        gradients = torch.autograd.grad(loss, model.parameters)
        for slot, gradient in zip(model.layout, gradients, strict=True):
            out[slot.columns] -= lr * gradient.reshape(-1).numpy()
        losses.append(loss.item())
    if start is not model.vector:
        model.vector[:] = start
    return sum(losses) / len(losses)
