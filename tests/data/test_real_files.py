"""The real files, where somebody has them: set TESSERACT_FL_DATA to their folder."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tesseract_fl import registry
from tesseract_fl.data.base import Dataset
from tesseract_fl.types import DataError

pytestmark = pytest.mark.skipif("TESSERACT_FL_DATA" not in os.environ, reason="TESSERACT_FL_DATA is not set")

SETS: list[tuple[dict[str, Any], str, tuple[int, ...], int, int]] = [
    ({"name": "mnist"}, "mnist", (60000, 1, 28, 28), 10000, 10),
    ({"name": "fashion_mnist"}, "fashion_mnist", (60000, 1, 28, 28), 10000, 10),
    ({"name": "cifar10"}, "cifar10", (50000, 3, 32, 32), 10000, 10),
    ({"name": "femnist", "file": "fed_emnist_train.h5"}, "femnist", (671585, 1, 28, 28), 77483, 62),
    ({"name": "femnist", "file": "unipen62_28x28.npz"}, "unipen62", (86945, 1, 28, 28), 9516, 62),
    ({"name": "shakespeare"}, "shakespeare", (5019, 200), 557, 100),
    ({"name": "shakespeare", "source": "roles"}, "shakespeare_roles", (11526, 200), 1403, 100),
    ({"name": "ch_mnist"}, "ch_mnist_texture", (4000, 74), 1000, 8),
    ({"name": "ch_mnist_tiles"}, "ch_mnist_tiles", (4000, 1, 64, 64), 1000, 8),
    ({"name": "ch_mnist_images"}, "tissuemnist8", (10000, 1, 28, 28), 2000, 8),
]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("spec", "name", "shape", "tests", "classes"), SETS, ids=[entry[1] for entry in SETS])
def test_it_is_read_as_documented(
    spec: dict[str, Any], name: str, shape: tuple[int, ...], tests: int, classes: int
) -> None:
    try:
        data: Dataset = registry.build("data", spec).read()
    except DataError as error:
        if not any(text in str(error) for text in ("could not be fetched", "there is no ")):
            raise
        pytest.skip(str(error))
    assert (data.name, data.train_x.shape, len(data.test_x), data.classes) == (name, shape, tests, classes)
    assert np.isfinite(data.train_x).all()
    assert np.unique(data.test_y).max() < classes
    if data.groups is not None:
        assert data.groups.shape == data.train_y.shape[:1]
