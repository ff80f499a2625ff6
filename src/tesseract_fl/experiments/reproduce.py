"""The paper's tables and figures as grids of runs. What is shown of them is in `reports/reproductions.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl.experiments import paper
from tesseract_fl.experiments.presets import PAPER, settings_of
from tesseract_fl.experiments.sweep import Cell
from tesseract_fl.randomness import generator
from tesseract_fl.rules.camp import CampMean
from tesseract_fl.simulation.config import Config
from tesseract_fl.types import ConfigError, Updates

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
    """`trials`: what the paper compares. `changes`: what is set besides the data set's preset.

    `unfit` says why a run can't be shown, where it can't. `one_seed`: what is shown can't be averaged.
    """

    about: str
    trials: Callable[[], Iterable[Trial]]
    changes: Callable[[dict[str, Any]], dict[str, Any]] = lambda settings: {}
    unfit: Callable[[Config], str | None] = lambda config: None
    one_seed: bool = False

    def cells(self, choice: Choice) -> list[Cell]:
        """The runs, with data, attack, rule and seed as what varies; none where it has nothing that was asked for."""
        wanted = [
            trial
            for trial in self.trials()
            if (not choice.data or name_of(trial[0]) in choice.data)
            and (not choice.attacks or name_of(trial[1]) in choice.attacks)
        ]
        if choice.rules:
            pairs = dict.fromkeys((data, _frozen(attack)) for data, attack, _ in wanted)
            rules = [paper.RULES.get(rule, rule) for rule in dict.fromkeys(choice.rules)]
            wanted = [(data, dict(attack), rule) for data, attack in pairs for rule in rules]
        seeds = range(1 if self.one_seed else choice.seeds)
        return [self._cell(trial, seed, choice.scale) for trial in wanted for seed in seeds]

    def _cell(self, trial: Trial, seed: int, scale: str) -> Cell:
        data, attack, rule = trial
        settings = settings_of(data, scale) | {"checkpoint_every": 10}
        settings |= self.changes(settings) | {"attack": attack, "rule": rule, "seed": seed}
        return Cell({"data": data, "attack": attack, "rule": rule, "seed": seed}, Config.from_table(settings))


def planned(names: Iterable[str], choice: Choice) -> tuple[dict[str, list[Cell]], list[str]]:
    """The runs of several experiments, and what had to be left out of them; to ask for what none has is an error."""
    names = list(names)
    chosen = [EXPERIMENTS[name] for name in names]
    trials = [trial for experiment in chosen for trial in experiment.trials()]
    for kind, asked, place in (("data set", choice.data, 0), ("attack", choice.attacks, 1)):
        known = list(dict.fromkeys(name_of(trial[place]) for trial in trials))
        if unknown := sorted(set(asked) - set(known)):
            raise ConfigError(f"no {kind} {', '.join(unknown)} here; there are {', '.join(known) or 'none'}")
    plans: dict[str, list[Cell]] = {}
    left_out: dict[tuple[str, str], str] = {}
    for name in names:
        cells = EXPERIMENTS[name].cells(choice)
        configs = {cell.labels["rule"]: cell.config for cell in cells} if choice.rules else {}
        unfit = {rule: why for rule, config in configs.items() if (why := EXPERIMENTS[name].unfit(config))}
        plans[name] = [cell for cell in cells if cell.labels["rule"] not in unfit]
        left_out |= {(name, rule): why for rule, why in unfit.items()}
    shown = {cell.labels["rule"] for cells in plans.values() for cell in cells}
    for (name, rule), why in left_out.items():
        if rule not in shown:
            raise ConfigError(f"{name} can't show {rule}: {why}")
    return plans, [f"{name} leaves {rule} out: {why}" for (name, rule), why in left_out.items()]


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
                yield data, attack, paper.RULES.get(rule, rule)


def _weights() -> Iterable[Trial]:
    for attack in ("none", "full_trim", "full_krum"):
        for rule in (paper.RULES["foolsgold"], "fltrust", "tesseract"):
            yield "mnist", attack, rule


def _intuition() -> Iterable[Trial]:
    for attack in DIRECTED:
        for camp in ("benign", "malicious"):
            yield "mnist", attack, {"name": "camp_mean", "camp": camp}


def _shakespeare_loss() -> Iterable[Trial]:
    for rule in ("fedsgd", "bulyan", "faba", paper.RULES["foolsgold"], "fltrust", "tesseract"):
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
        yield data, "full_krum", "krum"  # what the paper sets them against
        yield data, "full_trim", "fedsgd"


def _label_flip() -> Iterable[Trial]:
    yield "mnist", "none", "fedsgd"
    for attack in ("label_flip", TARGETED):
        for rule in ("fedsgd", "tesseract"):
            yield "mnist", attack, rule


def _thirty_percent(settings: dict[str, Any]) -> dict[str, Any]:
    return {"malicious": round(0.3 * settings["clients"])}


def _not_one_camp(config: Config) -> str | None:
    return None if isinstance(config.rule, CampMean) else "it aggregates one camp alone, by camp_mean"


def _no_weights(config: Config) -> str | None:
    """Asks the rule itself, with a round of two parameters."""
    n = config.clients_per_round
    sent = Updates(
        matrix=generator(0, "weights").normal(size=(n, 2)), ids=tuple(map(str, range(n))), round=1, trusted=np.ones(2)
    )
    given = config.rule.aggregate(sent, config.rule.init(2)).weights
    return "it compares weights, and that rule gives clients none" if given is None else None


EXPERIMENTS: dict[str, Experiment] = {
    "accuracy": Experiment("Test accuracy (Shakespeare: test loss) of every rule, unattacked and attacked.", _accuracy),
    "weights": Experiment(
        "Share of benign and of malicious clients with a weight above 1e-4.", _weights, unfit=_no_weights
    ),
    "intuition": Experiment(
        "Flip-scores of both camps while only one of them is aggregated.", _intuition, unfit=_not_one_camp,
        one_seed=True,
    ),
    "shakespeare-loss": Experiment("Test loss over rounds under Full-Krum on Shakespeare.", _shakespeare_loss),
    "faba-30": Experiment(
        "FABA and Tesseract at 30 % malicious clients on three more data sets.", _faba_30, _thirty_percent
    ),
    "reputation": Experiment(
        "Mean weight of benign and of malicious clients over rounds.", _reputation, unfit=_no_weights, one_seed=True
    ),
    "adaptive": Experiment("Test accuracy over rounds under the adaptive white-box attacks.", _adaptive),
    "label-flip": Experiment("Test accuracy over rounds under label flipping.", _label_flip),
}  # fmt: skip
