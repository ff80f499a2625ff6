"""Which code a run's numbers come from: what was made by other code is not found in a store, and is not resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tesseract_fl import registry
from tesseract_fl.simulation.config import COMPONENTS

# Goes up with every change after which the same configuration gives other numbers. In which order a sum is rounded does
# not count: that differs from one processor to the next. Where one component alone has changed, REVISED counts it.
NUMERICS = 4
REVISED = {
    "adaptive_krum": 1,
    "adaptive_trim": 1,
    "camp_mean": 1,
    "centred_clipping": 1,
    "dnc": 2,
    "foolsgold": 1,
    "hardened": 8,
    "norm_clipping": 1,
    "resnet18": 1,
}


def numerics(table: Mapping[str, Any]) -> Any:
    """The version of everything that the numbers of this complete configuration depend on."""
    parts = [(kind, name) for key, (kind, _) in COMPONENTS.items() for name in _names(table[key])]
    own = {name: REVISED[name] for _, name in parts if name in REVISED}
    others = {f"{kind}/{name}": origin for kind, name in parts if (origin := registry.origin(kind, name)) is not None}
    return {"": NUMERICS, **own, **others} if own or others else NUMERICS


def _names(component: Mapping[str, Any]) -> list[str]:
    """Of a component and of those inside of it."""
    inner = [name for value in component.values() if isinstance(value, Mapping) for name in _names(value)]
    return [component["name"], *inner]
