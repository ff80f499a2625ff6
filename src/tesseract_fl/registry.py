"""One registry: an explicit table from name to class, open to other packages through entry points.

A component is written as a name with parameters, `{"name": "tesseract", "f": 20}`; a parameter that is
itself such a table is built from the same table first. `{"name": "nnm+krum"}` is short for an `nnm` whose
`inner` is a `krum`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import numbers
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import Any

from tesseract_fl.types import ConfigError

BUILTIN: dict[str, dict[str, str]] = {
    "rules": {
        "tesseract": "tesseract_fl.rules.tesseract:Tesseract",
        "hardened": "tesseract_fl.rules.hardened:Hardened",
        "reputation_filter": "tesseract_fl.rules.tesseract:ReputationFilter",
        "fedsgd": "tesseract_fl.rules.fedsgd:FedSGD",
        "trimmed_mean": "tesseract_fl.rules.coordinate:TrimmedMean",
        "median": "tesseract_fl.rules.coordinate:Median",
        "mean_around_median": "tesseract_fl.rules.coordinate:MeanAroundMedian",
        "krum": "tesseract_fl.rules.krum:Krum",
        "multi_krum": "tesseract_fl.rules.krum:MultiKrum",
        "bulyan": "tesseract_fl.rules.krum:Bulyan",
        "faba": "tesseract_fl.rules.faba:Faba",
        "foolsgold": "tesseract_fl.rules.foolsgold:FoolsGold",
        "fltrust": "tesseract_fl.rules.fltrust:FLTrust",
        "geometric_median": "tesseract_fl.rules.geometric_median:GeometricMedian",
        "centred_clipping": "tesseract_fl.rules.centred_clipping:CentredClipping",
        "dnc": "tesseract_fl.rules.dnc:DnC",
        "nnm": "tesseract_fl.rules.transforms:NearestNeighbourMixing",
        "bucketing": "tesseract_fl.rules.transforms:Bucketing",
        "norm_clipping": "tesseract_fl.rules.transforms:NormClipping",
        "camp_mean": "tesseract_fl.rules.camp:CampMean",
    },
    "attacks": {
        "none": "tesseract_fl.attacks.base:NoAttack",
        "full_trim": "tesseract_fl.attacks.fang:FullTrim",
        "full_krum": "tesseract_fl.attacks.fang:FullKrum",
        "adaptive_trim": "tesseract_fl.attacks.adaptive:AdaptiveTrim",
        "adaptive_krum": "tesseract_fl.attacks.adaptive:AdaptiveKrum",
        "label_flip": "tesseract_fl.attacks.poisoning:LabelFlip",
        "backdoor": "tesseract_fl.attacks.poisoning:Backdoor",
        "gaussian": "tesseract_fl.attacks.simple:Gaussian",
        "sign_flip": "tesseract_fl.attacks.simple:SignFlip",
        "ipm": "tesseract_fl.attacks.simple:InnerProduct",
        "non_finite": "tesseract_fl.attacks.simple:NonFinite",
        "oversized": "tesseract_fl.attacks.simple:Oversized",
        "alie": "tesseract_fl.attacks.hidden:Alie",
        "min_max": "tesseract_fl.attacks.hidden:MinMax",
        "min_sum": "tesseract_fl.attacks.hidden:MinSum",
        "mimic": "tesseract_fl.attacks.hidden:Mimic",
        "line_search": "tesseract_fl.attacks.search:LineSearch",
        "camouflage": "tesseract_fl.attacks.search:Camouflage",
        "flip_band": "tesseract_fl.attacks.reputation:FlipBand",
        "steering": "tesseract_fl.attacks.reputation:Steering",
        "sleeper": "tesseract_fl.attacks.schedule:Sleeper",
        "on_off": "tesseract_fl.attacks.schedule:OnOff",
        "whitewash": "tesseract_fl.attacks.schedule:Whitewash",
    },
    "data": {
        "mnist_5k": "tesseract_fl.data.embedded:Mnist5k",
        "breast_cancer": "tesseract_fl.data.embedded:BreastCancer",
        "mnist": "tesseract_fl.data.idx:Mnist",
        "fashion_mnist": "tesseract_fl.data.idx:FashionMnist",
        "cifar10": "tesseract_fl.data.cifar10:Cifar10",
        "femnist": "tesseract_fl.data.femnist:Femnist",
        "shakespeare": "tesseract_fl.data.shakespeare:Shakespeare",
        "ch_mnist": "tesseract_fl.data.npz:ChMnistTexture",
        "ch_mnist_images": "tesseract_fl.data.idx:IdxImages",
        "ch_mnist_tiles": "tesseract_fl.data.tiles:ChMnistTiles",
    },
    "partitions": {
        "label_biased": "tesseract_fl.data.partition:LabelBiased",
        "iid": "tesseract_fl.data.partition:Iid",
        "dirichlet": "tesseract_fl.data.partition:Dirichlet",
        "lone_class": "tesseract_fl.data.partition:LoneClass",
        "shards": "tesseract_fl.data.partition:Shards",
        "by_writer": "tesseract_fl.data.partition:ByWriter",
        "consecutive": "tesseract_fl.data.partition:Consecutive",
    },
    "models": {
        "dnn": "tesseract_fl.models.small:Dnn",
        "mlp": "tesseract_fl.models.small:Mlp",
        "logistic": "tesseract_fl.models.small:Logistic",
        "leaf_cnn": "tesseract_fl.models.small:LeafCnn",
        "resnet18": "tesseract_fl.models.resnet:ResNet18",
        "gru": "tesseract_fl.models.gru:Gru",
    },
}


def table(kind: str) -> dict[str, str]:
    """Every name of a kind with where its class lives, our own and other packages'."""
    names = dict(BUILTIN[kind])
    for point in _offered(kind):
        if point.name in names:
            raise ConfigError(f"two packages offer {kind} named {point.name!r}: {names[point.name]} and {point.value}")
        names[point.name] = point.value
    return names


