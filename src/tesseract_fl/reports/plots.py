"""Pictures of plain values, as PNG or SVG by the file's ending, for light paper and for dark screens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from tesseract_fl.data.base import needs_extra


@dataclass(frozen=True)
class Theme:
    """Colours after Okabe and Ito, which colour-blind readers tell apart; lighter ones of the same hues on dark."""

    ending: str
    paper: str
    ink: str
    muted: str
    line: str
    neutral: str
    roles: Mapping[str, str]
    runs: Sequence[str]


LIGHT = Theme(
    ending="", paper="#ffffff", ink="#1b1f24", muted="#5c6670", line="#e2e6ea", neutral="#f2f2f2",
    roles={"benign": "#0072b2", "malicious": "#d55e00", "unknown": "#0072b2"},
    runs=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07800", "#3d9cd6", "#1b1f24"),
)  # fmt: skip
DARK = Theme(
    ending="-dark", paper="#1c2024", ink="#e8eaed", muted="#9aa4ae", line="#2d3338", neutral="#2a2f34",
    roles={"benign": "#56b4e9", "malicious": "#f0803c", "unknown": "#56b4e9"},
    runs=("#56b4e9", "#f0803c", "#2fc79a", "#e2a3c6", "#e6b800", "#8fa8ff", "#e8eaed"),
)  # fmt: skip
DASHES = ("-", "--", "-.")
ABREAST = 13  # columns of a heat map whose names are not longer than this have room for them side by side


class Point(NamedTuple):
    """A value after a round; `half` is half of its confidence interval, where it is a mean."""

    round: int
    value: float
    half: float | None = None


@dataclass(frozen=True)
class Panel:
    """One set of axes: what is on it, the unit of its values, and named curves; `level` is a value to compare with."""

    title: str
    unit: str
    curves: Mapping[str, Sequence[Point]]
    log: bool = False
    level: float | None = None


def panels(shown: Sequence[Panel], paths: Sequence[Path], theme: Theme = LIGHT, note: str = "") -> None:
    """Curves over rounds, panels side by side, two in a row; a camp or rule has the same colour in all of them."""
    columns = min(2, len(shown))
    names = list(dict.fromkeys(name for panel in shown for name in panel.curves))
    style = {name: _style(place, theme) for place, name in enumerate(names)}
    style |= {role: (colour, "-") for role, colour in theme.roles.items()}
    with canvas(paths, theme, -(-len(shown) // columns), columns) as (figure, axes):
        from matplotlib.ticker import LogFormatter

        for panel, axis in zip(shown, axes, strict=False):
            for name, points in panel.curves.items():
                colour, dash = style[name]
                rounds, values = [point.round for point in points], [point.value for point in points]
                axis.plot(rounds, values, dash, color=colour, linewidth=2, label=plain(name))
                halves = np.array([point.half or 0 for point in points])
                if halves.any():
                    axis.fill_between(rounds, values - halves, values + halves, color=colour, alpha=0.2, linewidth=0)
            if panel.level is not None:
                axis.axhline(panel.level, color=theme.muted, linewidth=1, linestyle=":", zorder=0)
            axis.set_title(plain(panel.title))
            axis.set(xlabel="round", ylabel=panel.unit)
            if panel.log:
                axis.set_yscale("log")
                axis.yaxis.set_minor_formatter(LogFormatter())  # within a decade 2.8, not 2.8 × 10⁰
            if panel.unit.endswith("(%)"):
                axis.set_ylim(0, 100)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        legend(figure, theme)
        if note:
            figure.suptitle(fill(note, 80 * columns), fontsize=8, color=theme.muted, x=0.01, ha="left")


def log_log(
    curves: Mapping[str, Sequence[tuple[int, float]]],
    paths: Sequence[Path],
    *,
    title: str,
    unit: str,
    dashed: Collection[str] = (),
) -> None:
    """Curves over rounds on log-log axes, where a power of T is a straight line."""
    with canvas(paths, LIGHT) as (figure, (axis,)):
        for place, (name, points) in enumerate(curves.items()):
            shown = [(t, value) for t, value in points if value > 0]
            colour, _ = _style(place, LIGHT)
            axis.plot(*zip(*shown, strict=True), "--" if name in dashed else "-", color=colour, label=plain(name))
        axis.set_title(title)
        axis.set(xlabel="round T", ylabel=unit, xscale="log", yscale="log")
        legend(figure, LIGHT)


@dataclass(frozen=True)
class Cross:
    """A cross table of shares: lines begin with their name, None where there is no number; `paper` has no names.

    `marked`: the line and the head of each number with an asterisk, which `note` explains.
    """

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[Any]]
    paper: Sequence[Sequence[float | None]] | None = None
    marked: Set[tuple[str, str]] = frozenset()
    note: str = ""


def heat_maps(shown: Sequence[Cross], paths: Sequence[Path], theme: Theme = LIGHT) -> None:
    """Cross tables as colours, one below the other, with the per cents in them, and the paper's; grey without any."""
    columns = max(len(cross.heads) - 1 for cross in shown)
    rows = max(len(cross.lines) for cross in shown)
    longest = max(len(str(line[0])) for cross in shown for line in cross.lines)
    high = 0.42 if any(cross.paper for cross in shown) else 0.3
    size = max(2.4, 0.4 + 0.08 * longest) + 1.2 * columns, (1.3 + high * rows) * len(shown)
    with canvas(paths, theme, len(shown), size=size) as (_, axes):
        for cross, axis in zip(shown, axes, strict=True):
            _heat_map(axis, cross, theme)


