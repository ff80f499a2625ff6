"""The task: softmax regression on ten clouds of points, numpy only, the same data on every machine."""

from __future__ import annotations

import numpy as np

CLASSES, FEATURES = 10, 784
BATCH = 4  # samples of a local step
SPREAD = 0.15  # how far the clouds are apart; each is 1 wide
Arrays = dict[str, np.ndarray]


def data(part: int, samples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """A client's own points; part −1 is the test set."""
    centres = np.random.default_rng(0).normal(0, SPREAD, (CLASSES, FEATURES))
    rng = np.random.default_rng(1000 + part)
    labels = rng.integers(CLASSES, size=samples)
    points = centres[labels] + rng.normal(0, 1, (samples, FEATURES))
    return points.astype(np.float32), labels


def initial() -> Arrays:
    return {"weight": np.zeros((FEATURES, CLASSES), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def probabilities(model: Arrays, x: np.ndarray) -> np.ndarray:
    z = x @ model["weight"] + model["bias"]
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def train(model: Arrays, x: np.ndarray, y: np.ndarray, rate: float, round: int) -> tuple[Arrays, float]:
    """One step of gradient descent on the next few of a client's own points."""
    model = {name: array.copy() for name, array in model.items()}
    batch = np.arange(BATCH * round, BATCH * (round + 1)) % len(y)
    x, y = x[batch], y[batch]
    p = probabilities(model, x)
    loss = float(-np.log(p[np.arange(len(y)), y] + 1e-9).mean())
    p[np.arange(len(y)), y] -= 1
    model["weight"] -= (rate * x.T @ p / len(y)).astype(np.float32)
    model["bias"] -= (rate * p.mean(axis=0)).astype(np.float32)
    return model, loss


def accuracy(model: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    return float((probabilities(model, x).argmax(axis=1) == y).mean())
