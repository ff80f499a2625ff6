"""What honest clients compute: their updates, written row by row into one matrix. The one place that chooses how.

- `stacked`: one pass over the stacked batches of several clients; for one local step (Adam's too: it starts without
  moments, so that its first step is a function of the gradient), and layers that it knows.
- `vmap`: torch's own; for clients with as many steps and batches of one shape. It pays off for small models.
- `loop`: one client after the other, for everything.

They agree up to rounding. `auto` takes the fastest that can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation.stacked import Stacked
from tesseract_fl.simulation.vmapped import Vmapped, alike
from tesseract_fl.types import ConfigError, Float64s, Floats, Matrix

Batch = tuple[Tensor, Tensor]
Batches = Iterable[Batch]
Part = TypeVar("Part")
Result = TypeVar("Result")

# of the clients that are played together; more leave the caches. A label per position of a sequence counts as one
_PARAMETERS, _SAMPLES, _LABELS = 2**20, 512, 20_000
_VMAP_PARAMETERS = 20_000  # of one model; beyond, the loop is at least as fast


class Clients:
    """Plays the clients of a round, several at a time.

    Each thread computes with one thread of torch's own: for batches as small as a client's that is faster than
    sharing one client among threads. Who is played together with whom does not depend on the number of threads, and so
    neither does the result.
    """

    def __init__(
        self, model: FlatModel, threads: int | None = None, strategy: str = "auto", optimiser: str = "sgd"
    ) -> None:
        count = threads or torch.get_num_threads()
        _check_not_random(model.module)
        self.model = model
        self.strategy = strategy
        self.optimiser = optimiser
        self.players = [Player(model, optimiser) for _ in range(count)]
        self._ways: Sequence[str] = ()
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))

    def updates(
        self, clients: Sequence[Batches], lr: float, out: Matrix, buffers: Float64s | None = None
    ) -> list[float]:
        """Write u_i = w_i − w_global of every client into `out`; the mean training loss of each is returned.

        `buffers` takes what else each client's model has learned (batch-norm statistics), one row each.
        """
        if not clients:
            return []
        learned = np.empty((len(clients), self.model.buffer_layout.d)) if buffers is None else buffers
        first = list(clients[0])
        clients = [first, *clients[1:]]
        for player in self.players:
            player.begin(self.model)
        ways = self._ways = self._ways or self._choose(first[0])
        labels = first[0][1]
        size = max(1, min(_PARAMETERS // self.model.layout.d, _SAMPLES // len(labels), _LABELS // labels.numel()))
        groups = [slice(i, i + size) for i in range(0, len(clients), size)]
        played = self._share(
            lambda player, group: player.play(clients[group], lr, out[group], learned[group], ways), groups
        )
        return [loss for losses in played for loss in losses]

    @torch.no_grad()
    def predict(self, x: Tensor, batch: int) -> list[Tensor]:
        """The outputs of the global model for the samples of x, batch by batch."""
        parts = torch.split(x, batch)
        for player in self.players:
            player.begin(self.model)
        if self.strategy in ("auto", "stacked") and self.players[0].can_stack(x[:1]):
            return self._share(Player.predict, parts)
        self.model.module.eval()

        @torch.no_grad()
        def outputs(part: Tensor) -> Tensor:  # the threads share the global model, because none of them writes to it
            found: Tensor = self.model.module(part)
            return found

        return list(self._pool.map(outputs, parts))

    def _choose(self, batch: Batch) -> Sequence[str]:
        """What to try for a group of clients, in this order."""
        if self.optimiser != "sgd" and self.strategy == "vmap":
            raise ConfigError(f"gradients = 'vmap' can't do {self.optimiser}; 'auto' finds another way")
        player = self.players[0]
        can_stack = player.can_stack(*batch)
        if self.strategy == "stacked" and not can_stack:
            raise ConfigError("gradients = 'stacked' does not know every layer of this model; 'auto' finds another way")
        if self.strategy != "auto":
            return (self.strategy,)
        stacked = ("stacked",) if can_stack else ()
        small = self.optimiser == "sgd" and self.model.layout.d <= _VMAP_PARAMETERS
        vmap = ("vmap",) if small and player.vmapped.works(batch) else ()
        return (*stacked, *vmap, "loop")

    def _share(self, work: Callable[[Player, Part], Result], parts: Iterable[Part]) -> list[Result]:
        """Each part to a player that is free; the results are in order."""
        free: SimpleQueue[Player] = SimpleQueue()
        for player in self.players:
            free.put(player)

        def run(part: Part) -> Result:
            player = free.get()
            try:
                return work(player, part)
            finally:
                free.put(player)

        return list(self._pool.map(run, parts))


class Player:
    """What one thread plays with: a copy of the model, and the ways to use it."""

    def __init__(self, model: FlatModel, optimiser: str) -> None:
        self.model = model.replica()
        self.buffers = model.buffers
        self.optimiser = optimiser
        self.stacked = Stacked.of(self.model)
        self.vmapped = Vmapped(self.model)

    def begin(self, model: FlatModel) -> None:
        """Start from the global model."""
        self.model.vector[:] = model.vector
        self.model.buffers = self.buffers = model.buffers
        self.model.module.train()
        if self.stacked:
            self.stacked.refresh()

    def can_stack(self, x: Tensor, y: Tensor | None = None) -> bool:
        return self.stacked is not None and self.stacked.works(x, y)

    def play(
        self, clients: Sequence[Batches], lr: float, out: Matrix, buffers: Float64s, ways: Sequence[str]
    ) -> list[float]:
        """The updates of a few clients, in the first way that can do them."""
        steps = [list(batches) for batches in clients]
        for way in ways:
            if way == "stacked" and self.stacked and all(len(batches) == 1 for batches in steps):
                own = [batch for (batch,) in steps]
                if self.optimiser == "sgd":
                    return self.stacked.updates(own, lr, out)
                losses = self.stacked.updates(own, 1.0, out)
                _first_adam_step(out, lr)
                return losses
            if way == "vmap" and alike(steps):
                return self.vmapped.updates(steps, lr, out, buffers)
            if way == "loop":
                rows = zip(steps, out, buffers, strict=True)
                return [self.alone(batches, lr, row, learned) for batches, row, learned in rows]
        raise ConfigError(f"gradients = {ways[0]!r} can't do these local steps; 'auto' finds another way")

    def alone(self, batches: Batches, lr: float, out: Floats, buffers: Float64s) -> float:
        """The update of one client, which starts from the global buffers and leaves its own in `buffers`."""
        loss = OPTIMISERS[self.optimiser](self.model, batches, lr, out)
        buffers[:] = self.model.buffers
        self.model.buffers = self.buffers
        return loss

    def predict(self, x: Tensor) -> Tensor:
        assert self.stacked
        return self.stacked.predict(x).clone()


def _check_not_random(module: nn.Module) -> None:
    for name, part in module.named_modules():
        random = isinstance(part, nn.RReLU) or (isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0)
        if random or (isinstance(part, nn.RNNBase) and part.dropout > 0):
            raise ConfigError(
                f"the model's layer {name or type(part).__name__} draws random numbers, so no run could be repeated "
                "or resumed; leave it out, or set its dropout to 0"
            )


def channels_last(x: Tensor) -> Tensor:
    """Images with their channels as the innermost axis in memory: convolution and pooling are faster that way."""
    if x.ndim != 4:
        return x
    _, c, h, w = x.shape
    if c > 1:
        return x.contiguous(memory_format=torch.channels_last)
    # one channel is already in that order, but torch believes it only of these strides
    return x.contiguous().as_strided(x.shape, (h * w, 1, w, 1))


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


@njit(nogil=True, cache=True)
def _first_adam_step(descent: Any, lr: float) -> None:
    """Make −g the update of one step of Adam whose moments start at zero, in place: −lr·g/(|g| + ε)."""
    for row in descent:
        for j in range(len(row)):
            row[j] = lr * row[j] / (abs(row[j]) + 1e-8)


OPTIMISERS = {"sgd": local_update, "adam": adam_update}
