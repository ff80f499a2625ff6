"""The paper's tables and figures from finished runs: our numbers beside the paper's, and the points of every curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from tesseract_fl.experiments import paper
from tesseract_fl.reports import plots, tables
from tesseract_fl.reports.grid import read_rows
from tesseract_fl.reports.journal import Run, number
from tesseract_fl.simulation.detection import CUT_OFF
from tesseract_fl.types import ConfigError, Float64s

LOSSES = ("shakespeare",)  # where the paper reports the test loss instead of the accuracy
# 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True)
class Played:
    """A finished run of an experiment, and what it is called there. Tables of quality need its summary only."""

    data: str
    attack: str
    rule: str
    seed: int
    summary: Mapping[str, Any]
    run: Run

    @property
    def key(self) -> tuple[str, str, str]:
        return self.data, self.attack, self.rule

    @property
    def bare_rule(self) -> str:
        """What the paper calls its rule, whatever its parameters are."""
        return self.rule.partition("(")[0]

    @property
    def held(self) -> str:
        """The data set's own name, which is another where it is a stand-in."""
        return str(self.summary["data"])

    @property
    def shown(self) -> str:
        """
        >>> Played("femnist", "none", "krum", 0, {"data": "unipen62"}, Run(Path())).shown
        'femnist (unipen62)'
        """
        return self.data if self.held == self.data else f"{self.data} ({self.held})"


def interval(values: Sequence[float]) -> float | None:
    """Half of the 95 % confidence interval of the mean, by Student's t; None for a single value, or one that diverged.

    >>> round(interval([1.0, 2.0, 3.0]), 2)
    2.48
    """
    freedom = len(values) - 1
    if freedom < 1 or not all(map(math.isfinite, values)):
        return None
    if freedom <= len(STUDENT):
        t = STUDENT[freedom - 1]
    else:
        z = 1.959964
        t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return t * stdev(values) / math.sqrt(len(values))


def by_key(played: Iterable[Played]) -> dict[tuple[str, str, str], list[Played]]:
    """The seeds of each combination, in the order of the experiment."""
    groups: dict[tuple[str, str, str], list[Played]] = {}
    for each in played:
        groups.setdefault(each.key, []).append(each)
    return groups


# --- tables


def accuracy(played: Sequence[Played]) -> list[dict[str, Any]]:
    rows = []
    for (data, attack, rule), seeds in by_key(played).items():
        theirs = paper.quality(data, attack, seeds[0].bare_rule) if seeds[0].shown == data else None
        rows.append({"data": seeds[0].shown, "attack": attack, "rule": rule} | _beside(_final(seeds), theirs))
    return rows


def weights(played: Sequence[Played]) -> list[dict[str, Any]]:
    rows = []
    for (data, attack, rule), seeds in by_key(played).items():
        for camp in ("benign",) if attack == "none" else ("benign", "malicious"):
            ours = [_share_above(each.run, camp) for each in seeds]
            theirs = paper.share_above(seeds[0].bare_rule, camp, attack) if seeds[0].shown == data else None
            rows.append({"rule": rule, "camp": camp, "attack": attack} | _beside(ours, theirs))
    return rows


def _final(seeds: Sequence[Played]) -> list[float]:
    """The last evaluation of each seed: accuracy in per cent, or the loss, infinite where it is no number."""
    if seeds[0].data in LOSSES:
        return [_loss(each) for each in seeds]
    return [100 * each.summary["accuracy"] for each in seeds]


def _loss(played: Played) -> float:
    """Summaries have not always had it; where it is there and no number, the run has diverged."""
    if "test_loss" not in played.summary:
        return _curve(played.run, "test_loss")[-1].value
    loss = played.summary["test_loss"]
    return math.inf if loss is None else float(loss)


def _beside(ours: Sequence[float], theirs: float | None) -> dict[str, Any]:
    own = mean(ours)
    return {
        "ours": own,
        "interval": interval(ours),
        "seeds": len(ours),
        "paper": theirs,
        "difference": None if theirs is None else own - theirs,
    }


