"""Slow oracles, written from the definitions with plain loops. They import nothing from the package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from statistics import NormalDist
from typing import Any

import numpy as np

Rows = Any  # anything that iterates over rows of numbers


def sign(x: float) -> int:
    return int(x > 0) - int(x < 0)


def flip_scores(U: Rows, s: Sequence[int]) -> list[float]:
    return [math.fsum(float(u) ** 2 for u, sj in zip(row, s, strict=True) if sign(u) != sj) for row in U]


def weighted_sum(w: Sequence[float], U: Rows) -> list[float]:
    return [math.fsum(wi * float(u) for wi, u in zip(w, column, strict=True)) for column in zip(*U, strict=True)]


def squared_distance(x: Sequence[float], y: Sequence[float]) -> float:
    return math.fsum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True))


def tesseract_round(
    U: Rows,
    ids: Sequence[str],
    s: Sequence[int],
    reputation: Mapping[str, float],
    *,
    f: int,
    decay: float,
    rejected: Sequence[str] = (),
) -> tuple[list[float], dict[str, float], list[float]]:
    """One round of the Tesseract rule where no two flip-scores are equal: update, reputations, weights."""
    n = len(ids)
    scores = flip_scores(U, s)
    by_score = sorted(range(n), key=lambda i: scores[i])
    penalised = {ids[i] for i in by_score[:f]} | {ids[i] for i in by_score[n - f :]} | set(rejected)
    after = dict(reputation)
    for client in [*ids, *rejected]:
        change = -(1 - 2 * f / n) if client in penalised else 2 * f / n
        after[client] = decay * reputation.get(client, 0.0) + change
    while max(after.values()) > math.log(float(np.finfo(np.float32).max)):
        after = {client: score / 2 for client, score in after.items()}
    total = math.fsum(math.exp(after[client]) for client in ids)
    weights = [math.exp(after[client]) / total for client in ids]
    return weighted_sum(weights, U), after, weights


def quantile(values: Sequence[float], q: float) -> float:
    """Between the two values around position q·(n − 1), by linear interpolation."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def outlyingness(scores: Sequence[float], share: float, least: float = 0.0) -> list[float]:
    middle, quartile = quantile(scores, (1 - share) / 2), quantile(scores, (1 - share) / 4)
    most = len(scores) // 2 + 1
    lengths = [high - low for low in scores for high in scores if sum(low <= one <= high for one in scores) >= most]
    normal = NormalDist().inv_cdf((1 + 0.5 / (1 - share)) / 2)
    half = min(lengths) / 2 / normal
    spread = max(min(max((middle - quartile) / 0.6745, half), 1.5 * half), 1e-3, least)
    return [(score - middle) / spread for score in scores]


TAILS = {"agreement": (-1,), "company": (1,), "flip": (-1, 1), "length": (1,), "flatness": (1,), "course": (-1, 1)}


