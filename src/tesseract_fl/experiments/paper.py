"""What the paper reports in numbers: its table of accuracies and its table of weights. Its figures have none."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tesseract_fl.experiments.presets import PAPER

if TYPE_CHECKING:
    from tesseract_fl.simulation.config import Config

SIZES = ("clients", "malicious", "rounds", "batch", "lr", "schedule", "optimiser")


@cache
def tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files(__package__) / "paper.json").read_text())
    return found


def quality(data: str, attack: str, rule: str) -> float | None:
    """Test accuracy in per cent, or the test loss on Shakespeare; None where the paper has no number.

    >>> quality("mnist", "full_trim", "tesseract")
    90.55
    """
    found: float | None = tables()["accuracy"].get(attack, {}).get(rule, {}).get(data)
    return found


def beside(config: Config) -> float | None:
    """The paper's accuracy, from 0 to 1, of a run; None unless it is in the paper's setting."""
    table = config.to_table()
    data, attack, rule = (table[kind]["name"] for kind in ("data", "attack", "rule"))
    setting = PAPER.get(data)
    if setting is None or data == "shakespeare" or any(getattr(config, key) != setting[key] for key in SIZES):
        return None
    found = quality(data, attack, rule)
    return None if found is None else found / 100


def share_above(rule: str, camp: str, attack: str) -> float | None:
    """The share of the benign or of the malicious clients with a weight above 1e-4, a mean over 500 rounds.

    >>> share_above("tesseract", "malicious", "full_krum")
    0.08
    """
    found: float | None = tables()["weights"].get(rule, {}).get(camp, {}).get(attack)
    return found
