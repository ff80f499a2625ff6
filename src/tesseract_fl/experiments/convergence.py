"""The bound of the paper's theorem for a problem where every constant is known, and the gap that is measured.

Clients hold the Wisconsin breast-cancer data, dealt out evenly. Their loss is ℓ2-regularised logistic regression's:

LM_k(w) = mean_i log(1 + exp(−y_i x_i·w)) + (μ/2)‖w‖²,  GM = mean over the honest clients of LM_k

With ‖x_i‖ = 1 and w_0 = 0: L ≤ ¼ λ_max(mean x xᵀ) + μ, σ_k² ≤ 1/batch, and an honest gradient is at most G = 2 long
while ‖w‖ ≤ 1/μ, where w stays as long as only honest gradients move it. The optima are found by Newton's method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tesseract_fl import kernels, registry
from tesseract_fl.attacks.base import View
from tesseract_fl.randomness import generator
from tesseract_fl.types import Float64s, Updates

CLIENTS, MALICIOUS, SAMPLES, BATCH = 20, 4, 28, 4
MU = 0.05
RUNS = 5  # of each seed
Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Convergence:
    """`curves`: the mean measured gap GM(w_T) − GM*. `bounds`: the theorem's, by name. `rates`: a with gap ∝ T^a."""

    constants: dict[str, float]
    curves: dict[str, Points]
    bounds: dict[str, Points]
    rates: dict[str, float]
    seeds: int


@dataclass(frozen=True)
class Problem:
    """x: clients × samples × features, y: ±1. The first MALICIOUS clients are no part of the goal where they attack."""

    x: Float64s
    y: Float64s
    honest: slice

    def gradients(self, w: Float64s, batch: Any) -> Float64s:
        """Every client's gradient on its own batch."""
        clients = np.arange(len(self.x))[:, None]
        x, y = self.x[clients, batch], self.y[clients, batch]
        slope = -y / (1 + np.exp(y * (x @ w)))
        gradients: Float64s = (slope[..., None] * x).mean(axis=1) + MU * w
        return gradients

    def losses(self, w: Float64s) -> Float64s:
        losses: Float64s = np.logaddexp(0, -self.y * (self.x @ w)).mean(axis=1) + MU / 2 * float(w @ w)
        return losses

    def gap(self, w: Float64s, optimum: float) -> float:
        return float(self.losses(w)[self.honest].mean()) - optimum


def measure(rounds: int, seeds: int, on_round: Callable[[int], None] = lambda rounds: None) -> Convergence:
    """The gap over rounds for FedSGD and Tesseract, unattacked and attacked, beside the bound."""
    x, y = _data()
    honest, attacked = Problem(x, y, slice(0, None)), Problem(x, y, slice(MALICIOUS, None))
    ways = {
        "FedSGD, no attack": (honest, "fedsgd", "none"),
        "Tesseract, no attack": (honest, "tesseract", "none"),
        "Tesseract, Full-Trim": (attacked, "tesseract", "full_trim"),
        "Tesseract, Full-Krum": (attacked, "tesseract", "full_krum"),
        "FedSGD, Full-Trim": (attacked, "fedsgd", "full_trim"),
    }
    curves = {}
    for name, (problem, rule, attack) in ways.items():
        played = [_play(problem, rule, attack, seed, rounds, on_round) for seed in range(seeds)]
        curves[name] = [(t, float(np.mean([gaps[i][1] for gaps in played]))) for i, (t, _) in enumerate(played[0])]
    unattacked, under_attack = constants(honest, 0), constants(attacked, MALICIOUS)
    return Convergence(
        constants=under_attack,
        curves=curves,
        bounds={
            "bound, no attack": [(t, bound(unattacked, t)) for t, _ in played[0]],
            "bound, 20 % malicious": [(t, bound(under_attack, t)) for t, _ in played[0]],
        },
        rates={name: rate(curve) for name, curve in curves.items()},
        seeds=seeds,
    )


