from __future__ import annotations

import os

import numba
import torch
from hypothesis import HealthCheck, settings

# Kernels are compiled on first use, so the first example of a test takes seconds.
settings.register_profile("tesseract", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tesseract")

if "PYTEST_XDIST_WORKER" in os.environ:  # one worker per core: threads of their own would only wait for each other
    torch.set_num_threads(1)
    numba.set_num_threads(1)
