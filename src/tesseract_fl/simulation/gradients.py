"""What honest clients compute: their updates, written row by row into one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import Floats, Matrix

Batches = Iterable[tuple[Tensor, Tensor]]


class Clients:
    """Plays the clients of a round, several at a time.

    Each thread has a copy of the model and computes with one thread of torch's own: for batches as small as a
    client's that is faster than sharing one client among threads, and the result does not depend on their number.
    """

    def __init__(self, model: FlatModel, threads: int | None = None) -> None:
        count = threads or torch.get_num_threads()
        self.model = model
        self.replicas = [model.replica() for _ in range(count)]
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def updates(self, clients: Sequence[Batches], lr: float, out: Matrix) -> list[float]:
        """Write u_i = w_i − w_global of every client into `out`; the mean training loss of each is returned."""
        free: SimpleQueue[FlatModel] = SimpleQueue()
        for replica in self.replicas:
            replica.vector[:] = self.model.vector
            replica.module.train()
            free.put(replica)

        def play(batches: Batches, row: Floats) -> float:
            replica = free.get()
            try:
                return local_update(replica, batches, lr, row)
            finally:
                free.put(replica)

        return list(self._pool.map(play, clients, out))


def channels_last(x: Tensor) -> Tensor:
    """Images with their channels as the innermost axis in memory: convolution and pooling are faster that way."""
    if x.ndim != 4:
        return x
    _, c, h, w = x.shape
    # one channel is already in that order, but torch believes it only of these strides
    return x.as_strided(x.shape, (h * w, 1, w, 1)) if c == 1 else x.contiguous(memory_format=torch.channels_last)


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
