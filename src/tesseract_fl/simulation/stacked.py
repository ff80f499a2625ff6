"""Many clients at once: while they share the weights, one pass over their stacked batches serves them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel
from tesseract_fl.simulation import pooled
from tesseract_fl.simulation.stages import Convolution, Linear, Plain, Slots, Stage
from tesseract_fl.types import Matrix

# layers without parameters in which no sample sees another
PLAIN = {
    nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.ELU, nn.GELU, nn.Identity, nn.LeakyReLU, nn.MaxPool2d, nn.ReLU,
    nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh,
}  # fmt: skip


class Stacked:
    """The model as a sequence of stages; one thread's own, because stages remember what they saw."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        for stage in stages:
            stage.leads = True
            if stage.parameters:
                break

    @classmethod
    def of(cls, model: FlatModel) -> Stacked | None:
        """None if the model has a layer, or a way of sharing them, that the stages do not cover."""
        slots = {id(parameter): slot for parameter, slot in zip(model.parameters, model.layout, strict=True)}
        layers = list(_layers(model.module))
        stages = _stages(layers, slots)
        if stages is None:
            return None
        covered = [id(parameter) for stage in stages for parameter in stage.parameters]
        return cls(stages) if sorted(covered) == sorted(slots) else None

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
    def updates(self, batches: Sequence[tuple[Tensor, Tensor]], lr: float, out: Matrix) -> list[float]:
        """Write u_i = −lr·g_i of one batch per client into the rows of `out`; the loss of each is returned."""
        ends = list(accumulate((len(y) for _, y in batches), initial=0))
        spans = [slice(*span) for span in pairwise(ends)]
        x, y = (torch.cat(part) if len(part) > 1 else part[0] for part in zip(*batches, strict=True))
        g, losses = _loss(self.predict(x), y, spans, -lr)
        rows = torch.from_numpy(out)
        for stage in reversed(self.stages):
            g = stage.backward(g, spans, rows)
        return losses


def _loss(logits: Tensor, y: Tensor, spans: Sequence[slice], scale: float) -> tuple[Tensor, list[float]]:
    """The gradient of scale · Σ_i L_i for the outputs, and every client's L_i, its mean cross-entropy."""
    sizes = torch.tensor([span.stop - span.start for span in spans])
    share = (1 / sizes).repeat_interleave(sizes)
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        each = cross_entropy(leaf, y, reduction="none").reshape(len(y), -1).mean(dim=1) * share
        (g,) = torch.autograd.grad(each.sum() * scale, leaf)
    losses = np.add.reduceat(each.detach().numpy(), [span.start for span in spans])
    return g, [float(loss) for loss in losses]


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
    for layer in layers[start:]:
        if type(layer) is nn.Linear:
            stages.append(Linear(layer, slots))
        elif type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
            stages.append(Convolution(layer, slots))
        elif type(layer) in PLAIN or (type(layer) is nn.Flatten and layer.start_dim == 1):
            stages.append(Plain(layer))
        else:
            return None
    return stages
