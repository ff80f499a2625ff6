"""A torch module whose parameters are views into one flat vector."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from tesseract_fl.layout import Layout
from tesseract_fl.models.small import Model
from tesseract_fl.types import Floats


class FlatModel:
    """`vector` is the model: writing to it changes the module, whose parameters live in it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        named = dict(module.named_parameters())
        self.parameters: list[Tensor] = list(named.values())
        self.layout = Layout.of({name: parameter.detach().numpy() for name, parameter in named.items()})
        self.vector: Floats = self.layout.flatten({name: p.detach().numpy() for name, p in named.items()})
        flat = torch.from_numpy(self.vector)
        for slot, parameter in zip(self.layout, self.parameters, strict=True):
            parameter.data = flat[slot.columns].view(slot.shape)

    def replica(self) -> FlatModel:
        """The same model in a vector of its own."""
        return FlatModel(deepcopy(self.module))

    @classmethod
    def create(cls, model: Model, shape: tuple[int, ...], classes: int, seed: int) -> FlatModel:
        """The module with its first parameters drawn from `seed`; torch's own generator is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(model.build(shape, classes))
