"""The stage for what most small image models begin with: (convolution, ReLU, 2×2 max-pooling), once or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from tesseract_fl.simulation import convolution
from tesseract_fl.simulation.lanes import LANES
from tesseract_fl.simulation.stages import Slots, Spans, Stage, Weighted
from tesseract_fl.types import Floats, Ints


def fits(conv: nn.Module, relu: nn.Module, pool: nn.Module) -> bool:
    """Whether three layers are what the kernels do."""
    return (
        type(conv) is nn.Conv2d
        and type(relu) is nn.ReLU
        and type(pool) is nn.MaxPool2d
        and _pair(conv.stride) == _pair(conv.dilation) == (1, 1)
        and conv.padding in (0, (0, 0), "valid")
        and conv.groups == 1
        and _pair(pool.kernel_size) == _pair(pool.stride) == (2, 2)
        and _pair(pool.padding) == (0, 0)
        and _pair(pool.dilation) == (1, 1)
        and not (pool.ceil_mode or pool.return_indices)
    )


def _pair(value: int | tuple[int, ...] | str) -> object:
    return (value, value) if isinstance(value, int) else value


class Pooled(Stage):
    """Blocks of convolution, ReLU and pooling. Between them images stay as the kernels want them."""

    leads = True

    def __init__(self, modules: Sequence[nn.Conv2d], slots: Slots) -> None:
        self.blocks = [Block(module, slots) for module in modules]
        for before, block in pairwise(self.blocks):
            block.pitch = before.lanes

    @property
    def parameters(self) -> list[Tensor]:
        return [parameter for block in self.blocks for parameter in block.parameters]

    def refresh(self) -> None:
        for block in self.blocks:
            block.refresh()

    def forward(self, x: Tensor) -> Tensor:
        images: Floats = x.permute(0, 2, 3, 1).contiguous().numpy()
        for block in self.blocks:
            images = block.forward(images)
        true = torch.from_numpy(images)[..., : block.filters].permute(0, 3, 1, 2)
        return block.scratch("y", *true.shape).copy_(true)

    def backward(self, g: Tensor, spans: Spans, rows: Tensor) -> Tensor:
        last = self.blocks[-1]
        padded = last.scratch("g", *last.out.shape)
        padded[..., : last.filters] = g.permute(0, 2, 3, 1)
        gradient: Floats = padded.numpy()
        for block in reversed(self.blocks):
            gradient = block.backward(gradient, spans, rows)
        return g


class Block(Weighted):
    """One convolution with what follows it; `pitch` is how many channels its images have in memory."""

    def __init__(self, module: nn.Conv2d, slots: Slots) -> None:
        super().__init__(module, slots)
        self.filters, self.channels, *kernel = self.weight.shape
        self.kernel = kernel[0], kernel[1]
        self.lanes = -(-self.filters // LANES) * LANES
        self.pitch: int | None = None  # none: the first block, which takes images as they are
        self.forward_weight = torch.zeros(self.lanes // LANES, self.weight[0].numel(), LANES)
        self.forward_bias = torch.zeros(self.lanes)

    def refresh(self) -> None:
        w = self.weight.permute(0, 2, 3, 1)  # filters × kernel × channels
        padded = torch.zeros(self.lanes, self.weight[0].numel())
        padded[: self.filters] = w.flatten(1)
        self.forward_weight.copy_(padded.view(-1, LANES, padded.shape[1]).transpose(1, 2))
        if self.bias is not None:
            self.forward_bias[: self.filters] = self.bias
        if self.pitch is not None:
            self.backward_weight = torch.zeros(*w.shape[:3], self.pitch)
            self.backward_weight[..., : self.channels] = w

    def forward(self, x: Floats) -> Floats:  # type: ignore[override]
        b, h, w, c = x.shape
        shape = b, (h - self.kernel[0] + 1) // 2, (w - self.kernel[1] + 1) // 2, self.lanes
        self.x = x
        self.taps = _taps(self.kernel, self.channels, (w * c, c))
        self.out: Floats = self.scratch("out", *shape).numpy()
        self.tags = self.scratch("tags", *shape, dtype=torch.uint8).numpy()
        convolution.forward(x, self.forward_weight.numpy(), self.forward_bias.numpy(), self.taps, self.out, self.tags)
        return self.out

    def backward(self, g: Floats, spans: Spans, rows: Tensor) -> Floats:  # type: ignore[override]
        dx: Floats = g if self.pitch is None else self.scratch("dx", *self.x.shape).numpy()
        for span, row in zip(spans, rows, strict=True):
            weight, *bias = self.targets(row)
            if self.pitch is None:
                weight.copy_(self._first_gradient(g[span], span))
            else:
                weight.copy_(self._inner_gradient(g[span], span, dx[span]))
            for target in bias:
                db = self.scratch("db", self.lanes)
                convolution.backward_bias(g[span], self.tags[span], db.numpy())
                target.copy_(db[: self.filters])
        return dx

    def _first_gradient(self, g: Floats, span: slice) -> Tensor:
        spare = -len(self.taps) % 3
        taps = np.concatenate([self.taps, np.zeros(spare, np.int64)])
        dw = self.scratch("dw", len(taps), self.lanes)
        convolution.backward_first(self.x[span], g, self.tags[span], taps, dw.numpy())
        true = dw[: len(self.taps), : self.filters]
        return true.view(*self.kernel, self.channels, -1).permute(3, 2, 0, 1)

    def _inner_gradient(self, g: Floats, span: slice, dx: Floats) -> Tensor:
        w = self.backward_weight.flatten(2)
        dw = self.scratch("dw", *w.shape)
        convolution.backward(self.x[span], g, self.tags[span], w.numpy(), dw.numpy(), dx)
        true: Tensor = dw.view(self.backward_weight.shape)[..., : self.channels]
        return true.permute(0, 3, 1, 2)


def _taps(kernel: tuple[int, int], channels: int, strides: tuple[int, int]) -> Ints:
    """Where the inputs of one position are in memory, counted from the first: rows, columns, channels."""
    ky, kx, c = np.ix_(np.arange(kernel[0]), np.arange(kernel[1]), np.arange(channels))
    taps: Ints = (ky * strides[0] + kx * strides[1] + c).reshape(-1)
    return taps
