"""The paper's GRU, which guesses the next character of a text."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn

from tesseract_fl.models.small import Model
from tesseract_fl.types import ConfigError


@dataclass(frozen=True, kw_only=True)
class Gru(Model):
    """The paper's GRU for text: an embedding of 100, two layers of 100, one output per symbol at each position."""

    width: int = 100

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"gru: width must be at least 1, got {self.width}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 1:
            raise ConfigError(f"gru takes sequences of symbols, this data has inputs of shape {shape}")
        return nn.Sequential(
            OrderedDict(
                embedding=Symbols(classes, self.width),
                gru=Outputs(self.width, self.width, num_layers=2, batch_first=True),
                out=nn.Linear(self.width, classes),
                scores=Transposed(),
            )
        )


class Symbols(nn.Embedding):
    def forward(self, x: Tensor) -> Tensor:
        if x.is_floating_point():
            raise ConfigError("gru takes sequences of symbols, as those of shakespeare; this data has numbers")
        return super().forward(x)


class Outputs(nn.GRU):
    """The outputs of the last layer at every position, without the last state of the others."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs: Tensor = super().forward(x)[0]
        return outputs


class Transposed(nn.Module):
    """Scores as batch × symbols × positions: where cross-entropy looks for the classes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)