def _heat_map(axis: Any, cross: Cross, theme: Theme) -> None:
    values = np.array([[np.nan if cell is None else 100 * cell for cell in line[1:]] for line in cross.lines])
    axis.imshow(values, aspect="auto", cmap="cividis", vmin=0, vmax=100)
    names = [plain(name) for name in cross.heads[1:]]
    leaning = {"rotation": 20, "ha": "left"} if max(map(len, names)) > ABREAST else {}
    axis.set_xticks(range(len(names)), names, **leaning)
    axis.set_yticks(range(len(cross.lines)), [plain(line[0]) for line in cross.lines])
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.set_facecolor(theme.line)
    axis.set_title(plain(cross.title))
    if cross.note:
        axis.set_xlabel(fill(cross.note, 20 + 16 * len(names)), fontsize=8, loc="left")
    for (down, across), value in np.ndenumerate(values):
        paper = cross.paper[down][across] if cross.paper else None
        mark = "*" if (cross.lines[down][0], cross.heads[across + 1]) in cross.marked else ""
        ours = "" if np.isnan(value) else f"{value:.1f}{mark}"
        text = ours + ("" if paper is None else f"\npaper {100 * paper:.1f}")
        colour = theme.ink if np.isnan(value) else "black" if value > 55 else "white"
        axis.text(across, down, text, ha="center", va="center", fontsize=8, color=colour)


@contextmanager
def canvas(
    paths: Sequence[Path], theme: Theme, lines: int = 1, columns: int = 1, size: tuple[float, float] | None = None
) -> Iterator[tuple[Any, list[Any]]]:
    """A figure and its axes to draw on; in the end it is saved under every path."""
    try:
        import matplotlib
    except ImportError as error:
        raise needs_extra("matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "figure.facecolor": theme.paper, "axes.facecolor": theme.paper, "savefig.facecolor": theme.paper,
        "text.color": theme.ink, "axes.labelcolor": theme.muted, "axes.edgecolor": theme.line,
        "xtick.color": theme.muted, "ytick.color": theme.muted, "font.size": 10,
        "axes.titlelocation": "left", "axes.titlesize": 11, "axes.titlecolor": theme.ink,
        "axes.grid": True, "grid.color": theme.line, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tesseract-fl",
        "figure.constrained_layout.h_pad": 0.06, "figure.constrained_layout.w_pad": 0.1,
    }  # fmt: skip
    size = size or (7.2 if columns == 1 else 5.4 * columns, 0.8 + 3.8 * lines)
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
        try:
            yield figure, list(axes.flat)
            for path in paths:
                figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        finally:
            pyplot.close(figure)


def legend(figure: Any, theme: Theme) -> None:
    """Every name once, as many side by side as fit."""
    told = [axis.get_legend_handles_labels() for axis in figure.axes]
    drawn = {name: handle for handles, names in told for handle, name in zip(handles, names, strict=True)}
    abreast = int(12 * figure.get_figwidth()) // (6 + max(map(len, drawn)))
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=min(3, max(1, abreast)), frameon=False,
        labelcolor=theme.muted, fontsize=9,
    )  # fmt: skip


def plain(text: str) -> str:
    """Matplotlib reads formulas between dollars, and leaves out names that begin with an underscore."""
    return " " * text.startswith("_") + text.replace("$", r"\$")


def _style(place: int, theme: Theme) -> tuple[str, str]:
    """Colour and dash of the curve at a place: neighbours differ in both, and no two of 21 are alike."""
    return theme.runs[place % 7], DASHES[(place % 7 + place // 7) % 3]
