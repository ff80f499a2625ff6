"""Tesseract in a Flower federation: a strategy for the ServerApp, mods for the ClientApp.

from tesseract_fl.flower import RobustStrategy
strategy = RobustStrategy(Hardened(f=2), ledger="/var/lib/federation")
result = strategy.start(grid, initial_arrays, num_rounds=100)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesseract_fl.flower.client import echo
    from tesseract_fl.flower.redteam import RedTeam
    from tesseract_fl.flower.strategy import RobustStrategy
    from tesseract_fl.flower.weighing import Newcomers

__all__ = ["Newcomers", "RedTeam", "RobustStrategy", "echo"]

_HOME = {"Newcomers": "weighing", "RedTeam": "redteam", "RobustStrategy": "strategy", "echo": "client"}


def __getattr__(name: str) -> Any:
    """Import on first use: Flower starts a process for each message, and a client needs neither numba nor torch."""
    if name not in _HOME:
        raise AttributeError(f"module 'tesseract_fl.flower' has no attribute {name!r}")
    try:
        return getattr(import_module(f"tesseract_fl.flower.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "flwr":
            raise
        raise ModuleNotFoundError("Flower is not installed: pip install 'tesseract-fl[flower]'", name="flwr") from error
