from __future__ import annotations

from hypothesis import HealthCheck, settings

# Kernels are compiled on first use, so the first example of a test takes seconds.
settings.register_profile("tesseract", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tesseract")
