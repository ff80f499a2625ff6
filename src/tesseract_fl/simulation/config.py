"""Every setting of a simulated run: a table in, checked components out, and back again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tesseract_fl import registry
from tesseract_fl.attacks.base import Attack, Knowledge, NoAttack
from tesseract_fl.data.base import Reader
from tesseract_fl.data.partition import Partition
from tesseract_fl.gate import Gate
from tesseract_fl.models.small import Model
from tesseract_fl.rules.base import Rule, share
from tesseract_fl.simulation.schedule import SCHEDULES
from tesseract_fl.types import ConfigError, PreconditionError

# the name of a setting → the kind of component it holds, and the one that is used if it is not set; a data set may
# ask for another partition
COMPONENTS = {
    "data": ("data", "mnist_5k"),
    "partition": ("partitions", "label_biased"),
    "model": ("models", "dnn"),
    "rule": ("rules", "tesseract"),
    "attack": ("attacks", "none"),
}

# Settings that came later are written down only where they were set: a run from before them is still the same run.
LATER = ("schedule", "optimiser", "eval_samples")

KNOWLEDGE: dict[str, dict[str, str]] = {
    "full": {"updates": "all", "defence": "rule"},
    "partial": {"updates": "own", "defence": "nothing"},
}

GRADIENTS = ("auto", "stacked", "vmap", "loop")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run. The first `malicious` clients attack, knowing what `knowledge` grants.

    `rule.f` is how many malicious clients the rule assumes; if not set, as many as there are, as in the paper.
    `root` is the size of the server's own clean data set, for a rule that needs one (fltrust). `schedule` says how the
    learning rate changes over the rounds, `optimiser` what a client's local steps are; `eval_samples` is how many
    test samples the model is judged by, 0 for all. `gradients` says how clients are simulated: "stacked", "vmap",
    "loop", or "auto", the fastest that can be had.
    """

    data: Reader
    partition: Partition
    model: Model
    rule: Rule[Any]
    attack: Attack
    gate: Gate = dataclasses.field(default_factory=Gate)
    knowledge: Knowledge = dataclasses.field(default_factory=Knowledge)
    clients: int = 100
    malicious: int = 20
    participation: float = 1.0
    rounds: int = 500
    batch: int = 32
    lr: float = 0.01
    local_steps: int = 1
    local_epochs: int = 0
    schedule: str = "constant"
    optimiser: str = "sgd"
    eval_every: int = 10
    eval_samples: int = 0
    checkpoint_every: int = 1
    root: int = 100
    gradients: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if not (_is_number(self.participation) and 0 < self.participation <= 1):
            raise ConfigError(f"participation must be above 0 and at most 1, got {self.participation!r}")
        if not (_is_number(self.lr) and 0 < self.lr < math.inf):
            raise ConfigError(f"lr must be a positive finite number, got {self.lr!r}")
        for name, choices in _ONE_OF.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if self.malicious >= self.clients:
            raise ConfigError(f"malicious must be below clients, got {self.malicious} of {self.clients}")
        if self.local_epochs and self.local_steps != 1:
            raise ConfigError("set local_steps or local_epochs, not both")
        try:
            self.rule.check(self.clients_per_round)
        except PreconditionError as error:
            raise ConfigError(str(error)) from error
        if self.malicious:
            self.attack.check_granted(self.knowledge)
        if self.malicious and self.participation == 1:
            self.attack.check(self.clients, self.malicious)
            honest = self.clients - self.malicious
            self.attack.check_known(honest if self.knowledge.updates == "all" else self.malicious)

    @property
    def clients_per_round(self) -> int:
        return share(self.participation, self.clients)

    @property
    def attacked(self) -> bool:
        """Whether anybody does anything bad in this run."""
        return self.malicious > 0 and not isinstance(self.attack, NoAttack)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Config:
        """Build a configuration from what a TOML file or the command line says.

        >>> Config.from_table({"clients": 10, "malicious": 2, "rule": "tesseract"}).rule
        Tesseract(f=2, decay=0.99)
        >>> Config.from_table({"clients": 10, "malicious": 2, "f": 3, "rule": "tesseract"}).rule
        Tesseract(f=3, decay=0.99)
        """
        settings = dict(table)
        assumed = settings.pop("f", None)
        names = [field.name for field in dataclasses.fields(cls)]
        for name in settings:
            if name not in names:
                raise ConfigError(f"there is no setting {name!r}; {registry.nearest(name, names)}")
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        counts = {name: settings.get(name, defaults[name]) for name in ("clients", "malicious", "participation")}
        f = _expected_malicious(**counts) if assumed is None else _assumed(assumed, settings.get("rule"))
        for name, (kind, default) in COMPONENTS.items():
            if name == "partition":  # the data set, which was built before, knows what suits it
                default = settings["data"].partition
            spec = settings.get(name, default)
            if isinstance(spec, str):
                spec = {"name": spec}
            elif isinstance(spec, Mapping):
                spec = {"name": default, **spec}
            else:
                raise ConfigError(f"{name} must be a name or a table, got {spec!r}")
            own = {"f": f, "seed": settings.get("seed", defaults["seed"])} if kind == "rules" else {}
            settings[name] = registry.build(kind, spec, **own)
        settings["gate"] = _part("gate", Gate, settings.get("gate", {}))
        settings["knowledge"] = _part("knowledge", Knowledge, _granted(settings.get("knowledge", "full")))
        return cls(**settings)

    def to_table(self) -> dict[str, Any]:
        """The complete configuration; `from_table` makes the same one again."""
        table: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in LATER and value == field.default:
                continue
            if field.name in COMPONENTS:
                value = registry.describe(COMPONENTS[field.name][0], value)
            elif field.name in ("gate", "knowledge"):
                value = {key: item for key, item in dataclasses.asdict(value).items() if item is not None}
            table[field.name] = value
        return table


