"""What honest clients compute: their updates, written row by row into one matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.types import Float64s, Floats, Matrix

Batches = Iterable[tuple[Tensor, Tensor]]


class Clients:
    """Plays the clients of a round, several at a time.

    Each thread has a copy of the model and computes with one thread of torch's own: for batches as small as a
    client's that is faster than sharing one client among threads, and the result does not depend on their number.
    """

    def __init__(self, model: FlatModel, threads: int | None = None, optimiser: str = "sgd") -> None:
        count = threads or torch.get_num_threads()
        self.model = model
        self.local_update = OPTIMISERS[optimiser]
        self.replicas = [model.replica() for _ in range(count)]
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def updates(
        self, clients: Sequence[Batches], lr: float, out: Matrix, buffers: Float64s | None = None
    ) -> list[float]:
        """Write u_i = w_i − w_global of every client into `out`; the mean training loss of each is returned.

        `buffers` takes what else each client's model has learned (batch-norm statistics), one row each.
        """
        learned = np.empty((len(clients), self.model.buffer_layout.d)) if buffers is None else buffers
        before = self.model.buffers
        free: SimpleQueue[FlatModel] = SimpleQueue()
        for replica in self.replicas:
            replica.vector[:] = self.model.vector
            replica.module.train()
            free.put(replica)

        def play(batches: Batches, row: Floats, statistics: Float64s) -> float:
            replica = free.get()
            try:
                replica.buffers = before
                loss = self.local_update(replica, batches, lr, row)
                statistics[:] = replica.buffers
                return loss
            finally:
                free.put(replica)

        return list(self._pool.map(play, clients, out, learned))

    def predict(self, x: Tensor, batch: int) -> Iterator[Tensor]:
        """The outputs of the global model, batch by batch; the threads share it, because none of them writes to it."""
        self.model.module.eval()

        @torch.inference_mode()
        def outputs(part: Tensor) -> Tensor:
            found: Tensor = self.model.module(part)
            return found

        return self._pool.map(outputs, torch.split(x, batch))


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


def adam_update(model: FlatModel, batches: Batches, lr: float, out: Floats) -> float:
    """One step of Adam per batch from the global model, which is as before when this returns.

    Its moments start at zero for every client in every round: clients keep nothing from one round to the next, and
    the server does not send them any. With one local step an update is −lr·g/(|g| + ε), nearly a sign.
    """
    start = model.vector.copy()
    optimiser = torch.optim.Adam(model.parameters, lr=lr)
    losses: list[float] = []
    for x, y in batches:
        optimiser.zero_grad()
        loss = cross_entropy(model.module(x), y)
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
    optimiser.zero_grad()
    np.subtract(model.vector, start, out=out)
    model.vector[:] = start
    return sum(losses) / len(losses)


OPTIMISERS = {"sgd": local_update, "adam": adam_update}
