"""The small models: the paper's DNN, LEAF's CNN, a multi-layer perceptron, logistic regression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

from torch import nn

from tesseract_fl.types import ConfigError


@dataclass(frozen=True, kw_only=True)
class Model(ABC):
    """A recipe for a torch module."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module for inputs of one shape; its first parameters come from torch's global generator."""


@dataclass(frozen=True, kw_only=True)
class Dnn(Model):
    """The paper's DNN for 28×28 images: two 3×3 convolutions (30, 50) with pooling, 200 hidden units."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 10:
            raise ConfigError(f"dnn takes images of at least 10×10, this data has inputs of shape {shape}")
        channels, height, width = shape
        side = [((size - 2) // 2 - 2) // 2 for size in (height, width)]
        return nn.Sequential(
            nn.Conv2d(channels, 30, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(30, 50, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * side[0] * side[1], 200),
            nn.ReLU(),
            nn.Linear(200, classes),
        )


@dataclass(frozen=True, kw_only=True)
class LeafCnn(Model):
    """LEAF's CNN for 28×28 images: two 5×5 convolutions (32, 64) with pooling, 2,048 hidden units.

    Caldas et al., LEAF: A Benchmark for Federated Settings, 2019.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 4:
            raise ConfigError(f"leaf_cnn takes images of at least 4×4, this data has inputs of shape {shape}")
        channels, height, width = shape
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 2048),
            nn.ReLU(),
            nn.Linear(2048, classes),
        )


@dataclass(frozen=True, kw_only=True)
class Mlp(Model):
    """One hidden layer of `hidden` units."""

    hidden: int = 100

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ConfigError(f"mlp: hidden must be at least 1, got {self.hidden}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(prod(shape), self.hidden), nn.ReLU(), nn.Linear(self.hidden, classes)
        )


@dataclass(frozen=True, kw_only=True)
class Logistic(Model):
    """Multinomial logistic regression: one linear layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
