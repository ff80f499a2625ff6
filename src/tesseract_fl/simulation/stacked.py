"""Many clients at once: while they share the weights, one pass over their stacked batches serves them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from tesseract_fl.models.gru import Outputs, Transposed
from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation import pooled
from tesseract_fl.simulation.sequences import ClassesFirst, Embedding, Recurrent
from tesseract_fl.simulation.stages import Convolution, Flatten, Linear, Plain, Relu, Slots, Stage
from tesseract_fl.types import Float64s, Ints, Matrix

Batch = tuple[Tensor, Tensor]

# layers without parameters in which no sample sees another
PLAIN = {
    nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.MaxPool2d,
    nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh,
}  # fmt: skip


class Stacked:
    """The model as a sequence of stages; one thread's own, because stages remember what they saw."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        self.first = next(i for i, stage in enumerate(stages) if stage.parameters)
        stages[self.first].leads = True
        self.takes_symbols = isinstance(stages[0], Embedding | Recurrent)
        self.refresh()

    @classmethod
    def of(cls, model: FlatModel) -> Stacked | None:
        """None if the model has a layer, or a way of sharing them, that the stages do not cover."""
        slots = {id(parameter): slot for parameter, slot in zip(model.parameters, model.layout, strict=True)}
        layers = list(_layers(model.module))
        stages = _stages(layers, slots)
        if stages is None:
            return None
        covered = [id(parameter) for stage in stages for parameter in stage.parameters]
        return cls(stages) if covered and sorted(covered) == sorted(slots) else None

    def refresh(self) -> None:
        for stage in self.stages:
            stage.refresh()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """The model's outputs, in memory that the next call writes again."""
        for stage in self.stages:
            x = stage.forward(x)
        return x

    @torch.no_grad()
    def updates(self, batches: Sequence[Batch], lr: float, out: Matrix) -> list[float]:
        """Write u_i = −lr·g_i of one batch per client into the rows of `out`; the loss of each is returned."""
        starts = np.array(list(accumulate((len(y) for _, y in batches), initial=0)))
        x, y = (torch.cat(part) if len(part) > 1 else part[0] for part in zip(*batches, strict=True))
        logits = self.predict(x)
        losses = np.empty(len(batches))
        if logits.ndim == 2:
            g = torch.empty_like(logits)
            _loss(logits.numpy(), y.numpy(), starts, -lr, g.numpy(), losses)
        else:
            g = _loss_at_positions(logits, y, starts, -lr, losses)
        rows = torch.from_numpy(out)
        for stage in reversed(self.stages[self.first :]):
            g = stage.backward(g, starts, rows)
        return [float(loss) for loss in losses]

    def works(self, x: Tensor, y: Tensor | None = None) -> bool:
        """Whether inputs of this kind go through the stages and come out as one row of numbers for each label."""
        if x.dtype != (torch.int64 if self.takes_symbols else torch.float32):
            return False
        try:
            shape = self.predict(x).shape
            return len(shape) > 1 if y is None else y.dtype == torch.int64 and y.shape == shape[:1] + shape[2:]
        except (RuntimeError, ValueError, IndexError):  # a user's own mistake is reported by the module itself, later
            return False


@njit(nogil=True, cache=True)
def _loss(logits: Any, y: Any, starts: Any, scale: Any, g: Any, losses: Any) -> None:
    """L_i, the mean cross-entropy of client i, and g = scale · ∂L/∂logits = scale · (softmax − one-hot) / samples."""
    odds = np.empty(logits.shape[1], np.float64)
    for i in range(len(losses)):
        share = 1 / (starts[i + 1] - starts[i])
        losses[i] = 0.0
        for b in range(starts[i], starts[i + 1]):
            if not 0 <= y[b] < logits.shape[1]:
                raise IndexError("a label is not one of the classes that the model knows")
            top = np.float64(logits[b].max())
            total = 0.0
            for j in range(logits.shape[1]):
                odds[j] = np.exp(logits[b, j] - top)
                total += odds[j]
            losses[i] += share * (np.log(total) + top - logits[b, y[b]])
            for j in range(logits.shape[1]):
                g[b, j] = scale * share * (odds[j] / total - (j == y[b]))


def _loss_at_positions(logits: Tensor, y: Tensor, starts: Ints, scale: float, losses: Float64s) -> Tensor:
    """The same for samples × classes × positions, means over all positions, in torch's float32: there are many."""
    if y.min() < 0 or y.max() >= logits.shape[1]:
        raise IndexError("a label is not one of the classes that the model knows")
    g = torch.log_softmax(logits.movedim(1, -1), dim=-1)
    right = g.gather(-1, y[..., None]).double()
    g.exp_().scatter_add_(-1, y[..., None], -torch.ones(1).expand(right.shape))
    for i, span in enumerate(slice(*ends) for ends in pairwise(starts.tolist())):
        losses[i] = -float(right[span].mean())
        g[span] *= scale / y[span].numel()
    return g.movedim(-1, 1)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for child in module:
            yield from _layers(child)
    else:
        yield module


def _stages(layers: list[nn.Module], slots: Slots) -> list[Stage] | None:
    stages: list[Stage] = []
    start = 0
    while len(layers) >= start + 3 and pooled.fits(*layers[start : start + 3]):
        start += 3
    if start:
        stages.append(pooled.Pooled([layer for layer in layers[:start:3] if isinstance(layer, nn.Conv2d)], slots))
    symbols: nn.Embedding | None = None  # that the next layer looks up itself
    for layer, following in zip_longest(layers[start:], layers[start + 1 :]):
        if type(layer) is nn.Linear:
            stages.append(Linear(layer, slots))
        elif type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
            stages.append(Convolution(layer, slots))
        elif type(layer) is nn.ReLU:
            stages.append(Relu())
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            stages.append(Flatten())
        elif isinstance(layer, nn.Embedding) and Embedding.fits(layer):
            if type(following) is Outputs:
                symbols = layer
            else:
                stages.append(Embedding(layer, slots))
        elif type(layer) is Outputs and Recurrent.fits(layer):
            stages.append(Recurrent(layer, 0, slots, symbols))
            stages += [Recurrent(layer, number, slots) for number in range(1, layer.num_layers)]
            symbols = None
        elif type(layer) is Transposed:
            stages.append(ClassesFirst())
        elif type(layer) in PLAIN:
            stages.append(Plain(layer))
        else:
            return None
    return stages
