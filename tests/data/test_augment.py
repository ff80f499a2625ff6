from __future__ import annotations

import numpy as np

from tesseract_fl.data.augment import CropAndFlip


def test_every_image_is_a_shifted_perhaps_mirrored_copy_of_itself() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3, 8, 8)).astype(np.float32)
    changed = CropAndFlip(padding=2).apply(x, np.random.default_rng(1))
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    seen = set()
    for image, canvas in zip(changed, padded, strict=True):
        candidates = {
            (top, left, flip): canvas[:, top : top + 8, left : left + 8][:, :, :: -1 if flip else 1]
            for top in range(5)
            for left in range(5)
            for flip in (False, True)
        }
        matches = [how for how, candidate in candidates.items() if np.array_equal(candidate, image)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 40  # of 50 ways
    assert changed.dtype == np.float32


def test_the_generator_decides_and_the_batch_is_not_touched() -> None:
    x = np.random.default_rng(0).normal(size=(4, 1, 6, 6)).astype(np.float32)
    before = x.copy()
    one, same, other = (CropAndFlip().apply(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(x, before)
