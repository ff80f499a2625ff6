"""The live page: what is in a run directory now, on a loopback port.

The page asks once a second for what is new; the server then looks at the journal or the ledger. Whoever can open the
page sees client ids and reasons, so beyond loopback nobody does without a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
import secrets
import socket
import sys
import threading
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tesseract_fl.reports.overview import client, overview
from tesseract_fl.reports.page import POLICY, described, plotly, script, served, style
from tesseract_fl.reports.sources import opened
from tesseract_fl.types import ConfigError

COOKIE = "tesseract-token"
Answer = tuple[int, str, bytes]  # status, content type, content


class Live:
    """A run as it is now: read when somebody asks, under one lock, and encoded once for all who ask."""

    def __init__(self, directory: Path, command: str) -> None:
        self._source = opened(directory)
        self._source.read()  # before anybody asks: what can't be read is said on the terminal
        self._command = command
        self._lock = threading.Lock()
        self._revision = ""
        self._finished: bool | None = None
        self._content = b""

    def page(self, after: str) -> bytes | None:
        """The whole page as JSON; None if `after` is the revision that it still is."""
        with self._lock:
            grown, finished = self._source.read(), self._source.finished
            if grown or finished != self._finished or not self._content:
                self._revision = secrets.token_hex(8)  # a page that outlived another process must not take it for old
                self._finished = finished
                page = described([overview(self._source)], [self._source], self._command)
                self._content = _encoded(page | {"revision": self._revision})
            return None if after == self._revision else self._content

    def client(self, name: str) -> bytes | None:
        with self._lock:
            found = client(self._source, name)
            return None if found is None else _encoded(found)


class Server(ThreadingHTTPServer):
    """`http://127.0.0.1:<port>/`. With a token, only who has brought it once gets an answer."""

    daemon_threads = True

    def __init__(self, live: Live, host: str, port: int, token: str | None = None) -> None:
        if not is_loopback(host) and not token:
            raise ConfigError(f"{host} is not loopback: whoever reaches it would see every client; it needs a token")
        if token and not re.fullmatch(r"[A-Za-z0-9._~-]+", token):
            raise ConfigError("a token goes into an address and a cookie: use only letters, digits and . _ ~ -")
        self.live, self.host, self.token = live, host, token
        self.name = f"[{host}]" if ":" in host else host  # how an address spells the host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.static = {
            "/": ("text/html; charset=utf-8", served().encode()),
            "/page.css": ("text/css; charset=utf-8", style().encode()),
            "/page.js": ("text/javascript; charset=utf-8", script().encode()),
            "/plotly.js": ("text/javascript; charset=utf-8", plotly().encode()),
        }
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(f"can't listen on {self.name}:{port}: {error.strerror}; name another --port") from error
        self.port = int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{self.name}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def is_ours(self, host: str | None) -> bool:
        """Whether a request names us as its host. A page elsewhere whose name was pointed at loopback does not."""
        if not is_loopback(self.host):
            return True  # known under names that we don't know; there the token decides
        return host in {f"{name}:{self.port}" for name in (self.name, "127.0.0.1", "localhost", "[::1]")}


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "tesseract-fl"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {key: values[-1] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
        if not self.server.is_ours(self.headers.get("Host")):
            self._answer(421, "text/plain", b"this server is not known under that name\n")
        elif self.server.token and self._same(asked.get("token")):
            self._welcome()
        elif self.server.token and not self._same(self._cookie()):
            self._answer(403, "text/plain", b"open the address that `tesseract-fl watch` printed, with its token\n")
        else:
            self._answer(*self._found(url.path, asked))

    def _found(self, path: str, asked: dict[str, str]) -> Answer:
        if path in self.server.static:
            return 200, *self.server.static[path]
        if path not in ("/data", "/client"):
            return 404, "text/plain", b"there is nothing here\n"
        try:
            if path == "/data":
                content = self.server.live.page(asked.get("after", ""))
                return (204, "", b"") if content is None else (200, "application/json", content)
            content = self.server.live.client(asked.get("name", ""))
            return (404, "text/plain", b"no such client\n") if content is None else (200, "application/json", content)
        except Exception as error:  # whatever is wrong with the run, the page says it and asks again
            return 500, "text/plain; charset=utf-8", f"{type(error).__name__}: {error}\n".encode()

    def _same(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), (self.server.token or "").encode())

    def _cookie(self) -> str | None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return found.value if found else None

    def _welcome(self) -> None:
        """The token moves from the address, which is kept and shared, into a cookie."""
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """A look once a second is no news."""


_HEADERS = {
    "Content-Security-Policy": POLICY.format(style="'self' 'unsafe-inline'", connect="'self'", script="'self'")
    + "; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def _encoded(values: Any) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
