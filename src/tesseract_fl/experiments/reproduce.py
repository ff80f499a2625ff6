"""The paper's tables and figures as grids of runs. What is shown of them is in `reports/reproductions.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tesseract_fl.experiments import paper
from tesseract_fl.experiments.presets import PAPER, settings_of
from tesseract_fl.experiments.sweep import Cell
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError

DIRECTED = ("full_krum", "full_trim")
TARGETED = {"name": "label_flip", "source": 7, "target": 1}


@dataclass(frozen=True)
class Choice:
    """What of an experiment is run; empty: all that the paper has."""

    scale: str = "paper"
    data: Sequence[str] = ()
    rules: Sequence[str] = ()
    attacks: Sequence[str] = ()
    seeds: int = 1


Trial = tuple[str, Any, Any]  # data, attack, rule


@dataclass(frozen=True)
class Experiment:
    """`trials`: what the paper compares. `changes`: what is set besides the data set's preset."""

    about: str
    trials: Callable[[], Iterable[Trial]]
    changes: Callable[[dict[str, Any]], dict[str, Any]] = lambda settings: {}

    def cells(self, choice: Choice, strict: bool = True) -> list[Cell]:
        """The runs, with data, attack, rule and seed as what varies; strict: asking for what it has not is an error."""
        known = list(self.trials())
        for name, asked, place in (("data", choice.data, 0), ("attack", choice.attacks, 1)):
            unknown = set(asked) - {name_of(trial[place]) for trial in known}
            if unknown and strict:
                has = ", ".join(dict.fromkeys(name_of(trial[place]) for trial in known))
                raise ConfigError(f"this experiment has no {name} {', '.join(sorted(unknown))}; it has {has}")
        wanted = [
            trial
            for trial in known
            if (not choice.data or name_of(trial[0]) in choice.data)
            and (not choice.attacks or name_of(trial[1]) in choice.attacks)
        ]
        if choice.rules:
            pairs = dict.fromkeys((data, _frozen(attack)) for data, attack, _ in wanted)
            wanted = [(data, dict(attack), rule) for data, attack in pairs for rule in choice.rules]
        return [self._cell(trial, seed, choice.scale) for trial in wanted for seed in range(choice.seeds)]

    def _cell(self, trial: Trial, seed: int, scale: str) -> Cell:
        data, attack, rule = trial
        settings = settings_of(data, scale) | {"checkpoint_every": 10}
        settings |= self.changes(settings) | {"attack": attack, "rule": rule, "seed": seed}
        return Cell({"data": data, "attack": attack, "rule": rule, "seed": seed}, Config.from_table(settings))


def name_of(component: Any) -> str:
    """What a component is called in the tables and on the command line.

    >>> name_of("krum"), name_of({"name": "label_flip", "source": 7, "target": 1})
    ('krum', 'label_flip')
    """
    return component if isinstance(component, str) else str(component["name"])


def _frozen(component: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(({"name": component} if isinstance(component, str) else component).items())


def _accuracy() -> Iterable[Trial]:
    for data in PAPER:
        for attack, rules in paper.tables()["accuracy"].items():
            for rule in rules:
                yield data, attack, rule


def _weights() -> Iterable[Trial]:
    for attack in ("none", "full_trim", "full_krum"):
        for rule in ("foolsgold", "fltrust", "tesseract"):
            yield "mnist", attack, rule


def _intuition() -> Iterable[Trial]:
    for attack in DIRECTED:
        for camp in ("benign", "malicious"):
            yield "mnist", attack, {"name": "camp_mean", "camp": camp}


def _shakespeare_loss() -> Iterable[Trial]:
    for rule in ("fedsgd", "bulyan", "faba", "foolsgold", "fltrust", "tesseract"):
        yield "shakespeare", "full_krum", rule


def _faba_30() -> Iterable[Trial]:
    for data in ("fashion_mnist", "ch_mnist", "breast_cancer"):
        yield data, "none", "fedsgd"
        for attack in DIRECTED:
            for rule in ("faba", "tesseract"):
                yield data, attack, rule


def _reputation() -> Iterable[Trial]:
    for attack in DIRECTED:
        yield "mnist", attack, "tesseract"


def _adaptive() -> Iterable[Trial]:
    for data in ("mnist", "cifar10"):
        yield data, "none", "fedsgd"
        for attack in ("adaptive_krum", "adaptive_trim"):
            yield data, attack, "tesseract"


def _label_flip() -> Iterable[Trial]:
    yield "mnist", "none", "fedsgd"
    for attack in ("label_flip", TARGETED):
        for rule in ("fedsgd", "tesseract"):
            yield "mnist", attack, rule


def _thirty_percent(settings: dict[str, Any]) -> dict[str, Any]:
    return {"malicious": round(0.3 * settings["clients"])}


EXPERIMENTS: dict[str, Experiment] = {
    "accuracy": Experiment("Test accuracy (Shakespeare: test loss) of every rule, unattacked and attacked.", _accuracy),
    "weights": Experiment("Share of benign and of malicious clients with a weight above 1e-4.", _weights),
    "intuition": Experiment("Flip-scores of both camps while only one of them is aggregated.", _intuition),
    "shakespeare-loss": Experiment("Test loss over rounds under Full-Krum on Shakespeare.", _shakespeare_loss),
    "faba-30": Experiment(
        "FABA and Tesseract at 30 % malicious clients on three more data sets.", _faba_30, _thirty_percent
    ),
    "reputation": Experiment("Mean weight of benign and of malicious clients over rounds.", _reputation),
    "adaptive": Experiment("Test accuracy over rounds under the adaptive white-box attacks.", _adaptive),
    "label-flip": Experiment("Test accuracy over rounds under label flipping.", _label_flip),
}  # fmt: skip
