"""Rules that treat every coordinate by itself: median, trimmed mean, mean around the median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tesseract_fl import kernels
from tesseract_fl.rules.base import CoordinateRule, HonestMajority, resolve_f
from tesseract_fl.types import Matrix


@dataclass(frozen=True, kw_only=True)
class Median(CoordinateRule):
    """Per coordinate the middle value; the mean of the two middle ones where n is even.

    >>> from tesseract_fl.types import Updates
    >>> sent = Updates(matrix=np.array([[1.0], [2.0], [4.0], [99.0]]), ids=tuple("abcd"), round=1)
    >>> Median().aggregate(sent, Median().init(1)).update.tolist()
    [3.0]

    Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018.
    """

    def combine(self, matrix: Matrix) -> Matrix:
        return kernels.median(matrix)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(HonestMajority, CoordinateRule):
    """Per coordinate the mean without the f smallest and the f largest values.

    >>> from tesseract_fl.types import Updates
    >>> rule = TrimmedMean(f=1)
    >>> sent = Updates(matrix=np.array([[1.0], [2.0], [4.0], [99.0]]), ids=tuple("abcd"), round=1)
    >>> rule.aggregate(sent, rule.init(1)).update.tolist()
    [3.0]

    Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018.
    """

    name = "trimmed_mean"

    def combine(self, matrix: Matrix) -> Matrix:
        return kernels.trimmed_mean(matrix, resolve_f(self.f, matrix.shape[0]))


@dataclass(frozen=True, kw_only=True)
class MeanAroundMedian(HonestMajority, CoordinateRule):
    """Per coordinate the mean of the n − f values closest to the median.

    Of two values equally far from the median the smaller one is kept.

    >>> from tesseract_fl.types import Updates
    >>> rule = MeanAroundMedian(f=1)
    >>> sent = Updates(matrix=np.array([[1.0], [2.0], [3.0], [99.0]]), ids=tuple("abcd"), round=1)
    >>> rule.aggregate(sent, rule.init(1)).update.tolist()
    [2.0]

    Xie et al., Generalized Byzantine-tolerant SGD, 2018.
    """

    name = "mean_around_median"

    def combine(self, matrix: Matrix) -> Matrix:
        n = matrix.shape[0]
        return kernels.mean_near_median(matrix, np.arange(n), n - resolve_f(self.f, n))
