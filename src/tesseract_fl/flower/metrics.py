"""Numbers that clients report about themselves, combined so that one liar can't move them far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from flwr.app import MetricRecord


def medians(reports: Iterable[Mapping[str, Any]], leave_out: str) -> MetricRecord:
    """The median of every number that more than half of the clients report; lists and non-numbers are left out."""
    all_reports = list(reports)
    values: dict[str, list[float]] = {}
    for report in all_reports:
        for key, value in report.items():
            if key != leave_out and isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(key, []).append(float(value))
    return MetricRecord({key: median(found) for key, found in values.items() if 2 * len(found) > len(all_reports)})
