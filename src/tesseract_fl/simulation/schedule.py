"""How the learning rate changes over a run."""

from __future__ import annotations

from math import exp

SCHEDULES = ("constant", "cifar")


def learning_rate(schedule: str, lr: float, t: int, T: int) -> float:
    """The learning rate in round t of T.

    `cifar`, the paper's for CIFAR-10, rises from zero to `lr` within a quarter of the rounds and falls again:
    lr·(1 − exp(−25 t/T)) up to T/4, then lr·exp(−½((t − T/4)/(T/4))²).

    >>> [round(learning_rate("cifar", 0.1, t, 2000), 4) for t in (1, 100, 500, 1000, 2000)]
    [0.0012, 0.0713, 0.0998, 0.0607, 0.0011]
    """
    if schedule == "constant":
        return lr
    if t <= T / 4:
        return lr * (1 - exp(-25 * t / T))
    return lr * exp(-0.5 * ((t - T / 4) / (T / 4)) ** 2)
