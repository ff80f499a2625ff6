"""The live page's server: who gets an answer, and what it is."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tesseract_fl.reports.server import COOKIE, Live, Server
from tesseract_fl.types import ConfigError
from tests.reports.made import HOSTILE, Writer, written_ledger


@contextmanager
def serving(directory: Path, host: str = "127.0.0.1", token: str | None = None) -> Iterator[Server]:
    with Server(Live(directory, "tesseract-fl watch"), host, 0, token) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run(tmp_path: Path) -> Writer:
    run = Writer(tmp_path / "run")
    run.play(6)
    return run


def ask(server: Server, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    host = server.host if ":" in server.host else "127.0.0.1"
    connection = HTTPConnection(host, server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_new_rounds_are_told_once(run: Writer) -> None:
    with serving(run.directory) as server:
        _, content = ask(server, "/data?after=")
        page = json.loads(content)
        assert page["runs"][0]["round"] == 6
        assert ask(server, f"/data?after={page['revision']}")[0].status == 204
        run.play()
        newer = json.loads(ask(server, f"/data?after={page['revision']}")[1])
        assert newer["runs"][0]["round"] == 7
        (run.directory / "summary.json").write_text("{}")
        assert json.loads(ask(server, f"/data?after={newer['revision']}")[1])["runs"][0]["finished"]


def test_a_page_that_outlived_its_server_is_given_the_new_run(run: Writer, tmp_path: Path) -> None:
    with serving(run.directory) as server:
        revision = json.loads(ask(server, "/data?after=")[1])["revision"]
    other = Writer(tmp_path / "other")
    other.play(2)
    with serving(other.directory) as server:
        answer, content = ask(server, f"/data?after={revision}")
        assert answer.status == 200
        assert json.loads(content)["runs"][0]["name"] == "other"


def test_a_ban_is_shown_before_the_next_round(tmp_path: Path) -> None:
    ledger = written_ledger(tmp_path)
    with serving(tmp_path) as server:
        page = json.loads(ask(server, "/data?after=")[1])
        ledger.act("ban", "key:0", "enough")
        newer = json.loads(ask(server, f"/data?after={page['revision']}")[1])
        assert [action["client"] for action in newer["runs"][0]["actions"]] == ["key:0"]
        assert ask(server, f"/data?after={newer['revision']}")[0].status == 204


def test_a_client_is_found_by_whatever_name_it_has(run: Writer) -> None:
    from urllib.parse import quote

    with serving(run.directory) as server:
        answer, content = ask(server, f"/client?name={quote(HOSTILE)}")
        told = json.loads(content)
        assert answer.headers["Content-Type"] == "application/json"
        assert told["client"] == HOSTILE
        assert "was turned away by the gate" in told["why"][0]
        assert ask(server, "/client?name=nobody")[0].status == 404
        assert ask(server, "/etc/passwd")[0].status == 404


def test_only_requests_that_name_loopback_are_answered(run: Writer) -> None:
    """A page on another site whose name was pointed at 127.0.0.1 sends its own name as Host."""
    with serving(run.directory) as server:
        assert ask(server, "/data", Host=f"localhost:{server.port}")[0].status == 200
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", ""):
            answer, content = ask(server, "/data", Host=host)
            assert answer.status == 421
            assert b"runs" not in content


def test_pages_may_load_nothing_from_elsewhere(run: Writer) -> None:
    with serving(run.directory) as server:
        for path in ("/", "/page.js", "/plotly.js", "/page.css", "/data", "/nothing"):
            answer, _ = ask(server, path)
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in answer.headers


def test_another_address_needs_a_token(run: Writer) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        Server(Live(run.directory, ""), "0.0.0.0", 0)
    with serving(run.directory, "0.0.0.0", "secret") as server:
        for path, cookie in (("/data", ""), ("/data?token=wrong", ""), ("/data", f"{COOKIE}=wrong"), ("/", "; =")):
            answer, content = ask(server, path, Cookie=cookie)
            assert answer.status == 403
            assert b"runs" not in content
        answer, _ = ask(server, "/?token=secret")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert ask(server, "/data", Cookie=cookie.partition(";")[0])[0].status == 200


@pytest.mark.parametrize("token", ["a+b", "a/b", "a=b", "a&b", "a b", "a;b", "ä"])
def test_a_token_that_an_address_or_a_cookie_would_change_is_refused(run: Writer, token: str) -> None:
    with pytest.raises(ConfigError, match="only letters, digits"):
        Server(Live(run.directory, ""), "127.0.0.1", 0, token).server_close()


def test_loopback_can_be_that_of_ipv6(run: Writer) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving(run.directory, "::1") as server:
        assert server.url == f"http://[::1]:{server.port}/"
        assert ask(server, "/data")[0].status == 200
        assert ask(server, "/data", Host=f"evil.example:{server.port}")[0].status == 421


@pytest.mark.parametrize("line", ["nonsense", '{"round": 7, "clients": ["0", "1"], "weights": [1.0]}'])
def test_a_journal_that_is_damaged_meanwhile_is_said_and_survived(run: Writer, line: str) -> None:
    with serving(run.directory) as server:
        with (run.directory / "metrics.jsonl").open("a") as file:
            file.write(line + "\n")
        answer, content = ask(server, "/data?after=1")
        assert answer.status == 500
        assert b"line 7 of" in content
        assert ask(server, "/")[0].status == 200


def test_whatever_goes_wrong_is_an_answer(run: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(after: str) -> bytes:
        raise sqlite3.OperationalError("disk I/O error")

    with serving(run.directory) as server:
        monkeypatch.setattr(server.live, "page", fail)
        answer, content = ask(server, "/data")
        assert (answer.status, content) == (500, b"OperationalError: disk I/O error\n")


def test_a_taken_port_is_said(run: Writer) -> None:
    with serving(run.directory) as server, pytest.raises(ConfigError, match="name another --port"):
        Server(Live(run.directory, ""), "127.0.0.1", server.port)
