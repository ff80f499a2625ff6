"""Stages for sequences of symbols: clients' samples × positions × features, through embedding and GRU.

Forwards and backwards a recurrent layer goes through the positions one by one, for the samples of all clients together;
everything that does not depend on the position before is one matrix product over all positions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn
from torch.nn.functional import embedding

from tesseract_fl.simulation.stages import Linear, Scratch, Slots, Stage, Starts


class Embedding(Stage):
    """y = W[x], so that row s of ∂W is the sum of g over the positions with symbol s. There is no ∂x."""

    def __init__(self, module: nn.Embedding, slots: Slots) -> None:
        self.weight = module.weight.detach()
        self._held = [module.weight]
        self._slot = slots[id(module.weight)]

    @staticmethod
    def fits(module: nn.Embedding) -> bool:
        return module.padding_idx is None and module.max_norm is None and not module.scale_grad_by_freq

    @property
    def parameters(self) -> list[Tensor]:
        return self._held

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return embedding(x, self.weight)

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        targets = rows[:, self._slot.columns].view(-1, *self._slot.shape)
        for target, span in zip(targets, (slice(*ends) for ends in pairwise(starts)), strict=True):
            target.zero_().index_add_(0, self.x[span].flatten(), g[span].flatten(0, -2))
        return g


class ClassesFirst(Stage):
    """samples × positions × classes → samples × classes × positions: where cross-entropy looks for classes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        return g.transpose(1, 2)


class Lookup(Stage):
    """y = W·E[x] + b: an embedding and the linear layer behind it, which has to see every symbol only once.

    With S the sums of g over the positions of each symbol: ∂W = Sᵀ·E, ∂b = Σ S and ∂E = S·W.
    """

    def __init__(self, module: nn.Embedding, behind: nn.Linear, slots: Slots) -> None:
        self._held = [module.weight, behind.weight, behind.bias]
        self._slots = [slots[id(parameter)] for parameter in self._held]
        self.symbols, self.weight, self.bias = (parameter.detach() for parameter in self._held)

    @property
    def parameters(self) -> list[Tensor]:
        return self._held

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        return embedding(x, torch.addmm(self.bias, self.symbols, self.weight.t()))

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        d_symbols, d_weight, d_bias = (rows[:, slot.columns].view(-1, *slot.shape) for slot in self._slots)
        sums = torch.empty(len(self.symbols), len(self.weight))
        for i, span in enumerate(slice(*ends) for ends in pairwise(starts)):
            sums.zero_().index_add_(0, self.x[span].flatten(), g[span].flatten(0, -2))
            torch.mm(sums, self.weight, out=d_symbols[i])
            torch.mm(sums.t(), self.symbols, out=d_weight[i])
            torch.sum(sums, dim=0, out=d_bias[i])
        return g


class Recurrent(Stage):
    """One layer of gated recurrent units, with a and b the products of input and of the last h with their weights.

    r = σ(a_r + b_r),  z = σ(a_z + b_z),  m = tanh(a_m + r·b_m),  h ← (1 − z)·m + z·h
    """

    def __init__(self, module: nn.GRU, layer: int, slots: Slots, symbols: nn.Embedding | None = None) -> None:
        arriving, remembered = (_affine(module, side, layer) for side in ("ih", "hh"))
        self.input: Stage = Linear(arriving, slots) if symbols is None else Lookup(symbols, arriving, slots)
        self.memory = Linear(remembered, slots)
        self.memory.leads = True  # what goes back to the last h is needed position by position
        self.width = module.hidden_size
        self.scratch = Scratch()

    @staticmethod
    def fits(module: nn.GRU) -> bool:
        return module.batch_first and module.bias and not module.bidirectional and module.dropout == 0

    @property
    def parameters(self) -> list[Tensor]:
        return self.input.parameters + self.memory.parameters

    def forward(self, x: Tensor) -> Tensor:
        n, positions = x.shape[:2]
        width, weight, bias = self.width, self.memory.weight.t(), self.memory.bias
        assert bias is not None
        self.gates = self.scratch("gates", positions, n, 4 * width)  # r, z, b_m, m
        self.h = self.scratch("h", n, positions + 1, width)
        self.h[:, 0] = 0
        h = self.h.unbind(1)
        for t, (a, gates) in enumerate(zip(self.input.forward(x).unbind(1), self.gates, strict=True)):
            torch.addmm(bias, h[t], weight, out=gates[:, : 3 * width])
            gates[:, : 2 * width].add_(a[:, : 2 * width]).sigmoid_()
            r, z, b_m, m = gates.chunk(4, dim=1)
            torch.addcmul(a[:, 2 * width :], r, b_m, out=m).tanh_()
            torch.lerp(m, h[t], z, out=h[t + 1])
        return self.h[:, 1:].contiguous()

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        n, positions, width = g.shape
        d_a = self.scratch("d_a", n, positions, 3 * width)
        d_b = self.scratch("d_b", n, positions, 3 * width)
        d_h = self.scratch("d_h", n, width).zero_()
        arrays = [tensor.numpy() for tensor in (self.gates, self.h, g.contiguous(), d_a, d_b, d_h)]
        for t, b in reversed(list(enumerate(d_b.unbind(1)))):
            _step_back(t, *arrays)
            d_h.addmm_(b, self.memory.weight)
        self.memory.x = self.h[:, :-1]
        self.memory.backward(d_b, starts, rows)
        self.input.leads = self.leads
        return self.input.backward(d_a, starts, rows)


@njit(nogil=True, fastmath={"contract"}, cache=True)
def _step_back(t: Any, gates: Any, h: Any, g: Any, d_a: Any, d_b: Any, d_h: Any) -> None:
    """The gradients of a and b at position t, and of the h before it without what goes through b."""
    n, width = d_h.shape
    one = np.float32(1)
    for i in range(n):
        r, z = gates[t, i, :width], gates[t, i, width : 2 * width]
        b_m, m = gates[t, i, 2 * width : 3 * width], gates[t, i, 3 * width :]
        to_a, to_b, to_h, before = d_a[i, t], d_b[i, t], d_h[i], h[i, t]
        for k in range(width):
            d = to_h[k] + g[i, t, k]
            d_m = d * (one - z[k]) * (one - m[k] * m[k])
            d_r = d_m * b_m[k] * r[k] * (one - r[k])
            d_z = d * (before[k] - m[k]) * z[k] * (one - z[k])
            to_a[k], to_a[width + k], to_a[2 * width + k] = d_r, d_z, d_m
            to_b[k], to_b[width + k], to_b[2 * width + k] = d_r, d_z, d_m * r[k]
            to_h[k] = d * z[k]


def _affine(module: nn.GRU, side: str, layer: int) -> nn.Linear:
    """What a recurrent layer does with its input (`ih`) or with the last h (`hh`), as a linear layer."""
    linear = nn.Linear(1, 1, device="meta")
    linear.weight, linear.bias = (getattr(module, f"{kind}_{side}_l{layer}") for kind in ("weight", "bias"))
    return linear
