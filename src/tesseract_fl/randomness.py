"""Randomness comes from (seed, purpose, round), so that any round can be replayed alone."""

from __future__ import annotations

import numpy as np


def generator(seed: int, purpose: str, round: int = 0) -> np.random.Generator:
    """The generator for one purpose in one round of a run.

    >>> generator(1, "attack", 7).random() == generator(1, "attack", 7).random()
    True
    """
    return np.random.default_rng([seed, round, *purpose.encode()])
