from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a real server on this machine offers, as the mirror that every download goes to."""
    root = tmp_path_factory.mktemp("mirror")
    for name in ("mnist", "fashion_mnist", "cifar10", "shakespeare", "femnist", "ch_mnist"):
        (root / name).mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("TESSERACT_FL_MIRROR", f"http://127.0.0.1:{server.server_port}/")
    yield root
    server.shutdown()
    server.server_close()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACT_FL_MIRROR", "http://127.0.0.1:9/")
