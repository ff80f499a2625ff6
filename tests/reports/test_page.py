"""The report as a file: whole, closed to the network, and deaf to what clients write."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tesseract_fl.cli import cli
from tesseract_fl.experiments.sweep import label
from tesseract_fl.reports.figures import draw_all
from tesseract_fl.reports.grid import read_grids
from tesseract_fl.types import DataError
from tests.reports.made import HOSTILE, Writer, written_ledger


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[int, str] = {}
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.content[len(self.found) - 1] = self.content.get(len(self.found) - 1, "") + data


def report(*directories: Path, out: Path) -> tuple[Elements, dict[str, Any]]:
    result = CliRunner().invoke(cli, ["report", *map(str, directories), "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    elements = Elements()
    elements.feed(out.read_text())
    place = next(i for i, (_, attributes) in enumerate(elements.found) if attributes.get("id") == "data")
    return elements, json.loads(elements.content[place])


def test_a_report_has_every_run_and_is_closed(tmp_path: Path) -> None:
    run = Writer(tmp_path / "mine")
    run.play(12)
    written_ledger(tmp_path / "federation")
    elements, page = report(run.directory, tmp_path / "federation", out=tmp_path / "deep" / "report.html")
    assert [one["label"] for one in page["runs"]] == ["mine", "federation"]
    assert page["runs"][0]["headline"]["accuracy"] == pytest.approx(1 - 1 / 11)
    assert "tesseract-fl report" in page["command"]
    for tag, attributes in elements.found:
        assert not attributes.get("src"), f"{tag} loads {attributes['src']}"
        assert tag != "link" or attributes.get("href") == "data:,"
    policy = next(a["content"] for t, a in elements.found if a.get("http-equiv") == "Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    scripts = [i for i, (t, a) in enumerate(elements.found) if t == "script" and a.get("type") is None]
    assert len(scripts) == 2
    for place in scripts:
        digest = base64.b64encode(hashlib.sha256(elements.content[place].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]


def test_what_clients_write_stays_inside_the_data(tmp_path: Path) -> None:
    run = Writer(tmp_path / "mine")
    run.play(3)
    elements, page = report(run.directory, out=tmp_path / "report.html")
    assert HOSTILE in {one["client"] for one in page["runs"][0]["clients"]}
    assert page["runs"][0]["turned_away"][0]["detail"] == f"in {HOSTILE}"
    assert not [tag for tag, attributes in elements.found if tag == "img" or "onerror" in attributes]
    assert [tag for tag, _ in elements.found].count("script") == 3


def test_500_rounds_of_100_clients_take_under_ten_seconds_and_eight_megabytes(tmp_path: Path) -> None:
    run = Writer(tmp_path / "mine", clients=100, malicious=20, rounds=500)
    run.play(500)
    began = time.process_time()
    _, page = report(run.directory, out=tmp_path / "report.html")
    assert time.process_time() - began < 10
    assert (tmp_path / "report.html").stat().st_size < 8e6
    assert len(page["runs"][0]["heat"]["rounds"]) == 500


def test_many_large_runs_stay_under_eight_megabytes(tmp_path: Path) -> None:
    runs = [Writer(tmp_path / f"run{number}", clients=300, malicious=60) for number in range(4)]
    for run in runs:
        run.play(150)
    report(*(run.directory for run in runs), out=tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 8e6


CSV = """attack,rule,seed,accuracy,auroc,paper
none,fedsgd,0,0.9,,0.92
none,fedsgd,1,0.8,,0.92
<b>x</b>,fedsgd,0,0.5,0.75,
none,krum,0,0.7,,
"""


def test_a_grid_is_a_matrix_of_means_beside_the_paper(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(CSV)
    (grid,) = read_grids(tmp_path)
    assert grid["rules"] == ["fedsgd", "krum"]
    assert grid["attacks"] == ["none", "<b>x</b>"]
    figures = {one["figure"]: one["values"] for one in grid["figures"]}
    assert set(figures) == {"accuracy", "auroc"}
    assert figures["accuracy"] == [[pytest.approx(0.85), 0.7], [0.5, None]]
    assert grid["paper"] == [[pytest.approx(0.92), None], [None, None]]
    _, page = report(tmp_path, out=tmp_path / "report.html")
    assert page["grids"][0]["attacks"] == ["none", "<b>x</b>"]
    assert page["runs"] == []


def test_a_grid_says_where_attackers_mostly_behaved(tmp_path: Path) -> None:
    heads = "attack,rule,seed,accuracy,rounds,not_attacked\n"
    told = heads + "none,krum,0,0.9,10,\nipm,krum,0,0.8,10,5\nipm,krum,1,0.7,10,6\n"
    (tmp_path / "results.csv").write_text(told)
    (grid,) = read_grids(tmp_path)
    assert grid["marked"] == [[False], [True]]
    assert "behaved honestly" in grid["note"]
    list(draw_all([tmp_path], tmp_path / "out"))
    drawn = re.sub(r"<!--|-->", "", (tmp_path / "out" / f"{tmp_path.name}-matrix.svg").read_text())
    assert "75.0*" in drawn
    assert "* the malicious" in drawn
    (tmp_path / "results.csv").write_text(told.replace(",6\n", ",5\n"))
    (grid,) = read_grids(tmp_path)
    assert grid["marked"] == [[False], [False]]
    assert grid["note"] == ""


def test_what_else_varies_is_a_matrix_of_its_own(tmp_path: Path) -> None:
    told = "attack,rule,lr,seed,accuracy\nnone,krum,0.1,0,0.2\nnone,krum,0.1,1,0.4\nnone,krum,0.2,0,0.8\n"
    (tmp_path / "results.csv").write_text(told)
    values = {grid["name"]: grid["figures"][0]["values"] for grid in read_grids(tmp_path)}
    assert values == {
        f"{tmp_path.name}, lr 0.1": [[pytest.approx(0.3)]],
        f"{tmp_path.name}, lr 0.2": [[0.8]],
    }
    drawn = {path.name for path in draw_all([tmp_path], tmp_path / "out")}
    assert {f"{tmp_path.name}-matrix.svg", f"{tmp_path.name}-matrix-2.svg"} <= drawn


def test_the_stored_grid_of_the_repository_can_be_shown(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "results"
    (grid,) = read_grids(results / "attacks-small")
    asked = tomllib.loads((results / "attacks-small.toml").read_text())["grid"]
    assert grid["rules"] == asked["rule"]
    assert grid["attacks"] == [label(attack) for attack in asked["attack"]]
    assert grid["paper"] is None


def test_a_table_without_rules_or_attacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("seed,accuracy\n0,0.5\n")
    with pytest.raises(DataError, match="attack, rule"):
        read_grids(tmp_path)


def test_every_picture_is_drawn_as_png_and_svg_for_light_and_dark(tmp_path: Path) -> None:
    run = Writer(tmp_path / "_$mine$")
    run.play(10)
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid/results.csv").write_text(CSV)
    out = tmp_path / "pictures"
    arguments = ["report", str(run.directory), str(tmp_path / "grid"), "--out", str(tmp_path / "r.html")]
    result = CliRunner().invoke(cli, [*arguments, "--figures", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    names = ("accuracy", "loss", "_$mine$-flip-scores", "_$mine$-weights", "_$mine$-reputation", "grid-matrix")
    expected = {f"{name}{theme}.{ending}" for name in names for theme in ("", "-dark") for ending in ("png", "svg")}
    assert {path.name for path in out.iterdir()} == expected
    for path in out.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert "test accuracy (%)" in re.sub(r"<!--|-->", "", (out / "accuracy.svg").read_text())
