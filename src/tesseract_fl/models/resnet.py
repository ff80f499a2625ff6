"""The paper's ResNet-18 for CIFAR-10, narrower than the well-known one in its last stage."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, adaptive_max_pool2d, relu

from tesseract_fl.models.small import Model
from tesseract_fl.types import ConfigError


@dataclass(frozen=True, kw_only=True)
class ResNet18(Model):
    """The paper's ResNet-18 for small colour images; `width` channels in the first stage, 64 in the paper.

    A 3×3 convolution without norm, four stages of two blocks (width ×1, ×2, ×4, ×4; strides 1, 2, 2, 2), the mean
    and the maximum of each channel, one linear layer. Its batch-norm statistics are no part of an update.

    He et al., Deep residual learning for image recognition, 2016.
    """

    width: int = 64

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"resnet18: width must be at least 1, got {self.width}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 8:
            raise ConfigError(f"resnet18 takes images of at least 8×8, this data has inputs of shape {shape}")
        stages = [self.width * factor for factor in (1, 2, 4, 4)]
        blocks: list[nn.Module] = []
        before = self.width
        for channels, stride in zip(stages, (1, 2, 2, 2), strict=True):
            blocks += [_Block(before, channels, stride), _Block(channels, channels, 1)]
            before = channels
        return nn.Sequential(
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            nn.ReLU(),
            *blocks,
            _MeanAndMaximum(),
            nn.Linear(2 * before, classes),
        )


class _Block(nn.Module):
    """Two 3×3 convolutions, each with batch norm and ReLU, around which the input is added before the last ReLU."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        same = stride == 1 and before == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, channels, 1, bias=False)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.first_norm(self.first(x)))
        # A 1×1 convolution with stride. Torch 2.13's own writes past its memory for fewer than 8 channels.
        direct = self.shortcut(x[:, :, :: self.stride, :: self.stride])
        return relu(self.second_norm(self.second(y)) + direct)


class _MeanAndMaximum(nn.Module):
    """Of each channel over all positions: batch × 2·channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([adaptive_avg_pool2d(x, 1), adaptive_max_pool2d(x, 1)], dim=1).flatten(1)
