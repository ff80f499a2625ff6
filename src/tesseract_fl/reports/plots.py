"""Pictures of runs, as PNG or SVG by the file's ending."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from tesseract_fl.data.base import needs_extra
from tesseract_fl.reports.journal import Run

# Okabe and Ito's palette: told apart by colour-blind readers too
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("--", "-", "-", "-.", ":", "-", "-.")
CAMPS = {"benign": (COLOURS[2], "-"), "malicious": (COLOURS[1], "-")}


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


class Point(NamedTuple):
    """A value after a round; `half` is half of its confidence interval, where it is a mean."""

    round: int
    value: float
    half: float | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes: what is on it, the unit of its values, and named curves."""

    title: str
    unit: str
    curves: Mapping[str, Sequence[Point]]
    log: bool = False


def panels(shown: Sequence[Panel], paths: Sequence[Path], note: str = "") -> None:
    """Curves over rounds, panels side by side, two in a row; a camp or rule has the same colour in all of them."""
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    figure, axes = _figure("", lines, columns)
    names = list(dict.fromkeys(name for panel in shown for name in panel.curves))
    style = {name: (COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]) for i, name in enumerate(names)} | CAMPS
    drawn: dict[str, Any] = {}
    for panel, axis in zip(shown, np.ravel(axes), strict=False):
        for name, points in panel.curves.items():
            colour, dash = style[name]
            rounds, values = [point.round for point in points], [point.value for point in points]
            (drawn[name],) = axis.plot(rounds, values, dash, color=colour, linewidth=1.8)
            halves = np.array([point.half or 0 for point in points])
            if halves.any():
                axis.fill_between(rounds, values - halves, values + halves, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(panel.title, loc="left", fontsize=11)
        axis.set(xlabel="round", ylabel=panel.unit, **({"yscale": "log"} if panel.log else {}))
        if panel.unit.endswith("(%)"):
            axis.set_ylim(0, 100)
    for axis in np.ravel(axes)[len(shown) :]:
        axis.set_visible(False)
    abreast = max(1, 75 * columns // (6 + max(map(len, drawn))))  # as many names as fit side by side
    figure.legend(drawn.values(), drawn.keys(), frameon=False, loc="outside lower center", ncols=min(3, abreast))
    if note:
        figure.suptitle(fill(note, 80 * columns), fontsize=8, color="0.35", x=0.01, ha="left")
    for path in paths:
        figure.savefig(path, dpi=150)
    _close(figure)


def log_log(
    curves: Mapping[str, Sequence[tuple[int, float]]],
    paths: Sequence[Path],
    *,
    title: str,
    unit: str,
    dashed: Collection[str] = (),
) -> None:
    """Curves over rounds on log-log axes, where a power of T is a straight line."""
    figure, axis = _figure(title)
    for i, (name, points) in enumerate(curves.items()):
        shown = [(t, value) for t, value in points if value > 0]
        axis.plot(
            *zip(*shown, strict=True), "--" if name in dashed else "-", color=COLOURS[i % len(COLOURS)], label=name
        )
    axis.set(xlabel="round T", ylabel=unit, xscale="log", yscale="log")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    for path in paths:
        figure.savefig(path, dpi=150)
    _close(figure)


@dataclass(frozen=True)
class Cross:
    """A cross table of shares: lines begin with their name, None where there is no number."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[Any]]


def heat_maps(shown: Sequence[Cross], paths: Sequence[Path]) -> None:
    """Cross tables as colours, one below the other, with the per cents in them; grey where there is none."""
    columns = max(len(cross.heads) - 1 for cross in shown)
    rows = max(len(cross.lines) for cross in shown)
    figure, axes = _figure("", len(shown), size=(2.6 + 0.95 * columns, (1.4 + 0.36 * rows) * len(shown)))
    for cross, axis in zip(shown, np.ravel(axes), strict=True):
        values = np.array([[np.nan if cell is None else 100 * cell for cell in line[1:]] for line in cross.lines])
        axis.set_title(cross.title, loc="left", fontsize=11)
        axis.grid(visible=False)
        axis.set_facecolor("0.85")
        image = axis.imshow(values, cmap="cividis", vmin=0, vmax=100, aspect="auto")
        axis.set_xticks(range(values.shape[1]), cross.heads[1:], rotation=30, ha="right")
        axis.set_yticks(range(values.shape[0]), [line[0] for line in cross.lines])
        for i, j in np.ndindex(values.shape):
            if not np.isnan(values[i, j]):
                axis.text(j, i, f"{values[i, j]:.1f}", ha="center", va="center", fontsize=8,
                          color="black" if values[i, j] > 55 else "white")  # fmt: skip
        figure.colorbar(image, ax=axis, label="test accuracy (%)")
    for path in paths:
        figure.savefig(path, dpi=150)
    _close(figure)


def _nanmean(table: Any) -> Any:
    seen = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.where(seen, table, 0).sum(axis=1) / seen.sum(axis=1)


def _figure(title: str, lines: int = 1, columns: int = 1, size: tuple[float, float] | None = None) -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise needs_extra("matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = size or (7.2 if columns == 1 else 5.4 * columns, 0.8 + 3.8 * lines)
    figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained")
    for axis in np.ravel(axes):
        axis.set_title(title, loc="left", fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="0.9")
        axis.set_axisbelow(True)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=150)
    _close(figure)


def _close(figure: Any) -> None:
    from matplotlib import pyplot

    pyplot.close(figure)