def _share_above(run: Run, camp: str) -> float:
    """The share of a camp with a weight above `CUT_OFF`, a mean over all rounds with weights."""
    held = run.weights()
    c = int(run.config["malicious"]) if run.config["attack"]["name"] != "none" else 0
    own = held[:, c:] if camp == "benign" else held[:, :c]
    counted = own[~np.isnan(own).all(axis=1)]
    return float((counted > CUT_OFF).mean())


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for people: the mean with its interval in one column, no column without a number, infinity in words."""
    heads = [key for key in rows[0] if key != "interval" and any(row[key] is not None for row in rows)]

    def cell(row: Mapping[str, Any], key: str) -> str:
        value = row[key]
        if value is None:
            return ""
        if not isinstance(value, float):
            return str(value)
        if math.isinf(value):
            return "diverged" if key == "ours" else ""
        spread = f" ± {row['interval']:.2f}" if key == "ours" and row["interval"] is not None else ""
        return f"{value:+.2f}" if key == "difference" else f"{value:.2f}{spread}"

    return tables.markdown(heads, [[cell(row, key) for key in heads] for row in rows])


# --- figures: named curves in panels, and a row for each of their points


def shakespeare_loss(played: Sequence[Played]) -> list[plots.Panel]:
    curves = {rule: _mean_curve(seeds, "test_loss") for (_, _, rule), seeds in by_key(played).items()}
    return [plots.Panel("Shakespeare under Full-Krum", "test loss (nats)", curves, log=True)]


def accuracy_over_rounds(played: Sequence[Played]) -> list[plots.Panel]:
    panels: dict[str, dict[str, list[plots.Point]]] = {}
    for (_, attack, rule), seeds in by_key(played).items():
        panels.setdefault(seeds[0].shown, {})[f"{rule}, {attack}"] = _mean_curve(seeds, "accuracy", 100)
    return [plots.Panel(data, "test accuracy (%)", curves) for data, curves in panels.items()]


def reputation(played: Sequence[Played]) -> list[plots.Panel]:
    panels = []
    several = len({each.rule for each in played}) > 1
    for (_, attack, rule), (first, *_) in by_key(played).items():
        c = int(first.run.config["malicious"])
        held = first.run.weights()
        curves = {"benign": _camp_mean(held[:, c:]), "malicious": _camp_mean(held[:, :c])}
        title = f"{rule}, {attack}" if several else attack
        panels.append(plots.Panel(title, "mean weight of a client", curves, log=True))
    return panels


def intuition(played: Sequence[Played]) -> list[plots.Panel]:
    panels = []
    for (_, attack, _), (first, *_) in by_key(played).items():
        run = first.run
        c = int(run.config["malicious"])
        table = np.full((len(run.records), int(run.config["clients"])), np.nan)
        for row, record in zip(table, run.records, strict=True):
            if "flip_score" in record:
                row[[number(client) for client in record["clients"]]] = record["flip_score"]
        curves = {"benign": _camp_mean(table[:, c:]), "malicious": _camp_mean(table[:, :c])}
        title = f"{attack}: only {run.config['rule']['camp']} updates aggregated"
        panels.append(plots.Panel(title, "mean flip-score", curves, log=True))
    return panels


def _curve(run: Run, key: str) -> list[plots.Point]:
    """What evaluations found; a loss that is not a number any more is infinite."""
    return [
        plots.Point(record["round"], math.inf if record[key] is None else record[key])
        for record in run.records
        if key in record
    ]


def _mean_curve(seeds: Sequence[Played], key: str, scale: float = 1) -> list[plots.Point]:
    """The mean over seeds and its interval, at the rounds that all of them have."""
    curves = [{point.round: scale * point.value for point in _curve(each.run, key)} for each in seeds]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    found = []
    for t in shared:
        values = [curve[t] for curve in curves]
        found.append(plots.Point(t, mean(values), interval(values)))
    return found


def _camp_mean(table: Float64s) -> list[plots.Point]:
    """The mean over the clients of a camp that took part, round by round."""
    seen = ~np.isnan(table)
    rounds = np.flatnonzero(seen.any(axis=1))
    means = np.nansum(table[rounds], axis=1) / seen[rounds].sum(axis=1)
    return [plots.Point(int(t) + 1, float(value)) for t, value in zip(rounds, means, strict=True)]


TABLES: dict[str, Callable[[Sequence[Played]], list[dict[str, Any]]]] = {
    "accuracy": accuracy,
    "weights": weights,
    "faba-30": accuracy,
}
FIGURES: dict[str, Callable[[Sequence[Played]], list[plots.Panel]]] = {
    "intuition": intuition,
    "shakespeare-loss": shakespeare_loss,
    "reputation": reputation,
    "adaptive": accuracy_over_rounds,
    "label-flip": accuracy_over_rounds,
}


OF_QUALITY = ("shakespeare-loss", "adaptive", "label-flip")  # figures of what the paper's table of accuracies has
FROM_SUMMARIES = tuple(name for name, table in TABLES.items() if table is accuracy)  # what needs no journals


SAME = ("data", "attack", "rule", "camp", "seed", "panel", "curve")  # what a row of a table or a figure is of


def rows_beyond(rows: Sequence[Mapping[str, Any]], path: Path) -> int:
    """How many rows of a table that is there already are of something else than these, or of more seeds."""
    there = read_rows(path) if path.exists() else []
    keys = [key for key in SAME if there and rows and key in there[0] and key in rows[0]]

    def of(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[key]).partition(" (")[0] if key == "data" else str(row[key]) for key in keys)

    known = {of(row): row.get("seeds") for row in rows}

    def more(row: Mapping[str, Any]) -> bool:
        seeds = known.get(of(row))
        return of(row) not in known or (seeds is not None and int(row.get("seeds") or 0) > int(seeds))

    return sum(map(more, there)) if keys else 0


def check_kept(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Nothing that took hours is replaced by less."""
    if beyond := rows_beyond(rows, path):
        raise ConfigError(
            f"{path} has {beyond} rows that this would leave out: ask for them too, or name another --out"
        )


