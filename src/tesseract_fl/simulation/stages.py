"""The layers of a model as stages of one pass over the stacked batches of many clients.

Forwards a stage keeps what it needs for the way back; backwards it writes every client's gradient of its own
parameters into that client's row, and passes on the gradient of its input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor, nn

from tesseract_fl.layout import Slot

Slots: TypeAlias = dict[int, Slot]  # id of a parameter → where it is in a row
Spans: TypeAlias = Sequence[slice]  # whose samples are whose, in the order of the rows


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
    def backward(self, g: Tensor, spans: Spans, rows: Tensor) -> Tensor:
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

    def targets(self, row: Tensor) -> list[Tensor]:
        """The gradients of weight and bias, as views into a client's row."""
        return [row[slot.columns].view(slot.shape) for slot in self._slots]


class Linear(Weighted):
    """y = x·Wᵀ + b, so that ∂W = gᵀ·x, ∂b = Σ g and ∂x = g·W."""

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        out = self.scratch("y", len(x), len(self.weight))
        if self.bias is None:
            return torch.mm(x, self.weight.t(), out=out)
        return torch.addmm(self.bias, x, self.weight.t(), out=out)

    def backward(self, g: Tensor, spans: Spans, rows: Tensor) -> Tensor:
        for span, row in zip(spans, rows, strict=True):
            weight, *bias = self.targets(row)
            torch.mm(g[span].t(), self.x[span], out=weight)
            for target in bias:
                torch.sum(g[span], dim=0, out=target)
        return g if self.leads else torch.mm(g, self.weight, out=self.scratch("dx", *self.x.shape))


class Convolution(Weighted):
    """Any two-dimensional convolution, through torch's own."""

    def __init__(self, module: nn.Conv2d, slots: Slots) -> None:
        super().__init__(module, slots)
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        out: Tensor = self.module(x)
        return out

    def backward(self, g: Tensor, spans: Spans, rows: Tensor) -> Tensor:
        for span, row in zip(spans, rows, strict=True):
            _, *found = self._gradients(g[span], self.x[span], [False, True, self.bias is not None])
            for target, gradient in zip(self.targets(row), found, strict=False):
                target.copy_(gradient)
        return g if self.leads else self._gradients(g, self.x, [True, False, False])[0]

    def _gradients(self, g: Tensor, x: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
        m = self.module
        bias = None if self.bias is None else list(self.bias.shape)
        found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            g, x, self.weight, bias, m.stride, m.padding, m.dilation, False, [0, 0], m.groups, wanted
        )
        return found


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

    def backward(self, g: Tensor, spans: Spans, rows: Tensor) -> Tensor:
        if self.leads:
            return g
        dx: Tensor = torch.autograd.grad(self.y, self.x, g)[0]
        return dx
