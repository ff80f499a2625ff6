"""Pictures of runs, as PNG or SVG by the file's ending."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.data.base import needs_extra
from tesseract_fl.reports.journal import Run

# Okabe and Ito's palette: told apart by colour-blind readers too
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("--", "-", "-", "-.", ":", "-", "-.")


def accuracy_over_rounds(runs: Mapping[str, Run], path: Path, title: str) -> None:
    """Test accuracy of each run, one line each, named in the legend."""
    figure, axes = _figure(title)
    for (label, run), colour, dash in zip(runs.items(), COLOURS, DASHES, strict=False):
        rounds, accuracy = run.accuracy()
        axes.plot(rounds, 100 * np.array(accuracy), dash, color=colour, label=label, linewidth=2)
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    _save(figure, path)


def weights_over_rounds(runs: Mapping[str, Run], path: Path, title: str) -> None:
    """Mean weight of a benign and of a malicious client, relative to an equal share, on a log scale."""
    figure, axes = _figure(title)
    for (label, run), dash in zip(runs.items(), ("-", "--", ":"), strict=False):
        weights = run.weights() * run.config["clients"] * run.config["participation"]
        c = run.config["malicious"]
        rounds = np.arange(1, len(weights) + 1)
        for who, part, colour in (
            ("benign", weights[:, c:], COLOURS[2]),
            ("malicious", weights[:, :c], COLOURS[1]),
        ):
            axes.plot(rounds, _nanmean(part), dash, color=colour, label=f"{who}, {label}", linewidth=2)
    axes.axhline(1, color="0.6", linewidth=1, zorder=0)
    axes.set(xlabel="round", ylabel="mean weight (1 = an equal share)", yscale="log")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    _save(figure, path)


def _nanmean(table: Any) -> Any:
    seen = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.where(seen, table, 0).sum(axis=1) / seen.sum(axis=1)


def _figure(title: str) -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise needs_extra("matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.6), layout="constrained")
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=150)
    pyplot.close(figure)
