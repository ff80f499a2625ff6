"""Both pages in a real browser: they draw, they answer clicks, they show text as text."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tesseract_fl.reports.page import write_report
from tesseract_fl.reports.server import Live, Server
from tests.reports.made import HOSTILE, Writer, written_ledger

pytestmark = pytest.mark.browser
CHARTS = ("accuracy", "loss", "scores", "weights", "heat", "detection", "counts")


def wait_for(what: Callable[[], Any], seconds: float = 20) -> Any:
    """The first true answer; the time it took must be below `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


def text(browser: Any, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))


def drawn(browser: Any, chart: str) -> int:
    """Scrolls to a chart, and counts the numbers that Plotly has drawn there once it has."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", chart)
    count = """const chart = document.getElementById(arguments[0]);
               if (!chart.querySelector('.main-svg')) return 0;
               return chart.data.flatMap((trace) => [...trace.y]).filter((value) => value != null).length"""
    return int(wait_for(lambda: browser.execute_script(count, chart)))


def complaints(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def is_harmless(browser: Any) -> bool:
    found = "return window.hacked === undefined && !document.querySelector('img, [onerror], main b, dialog b, svg a')"
    return bool(browser.execute_script(found))


def opened_client(browser: Any) -> str:
    wait_for(lambda: browser.execute_script("return document.getElementById('client').open"))
    wait_for(lambda: browser.execute_script("return document.querySelectorAll('#client-chart .trace').length"))
    return text(browser, "#client-name")


@pytest.fixture
def run(tmp_path: Path) -> Writer:
    run = Writer(tmp_path / "<b>run</b>")
    run.play(12)
    return run


@pytest.fixture
def live(run: Writer) -> Iterator[str]:
    with Server(Live(run.directory, "tesseract-fl watch"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.fixture
def report(run: Writer, tmp_path: Path) -> str:
    written_ledger(tmp_path / "federation", rounds=9)
    (tmp_path / "grid").mkdir()
    told = "attack,rule,accuracy,paper,rounds,not_attacked\n<b>x</b>,krum,0.5,0.6,9,5\nnone,krum,0.9,,9,\n"
    (tmp_path / "grid/results.csv").write_text(told)
    path = tmp_path / "report.html"
    write_report([run.directory, tmp_path / "federation", tmp_path / "grid"], path, f"tesseract-fl report {HOSTILE}")
    return path.as_uri()


def test_a_report_opens_from_disk_and_draws_everything(browser: Any, report: str) -> None:
    browser.get(report)
    for chart in CHARTS:
        assert drawn(browser, chart) > 0, chart
    browser.execute_script("document.getElementById('grid-0').scrollIntoView()")
    cells = "return [...document.querySelectorAll('#grid-0 .heatmap-label')].map((one) => one.textContent)"
    assert "50.0*paper 60.0" in wait_for(lambda: browser.execute_script(cells))
    assert "behaved honestly" in text(browser, "#grids")
    assert text(browser, "#title") == "2 runs, 1 grid"
    assert HOSTILE in text(browser, "#command")
    assert is_harmless(browser)
    assert complaints(browser) == []


def test_a_click_on_a_client_shows_its_history(browser: Any, report: str) -> None:
    browser.get(report)
    browser.execute_script("document.querySelector('#clients button.client[data-client=\"1\"]').scrollIntoView()")
    browser.find_element("css selector", '#clients button.client[data-client="1"]').click()
    assert opened_client(browser) == "Client 1"
    assert "In round 12 client 1 was admitted, but it stood out" in text(browser, "#client-why")
    points = browser.execute_script("return document.getElementById('client-chart').data.map((one) => one.x.length)")
    assert max(points) == 12
    browser.find_element("id", "close").click()
    assert complaints(browser) == []


def test_a_click_into_the_heat_map_opens_the_client_of_that_row(browser: Any, report: str) -> None:
    from selenium.webdriver import ActionChains

    browser.get(report)
    drawn(browser, "heat")
    first = browser.execute_script("return current().clients[state.heat.order[0]].client")
    chart = browser.find_element("css selector", "#heat .nsewdrag[data-subplot='xy']")
    top = -chart.size["height"] // 2 + 4
    ActionChains(browser).move_to_element_with_offset(chart, 0, top).perform()
    assert wait_for(lambda: text(browser, "#tip")).splitlines()[0] == first
    assert "round" in text(browser, "#tip")
    ActionChains(browser).move_to_element_with_offset(chart, 0, top).click().perform()
    assert opened_client(browser) == f"Client {first}"


def test_rows_can_be_sorted_and_found(browser: Any, report: str) -> None:
    browser.get(report)
    drawn(browser, "heat")
    order = "return state.heat.order.map((place) => current().clients[place].weight ?? -1)"
    weights = browser.execute_script(order)
    assert weights == sorted(weights, reverse=True)
    browser.execute_script(
        "const by = document.getElementById('heat-sort'); by.value = 'name'; by.dispatchEvent(new Event('change'))"
    )
    assert browser.execute_script(order) != weights
    browser.find_element("id", "find").send_keys("malicious")
    rows = "return [...document.querySelectorAll('#clients tbody tr')].map((row) => row.textContent)"
    assert len(browser.execute_script(rows)) == 3


def test_what_clients_write_is_shown_as_text(browser: Any, report: str) -> None:
    browser.get(report)
    drawn(browser, "heat")
    for run in (0, 1):
        browser.execute_script("state.run = arguments[0]; showRun()", run)
        names = "return [...document.querySelectorAll('#clients button.client')].map((one) => one.textContent)"
        assert HOSTILE in browser.execute_script(names)
        assert HOSTILE in text(browser, "#away tbody")
        browser.execute_async_script("openClient(arguments[0]).then(arguments[1])", HOSTILE)
        assert text(browser, "#client-name") == f"Client {HOSTILE}"
        assert HOSTILE in text(browser, "#client-why")
        assert is_harmless(browser)
        browser.execute_script("document.getElementById('client').close()")
    assert complaints(browser) == []


def test_a_band_is_spoken_of_where_a_rule_judges_by_it(browser: Any, tmp_path: Path) -> None:
    rules = ("Tesseract(f=0.2)", "Hardened(f=0.2)")
    for rule in rules:
        written_ledger(tmp_path / rule, rule=rule)
    write_report([tmp_path / rule for rule in rules], tmp_path / "report.html", "tesseract-fl report")
    browser.get((tmp_path / "report.html").as_uri())
    traces = "return document.getElementById('scores').data.map((one) => one.name).includes('rewarded band')"
    for run, judges_by_it in enumerate((True, False)):
        browser.execute_script("state.run = arguments[0]; showRun()", run)
        assert drawn(browser, "scores") > 0
        caption = browser.find_element("css selector", "#scores-card p").text
        assert ("grey band" in caption, browser.execute_script(traces)) == (judges_by_it, judges_by_it)


def test_pictures_can_be_saved(browser: Any, report: str) -> None:
    browser.get(report)
    drawn(browser, "accuracy")
    made = """const done = arguments[1];
              const { data, layout } = document.getElementById('accuracy');
              Plotly.toImage({ data, layout }, { format: arguments[0] }).then(done, (error) => done(String(error)))"""
    assert browser.execute_async_script(made, "png").startswith("data:image/png")
    assert browser.execute_async_script(made, "svg").startswith("data:image/svg+xml")
    assert complaints(browser) == []


def test_a_new_round_appears_within_three_seconds(browser: Any, run: Writer, live: str) -> None:
    browser.get(live)
    wait_for(lambda: "round 12" in text(browser, "#live"))
    for chart in CHARTS:
        assert drawn(browser, chart) > 0, chart
    assert is_harmless(browser)
    run.play()
    wait_for(lambda: "round 13" in text(browser, "#live"), seconds=3)
    columns = "return document.getElementById('counts').data[0].x.at(-1)"
    drawn(browser, "counts")
    assert browser.execute_script(columns) == 13
    assert complaints(browser) == []


def test_a_live_client_is_kept_up_to_date(browser: Any, run: Writer, live: str) -> None:
    browser.get(live)
    wait_for(lambda: "round 12" in text(browser, "#live"))
    browser.execute_async_script("openClient(arguments[0]).then(arguments[1])", HOSTILE)
    assert text(browser, "#client-name") == f"Client {HOSTILE}"
    assert "12 × rejected" in text(browser, "#client-why")
    run.play()
    wait_for(lambda: "13 × rejected" in text(browser, "#client-why"), seconds=3)
    assert is_harmless(browser)
    assert complaints(browser) == []


def test_a_thousand_clients_and_two_thousand_rounds_do_not_make_it_lag(browser: Any, tmp_path: Path) -> None:
    run = Writer(tmp_path / "large", clients=1000, malicious=200, rounds=2100)
    run.play(2000)
    with Server(Live(run.directory, "tesseract-fl watch"), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        browser.get(server.url)
        wait_for(lambda: "round 2000" in text(browser, "#live"), seconds=60)
        drawn(browser, "heat")
        took = []
        for _ in range(3):
            run.play()
            wait_for(lambda: f"round {run.round}" in text(browser, "#live"), seconds=3)
            took.append(
                browser.execute_script("const began = performance.now(); showRun(); return performance.now() - began")
            )
        server.shutdown()
        thread.join()
    assert min(took) < 1000, f"drawing took {json.dumps(took)} ms"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_phones_and_desktops_in_light_and_dark(browser: Any, report: str, width: int, scheme: str) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(report)
    drawn(browser, "heat")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(246, 247, 248)", "dark": "rgb(20, 23, 26)"}[scheme]
    assert complaints(browser) == []