def all_cosines(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    lengths = [math.sqrt(math.fsum(u * u for u in row)) for row in rows]
    return [
        [
            math.fsum(a * b for a, b in zip(rows[i], rows[k], strict=True)) / (lengths[i] * lengths[k])
            if lengths[i] and lengths[k] else 0.0
            for k in range(len(rows))
        ]
        for i in range(len(rows))
    ]  # fmt: skip


def hardened_weights(ids: Sequence[str], state: Mapping[str, Any], newcomers: float) -> list[float]:
    raw = {client: math.exp(state["reputation"].get(client, 0.0)) for client in ids}
    old = math.fsum(raw[client] for client in ids if client not in state["probation"])
    new = math.fsum(raw[client] for client in ids if client in state["probation"])
    if old > new and new / (old + new) > newcomers:
        held = newcomers * old / (1 - newcomers)
        raw = {client: raw[client] * (held / new if client in state["probation"] else 1) for client in ids}
    total = math.fsum(raw.values())
    return [raw[client] / total for client in ids]


def hardened_round(
    U: Rows, ids: Sequence[str], state: dict[str, Any], *, f: int, rejected: Sequence[str] = (), **changed: Any
) -> tuple[list[float], dict[str, Any], list[float]]:
    """One round of the hardened rule where no two suspects are equally suspicious: update, state, weights.

    Who sends 0 counts as absent, unless all do.
    """
    idle = [not any(row) for row in U]
    if any(idle) and not all(idle):
        active = [i for i in range(len(ids)) if not idle[i]]
        rows, names = [U[i] for i in active], [ids[i] for i in active]
        update, after, found = hardened_round(rows, names, state, f=f, rejected=rejected, **changed)
        given = dict(zip(active, found, strict=True))
        return update, after, [given.get(i, 0.0) for i in range(len(ids))]
    set_to = {
        "decay": 0.99, "memory": 0.95, "cut": 4.0, "redemption": 0.05, "reach": 2.0,
        "probation": 20, "newcomers": 0.1, "evidence": "agreement+company+flip+length+flatness+course", **changed,
    }  # fmt: skip
    n, kinds = len(ids), set_to["evidence"].split("+")
    rows = [[float(u) for u in row] for row in U]
    state = {"reputation": {}, "memory": {kind: {} for kind in kinds}, "seen": {}, "probation": {}, "age": 0, **state}
    probation = dict(state["probation"])
    if set_to["probation"] and state["age"] >= set_to["probation"]:
        probation |= {client: set_to["probation"] for client in ids if client not in state["seen"]}
    before = hardened_weights(ids, {**state, "probation": probation}, set_to["newcomers"])

    norms = [math.sqrt(math.fsum(u * u for u in row)) for row in rows]
    cos = all_cosines(rows)
    flips = flip_scores(U, state.get("direction", [0] * len(rows[0])))
    way = state.get("course", [0.0] * len(rows[0]))
    distance = math.sqrt(math.fsum(m * m for m in way))
    middle = quantile(norms, 0.5)
    now: dict[str, list[float]] = {kind: [] for kind in kinds}
    for i in range(n):
        others = [k for k in range(n) if k != i]
        weight = math.fsum(before[k] for k in others)
        said = {
            "agreement": math.fsum(before[k] * cos[i][k] for k in others) / weight if weight else 0.0,
            "company": math.sqrt(math.fsum(max(0.0, cos[i][k]) ** 2 for k in others)),
            "flip": flips[i] / norms[i] ** 2 if norms[i] else 0.0,
            "length": math.log(min(max(norms[i] / middle, 1e-3), 1e3)) if middle else 0.0,
            "flatness": math.log(math.fsum(abs(u) for u in rows[i]) / norms[i]) if norms[i] else 0.0,
            "course": math.fsum(u * m for u, m in zip(rows[i], way, strict=True)) / ((norms[i] * distance) or 1.0),
        }
        for kind in kinds:
            now[kind].append(said[kind])
    least = {kind: 0.08 * abs(quantile(now[kind], 0.5)) for kind in ("company", "course") if kind in kinds}
    least["flatness"] = 0.02
    for kind in kinds:
        usual = quantile(now[kind], 0.5)
        for tail in TAILS[kind] if len(TAILS[kind]) == 1 else ():
            found = outlyingness([tail * score for score in now[kind]], f / n, least.get(kind, 0.0))
            at, far = max(range(n), key=found.__getitem__), min(range(n), key=found.__getitem__)
            if found[far] < -2:  # the score that is two deviations on the good side, by the line through two others
                per_deviation = (now[kind][at] - now[kind][far]) / (found[at] - found[far])
                good = now[kind][far] + (-2 - found[far]) * per_deviation
                now[kind] = [good if z < -2 else score for z, score in zip(found, now[kind], strict=True)]
        for i in range(n):
            t = state["seen"].get(ids[i], 0)
            beta = min(set_to["memory"], t / (t + 1))
            now[kind][i] = beta * state["memory"][kind].get(ids[i], 0.0) + (1 - beta) * (now[kind][i] - usual)

    wider = 1 + 25 / n if n <= 6 or n >= 17 else 2.5 if n >= 10 else 1 + 150 / n**2
    guilt: dict[str, float] = {}
    for k in range(1, f + 1):  # as many as there can be who are all beyond the cut if they are the malicious ones
        deviations = [
            outlyingness([tail * score for score in now[kind]], k / n, least.get(kind, 0.0))
            for kind, tails in TAILS.items()
            for tail in (tails if kind in kinds else ())
        ]
        suspicion = []
        for i in range(n):
            own = [found[i] for found in deviations]
            long_known = state["seen"].get(ids[i], 0) >= 1 / (1 - set_to["memory"]) - 1e-9
            suspicion.append(math.sqrt(math.fsum(max(0.0, z) ** 2 for z in own)) if long_known else max(own))
        worst = sorted(range(n), key=lambda i: -suspicion[i])[:k]
        more = 0.75 / (1 - k / n) if k > n / 4 else 1
        beyond = {ids[i]: suspicion[i] / (set_to["cut"] * wider * more) - 1 for i in worst}
        if min(beyond.values()) > 0:
            guilt = {client: f / (4 * k) + excess for client, excess in beyond.items()}

    reputation = dict(state["reputation"])
    for client in ids:
        change = set_to["redemption"] - min(1.0, guilt.get(client, 0.0))
        reputation[client] = min(0.0, set_to["decay"] * reputation.get(client, 0.0) + change)
    for client in set(rejected) - set(ids):
        reputation[client] = set_to["decay"] * reputation.get(client, 0.0) + set_to["redemption"] - 1
    for client in set(ids) - set(guilt):
        if client in probation:
            probation[client] -= 1
    after = {
        "reputation": reputation,
        "memory": {kind: {**state["memory"][kind], **dict(zip(ids, now[kind], strict=True))} for kind in kinds},
        "seen": {**state["seen"], **{client: state["seen"].get(client, 0) + 1 for client in ids}},
        "probation": {client: left for client, left in probation.items() if left > 0},
        "age": state["age"] + 1,
    }
    longest = set_to["reach"] * middle
    bounds = [min(1.0, longest / norm) if norm else 1.0 for norm in norms]
    shares = hardened_weights(ids, after, set_to["newcomers"])
    weights = [share * bound for share, bound in zip(shares, bounds, strict=True)]
    update = weighted_sum(weights, U)
    after["direction"] = [sign(g) for g in update]
    after["course"] = [set_to["memory"] * m + (1 - set_to["memory"]) * g for m, g in zip(way, update, strict=True)]
    return update, after, weights


def krum_scores(U: Rows, f: int) -> list[float]:
    """Σ of squared distances to the n − f − 2 nearest others."""
    rows = list(U)
    n = len(rows)
    return [
        math.fsum(sorted(squared_distance(rows[i], rows[k]) for k in range(n) if k != i)[: n - f - 2]) for i in range(n)
    ]


def full_krum_strength(benign: Rows, c: int, smallest: float = 1e-5) -> float | None:
    """λ by running Krum over the n rows at every halving."""
    rows = [[float(x) for x in row] for row in benign]
    n, d = len(rows) + c, len(rows[0])
    s = [sign(math.fsum(column)) for column in zip(*rows, strict=True)]
    spread = min(
        math.fsum(sorted(squared_distance(row, other) for k, other in enumerate(rows) if k != i)[: n - c - 2])
        for i, row in enumerate(rows)
    )
    largest = max(math.sqrt(math.fsum(x * x for x in row)) for row in rows)
    strength = math.sqrt(spread / ((n - 2 * c - 1) * d)) + largest / math.sqrt(d)
    while strength >= smallest:
        crafted = [[-strength * sj for sj in s]] * c
        scores = krum_scores(crafted + rows, c)
        if min(scores[:c]) < min(scores[c:]):
            return strength
        strength /= 2
    return None


def full_trim_interval(column: Sequence[float], b: float = 2.0) -> tuple[float, float]:
    """Where the attack samples for one coordinate."""
    low, high, s = min(column), max(column), sign(math.fsum(column))
    if s > 0:
        return (low / b, low) if low > 0 else (b * low, low)
    if s < 0:
        return (high, b * high) if high > 0 else (high, high / b)
    return (0.0, 0.0)


# The other rules. Each takes rows and answers one row; ties are left out by drawing rows that have none.


def columns(U: Rows) -> list[list[float]]:
    return [[float(x) for x in column] for column in zip(*U, strict=True)]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def mean_row(U: Rows) -> list[float]:
    return [mean(column) for column in columns(U)]


def norm(row: Sequence[float]) -> float:
    return math.sqrt(math.fsum(float(x) ** 2 for x in row))


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True))


def middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    n = len(ordered)
    return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2


def median(U: Rows) -> list[float]:
    return [middle(column) for column in columns(U)]


def trimmed_mean(U: Rows, f: int) -> list[float]:
    return [mean(sorted(column)[f : len(column) - f]) for column in columns(U)]


def closest_to_median(values: Sequence[float], k: int) -> float:
    """Mean of the k values closest to their median; of two equally far away, the smaller."""
    centre = middle(values)
    return mean(sorted(values, key=lambda x: (abs(x - centre), x))[:k])


def mean_around_median(U: Rows, f: int) -> list[float]:
    return [closest_to_median(column, len(column) - f) for column in columns(U)]


def krum(U: Rows, f: int) -> list[float]:
    rows = list(U)
    scores = krum_scores(rows, f)
    return [float(x) for x in rows[scores.index(min(scores))]]


def multi_krum(U: Rows, f: int, q: int | None = None) -> list[float]:
    rows = list(U)
    scores = krum_scores(rows, f)
    best = sorted(range(len(rows)), key=lambda i: scores[i])[: len(rows) - f if q is None else q]
    return mean_row([rows[i] for i in best])


def coin(client: str, round: int = 1) -> int:
    """How ties are broken, as documented."""
    return int.from_bytes(blake2b(f"{round}:{client}".encode(), digest_size=8).digest(), "little")


