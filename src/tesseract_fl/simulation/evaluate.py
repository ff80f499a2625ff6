"""How good the global model is on data that no client has."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tesseract_fl.simulation.gradients import Clients


@dataclass(frozen=True, slots=True)
class Quality:
    loss: float
    accuracy: float


@torch.no_grad()
def evaluate(clients: Clients, x: Tensor, y: Tensor, batch: int = 100) -> Quality:
    """Mean loss and share of correct answers on a test set; of sequences, over all their positions."""
    loss = 0.0
    correct = 0
    for logits, labels in zip(clients.predict(x, batch), torch.split(y, batch), strict=True):
        loss += cross_entropy(logits, labels, reduction="sum").item()
        correct += int((logits.argmax(dim=1) == labels).sum())
    return Quality(loss / y.numel(), correct / y.numel())
