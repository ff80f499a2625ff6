"""A torch module whose parameters are views into one flat vector."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tesseract_fl.layout import Layout
from tesseract_fl.models.small import Model
from tesseract_fl.types import ConfigError, Float64s, Floats


class FlatModel:
    """`vector` is the model: writing to it changes the module, whose parameters live in it.

    `buffers` is what a module keeps besides (batch-norm statistics, counters), as a row of its own.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        named = dict(module.named_parameters())
        frozen = [name for name, parameter in named.items() if not parameter.requires_grad]
        if frozen:
            raise ConfigError(f"the model's parameter {frozen[0]} is frozen; all that is in a model is trained")
        self.parameters: list[Tensor] = list(named.values())
        self.layout = Layout.of({name: parameter.detach().numpy() for name, parameter in named.items()})
        self.vector: Floats = self.layout.flatten({name: p.detach().numpy() for name, p in named.items()})
        flat = torch.from_numpy(self.vector)
        for slot, parameter in zip(self.layout, self.parameters, strict=True):
            parameter.data = flat[slot.columns].view(slot.shape)

        self._buffers = dict(module.named_buffers())
        self.buffer_layout = Layout.of({name: buffer.numpy() for name, buffer in self._buffers.items()})

    @property
    def buffers(self) -> Float64s:
        """A copy; setting it changes the module. float64 holds every float32 and every count exactly."""
        row = np.empty(self.buffer_layout.d, np.float64)
        self.buffer_layout.flatten({name: buffer.numpy() for name, buffer in self._buffers.items()}, row)
        return row

    @buffers.setter
    def buffers(self, row: Float64s) -> None:
        for slot, buffer in zip(self.buffer_layout, self._buffers.values(), strict=True):
            values = torch.from_numpy(row[slot.columns].reshape(slot.shape))
            buffer.copy_(values if buffer.is_floating_point() else values.round())

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Parameters and buffers by name, as torch's `state_dict` has them."""
        return self.layout.unflatten(self.vector) | self.buffer_layout.unflatten(self.buffers)

    def replica(self) -> FlatModel:
        """The same model in a vector of its own."""
        return FlatModel(deepcopy(self.module))

    @classmethod
    def create(cls, model: Model, shape: tuple[int, ...], classes: int, seed: int) -> FlatModel:
        """The module with its first parameters drawn from `seed`; torch's own generator is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(model.build(shape, classes))