_AT_LEAST = {
    "clients": 1,
    "malicious": 0,
    "rounds": 0,
    "batch": 1,
    "local_steps": 1,
    "local_epochs": 0,
    "eval_every": 1,
    "eval_samples": 0,
    "checkpoint_every": 1,
    "root": 1,
    "seed": 0,
}


_ONE_OF = {"schedule": SCHEDULES, "optimiser": ("sgd", "adam"), "gradients": GRADIENTS}


def _expected_malicious(clients: Any, malicious: Any, participation: Any) -> Any:
    """How many malicious clients a round has, rounded up; what makes no sense is left for the checks to find."""
    try:
        present = share(participation, clients)
        return malicious if participation == 1 else -(-malicious * present // clients)
    except (TypeError, ValueError, ArithmeticError):
        return malicious


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _assumed(f: Any, rule: Any) -> Any:
    """f as a setting of its own, for rules and whatever is inside of them."""
    if isinstance(rule, Mapping) and "f" in rule:
        raise ConfigError(f"f is set twice: f = {f!r} and rule.f = {rule['f']!r}")
    return f


def _granted(knowledge: Any) -> Any:
    """Knowledge by its name, or by its name and what differs from it: {name = "full", defence = "report"}."""
    levels = {"name": knowledge} if isinstance(knowledge, str) else knowledge
    name = levels.get("name", "full") if isinstance(levels, Mapping) else None
    if not isinstance(name, str) or name not in KNOWLEDGE:
        return knowledge
    return KNOWLEDGE[name] | {level: value for level, value in levels.items() if level != "name"}


def _part(part: str, cls: type[T], settings: Any) -> T:
    """A table of settings that has no name of its own."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{part} must be a table, got {settings!r}")
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in settings:
        if name not in names:
            raise ConfigError(f"{part} has no parameter {name!r}; {registry.nearest(name, names)}")
    try:
        return cls(**settings)
    except TypeError as error:
        raise ConfigError(f"{part}: {error}") from error


def nested(key: str, value: Any) -> dict[str, Any]:
    """
    >>> nested("rule.decay", 0.9)
    {'rule': {'decay': 0.9}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins. A component keeps no parameters of another one of its kind.

    >>> merged({"rule": {"name": "tesseract", "decay": 0.9}}, {"rule": {"f": 3}, "seed": 1})
    {'rule': {'name': 'tesseract', 'decay': 0.9, 'f': 3}, 'seed': 1}
    >>> merged({"rule": {"name": "tesseract", "decay": 0.9}}, {"rule": {"name": "krum", "f": 3}})
    {'rule': {'name': 'krum', 'f': 3}}
    """
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, str) and isinstance(below, Mapping) and below.get("name") == value:
            continue
        if isinstance(value, Mapping) and isinstance(below, str):
            below = {"name": below}
        if isinstance(value, Mapping) and isinstance(below, Mapping) and value.get("name") in (None, below.get("name")):
            value = merged(below, value)
        result[key] = value
    return result
