"""The pictures of a report as files: PNG and SVG, for light paper and for dark screens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.data.base import needs_extra
from tesseract_fl.reports.grid import is_grid, read_grids
from tesseract_fl.reports.history import sampled
from tesseract_fl.reports.overview import COLUMNS_AT_MOST, ROLES, lines, names_apart, shown
from tesseract_fl.reports.sources import Source, opened


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
CALLED = {"benign": "benign clients", "malicious": "malicious clients", "unknown": "all clients"}
DASHES = ("-", "--", "-.", ":")

Drawing = Callable[[Any, Any, Theme], None]  # figure, axes, theme


def draw_all(directories: Sequence[Path], out: Path) -> Iterator[Path]:
    """Every picture of a report, and the path of each."""
    sources = [opened(directory) for directory in directories if not is_grid(directory)]
    for source in sources:
        source.read()
    names = names_apart([source.directory.resolve().name for source in sources])
    drawings: dict[str, tuple[str, Drawing]] = {}
    if sources:
        drawings |= _of_runs(dict(zip(names, sources, strict=True)))
    for directory in directories:
        for place, grid in enumerate(read_grids(directory) if is_grid(directory) else [], 1):
            name = f"{directory.resolve().name}-matrix" + (f"-{place}" if place > 1 else "")
            drawings[name] = f"{grid['name']}: test accuracy (%)", _matrix(grid)
    out.mkdir(parents=True, exist_ok=True)
    for name, (title, drawing) in drawings.items():
        for theme in (LIGHT, DARK):
            yield from _saved(out, name, title, drawing, theme)


def _of_runs(sources: Mapping[str, Source]) -> dict[str, tuple[str, Drawing]]:
    told = {name: lines(source.history) for name, source in sources.items()}
    found: dict[str, tuple[str, Drawing]] = {}
    if any("accuracy" in one for one in told.values()):
        found["accuracy"] = "Test accuracy", _accuracy(told)
        found["loss"] = "Test loss", _loss(told)
    for name, source in sources.items():
        if any(f"score_{role}_mid" in told[name] for role in ROLES):
            found[f"{name}-flip-scores"] = f"Flip-scores: {name}", _scores(told[name])
        if any(f"weight_{role}" in told[name] for role in ROLES):
            found[f"{name}-weights"] = f"What a client weighs: {name}", _weights(told[name])
        if not np.isnan(source.history.tally.reputation).all():
            found[f"{name}-reputation"] = f"Reputation of every client: {name}", _reputation(source)
    return found


def _accuracy(told: Mapping[str, Any]) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        for place, (name, one) in enumerate(told.items()):
            _line(axes, one, "accuracy", 100, _plain(name), theme.runs[place % 7], DASHES[place // 7 % 4])
        axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
        _legend(figure, axes, theme)

    return draw


def _loss(told: Mapping[str, Any]) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        for place, (name, one) in enumerate(told.items()):
            _line(axes, one, "test_loss", 1, _plain(name), theme.runs[place % 7], DASHES[place // 7 % 4])
        axes.set(xlabel="round", ylabel="cross-entropy on the test set (nats)", yscale="log")
        _legend(figure, axes, theme)

    return draw


def _scores(one: Mapping[str, Any]) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        rounds = one["round"]
        if "flip_score_low" in one:
            low, high = _floats(one["flip_score_low"]), _floats(one["flip_score_high"])
            axes.fill_between(rounds, low, high, color=theme.muted, alpha=0.25, linewidth=0, label="rewarded band")
        for role in ROLES:
            if f"score_{role}_mid" in one:
                low, mid, high = (_floats(one[f"score_{role}_{part}"]) for part in ("low", "mid", "high"))
                colour = theme.roles[role]
                axes.fill_between(
                    rounds, low, high, color=colour, alpha=0.2, linewidth=0, label=f"{CALLED[role]}, 5–95 %"
                )
                axes.plot(rounds, mid, color=colour, linewidth=1.5, label=f"{CALLED[role]}, median")
        axes.set(xlabel="round", ylabel="flip-score (squared norm)", yscale="log")
        _legend(figure, axes, theme)

    return draw


def _weights(one: Mapping[str, Any]) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        for role in ROLES:
            if f"weight_{role}" in one:
                _line(axes, one, f"weight_{role}", 1, CALLED[role], theme.roles[role])
        axes.axhline(1, color=theme.muted, linewidth=1, linestyle=":", zorder=0)
        axes.set(xlabel="round", ylabel="mean weight (1 = an equal share)", yscale="log")
        _legend(figure, axes, theme)

    return draw


def _reputation(source: Source) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        history = source.history
        rows = shown(history)
        columns = sampled(len(history.rounds), COLUMNS_AT_MOST)
        table = history.table("reputation", columns, rows)
        most = float(np.nanmax(np.abs(table)))
        stops = [theme.roles["malicious"], theme.neutral, theme.roles["benign"]]
        first, last = history.rounds[columns[0]].number, history.rounds[columns[-1]].number
        image = axes.imshow(
            table, aspect="auto", interpolation="nearest", cmap=LinearSegmentedColormap.from_list("role", stops),
            vmin=-most, vmax=most, extent=(first - 0.5, last + 0.5, len(rows), 0),
        )  # fmt: skip
        axes.set(xlabel="round", ylabel="clients, the heaviest at the top", yticks=[])
        axes.grid(False)
        bar = figure.colorbar(image, ax=axes, pad=0.02)
        bar.set_label("reputation", color=theme.muted)
        bar.ax.tick_params(colors=theme.muted)
        bar.outline.set_visible(False)

    return draw


def _matrix(grid: Mapping[str, Any]) -> Drawing:
    def draw(figure: Any, axes: Any, theme: Theme) -> None:
        values = 100 * np.array(
            [[np.nan if v is None else v for v in row] for row in grid["figures"][0]["values"]], np.float64
        )
        axes.imshow(values, aspect="auto", cmap="cividis", vmin=0, vmax=100)
        axes.set_xticks(range(len(grid["rules"])), [_plain(name) for name in grid["rules"]])
        axes.set_yticks(range(len(grid["attacks"])), [_plain(name) for name in grid["attacks"]])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.grid(False)
        for (down, across), value in np.ndenumerate(values):
            paper = grid["paper"][down][across] if grid["paper"] else None
            text = ("" if np.isnan(value) else f"{value:.1f}") + ("" if paper is None else f"\npaper {100 * paper:.1f}")
            axes.text(across, down, text, ha="center", va="center", fontsize=8, color="k" if value > 55 else "w")
        figure.set_size_inches(2.4 + 1.3 * len(grid["rules"]), 1.2 + (0.42 if grid["paper"] else 0.27) * len(values))

    return draw


def _saved(out: Path, name: str, title: str, drawing: Drawing, theme: Theme) -> Iterator[Path]:
    try:
        import matplotlib
    except ImportError as error:
        raise needs_extra("matplotlib", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "figure.facecolor": theme.paper, "axes.facecolor": theme.paper, "savefig.facecolor": theme.paper,
        "text.color": theme.ink, "axes.labelcolor": theme.muted, "axes.edgecolor": theme.line,
        "xtick.color": theme.muted, "ytick.color": theme.muted,
        "axes.grid": True, "grid.color": theme.line, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "tesseract-fl", "font.size": 10,
        "figure.constrained_layout.h_pad": 0.14, "figure.constrained_layout.w_pad": 0.14,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
        axes.set_title(_plain(title), loc="left", fontsize=11, color=theme.ink)
        drawing(figure, axes, theme)
        for ending in ("png", "svg"):
            path = out / f"{name}{theme.ending}.{ending}"
            figure.savefig(path, dpi=150, metadata={"Date": None} if ending == "svg" else None)
            yield path
        pyplot.close(figure)


def _line(axes: Any, one: Mapping[str, Any], key: str, factor: float, label: str, colour: str, dash: str = "-") -> None:
    values = one.get(key, [None] * len(one["round"]))
    rounds = [t for t, value in zip(one["round"], values, strict=True) if value is not None]
    known = [factor * value for value in values if value is not None]
    axes.plot(rounds, known, dash, color=colour, label=label, linewidth=2)


def _legend(figure: Any, axes: Any, theme: Theme) -> None:
    if len(axes.get_legend_handles_labels()[0]) > 1:
        figure.legend(frameon=False, loc="outside lower center", ncols=3, labelcolor=theme.muted, fontsize=9)


def _floats(values: Sequence[float | None]) -> Any:
    """Nothing and zero are gaps: the axis is logarithmic."""
    return np.array([value or np.nan for value in values], np.float64)


def _plain(text: str) -> str:
    """Matplotlib reads formulas between dollars, and leaves out names that begin with an underscore."""
    return " " * text.startswith("_") + text.replace("$", r"\$")
