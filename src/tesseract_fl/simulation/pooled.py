"""The stage for what most small image models begin with: (convolution, ReLU, 2×2 max-pooling), once or repeatedly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from tesseract_fl.simulation import convolution, winograd
from tesseract_fl.simulation.lanes import LANES
from tesseract_fl.simulation.stages import Slots, Stage, Starts, Weighted
from tesseract_fl.types import Floats, Ints

FEW = 4


def fits(conv: nn.Module, relu: nn.Module, pool: nn.Module) -> bool:
    """Whether three layers are what the kernels do."""
    return (
        type(conv) is nn.Conv2d
        and type(relu) is nn.ReLU
        and type(pool) is nn.MaxPool2d
        and _pair(conv.stride) == _pair(conv.dilation) == (1, 1)
        and conv.padding_mode == "zeros"
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
        if x.ndim != 4 or x.shape[1] != self.blocks[0].channels:  # the kernels do not look
            raise ValueError(f"images of {self.blocks[0].channels} channels are needed, got {tuple(x.shape)}")
        images: Floats = x.permute(0, 2, 3, 1).contiguous().numpy()
        for block in self.blocks:
            images = block.forward(images)
        true = torch.from_numpy(images)[..., : block.filters].permute(0, 3, 1, 2)
        return block.scratch("y", *true.shape).copy_(true)

    def backward(self, g: Tensor, starts: Starts, rows: Tensor) -> Tensor:
        last = self.blocks[-1]
        padded = last.scratch("g", *last.out.shape)
        padded[..., : last.filters] = g.permute(0, 2, 3, 1)
        gradient: Floats = padded.numpy()
        for block in reversed(self.blocks):
            gradient = block.backward(gradient, starts, rows)
        return g


class Block(Weighted):
    """One convolution with what follows it; `pitch` is how many channels its images have in memory."""

    def __init__(self, module: nn.Conv2d, slots: Slots) -> None:
        super().__init__(module, slots)
        self.filters, self.channels, *kernel = self.weight.shape
        self.kernel = kernel[0], kernel[1]
        self.margins = _margins(module)
        self.lanes = -(-self.filters // LANES) * LANES
        self.pitch: int | None = None  # none: the first block, which takes images as they are

    @property
    def rest(self) -> int:
        """How many filters are done one by one: the last few, where they would leave most of their lanes empty."""
        few = self.filters % LANES
        return few if self.pitch is not None and few <= FEW else 0

    @property
    def by_winograd(self) -> bool:
        return self.pitch is not None and self.kernel == (3, 3)

    def refresh(self) -> None:
        w = self.weight.permute(0, 2, 3, 1)  # filters × kernel × channels
        full = self.lanes - (LANES if self.rest else 0)
        products = winograd.transformed(self.weight) if self.by_winograd else w
        padded = torch.zeros(full, products[0].numel())
        padded[: self.filters] = products[:full].flatten(1)
        self.w: Floats = padded.view(-1, LANES, padded.shape[1]).transpose(1, 2).contiguous().numpy()
        self.b: Floats = np.zeros(self.lanes, np.float32)
        if self.bias is not None:
            self.b[: self.filters] = self.bias.numpy()
        if self.pitch is not None:
            padded = torch.zeros(*w.shape[:3], self.pitch)
            padded[..., : self.channels] = w
            self.w_back: Floats = padded.flatten(2).numpy()

    def forward(self, x: Floats) -> Floats:  # type: ignore[override]
        x = self._with_margins(x)
        b, h, w, c = x.shape
        shape = b, (h - self.kernel[0] + 1) // 2, (w - self.kernel[1] + 1) // 2, self.lanes
        if min(shape) < 1:
            raise ValueError(f"images of {h} × {w} are too small")
        self.x = x
        self.taps = _taps(self.kernel, self.channels, (w * c, c))
        self.out: Floats = self.scratch("out", *shape).numpy()
        self.tags = self.scratch("tags", *shape, dtype=torch.uint8).numpy()
        if self.by_winograd:
            winograd.forward(x, self.w, self.b, self.out, self.tags)
        else:
            convolution.forward(x, self.w, self.b, self.taps, self.out, self.tags)
        if self.rest:
            convolution.forward_rest(x, self.w_back, self.b, self.filters - self.rest, self.out, self.tags)
        return self.out

    def backward(self, g: Floats, starts: Starts, rows: Tensor) -> Floats:  # type: ignore[override]
        weight, *bias = (target.numpy() for target in self.targets(rows))
        for target in bias:
            db: Floats = self.scratch("db", len(rows), self.lanes).numpy()
            convolution.backward_bias(g, self.tags, starts, db)
            target[:] = db[:, : self.filters]
        return self._first(g, starts, weight) if self.pitch is None else self._inner(g, starts, weight)

    def _first(self, g: Floats, starts: Starts, out: Floats) -> Floats:
        taps = np.concatenate([self.taps, np.zeros(-len(self.taps) % 3, np.int64)])
        dw: Floats = self.scratch("dw", len(out), len(taps), self.lanes).numpy()
        convolution.backward_first(self.x, g, self.tags, starts, taps, dw)
        true = dw[:, : len(self.taps), : self.filters]
        out[:] = true.reshape(len(out), *self.kernel, self.channels, -1).transpose(0, 4, 3, 1, 2)
        return g

    def _inner(self, g: Floats, starts: Starts, out: Floats) -> Floats:
        dx: Floats = self.scratch("dx", *self.x.shape).numpy()
        dw: Floats = self.scratch("dw", len(out), *self.w_back.shape).numpy()
        convolution.backward_weight(self.x, g, self.tags, starts, dw)
        convolution.backward_input(g, self.tags, self.w_back, dx)
        true = dw.reshape(len(out), self.filters, *self.kernel, -1)[..., : self.channels]
        out[:] = true.transpose(0, 1, 4, 2, 3)
        return np.ascontiguousarray(self._within_margins(dx))

    def _with_margins(self, x: Floats) -> Floats:
        """Images with zeros around them, so that the kernels need not know of borders."""
        (top, bottom), (left, right) = self.margins
        if not (top or bottom or left or right):
            return x
        b, h, w, c = x.shape
        padded: Floats = self.scratch("x", b, h + top + bottom, w + left + right, c).zero_().numpy()
        self._within_margins(padded)[:] = x
        return padded

    def _within_margins(self, x: Floats) -> Floats:
        (top, bottom), (left, right) = self.margins
        return x[:, top : x.shape[1] - bottom, left : x.shape[2] - right]


def _margins(conv: nn.Conv2d) -> list[tuple[int, int]]:
    """Zeros before and after the images' rows and columns; of an odd number, torch has one more after."""
    if conv.padding == "same":
        return [((k - 1) // 2, k // 2) for k in conv.kernel_size]
    height, width = (0, 0) if isinstance(conv.padding, str) else conv.padding
    return [(height, height), (width, width)]


@cache
def _taps(kernel: tuple[int, int], channels: int, strides: tuple[int, int]) -> Ints:
    """Where the inputs of one position are in memory, counted from the first: rows, columns, channels."""
    ky, kx, c = np.ix_(np.arange(kernel[0]), np.arange(kernel[1]), np.arange(channels))
    taps: Ints = (ky * strides[0] + kx * strides[1] + c).reshape(-1)
    return taps
