"""Who was caught: how well a rule tells malicious clients from honest ones, apart from what accuracy shows.

A client is *caught* in a round if the gate turned it away, if the rule penalised it, or, where the rule gives no
verdicts, if it weighs less than `CUT_OFF`. A rule without verdicts or weights, as the median, catches nobody itself;
in a round that was skipped only the gate does.

A client's weight is its `share` where a rule reports one, because it also scales updates to a length: a long update is
multiplied by little there, however far it pulls. What fltrust multiplies updates by has the scale in it still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from tesseract_fl.types import ClientId, Float64s

CUT_OFF = 1e-4

FIGURES = (
    "true_positive_rate",
    "false_positive_rate",
    "auroc",
    "malicious_weight",
    "malicious_weight_max",
    "honest_weight_lost",
)

Measured = dict[str, float | None]


def of_round(record: Mapping[str, Any], malicious: Set[ClientId]) -> Measured:
    """The figures of one round, from its record and the names of its malicious clients.

    `true_positive_rate` and `false_positive_rate`: of the malicious and of the honest clients, the share that was
    caught. `auroc`: the chance that a malicious client has less reputation (where the rule keeps none, less
    weight) than an honest one. `malicious_weight`, `malicious_weight_max`: of all malicious clients, and of the
    heaviest. `honest_weight_lost`: Σ max(0, 1/h − w_i) over the h honest clients, 0 where each has an equal share
    and nobody else any.
    """
    ids: Sequence[ClientId] = record["clients"]
    away = [rejection["client"] for rejection in record["rejected"] if rejection["client"] not in ids]
    bad = np.array([client in malicious for client in (*ids, *away)], np.bool_)
    held = record.get("share", record["weights"])
    weights = None if held is None else np.array([*held, *(0.0 for _ in away)])
    verdicts = record.get("penalised", [False] * len(ids) if weights is None else weights[: len(ids)] < CUT_OFF)
    caught = np.array([*verdicts, *(True for _ in away)], np.bool_)
    measured: Measured = {"true_positive_rate": _mean(caught[bad]), "false_positive_rate": _mean(caught[~bad])}
    standing = record.get("reputation", held)
    if standing is not None:
        measured["auroc"] = auroc(np.array([*standing, *(-np.inf for _ in away)]), bad)
    if weights is not None and bad.any():
        measured["malicious_weight"] = float(weights[bad].sum())
        measured["malicious_weight_max"] = float(weights[bad].max())
    if weights is not None and not bad.all():
        honest = weights[~bad]
        measured["honest_weight_lost"] = float(np.maximum(1 / len(honest) - honest, 0).sum())
    return measured


def auroc(standing: Float64s, malicious: Any) -> float | None:
    """The share of pairs in which the malicious client stands lower than the honest one; equal ones count half.

    >>> auroc(np.array([0.0, 1.0, 1.0, 2.0]), np.array([True, True, False, False]))
    0.875
    """
    low, high = standing[malicious][:, None], standing[~malicious][None, :]
    return _mean((low < high) + 0.5 * (low == high))


def of_run(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a run: rates over all rounds, weights and AUROC at the end, and when the attackers were cut off.

    `cut_off_round`: the first round in which every malicious client present weighs less than `CUT_OFF`.
    `cut_off_since`: the round from which on that holds to the end.
    """
    seen = [record for record in rounds if "true_positive_rate" in record]
    summary: dict[str, Any] = {
        name: _mean([record[name] for record in seen if record[name] is not None])
        for name in ("true_positive_rate", "false_positive_rate")
    }
    for name in ("auroc", "malicious_weight", "honest_weight_lost"):
        summary[name] = next((record[name] for record in reversed(seen) if record.get(name) is not None), None)
    weighed = [(record["round"], record["malicious_weight_max"] < CUT_OFF) for record in seen if _weighed(record)]
    summary["cut_off_round"] = next((round for round, out in weighed if out), None)
    still_in = max((round for round, out in weighed if not out), default=0)
    summary["cut_off_since"] = next((round for round, _ in weighed if round > still_in), None)
    return summary


def _weighed(record: Mapping[str, Any]) -> bool:
    return record.get("malicious_weight_max") is not None


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if np.size(values) else None
