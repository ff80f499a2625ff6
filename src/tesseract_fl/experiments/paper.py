"""What the paper reports in numbers: its table of accuracies and its table of weights. Its figures have none."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from tesseract_fl.experiments.presets import PAPER
from tesseract_fl.simulation.config import Config

RULES = {"foolsgold": {"name": "foolsgold", "memory": False}}  # where the paper's rule is not the one by that name
IMMATERIAL = ("seed", "eval_every", "checkpoint_every", "gradients")


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


def beside(config: Config, read: str) -> float | None:
    """The paper's accuracy, from 0 to 1, of a run; None unless it is in the paper's setting and `read` its data."""
    table = config.to_table()
    data, attack, rule = (table[kind]["name"] for kind in ("data", "attack", "rule"))
    found = quality(data, attack, rule)
    if found is None or data == "shakespeare" or data != read:
        return None
    return found / 100 if _material(table) == _setting(data, attack, rule) else None


@cache
def _setting(data: str, attack: str, rule: str) -> dict[str, Any]:
    return _material(Config.from_table(PAPER[data] | {"attack": attack, "rule": RULES.get(rule, rule)}).to_table())


def _material(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in IMMATERIAL}


def share_above(rule: str, camp: str, attack: str) -> float | None:
    """The share of the benign or of the malicious clients with a weight above 1e-4, a mean over 500 rounds.

    >>> share_above("tesseract", "malicious", "full_krum")
    0.08
    """
    found: float | None = tables()["weights"].get(rule, {}).get(camp, {}).get(attack)
    return found
