"""A real Chromium without a window. $CHROMIUM and $CHROMEDRIVER name its programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver

    chromium = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    driver = shutil.which(os.environ.get("CHROMEDRIVER", "chromedriver"))
    assert chromium, "Chromium is needed: apt-get install chromium"
    assert driver, "its driver is needed: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", f"user-data-dir={tmp_path / 'profile'}", "window-size=1280,900",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    found.set_script_timeout(30)
    try:
        yield found
    finally:
        found.quit()
