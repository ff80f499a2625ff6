"""The settings of the paper, one table per data set, and what becomes of them on a machine without a GPU."""

from __future__ import annotations

from typing import Any

SCALES = ("paper", "cpu")

# The paper's table of data sets. Its CIFAR-10 learning rate is the peak of a schedule, and its clients on
# Shakespeare use Adam. The rule, its decay of 0.99 and f = malicious are what a run has anyway.
PAPER: dict[str, dict[str, Any]] = {
    "mnist": {
        "data": "mnist",
        "partition": "label_biased",
        "model": "dnn",
        "clients": 100,
        "malicious": 20,
        "rounds": 500,
        "batch": 32,
        "lr": 0.01,
        "schedule": "constant",
        "optimiser": "sgd",
    },
    "cifar10": {
        "data": "cifar10",
        "partition": "label_biased",
        "model": "resnet18",
        "clients": 10,
        "malicious": 2,
        "rounds": 2000,
        "batch": 128,
        "lr": 0.1,
        "schedule": "cifar",
        "optimiser": "sgd",
    },
    "shakespeare": {
        "data": "shakespeare",
        "partition": "consecutive",
        "model": "gru",
        "clients": 10,
        "malicious": 2,
        "rounds": 2000,
        "batch": 100,
        "lr": 0.01,
        "schedule": "constant",
        "optimiser": "adam",
    },
    "femnist": {
        "data": "femnist",
        "partition": "by_writer",
        "model": "leaf_cnn",
        "clients": 35,
        "malicious": 7,
        "rounds": 2000,
        "batch": 32,
        "lr": 0.1,
        "schedule": "constant",
        "optimiser": "sgd",
    },
}

# Three more data sets are in a figure of the paper, at 30 % malicious clients, without their settings: these are ours.
OURS: dict[str, dict[str, Any]] = {
    "fashion_mnist": PAPER["mnist"] | {"data": "fashion_mnist"},
    "ch_mnist": PAPER["mnist"] | {"data": "ch_mnist", "model": "logistic", "clients": 50, "malicious": 10, "lr": 0.1},
    "breast_cancer": PAPER["mnist"]
    | {"data": "breast_cancer", "model": "logistic", "clients": 20, "malicious": 4, "batch": 16, "lr": 0.1},
}
PRESETS = PAPER | OURS

# What differs on two cores. Clients, learning rates and partitions stay. Rounds are fewer; the ResNet is a quarter as
# wide, a sixteenth of the work; batches that take seconds are smaller; evaluations use a part of the test set.
CPU: dict[str, dict[str, Any]] = {
    "mnist": {"rounds": 200, "eval_samples": 2000},
    "fashion_mnist": {"rounds": 200, "eval_samples": 2000},
    "cifar10": {
        "model": {"name": "resnet18", "width": 16},
        "rounds": 400,
        "batch": 32,
        "eval_every": 20,
        "eval_samples": 2000,
    },
    "shakespeare": {"rounds": 200, "batch": 20, "eval_every": 10, "eval_samples": 200},
    "femnist": {"rounds": 150, "eval_every": 10, "eval_samples": 2000},
}


def settings_of(name: str, scale: str = "paper") -> dict[str, Any]:
    """The settings of a preset, as `Config.from_table` takes them.

    >>> settings_of("cifar10")["rounds"], settings_of("cifar10", "cpu")["rounds"]
    (2000, 400)
    """
    from tesseract_fl.types import ConfigError  # here, because --help reads the names and shall not load numpy

    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    if scale not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    return PRESETS[name] | (CPU.get(name, {}) if scale == "cpu" else {})