def bulyan(U: Rows, f: int) -> list[float]:
    """Ties are the rule here: once a score is one distance, two mutual neighbours share it."""
    remaining = list(enumerate(U))
    theta = len(remaining) - 2 * f
    chosen = []
    for _ in range(theta):
        rows = [row for _, row in remaining]
        scores = krum_scores(rows, f) if len(rows) > f + 2 else [0.0] * len(rows)
        best = min(range(len(rows)), key=lambda k: (scores[k], coin(str(remaining[k][0]))))
        chosen.append(remaining.pop(best)[1])
    return [closest_to_median(column, theta - 2 * f) for column in columns(chosen)]


def faba(U: Rows, f: int) -> list[float]:
    remaining = list(U)
    for _ in range(f):
        centre = mean_row(remaining)
        away = [squared_distance(row, centre) for row in remaining]
        remaining.pop(away.index(max(away)))
    return mean_row(remaining)


def foolsgold_alpha(H: Rows, confidence: float = 1.0) -> list[float]:
    rows = list(H)
    n = len(rows)
    cs = [
        [0.0 if i == k else dot(rows[i], rows[k]) / (norm(rows[i]) * norm(rows[k])) for k in range(n)] for i in range(n)
    ]
    v = [max(row) for row in cs]
    for i in range(n):
        for k in range(n):
            if v[k] > v[i]:
                cs[i][k] *= v[i] / v[k]
    alpha = [min(max(1 - max(row), 0.0), 1.0) for row in cs]
    largest = max(alpha)
    result = []
    for a in alpha:
        a = min(a / largest, 0.99)
        result.append(0.0 if a == 0 else min(max(confidence * (math.log(a / (1 - a)) + 0.5), 0.0), 1.0))
    return result


def foolsgold(U: Rows) -> list[float]:
    alpha = foolsgold_alpha(U)
    return weighted_sum([a / math.fsum(alpha) for a in alpha], U)


def fltrust(U: Rows, trusted: Sequence[float]) -> list[float]:
    trust = [max(dot(row, trusted) / (norm(row) * norm(trusted)), 0.0) for row in U]
    weights = [t * norm(trusted) / norm(row) / math.fsum(trust) for t, row in zip(trust, U, strict=True)]
    return weighted_sum(weights, U)


def geometric_median(U: Rows, smoothing: float = 1e-6, iterations: int = 3000) -> list[float]:
    X = np.asarray(U, np.float64)
    z = X.mean(axis=0)
    for _ in range(iterations):
        beta = 1 / np.maximum(np.linalg.norm(X - z, axis=1), smoothing)
        z = beta @ X / beta.sum()
    return [float(x) for x in z]