def write(name: str, played: Sequence[Played], out: Path, head: str) -> tuple[str, list[Path]]:
    """Leave a table (CSV and Markdown) or a figure (PNG, SVG, its points as CSV, and where its curves end as Markdown);
    what to print, and the files.

    `head` says what was run; it goes above a table and under a figure.
    """
    out.mkdir(parents=True, exist_ok=True)
    if name in TABLES:
        rows = TABLES[name](played)
        check_kept(rows, out / f"{name}.csv")
        tables.write_csv(rows, out / f"{name}.csv")
        text = f"{head}\n\n{markdown(rows)}"
        (out / f"{name}.md").write_text(text)
        return text, [out / f"{name}.csv", out / f"{name}.md"]
    panels = FIGURES[name](played)
    seeds = {"seeds": len({each.seed for each in played})}
    points = [
        {"panel": panel.title, "curve": curve, "round": point.round, panel.unit: point.value} | _band(point) | seeds
        for panel in panels
        for curve, line in panel.curves.items()
        for point in line
    ]
    check_kept(points, out / f"{name}.csv")
    tables.write_csv(points, out / f"{name}.csv")
    files = [out / f"{name}.png", out / f"{name}.svg"]
    note = f"{head} {_seeds(played)}".strip()
    plots.panels(panels, files, note=note)
    files.append(out / f"{name}.csv")
    if name in OF_QUALITY:
        note += f"\n\nAt the end:\n\n{markdown(accuracy(played))}"
        files.append(out / f"{name}.md")
        files[-1].write_text(note)
    return note.rstrip() + "\n", files


def _band(point: plots.Point) -> dict[str, float]:
    return {} if point.half is None else {"low": point.value - point.half, "high": point.value + point.half}


def _seeds(played: Sequence[Played]) -> str:
    """What a curve is, where there are several seeds."""
    several = len({each.seed for each in played}) > 1
    return "Means over seeds, 95 % confidence intervals." if several else ""
