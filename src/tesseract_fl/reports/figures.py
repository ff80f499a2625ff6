"""The pictures of runs, federations and grids: what is on each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tesseract_fl.reports.grid import is_grid, read_grids
from tesseract_fl.reports.history import sampled
from tesseract_fl.reports.overview import COLUMNS_AT_MOST, ROLES, lines, names_apart, shown
from tesseract_fl.reports.plots import DARK, LIGHT, Cross, Panel, Point, Theme, canvas, heat_maps, legend, panels, plain
from tesseract_fl.reports.sources import Source, opened

CALLED = {"benign": "benign", "malicious": "malicious", "unknown": "all clients"}

Told = Mapping[str, Any]  # what `overview.lines` says of a run
Drawing = Callable[[Sequence[Path], Theme], None]


def accuracy_over_rounds(runs: Mapping[str, Path], path: Path, title: str) -> None:
    """Test accuracy of each run, one line each, named in the legend."""
    panels([_accuracy(title, {name: lines(_read(run).history) for name, run in runs.items()})], [path])


def weights_over_rounds(runs: Mapping[str, Path], path: Path, title: str) -> None:
    """What benign and malicious clients weigh, a panel for each run."""
    panels([_weights(name, lines(_read(run).history)) for name, run in runs.items()], [path], note=title)


def draw_all(directories: Sequence[Path], out: Path) -> Iterator[Path]:
    """Every picture of a report as PNG and SVG, for light paper and for dark screens, and the path of each."""
    sources = [_read(directory) for directory in directories if not is_grid(directory)]
    names = names_apart([source.directory.resolve().name for source in sources])
    drawings = _of_runs(dict(zip(names, sources, strict=True)))
    for directory in directories:
        for place, grid in enumerate(read_grids(directory) if is_grid(directory) else [], 1):
            name = f"{directory.resolve().name}-matrix" + (f"-{place}" if place > 1 else "")
            drawings[name] = partial(heat_maps, [_matrix(grid)])
    out.mkdir(parents=True, exist_ok=True)
    for name, drawing in drawings.items():
        for theme in (LIGHT, DARK):
            paths = [out / f"{name}{theme.ending}.{ending}" for ending in ("png", "svg")]
            drawing(paths, theme)
            yield from paths


def _read(directory: Path) -> Source:
    source = opened(directory)
    source.read()
    return source


def _of_runs(sources: Mapping[str, Source]) -> dict[str, Drawing]:
    told = {name: lines(source.history) for name, source in sources.items()}
    found: dict[str, Drawing] = {}
    if any("accuracy" in one for one in told.values()):
        found["accuracy"] = partial(panels, [_accuracy("Test accuracy", told)])
    if any("test_loss" in one for one in told.values()):
        found["loss"] = partial(panels, [_loss(told)])
    for name, source in sources.items():
        if any(f"score_{role}_mid" in told[name] for role in ROLES):
            found[f"{name}-flip-scores"] = partial(_scores, f"Flip-scores: {name}", told[name])
        if any(f"weight_{role}" in told[name] for role in ROLES):
            found[f"{name}-weights"] = partial(panels, [_weights(f"What a client weighs: {name}", told[name])])
        if not np.isnan(source.history.tally.reputation).all():
            found[f"{name}-reputation"] = partial(_reputation, f"Reputation of every client: {name}", source)
    return found


def _accuracy(title: str, told: Mapping[str, Told]) -> Panel:
    return Panel(title, "test accuracy (%)", _curves(told, "accuracy", 100))


def _loss(told: Mapping[str, Told]) -> Panel:
    return Panel("Test loss", "cross-entropy on the test set (nats)", _curves(told, "test_loss"), log=True)


def _weights(title: str, one: Told) -> Panel:
    curves = {CALLED[role]: _points(one, f"weight_{role}") for role in ROLES if f"weight_{role}" in one}
    return Panel(title, "mean weight (1 = an equal share)", curves, log=True, level=1)


def _curves(told: Mapping[str, Told], key: str, factor: float = 1) -> dict[str, list[Point]]:
    return {name: _points(one, key, factor) for name, one in told.items() if key in one}


def _points(one: Told, key: str, factor: float = 1) -> list[Point]:
    return [Point(t, factor * value) for t, value in zip(one["round"], one[key], strict=True) if value is not None]


def _scores(title: str, one: Told, paths: Sequence[Path], theme: Theme) -> None:
    with canvas(paths, theme) as (figure, (axes,)):
        rounds = one["round"]
        if "flip_score_low" in one:
            low, high = _floats(one["flip_score_low"]), _floats(one["flip_score_high"])
            axes.fill_between(rounds, low, high, color=theme.muted, alpha=0.25, linewidth=0, label="rewarded band")
        for role in ROLES:
            if f"score_{role}_mid" in one:
                low, mid, high = (_floats(one[f"score_{role}_{part}"]) for part in ("low", "mid", "high"))
                colour, name = theme.roles[role], CALLED[role]
                axes.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0, label=f"{name}, 5–95 %")
                axes.plot(rounds, mid, color=colour, linewidth=1.5, label=f"{name}, median")
        axes.set_title(plain(title))
        axes.set(xlabel="round", ylabel="flip-score (squared norm)", yscale="log")
        legend(figure, theme)


def _reputation(title: str, source: Source, paths: Sequence[Path], theme: Theme) -> None:
    history = source.history
    rows = shown(history)
    columns = sampled(len(history.rounds), COLUMNS_AT_MOST)
    table = history.table("reputation", columns, rows)
    most = float(np.nanmax(np.abs(table)))
    stops = [theme.roles["malicious"], theme.neutral, theme.roles["benign"]]
    first, last = history.rounds[columns[0]].number, history.rounds[columns[-1]].number
    with canvas(paths, theme) as (figure, (axes,)):
        from matplotlib.colors import LinearSegmentedColormap

        image = axes.imshow(
            table, aspect="auto", interpolation="nearest", cmap=LinearSegmentedColormap.from_list("role", stops),
            vmin=-most, vmax=most, extent=(first - 0.5, last + 0.5, len(rows), 0),
        )  # fmt: skip
        axes.set_title(plain(title))
        axes.set(xlabel="round", ylabel="clients, the heaviest at the top", yticks=[])
        axes.grid(visible=False)
        bar = figure.colorbar(image, ax=axes, pad=0.02)
        bar.set_label("reputation")
        bar.outline.set_visible(False)


def _matrix(grid: Mapping[str, Any]) -> Cross:
    named = zip(grid["attacks"], grid["figures"][0]["values"], strict=True)
    heads = ["", *grid["rules"]]
    lines = [[name, *row] for name, row in named]
    marked = {
        (name, rule)
        for name, marks in zip(grid["attacks"], grid["marked"], strict=True)
        for rule, mark in zip(grid["rules"], marks, strict=True)
        if mark
    }
    return Cross(f"{grid['name']}: test accuracy (%)", heads, lines, grid["paper"], marked, grid["note"])


def _floats(values: Sequence[float | None]) -> Any:
    """Nothing and zero are gaps: the axis is logarithmic."""
    return np.array([value or np.nan for value in values], np.float64)