def centred_clipping(U: Rows, centre: Sequence[float], tau: float, iterations: int) -> list[float]:
    v = [float(x) for x in centre]
    for _ in range(iterations):
        differences = [[float(x) - c for x, c in zip(row, v, strict=True)] for row in U]
        clipped = [[x * min(1.0, tau / norm(row)) for x in row] for row in differences]
        v = [c + step for c, step in zip(v, mean_row(clipped), strict=True)]
    return v


def dnc(U: Rows, f: int) -> list[float]:
    """One iteration over all coordinates, by the singular value decomposition of the centred rows."""
    X = np.asarray(U, np.float64)
    centred = X - X.mean(axis=0)
    v = np.linalg.svd(centred, full_matrices=False)[2][0]
    scores = (centred @ v) ** 2
    keep = sorted(range(len(X)), key=lambda i: scores[i])[: len(X) - f]
    return mean_row([X[i] for i in keep])


def nearest_neighbour_mixing(U: Rows, f: int) -> list[list[float]]:
    rows = list(U)
    return [mean_row(sorted(rows, key=lambda x: squared_distance(row, x))[: len(rows) - f]) for row in rows]


def norm_clipped_mean(U: Rows, tau: float | None = None) -> list[float]:
    norms = [norm(row) for row in U]
    radius = middle(norms) if tau is None else tau
    return mean_row([[float(x) * min(1.0, radius / length) for x in row] for row, length in zip(U, norms, strict=True)])


def deviation(benign: Rows, kind: str) -> list[float]:
    average = mean_row(benign)
    if kind == "sign":
        return [-float(sign(m)) for m in average]
    if kind == "std":
        return [-math.sqrt(mean([(float(u) - mean(column)) ** 2 for u in column])) for column in columns(benign)]
    along = 1 if kind == "along" else -1
    return [along * m / norm(average) for m in average]


def largest_strength(benign: Rows, p: Sequence[float], allowed: Any) -> float:
    """The largest γ for which `allowed(distances of mean + γp to the benign updates)`, by doubling and bisection."""
    average = mean_row(benign)

    def passes(gamma: float) -> bool:
        row = [m + gamma * pj for m, pj in zip(average, p, strict=True)]
        return bool(allowed([squared_distance(row, u) for u in benign]))

    low, high = 0.0, 1.0
    while passes(high):
        low, high = high, 2 * high
    for _ in range(80):
        middle_ = (low + high) / 2
        low, high = (middle_, high) if passes(middle_) else (low, middle_)
    return low


def min_max_strength(benign: Rows, p: Sequence[float]) -> float:
    bound = max(squared_distance(x, y) for x in benign for y in benign)
    return largest_strength(benign, p, lambda distances: max(distances) <= bound)


def min_sum_strength(benign: Rows, p: Sequence[float]) -> float:
    bound = max(math.fsum(squared_distance(x, y) for y in benign) for x in benign)
    return largest_strength(benign, p, lambda distances: math.fsum(distances) <= bound)


def diluted(row: Any, honest: Any, magnitude: Any, s: Sequence[int], cut: float, step: float) -> list[float]:
    """While the flip-score is above the cut, the next `step` of the coordinates becomes honest, weakest first."""
    order = sorted(range(len(row)), key=lambda j: abs(magnitude[j]))
    result = [float(u) for u in row]
    done = 0
    while flip_scores([result], s)[0] > cut and done < len(order):
        # coordinate number k goes with the step in which k/d falls
        turn = int(done / (step * len(order)) + 1e-9)
        while done < len(order) and done / (step * len(order)) + 1e-9 < turn + 1:
            result[order[done]] = float(honest[order[done]])
            done += 1
    return result


def auroc(standing: Sequence[float], malicious: Sequence[bool]) -> float:
    pairs = [
        1.0 if low < high else 0.5 if low == high else 0.0
        for low, bad in zip(standing, malicious, strict=True)
        for high, worse in zip(standing, malicious, strict=True)
        if bad and not worse
    ]
    return mean(pairs)
