"""The bound of the theorem and the constants of the problem that it is computed for."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tesseract_fl.experiments import convergence
from tesseract_fl.experiments.convergence import BATCH, MU, Problem, bound, constants, measure, minimum, rate
from tesseract_fl.reports.convergence import write
from tesseract_fl.types import Float64s


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(*convergence._data(), slice(convergence.MALICIOUS, None))


def gradient(problem: Problem, w: Float64s) -> Float64s:
    everything = np.tile(np.arange(convergence.SAMPLES), (convergence.CLIENTS, 1))
    return problem.gradients(w, everything)


def test_gradients_are_those_of_the_losses(problem: Problem) -> None:
    w = np.random.default_rng(0).standard_normal(problem.x.shape[2:])
    for j in (0, 7, 30):
        step = np.zeros_like(w)
        step[j] = 1e-6
        slope = (problem.losses(w + step) - problem.losses(w - step)) / 2e-6
        np.testing.assert_allclose(gradient(problem, w)[:, j], slope, atol=1e-8)


def test_the_optimum_is_one(problem: Problem) -> None:
    x, y = problem.x.reshape(-1, problem.x.shape[-1]), problem.y.reshape(-1)
    w, best = minimum(x, y)
    np.testing.assert_allclose(gradient(problem, w).mean(axis=0), 0, atol=1e-12)
    assert best == pytest.approx(problem.losses(w).mean())
    assert all(problem.losses(w + 0.01 * np.eye(len(w))[j]).mean() > best for j in range(len(w)))


def test_every_constant_bounds_what_it_claims(problem: Problem) -> None:
    known = constants(problem, convergence.MALICIOUS)
    rng = np.random.default_rng(0)
    for _ in range(50):
        v, w = rng.standard_normal((2, *problem.x.shape[2:]))
        v, w = v / np.linalg.norm(v) / MU, w * rng.uniform(0, 1) / np.linalg.norm(w) / MU  # as long as they may get
        apart = np.linalg.norm(gradient(problem, v) - gradient(problem, w), axis=1)
        assert (apart[problem.honest] <= known["L"] * np.linalg.norm(v - w) * (1 + 1e-12)).all()
        batches = rng.integers(convergence.SAMPLES, size=(200, convergence.CLIENTS, BATCH))
        drawn = np.array([problem.gradients(w, batch) for batch in batches])
        assert (np.square(drawn).sum(axis=-1) <= known["G2"]).all()
        assert (drawn.var(axis=0).sum(axis=-1) <= 1 / BATCH).all()
    assert known["Gamma"] >= 0
    assert known["malicious_weight"] == 0.2
    assert known["gamma"] == 8 * known["L"] / MU


def test_the_bound_is_the_theorem_s() -> None:
    c = {"mu": 0.5, "L": 2.0, "gamma": 32.0, "variance": 1.0, "Gamma": 0.5, "G2": 3.0, "malicious_weight": 0.25,
         "distance2": 16.0}  # fmt: skip
    by_hand = (2 / 0.5**2) * 2.0 / (32 + 8) * (1 + 6 * 2 * 0.5 + 8 * 3 + 8 * 3 * 0.25 + 0.5**2 / 4 * 16)
    assert bound(c, 8) == pytest.approx(by_hand)


def test_the_rate_is_the_exponent() -> None:
    assert rate([(t, 3 / t**2) for t in range(1, 200)]) == pytest.approx(-2)


def test_the_gap_stays_under_the_bound_and_the_figure_is_drawn(tmp_path: Path) -> None:
    found = measure(60, 1)
    assert len(found.curves) == convergence.RUNS
    limits = found.bounds["bound, 20 % malicious"]
    for curve in found.curves.values():
        assert all(0 <= gap <= limit for (_, gap), (_, limit) in zip(curve, limits, strict=True))
    assert found.curves["FedSGD, Full-Trim"][-1][1] > found.curves["Tesseract, Full-Trim"][-1][1]
    text, files = write(found, tmp_path)
    assert "μ, strong convexity" in text
    assert {path.suffix for path in files} == {".png", ".svg", ".csv", ".md"}
    assert len(list(csv.DictReader((tmp_path / "convergence.csv").read_text().splitlines()))) == 7 * len(limits)
