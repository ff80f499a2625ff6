"""The paper's GRU, which guesses the next character of a text."""

from __future__ import annotations

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
        return _Characters(classes, self.width)


class _Characters(nn.Module):
    def __init__(self, symbols: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, symbols)

    def forward(self, x: Tensor) -> Tensor:
        """Scores, batch × symbols × positions: where cross-entropy looks for the classes."""
        if x.is_floating_point():
            raise ConfigError("gru takes sequences of symbols, as those of shakespeare; this data has numbers")
        scores: Tensor = self.out(self.gru(self.embedding(x))[0])
        return scores.transpose(1, 2)
