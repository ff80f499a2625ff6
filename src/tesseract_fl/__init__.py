"""Federated learning that keeps working when some of the clients are malicious."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesseract_fl.gate import Gate, Submission
    from tesseract_fl.rules.fedsgd import FedSGD
    from tesseract_fl.rules.hardened import Hardened
    from tesseract_fl.rules.tesseract import ReputationFilter, Tesseract
    from tesseract_fl.types import Aggregate, Updates

__version__ = "0.1.0"
__all__ = ["Aggregate", "FedSGD", "Gate", "Hardened", "ReputationFilter", "Submission", "Tesseract", "Updates"]

_HOME = {
    "Aggregate": "types",
    "FedSGD": "rules.fedsgd",
    "Gate": "gate",
    "Hardened": "rules.hardened",
    "ReputationFilter": "rules.tesseract",
    "Submission": "gate",
    "Tesseract": "rules.tesseract",
    "Updates": "types",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `tesseract-fl --help` does not wait for torch and numba."""
    if name in _HOME:
        return getattr(import_module(f"tesseract_fl.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tesseract_fl' has no attribute {name!r}")
