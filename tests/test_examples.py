"""The examples do what they say: installed as a package of its own, the rule is in the list and runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples/own_rule"


def test_a_rule_from_another_package(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(site), str(EXAMPLE)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def tesseract(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tesseract_fl", *arguments, "--json"],
            cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "sign_majority" in [entry["name"] for entry in json.loads(tesseract("list", "rules"))]
    setting = ("--data", "breast_cancer", "--model", "logistic", "--clients", "10", "--malicious", "2", "--batch", "8")
    ran = tesseract(
        "run", *setting, "--rule", "sign_majority", "--attack", "full_trim", "--rounds", "20", "--lr", "0.1"
    )
    assert json.loads(ran)["accuracy"] > 0.8


def test_the_example_is_short() -> None:
    lines = (EXAMPLE / "own_rule.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 30
