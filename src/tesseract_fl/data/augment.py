"""What training does to its inputs before they are seen: seeded, so that any round can be replayed alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Augmentation(ABC):
    """Changes a batch of inputs at random."""

    @abstractmethod
    def apply(self, x: Images, rng: np.random.Generator) -> Images:
        """A changed copy of a batch."""


@dataclass(frozen=True, kw_only=True)
class CropAndFlip(Augmentation):
    """Shift each image by up to `padding` pixels in any direction, and mirror every other one.

    What comes in at the border is 0: of normalised images, the mean colour of their channel.
    """

    padding: int = 4

    def apply(self, x: Images, rng: np.random.Generator) -> Images:
        count, _, height, width = x.shape
        border = (self.padding, self.padding)
        padded = np.pad(x, ((0, 0), (0, 0), border, border))
        top, left = rng.integers(0, 2 * self.padding + 1, (2, count, 1))
        columns = np.arange(width)
        flipped = rng.random((count, 1)) < 0.5
        rows = top + np.arange(height)  # count × height
        columns = left + np.where(flipped, columns[::-1], columns)  # count × width
        cut = padded[np.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return cut.transpose(0, 3, 1, 2)  # the channels were innermost, and stay it in memory