def constants(problem: Problem, malicious: int) -> dict[str, float]:
    """All that the theorem asks for; `malicious` of the clients have 1/n of the weight each at the start."""
    x, y = problem.x[problem.honest], problem.y[problem.honest]
    n = len(x)
    w_star, best = minimum(x.reshape(-1, x.shape[-1]), y.reshape(-1))
    own = [minimum(x_k, y_k)[1] for x_k, y_k in zip(x, y, strict=True)]
    smoothness = max(float(np.linalg.eigvalsh(x_k.T @ x_k / len(x_k))[-1]) for x_k in x) / 4 + MU
    return {
        "mu": MU,
        "L": smoothness,
        "gamma": max(8 * smoothness / MU, 1.0),
        "variance": n * (1 / n) ** 2 / BATCH,  # Σ p_k² σ_k²
        "Gamma": best - float(np.mean(own)),
        "G2": 4.0,
        "malicious_weight": malicious / len(problem.x),
        "distance2": float(w_star @ w_star),  # from w_0 = 0
        "optimum": best,
    }


def bound(c: dict[str, float], t: int) -> float:
    """The right-hand side of the theorem after t rounds."""
    gradients = c["variance"] + 6 * c["L"] * c["Gamma"] + 8 * c["G2"] * (1 + c["malicious_weight"])
    inside = gradients + c["mu"] ** 2 / 4 * c["distance2"]
    return 2 / c["mu"] ** 2 * c["L"] / (c["gamma"] + t) * inside


def rate(curve: Points) -> float:
    """a in gap ∝ T^a, a least-squares line through the last decade of rounds on log-log axes."""
    last = [(t, gap) for t, gap in curve if t >= curve[-1][0] / 10 and gap > 0]
    t, gap = np.log(np.array(last)).T
    return float(np.polyfit(t, gap, 1)[0])


def minimum(x: Float64s, y: Float64s) -> tuple[Float64s, float]:
    """argmin and min of the regularised logistic loss, by Newton's method."""
    w = np.zeros(x.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(y * (x @ w)))
        gradient = -(y * chance) @ x / len(y) + MU * w
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x / len(y) + MU * np.eye(len(w))
        step = np.linalg.solve(hessian, gradient)
        w = w - step
        if step @ step < 1e-28:
            break
    return w, float(np.logaddexp(0, -y * (x @ w)).mean() + MU / 2 * (w @ w))


def _data() -> tuple[Float64s, Float64s]:
    """Standardised features and a constant, every sample scaled to length one."""
    held = registry.build("data", {"name": "breast_cancer"}).read(None)
    x = np.concatenate([held.train_x, held.test_x]).astype(np.float64)
    y = np.concatenate([held.train_y, held.test_y]) * 2.0 - 1.0
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    order = generator(0, "convergence").permutation(len(x))[: CLIENTS * SAMPLES]
    return x[order].reshape(CLIENTS, SAMPLES, -1), y[order].reshape(CLIENTS, SAMPLES)


def _play(
    problem: Problem, rule_name: str, attack_name: str, seed: int, rounds: int, on_round: Callable[[int], None]
) -> Points:
    rule = registry.build("rules", {"name": rule_name}, f=MALICIOUS)
    attack = registry.build("attacks", {"name": attack_name})
    known = constants(problem, 0)
    w = np.zeros(problem.x.shape[-1])
    state, direction = rule.init(len(w)), np.zeros(len(w), np.int8)
    ids = tuple(map(str, range(CLIENTS)))
    looked_at = set(np.unique(np.geomspace(1, rounds, 120).astype(int)).tolist())
    gaps: Points = []
    for t in range(1, rounds + 1):
        rng = generator(seed, "convergence", t)
        eta = 2 / (MU * (known["gamma"] + t - 1))
        sent = -eta * problem.gradients(w, rng.integers(SAMPLES, size=(CLIENTS, BATCH)))
        if attack_name != "none":
            view = View(round=t, trained=sent[:MALICIOUS].copy(), benign=sent[MALICIOUS:], reference=direction)
            sent[:MALICIOUS] = attack.craft(view, rng)
        out = rule.aggregate(Updates(matrix=sent, ids=ids, round=t), state)
        state, direction = out.state, kernels.sign(out.update)
        w = w + out.update
        if t in looked_at:
            gaps.append((t, problem.gap(w, known["optimum"])))
        if t % 100 == 0:
            on_round(100)
    return gaps
