"""The measured gap under the theorem's bound: a picture on log-log axes, its points, and the constants."""

from __future__ import annotations

from pathlib import Path

from tesseract_fl.experiments.convergence import Convergence
from tesseract_fl.reports import plots, tables

NAMES = {
    "mu": "μ, strong convexity",
    "L": "L, smoothness",
    "gamma": "γ = max(8L/μ, 1)",
    "variance": "Σ p_k² σ_k²",
    "Gamma": "Γ, how much clients differ",
    "G2": "G², squared gradient norm",
    "malicious_weight": "Σ p_k,0 of the malicious",
    "distance2": "‖w_0 − w*‖²",
    "optimum": "GM*",
}


def write(found: Convergence, out: Path) -> tuple[str, list[Path]]:
    """Leave convergence.png, .svg, .csv and .md in `out`; what to print, and the files."""
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"convergence.{kind}" for kind in ("png", "svg", "csv", "md")]
    lines = {**found.bounds, **found.curves}
    tables.write_csv(
        [{"curve": name, "round": t, "gap": value} for name, line in lines.items() for t, value in line], files[2]
    )
    labels = {name: f"{name} (∝ T^{found.rates[name]:.2f})" for name in found.curves}
    plots.log_log(
        {labels.get(name, name): line for name, line in lines.items()}, files[:2],
        title="Distance from the optimum, regularised logistic regression",
        unit=f"GM(w_T) − GM*, mean of {found.seeds} seeds", dashed=list(found.bounds),
    )  # fmt: skip
    last = found.curves[next(iter(found.curves))][-1][0]
    limit = {name: line[-1][1] for name, line in found.bounds.items()}
    rows = [[name, f"{line[-1][1]:.2e}", f"{found.rates[name]:.2f}"] for name, line in found.curves.items()]
    rows += [[name, f"{value:.2e}", "−1 from T ≫ γ on"] for name, value in limit.items()]
    text = (
        f"Gap after {last} rounds, mean of {found.seeds} seeds; exponent fitted to the last decade of rounds.\n\n"
        + tables.markdown(["", "gap", "exponent"], rows)
        + "\nConstants, with 20 % malicious clients:\n\n"
        + tables.markdown(["constant", "value"], [[NAMES[key], f"{found.constants[key]:.4g}"] for key in NAMES])
    )
    files[3].write_text(text)
    return text, files