@cache
def _offered(kind: str) -> EntryPoints:
    """What other packages offer; every installed package has to be looked at, so once is enough."""
    return entry_points(group=f"tesseract_fl.{kind}")


def nearest(name: str, names: Iterable[str]) -> str:
    """The tail of an error message about a name that does not exist."""
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"


def lookup(kind: str, name: str) -> type[Any]:
    names = table(kind)
    if name not in names:
        raise ConfigError(f"no {kind.removesuffix('s')} named {name!r}; {nearest(name, names)}")
    module, _, attribute = names[name].partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def origin(kind: str, name: str) -> str | None:
    """Which code a component of another package comes from: its version and a hash of its module. None for our own."""
    if name in BUILTIN[kind]:
        return None
    point = _offered(kind)[name]
    file = import_module(point.module).__file__
    code = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
    return f"{point.dist.name} {point.dist.version} {code}" if point.dist else code


def build(kind: str, spec: Mapping[str, Any], **defaults: Any) -> Any:
    """Make a component from its table. `defaults` fill parameters that it has and the table leaves out.

    >>> build("rules", {"name": "tesseract", "decay": 0.9}, f=2)
    Tesseract(f=2, decay=0.9)
    """
    params = dict(spec)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{kind}: a table with a 'name' is needed, got {dict(spec)!r}")
    name, plus, inner = name.partition("+")
    if plus:
        given = params.get("inner", {})
        params["inner"] = {"name": inner, **(given if isinstance(given, Mapping) else {})}
    cls = lookup(kind, name)
    fields = [field.name for field in dataclasses.fields(cls)]
    for key, value in params.items():
        if key not in fields:
            raise ConfigError(f"{name} has no parameter {key!r}; {nearest(key, fields)}")
        if isinstance(value, Mapping) or key == "inner":
            params[key] = build(kind, value if isinstance(value, Mapping) else {"name": value}, **defaults)
    if "inner" in fields and "inner" not in params and _required(cls, "inner"):
        raise ConfigError(f"{name} goes around another one of the {kind}: name it, as in {name}+NAME")
    filled = {key: value for key, value in defaults.items() if key in fields} | params
    _check_types(name, cls, filled)
    try:
        return cls(**filled)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error


_KINDS: dict[str, tuple[Any, str]] = {
    "int": (numbers.Integral, "a whole number"),
    "float": (numbers.Real, "a number"),
    "str": (str, "a text"),
    "bool": (bool, "true or false"),
}


def _check_types(name: str, cls: type[Any], params: Mapping[str, Any]) -> None:
    """Parameters of a plain type must have it: what a file or a command line says may be anything."""
    for field in dataclasses.fields(cls):
        kind, _, optional = str(field.type).partition(" | ")
        if field.name not in params or kind not in _KINDS or optional not in ("", "None"):
            continue
        value, (wanted, words) = params[field.name], _KINDS[kind]
        fits = isinstance(value, wanted) and (kind == "bool" or not isinstance(value, bool))
        if not fits and not (optional and value is None):
            raise ConfigError(f"{name}: {field.name} must be {words}, got {value!r}")


def _required(cls: type[Any], name: str) -> bool:
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def describe(kind: str, component: Any) -> dict[str, Any]:
    """The complete table of a component: what `build` would need to make it again."""
    cls = type(component)
    name = next((name for name in table(kind) if lookup(kind, name) is cls), None)
    if name is None:
        raise ConfigError(f"{cls.__name__} is not among the {kind} in the registry, so it has no name to write down")
    spec: dict[str, Any] = {"name": name}
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if value is not None:
            spec[field.name] = describe(kind, value) if dataclasses.is_dataclass(value) else value
    return spec


def title(spec: Mapping[str, Any]) -> str:
    """The short name of a component: nnm+krum."""
    inner = spec.get("inner")
    return f"{spec['name']}+{title(inner)}" if isinstance(inner, Mapping) else str(spec["name"])
