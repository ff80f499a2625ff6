"""Metrics for Prometheus, on a loopback port that is off unless the operator names one."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tesseract_fl.flower.federation import Outcome

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """`http://127.0.0.1:<port>/metrics`. Beyond loopback it is for a reverse proxy to expose, or for nobody."""

    def __init__(self, port: int) -> None:
        self._text = ""
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="tesseract-metrics", daemon=True).start()

    @property
    def text(self) -> str:
        return self._text

    def update(self, outcome: Outcome, seconds: float) -> None:
        """After each round. Counters count from the start of this process, as is usual."""
        entry = outcome.entry
        self._outcomes[entry.outcome] += 1
        self._verdicts.update((verdict.verdict, verdict.code) for verdict in entry.verdicts)
        lines = [
            "# HELP tesseract_round The last round that was committed.",
            "# TYPE tesseract_round gauge",
            f"tesseract_round {entry.round}",
            "# HELP tesseract_seconds_after_last_reply What aggregation took after the last reply of the round.",
            "# TYPE tesseract_seconds_after_last_reply gauge",
            f"tesseract_seconds_after_last_reply {seconds:.6f}",
            "# HELP tesseract_rounds_total Rounds by outcome.",
            "# TYPE tesseract_rounds_total counter",
            *(f'tesseract_rounds_total{{outcome="{name}"}} {count}' for name, count in sorted(self._outcomes.items())),
            "# HELP tesseract_verdicts_total What became of clients, by verdict and reason.",
            "# TYPE tesseract_verdicts_total counter",
            *(
                f'tesseract_verdicts_total{{verdict="{verdict}",code="{code}"}} {count}'
                for (verdict, code), count in sorted(self._verdicts.items())
            ),
            "# HELP tesseract_weight What each client weighed in the last round.",
            "# TYPE tesseract_weight gauge",
            *(
                f'tesseract_weight{{client="{_escaped(verdict.client)}"}} {verdict.weight:.6g}'
                for verdict in entry.verdicts
                if verdict.weight is not None
            ),
        ]
        self._text = "\n".join(lines) + "\n"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _handler(source: Exposition) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # a page elsewhere whose name was pointed at loopback sends its own name
            if self.headers.get("Host") not in (f"127.0.0.1:{source.port}", f"localhost:{source.port}"):
                self.send_error(421)
                return
            if self.path != "/metrics":
                self.send_error(404)
                return
            content = source.text.encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    return Handler
