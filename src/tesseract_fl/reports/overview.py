"""What a page shows of a run, as plain values for JSON: cut, counted and sampled here, so that the page stays quick."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from tesseract_fl.reports.history import COLUMNS, STANDINGS, VERDICTS, History, sampled
from tesseract_fl.reports.sources import Source, explained
from tesseract_fl.types import ClientId, Ints

POINTS = 500  # of a line
CELLS = 150_000  # of a heat map, clients × rounds
COLUMNS_AT_MOST, COLUMNS_AT_LEAST = 500, 50  # rounds in a heat map
ROWS = 1000  # clients in a heat map and in the table
LINES = 200  # of any other table

FIGURES = ("accuracy", "test_loss", "train_loss", "seconds", "admitted", "turned_away", "suspected", "attack_success")
DETECTION = ("true_positive_rate", "false_positive_rate", "auroc", "malicious_weight", "honest_weight_lost")
BAND = ("flip_score_low", "flip_score_high")
ROLES = ("benign", "malicious", "unknown")

Table = dict[str, Any]


def overview(source: Source, cells: int = CELLS) -> Table:
    """Everything but the histories of single clients."""
    history = source.history
    rows, columns = _cut(history, cells)
    return {
        "name": source.directory.resolve().name,
        "kind": source.kind,
        "title": source.title,
        "round": history.round,
        "planned": source.planned,
        "finished": source.finished,
        "about": source.about,
        "headline": headline(source),
        "lines": lines(history),
        "heat": {
            "rounds": [history.rounds[index].number for index in columns],
            "reputation": packed(history.table("reputation", columns, rows)),
            "weight": packed(history.table("weight", columns, rows)),
        },
        "clients": clients(source, rows),
        "clients_in_all": len(history.clients),
        **turned_away(history),
        "skipped": [{"round": number, "why": why} for number, why in history.skipped[-LINES:]],
        "skipped_in_all": len(history.skipped),
        "actions": [asdict(action) for action in source.actions[-LINES:]],
        "detection": source.summary.get("detection", {}),
        "settings": source.settings,
        "again": source.again,
    }


def histories(source: Source, cells: int = CELLS) -> Table:
    """The history of every client that is shown, for a page that has nobody to ask."""
    history = source.history
    rows, columns = _cut(history, cells)
    names = list(history.clients)
    return {
        "score": packed(history.table("score", columns, rows)),
        "verdict": packed(history.table("verdict", columns, rows)),
        "verdicts": VERDICTS,
        "why": [explained(source, names[row]) for row in rows],
    }


def client(source: Source, name: ClientId) -> Table | None:
    """One client: its rounds, and why it weighs what it weighs; None if nobody knows it."""
    history = source.history
    if name not in history.clients:
        return None
    found = history.of_client(history.clients[name])
    picked = [found[index] for index in sampled(len(found), POINTS)]
    return {
        "client": name,
        "rounds": [one.number for one, _ in picked],
        **{column: [_number(getattr(one, column)[row]) for one, row in picked] for column in COLUMNS},
        "verdict": [VERDICTS[one.verdict[row]] for one, row in picked],
        "why": explained(source, name),
    }


def shown(history: History, most: int = ROWS) -> Ints:
    """Which clients are shown, the heaviest first; of very many, some of every weight."""
    tally = history.tally
    weight = np.nan_to_num(tally.weight, nan=-1.0)
    order = np.lexsort((np.arange(len(weight)), -np.nan_to_num(tally.reputation, nan=0.0), -weight))
    picked: Ints = order[sampled(len(order), most)]
    return picked


def lines(history: History) -> Table:
    """What a round has one number of, by name; names without any number are left out."""
    evaluated = [index for index, one in enumerate(history.rounds) if one.figures.get("accuracy") is not None]
    kept = {evaluated[place] for place in sampled(len(evaluated), POINTS)}  # or most evaluations would be passed over
    columns = sorted(kept.union(sampled(len(history.rounds), POINTS)))
    names = [*FIGURES, *DETECTION, *BAND]
    names += [f"score_{role}_{part}" for role in ROLES for part in ("low", "mid", "high")]
    names += [f"weight_{role}" for role in ROLES]
    found = {name: [_number(value) for value in history.figure(name, columns)] for name in names}
    return {"round": [history.rounds[index].number for index in columns]} | {
        name: values for name, values in found.items() if any(value is not None for value in values)
    }


def headline(source: Source) -> Table:
    """The few numbers that an operator looks at first."""
    history = source.history
    tally, present = history.tally, [one for one in history.rounds[-1:] if len(one.clients)]
    seconds = _all(history, "seconds")
    return {
        "accuracy": _last(history, "accuracy"),
        "best_accuracy": max(_all(history, "accuracy"), default=None),
        "clients": len(history.clients),
        "malicious": sum(role is True for role in history.malicious) if history.roles_known else None,
        "suspected": int(tally.suspicious.sum()),
        "suspected_malicious": int(tally.suspicious[_malicious(history)].sum()) if history.roles_known else None,
        "turned_away": int(tally.rejected.sum()),
        "admitted": present[-1].figures["admitted"] if present else None,
        "true_positive_rate": _mean(history, "true_positive_rate"),
        "false_positive_rate": _mean(history, "false_positive_rate"),
        "auroc": _last(history, "auroc"),
        "malicious_weight": _last(history, "malicious_weight"),
        "attack_success": _last(history, "attack_success"),
        "seconds": float(np.median(seconds)) if seconds else None,
    }


def clients(source: Source, rows: Ints) -> list[Table]:
    history, tally = source.history, source.history.tally
    names = list(history.clients)
    decided = {action.client: action.action for action in source.actions}
    found = []
    for row in rows:
        banned = decided.get(names[row]) == "ban"
        standing = tally.standing(row, banned)
        found.append(
            {
                "client": names[row],
                "malicious": history.malicious[row],
                "standing": standing,
                "since": int(tally.since[row]) or None if standing in ("cut off", "suspected", "banned") else None,
                "weight": _finite(tally.weight[row]),
                "reputation": _finite(tally.reputation[row]),
                "reason": f"round {tally.reason_round[row]}: {tally.reason[row]}" if tally.reason_round[row] else "",
                "rounds": int(tally.seen[row]),
                "penalised": int(tally.penalised[row]),
                "rejected": int(tally.rejected[row]),
            }
        )
    return found


def suspects(source: Source) -> list[Table]:
    """Every client, the most suspicious first."""
    found = clients(source, np.arange(len(source.history.clients)))
    return sorted(found, key=lambda one: (STANDINGS.index(one["standing"]), one["reputation"] or 0.0, one["client"]))


def turned_away(history: History) -> Table:
    """Who was not admitted, and why: one line per client and reason, the latest first."""
    found = sorted(history.turned_away.values(), key=lambda one: (-one.last, -one.times, one.client))
    return {"turned_away": [asdict(one) for one in found[:LINES]], "turned_away_in_all": len(found)}


def packed(values: npt.NDArray[Any]) -> Table:
    """An array as text: four bytes a number take less room than its digits, and the page need not parse them."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    kind = "u1" if values.dtype == np.uint8 else "f4"
    return {"kind": kind, "shape": values.shape, "data": base64.b64encode(little.tobytes()).decode()}


def _cut(history: History, cells: int) -> tuple[Ints, list[int]]:
    """Which clients and rounds a heat map has."""
    rows = shown(history, min(ROWS, cells // COLUMNS_AT_LEAST))
    return rows, sampled(len(history.rounds), min(COLUMNS_AT_MOST, cells // max(1, len(rows))))


def _malicious(history: History) -> Any:
    return np.array([role is True for role in history.malicious], np.bool_)


def _last(history: History, name: str) -> float | None:
    return next((v for one in reversed(history.rounds) if (v := one.figures.get(name)) is not None), None)


def _mean(history: History, name: str) -> float | None:
    values = _all(history, name)
    return float(np.mean(values)) if values else None


def _all(history: History, name: str) -> list[float]:
    return [value for one in history.rounds if (value := one.figures.get(name)) is not None]


def _finite(value: Any) -> float | None:
    """JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else float(value)


def _number(value: Any) -> float | None:
    """Six digits are more than a picture shows."""
    known = _finite(value)
    return None if known is None else float(f"{known:.6g}")


def names_apart(names: Sequence[str]) -> list[str]:
    """Names of runs that a legend can tell apart.

    >>> names_apart(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    return [
        name if names[:place].count(name) == 0 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]
