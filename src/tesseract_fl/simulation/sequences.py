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

from tesseract_fl.simulation.stages import Scratch, Slots, Stage, Starts


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


class Recurrent(Stage):
    """One layer of gated recurrent units, with a and b the products of input and of the last h with their weights.

    r = σ(a_r + b_r),  z = σ(a_z + b_z),  m = tanh(a_m + r·b_m),  h ← (1 − z)·m + z·h

    Behind an embedding E the input's products, W·E[x], are formed once per symbol; with S the sums of ∂a over the
    positions of each symbol, ∂W = Sᵀ·E and ∂E = S·W. In memory positions come first: a step reads what lies together.
    """

    def __init__(self, module: nn.GRU, layer: int, slots: Slots, symbols: nn.Embedding | None = None) -> None:
        sides = [(f"weight_{side}_l{layer}", f"bias_{side}_l{layer}") for side in ("ih", "hh")]
        self._held = [getattr(module, name) for names in sides for name in names]
        self._held += [] if symbols is None else [symbols.weight]
        self._slots = [slots[id(parameter)] for parameter in self._held]
        self.w_a, self.b_a, self.w_b, self.b_b, *rest = (parameter.detach() for parameter in self._held)
        self.symbols = rest[0] if rest else None
        self.width = module.hidden_size
        self.scratch = Scratch()

    @staticmethod
    def fits(module: nn.GRU) -> bool:
        return module.batch_first and module.bias and not module.bidirectional and module.dropout == 0

    @property
    def parameters(self) -> list[Tensor]:
        return self._held

    def forward(self, x: Tensor) -> Tensor:
        positions, n = x.shape[1], x.shape[0]
        width = self.width
        self.x = x.transpose(0, 1).contiguous()
        a = self._products()
        self.gates = self.scratch("gates", positions, n, 4 * width)  # r, z, b_m, m
        self.h = self.scratch("h", positions + 1, n, width)
        self.h[0] = 0
        h, weight = self.h.unbind(0), self.w_b.t()
        for t, gates in enumerate(self.gates):
            torch.addmm(self.b_b, h[t], weight, out=gates[:, : 3 * width])
            gates[:, : 2 * width].add_(a[t, :, : 2 * width]).sigmoid_()
            r, z, b_m, m = gates.chunk(4, dim=1)
            torch.addcmul(a[t, :, 2 * width :], r, b_m, out=m).tanh_()
            torch.lerp(m, h[t], z, out=h[t + 1])
        return self.h[1:].transpose(0, 1)

    def _products(self) -> Tensor:
        """a, for all positions."""
        if self.symbols is not None:
            return embedding(self.x, torch.addmm(self.b_a, self.symbols, self.w_a.t()))
        out = self.scratch("a", *self.x.shape[:2], 3 * self.width)
        torch.addmm(self.b_a, self.x.flatten(0, 1), self.w_a.t(), out=out.flatten(0, 1))
        return out

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        n, positions, width = g.shape
        d_a = self.scratch("d_a", positions, n, 3 * width)
        d_b = self.scratch("d_b", positions, n, 3 * width)
        d_h = self.scratch("d_h", n, width).zero_()
        arrays = [tensor.numpy() for tensor in (self.gates, self.h, g.transpose(0, 1).contiguous(), d_a, d_b, d_h)]
        for t in reversed(range(positions)):
            _step_back(t, *arrays)
            d_h.addmm_(d_b[t], self.w_b)
        targets = [rows[:, slot.columns].view(-1, *slot.shape) for slot in self._slots]
        for i, span in enumerate(slice(*ends) for ends in pairwise(starts)):
            own = [target[i] for target in targets]
            self._own_gradients(self.x[:, span], self.h[:-1, span], d_a[:, span], d_b[:, span], own)
        if self.leads or self.symbols is not None:
            return g
        dx = self.scratch("dx", *self.x.shape)
        torch.mm(d_a.flatten(0, 1), self.w_a, out=dx.flatten(0, 1))
        return dx.transpose(0, 1)

    def _own_gradients(self, x: Tensor, h: Tensor, d_a: Tensor, d_b: Tensor, own: list[Tensor]) -> None:
        """One client's gradients, from its samples."""
        a, b = (tensor.reshape(-1, 3 * self.width) for tensor in (d_a, d_b))
        torch.mm(b.t(), h.reshape(-1, self.width), out=own[2])
        torch.sum(b, dim=0, out=own[3])
        if self.symbols is None:
            torch.mm(a.t(), x.reshape(-1, x.shape[-1]), out=own[0])
            torch.sum(a, dim=0, out=own[1])
        else:
            sums = torch.zeros(len(self.symbols), 3 * self.width).index_add_(0, x.flatten(), a)
            torch.mm(sums.t(), self.symbols, out=own[0])
            torch.sum(sums, dim=0, out=own[1])
            torch.mm(sums, self.w_a, out=own[4])


@njit(nogil=True, fastmath={"contract"}, cache=True)
def _step_back(t: Any, gates: Any, h: Any, g: Any, d_a: Any, d_b: Any, d_h: Any) -> None:
    """The gradients of a and b at position t, and of the h before it without what goes through b."""
    n, width = d_h.shape
    one = np.float32(1)
    for i in range(n):
        r, z = gates[t, i, :width], gates[t, i, width : 2 * width]
        b_m, m = gates[t, i, 2 * width : 3 * width], gates[t, i, 3 * width :]
        to_a, to_b, to_h, before = d_a[t, i], d_b[t, i], d_h[i], h[t, i]
        for k in range(width):
            d = to_h[k] + g[t, i, k]
            d_m = d * (one - z[k]) * (one - m[k] * m[k])
            d_r = d_m * b_m[k] * r[k] * (one - r[k])
            d_z = d * (before[k] - m[k]) * z[k] * (one - z[k])
            to_a[k], to_a[width + k], to_a[2 * width + k] = d_r, d_z, d_m
            to_b[k], to_b[width + k], to_b[2 * width + k] = d_r, d_z, d_m * r[k]
            to_h[k] = d * z[k]
