"""How good the global model is on data that no client has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl.models.vector import FlatModel


@dataclass(frozen=True, slots=True)
class Quality:
    loss: float
    accuracy: float


@torch.inference_mode()
def evaluate(model: FlatModel, x: Tensor, y: Tensor, batch: int = 100) -> Quality:
    """Mean loss and share of correct answers on a test set."""
    model.module.eval()
    loss = 0.0
    correct = 0
    for inputs, labels in zip(torch.split(x, batch), torch.split(y, batch), strict=True):
        logits = model.module(inputs)
        loss += cross_entropy(logits, labels, reduction="sum").item()
        correct += int((logits.argmax(dim=1) == labels).sum())
    return Quality(loss / len(y), correct / len(y))
