"""What each rule promises. A rule that is in the registry and not here fails the tests: say what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tesseract_fl import registry
from tesseract_fl.rules.base import Rule
from tests.naive import oracles

F = 2


@dataclass(frozen=True)
class Promise:
    """One rule with the properties that its definition gives it.

    `oracle(U, trusted)`: its first round from the definition. `translation`: aggregating u_i + t gives g + t.
    `rotation`: it commutes with rotations of the parameter space. `unanimity`: equal updates give that update.
    `robust`: f rows of anything move it by a bounded amount, at once or, `over_rounds`, once reputation has
    settled. `smallest_n`: the fewest clients at f = 2 (or at its defaults). `wider`: how to set f, where it has one.
    """

    oracle: Callable[[Any, Any], Any] | None
    translation: bool = True
    rotation: bool = True
    scaling: bool = True
    unanimity: bool = True
    robust: bool = True
    mixed_sizes: bool = True  # also where the malicious rows are of very different sizes
    over_rounds: bool = False
    smallest_n: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


def names(U: Any) -> list[str]:
    return [str(i) for i in range(len(U))]


PROMISES: dict[str, Promise] = {
    # A weighted mean has no breakdown point: what falls is the weight, and tests of its own look at that.
    "tesseract": Promise(
        lambda U, _: oracles.tesseract_round(U, names(U), [0] * len(U[0]), {}, f=F, decay=0.99)[0],
        translation=False, rotation=False, robust=False, smallest_n=5,
    ),
    "hardened": Promise(
        lambda U, _: oracles.hardened_round(U, names(U), {}, f=F)[0],
        translation=False, rotation=False, smallest_n=5,
    ),
    "reputation_filter": Promise(
        None, translation=False, rotation=False, over_rounds=True, smallest_n=5, settings={"inner": {"name": "fedsgd"}}
    ),
    "fedsgd": Promise(lambda U, _: oracles.mean_row(U), robust=False),
    "trimmed_mean": Promise(lambda U, _: oracles.trimmed_mean(U, F), rotation=False, smallest_n=5),
    "median": Promise(lambda U, _: oracles.median(U), rotation=False),
    "mean_around_median": Promise(lambda U, _: oracles.mean_around_median(U, F), rotation=False, smallest_n=5),
    "krum": Promise(lambda U, _: oracles.krum(U, F), smallest_n=7),
    "multi_krum": Promise(lambda U, _: oracles.multi_krum(U, F), smallest_n=7),
    "bulyan": Promise(lambda U, _: oracles.bulyan(U, F), rotation=False, smallest_n=9),
    "faba": Promise(lambda U, _: oracles.faba(U, F), smallest_n=5),
    # Built against clones, not against outliers: a lone huge update keeps its weight.
    "foolsgold": Promise(lambda U, _: oracles.foolsgold(U), translation=False, unanimity=False, robust=False),
    "fltrust": Promise(lambda U, t: oracles.fltrust(U, t), translation=False, scaling=False, unanimity=False),
    "geometric_median": Promise(lambda U, _: oracles.geometric_median(U)),
    "centred_clipping": Promise(
        lambda U, _: oracles.centred_clipping(U, [0.0] * len(U[0]), 3.0, 2),
        translation=False, scaling=False, unanimity=False, settings={"tau": 3.0, "iterations": 2},
    ),
    # One enormous row takes the top direction for itself, and along it the others no longer stick out.
    "dnc": Promise(lambda U, _: oracles.dnc(U, F), smallest_n=5, mixed_sizes=False),
    "nnm": Promise(
        lambda U, _: oracles.trimmed_mean(oracles.nearest_neighbour_mixing(U, F), F),
        rotation=False, smallest_n=5, settings={"inner": {"name": "trimmed_mean"}},
    ),
    "bucketing": Promise(None, rotation=False, smallest_n=9, settings={"inner": {"name": "trimmed_mean"}}),
    "norm_clipping": Promise(lambda U, _: oracles.norm_clipped_mean(U), translation=False),
    "camp_mean": Promise(lambda U, _: oracles.mean_row(U[2:]), robust=False, smallest_n=3),
}  # fmt: skip


def build(name: str, **changes: Any) -> Rule[Any]:
    found: Rule[Any] = registry.build("rules", {"name": name, **PROMISES[name].settings, **changes}, f=F)
    return found


RULES = {name: build(name) for name in registry.table("rules") if name in PROMISES}


def promising(attribute: str) -> dict[str, Rule[Any]]:
    return {name: rule for name, rule in RULES.items() if getattr(PROMISES[name], attribute)}
