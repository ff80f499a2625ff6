"""The layers of a model as stages of one pass over the stacked batches of many clients.

Forwards a stage keeps what it needs for the way back; backwards it writes every client's gradient of its own
parameters into that client's row, and passes on the gradient of its input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from tesseract_fl.layout import Slot
from tesseract_fl.simulation.outer import outer_sums
from tesseract_fl.types import Ints

WIDE = 2**20  # parameters of a linear layer from which on our own kernel is faster than the BLAS
Slots: TypeAlias = dict[int, Slot]  # id of a parameter → where it is in a row
Starts: TypeAlias = Ints  # the samples of client i, whose row is the i-th, are those from starts[i] to starts[i + 1]


class Scratch:
    """Memory that is used again in every round: to get fresh pages costs more than the arithmetic on them."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        held = self._held.get(name)
        if held is None or held.numel() < prod(shape):
            held = self._held[name] = torch.zeros(prod(shape), dtype=dtype)
        return held[: prod(shape)].view(shape)


class Stage(ABC):
    """`leads`: nothing before this stage has parameters, so nobody asks for the gradient of its input."""

    leads = False

    @property
    def parameters(self) -> list[Tensor]:
        """What this stage writes the gradients of."""
        return []

    def refresh(self) -> None:  # noqa: B027  (most stages read the weights where they are)
        """Take note that the weights have changed."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        """Write ∂/∂parameters of each client into its row; return ∂/∂x."""


class Weighted(Stage):
    """A stage with a weight and perhaps a bias, and where their gradients go."""

    def __init__(self, module: nn.Linear | nn.Conv2d, slots: Slots) -> None:
        self.weight = module.weight.detach()
        self.bias = None if module.bias is None else module.bias.detach()
        self._held = [parameter for parameter in (module.weight, module.bias) if parameter is not None]
        self._slots = [slots[id(parameter)] for parameter in self._held]
        self.scratch = Scratch()

    @property
    def parameters(self) -> list[Tensor]:
        return self._held

    def targets(self, rows: Tensor) -> list[Tensor]:
        """The gradients of weight and bias, as views into the clients' rows."""
        return [rows[:, slot.columns].view(-1, *slot.shape) for slot in self._slots]


class Linear(Weighted):
    """y = x·Wᵀ + b, so that ∂W = gᵀ·x, ∂b = Σ g and ∂x = g·W; for every position of a sample, if it has several."""

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        flat = x.flatten(0, -2)
        out = self.scratch("y", len(flat), len(self.weight))
        if self.bias is None:
            torch.mm(flat, self.weight.t(), out=out)
        else:
            torch.addmm(self.bias, flat, self.weight.t(), out=out)
        return out.view(*x.shape[:-1], -1)

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        for first, last in _runs(starts):
            weight, *bias = self.targets(rows[first:last])
            own = slice(starts[first], starts[last])
            outer = g[own].reshape(last - first, -1, g.shape[-1])  # clients × samples and positions × outputs
            inner = self.x[own].reshape(*outer.shape[:2], -1)
            if self.weight.numel() < WIDE:
                torch.bmm(outer.transpose(1, 2), inner, out=weight)
            else:
                for g_i, x_i, target in zip(outer, inner, weight, strict=True):
                    outer_sums(g_i.t().contiguous().numpy(), x_i.contiguous().numpy(), target.numpy())
            for target in bias:
                torch.sum(outer, dim=1, out=target)
        if self.leads:
            return g
        dx = self.scratch("dx", *self.x.shape)
        torch.mm(g.flatten(0, -2), self.weight, out=dx.flatten(0, -2))
        return dx


def _runs(starts: Starts) -> Iterator[tuple[int, int]]:
    """Runs of clients with as many samples each."""
    edges = [0, *(np.flatnonzero(np.diff(np.diff(starts))) + 1).tolist(), len(starts) - 1]
    return pairwise(edges)


class Convolution(Weighted):
    """Any two-dimensional convolution, through torch's own."""

    def __init__(self, module: nn.Conv2d, slots: Slots) -> None:
        super().__init__(module, slots)
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        out: Tensor = self.module(x)
        return out

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        targets = self.targets(rows)
        for i, span in enumerate(slice(*ends) for ends in pairwise(starts)):
            _, *found = self._gradients(g[span], self.x[span], [False, True, self.bias is not None])
            for target, gradient in zip(targets, found, strict=False):
                target[i] = gradient
        return g if self.leads else self._gradients(g, self.x, [True, False, False])[0]

    def _gradients(self, g: Tensor, x: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        m = self.module
        bias = None if self.bias is None else list(self.bias.shape)
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            g, x, self.weight, bias, m.stride, m.padding, m.dilation, False, [0, 0], m.groups, wanted
        )
        return found


class Relu(Stage):
    """y = max(x, 0)."""

    def __init__(self) -> None:
        self.scratch = Scratch()

    def forward(self, x: Tensor) -> Tensor:
        self.y = torch.clamp_min(x, 0, out=self.scratch("y", *x.shape))
        return self.y

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        dx: Tensor = torch.ops.aten.threshold_backward(g, self.y, 0)
        return dx


class Flatten(Stage):
    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        return g.view(self.shape)


class Plain(Stage):
    """A layer without parameters that treats every sample alone: torch's own derivative."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.x = x.detach().requires_grad_()
            self.y: Tensor = self.module(self.x)
        y: Tensor = self.y.detach()
        return y

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        dx: Tensor = torch.autograd.grad(self.y, self.x, g)[0]
        return dx
