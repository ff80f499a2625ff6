"""One registry: an explicit table from name to class, open to other packages through entry points.

A component is written as a name with parameters, `{"name": "tesseract", "f": 20}`; a parameter that is
itself such a table is built from the same table first.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tesseract_fl.types import ConfigError

BUILTIN: dict[str, dict[str, str]] = {
    "rules": {
        "tesseract": "tesseract_fl.rules.tesseract:Tesseract",
        "reputation_filter": "tesseract_fl.rules.tesseract:ReputationFilter",
        "fedsgd": "tesseract_fl.rules.fedsgd:FedSGD",
    },
    "attacks": {
        "none": "tesseract_fl.attacks.base:NoAttack",
        "full_trim": "tesseract_fl.attacks.fang:FullTrim",
        "full_krum": "tesseract_fl.attacks.fang:FullKrum",
    },
    "data": {
        "mnist_5k": "tesseract_fl.data.embedded:Mnist5k",
        "breast_cancer": "tesseract_fl.data.embedded:BreastCancer",
        "mnist": "tesseract_fl.data.idx:Mnist",
        "fashion_mnist": "tesseract_fl.data.idx:FashionMnist",
    },
    "partitions": {
        "label_biased": "tesseract_fl.data.partition:LabelBiased",
        "iid": "tesseract_fl.data.partition:Iid",
        "dirichlet": "tesseract_fl.data.partition:Dirichlet",
    },
    "models": {
        "dnn": "tesseract_fl.models.small:Dnn",
        "mlp": "tesseract_fl.models.small:Mlp",
        "logistic": "tesseract_fl.models.small:Logistic",
    },
}


def table(kind: str) -> dict[str, str]:
    """Every name of a kind with where its class lives, our own and other packages'."""
    names = dict(BUILTIN[kind])
    for point in entry_points(group=f"tesseract_fl.{kind}"):
        if point.name in names:
            raise ConfigError(f"two packages offer {kind} named {point.name!r}: {names[point.name]} and {point.value}")
        names[point.name] = point.value
    return names


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


def build(kind: str, spec: Mapping[str, Any], **defaults: Any) -> Any:
    """Make a component from its table. `defaults` fill parameters that it has and the table leaves out.

    >>> build("rules", {"name": "tesseract", "decay": 0.9}, f=2)
    Tesseract(f=2, decay=0.9)
    """
    params = dict(spec)
    name = params.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{kind}: a table with a 'name' is needed, got {dict(spec)!r}")
    cls = lookup(kind, name)
    fields = [field.name for field in dataclasses.fields(cls)]
    for key, value in params.items():
        if key not in fields:
            raise ConfigError(f"{name} has no parameter {key!r}; {nearest(key, fields)}")
        if isinstance(value, Mapping):
            params[key] = build(kind, value, **defaults)
    filled = {key: value for key, value in defaults.items() if key in fields} | params
    try:
        return cls(**filled)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error


def describe(kind: str, component: Any) -> dict[str, Any]:
    """The complete table of a component: what `build` would need to make it again."""
    cls = type(component)
    path = f"{cls.__module__}:{cls.__qualname__}"
    spec: dict[str, Any] = {"name": next(name for name, where in table(kind).items() if where == path)}
    for field in dataclasses.fields(component):
        value = getattr(component, field.name)
        if value is not None:
            spec[field.name] = describe(kind, value) if dataclasses.is_dataclass(value) else value
    return spec
