"""`http:` snapshots against a server that keeps its state as JSON text, as it was put."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from replayproxy.errors import WrongUsage
from replayproxy.state import CannotRestore, Provider, RestoreFailed, StateUnreadable
from replayproxy.state.conformance import conform, failures
from replayproxy.state.loader import load
from replayproxy.state.provider import KeepsAside, Reading

DEALS = {"deals": {"2": {"title": "b", "amount": 1.50}, "10": {"title": "a", "amount": 7}}, "notes": {}}


class StateServer:
    """Holds a body; `answer` replaces what GET and PUT do by (status, body)."""

    def __init__(self) -> None:
        self.body = json.dumps(DEALS).encode()
        self.answer: Callable[[str], tuple[int, bytes]] | None = None
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.elsewhere = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._handle(self)

            do_PUT = do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        given = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fields = {name.lower(): value for name, value in handler.headers.items()}
        self.seen.append((handler.command, handler.path, fields, given))
        status, body = 200, b""
        if self.answer is not None:
            status, body = self.answer(handler.command)
        elif handler.command == "GET":
            body = self.body
        else:
            status, self.body = 204, given
        handler.send_response(status)
        if self.elsewhere:
            handler.send_header("Location", self.elsewhere)
        if body[:2] == b"\x1f\x8b":
            handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[StateServer]:
    made = StateServer()
    yield made
    made.close()


def provider(spec: str, **context: str) -> Provider:
    loaded = load("crm", spec, context=context)
    return loaded.provider


def restored(one: Provider, reading: Reading) -> None:
    cast("KeepsAside", one).restore_whole(reading.rows, reading.aside)


def test_it_meets_the_contract(server: StateServer) -> None:
    def change() -> None:
        state = json.loads(server.body)
        state["deals"]["11"] = {"title": "new"}
        del state["deals"]["2"]
        server.body = json.dumps(state).encode()

    checks = conform(
        lambda: provider(f"http:{server.url}/state"), write=True, change=change,
        broken=lambda: provider("http:http://127.0.0.1:9/state"),
    )  # fmt: skip
    assert failures(checks) == []
    assert [check for check in checks if check.outcome != "ok"] == []


def test_a_document_of_tables_is_rows_and_any_other_is_one_document(server: StateServer) -> None:
    assert list(provider(f"http:{server.url}/state").capture().rows) == ["deals", "notes"]
    for other in ([1, 2], {"a": 1}, {"a": {"b": 2}}, "text", 7, {"document": {"": {"x": 1}}}):
        server.body = json.dumps(other).encode()
        assert provider(f"http:{server.url}/state").capture().rows == {"document": {"": other}}


def test_a_redirect_is_followed_nowhere(server: StateServer) -> None:
    other = StateServer()
    try:
        server.elsewhere, server.answer = other.url + "/state", lambda method: (307, b"")
        with pytest.raises(StateUnreadable, match="307"):
            provider(f"http:{server.url}/state,header=Authorization:secret").capture()
        assert len(server.seen) == 1
        assert other.seen == []
    finally:
        other.close()


def test_the_captured_document_is_put_back_byte_for_byte(server: StateServer) -> None:
    one = provider(f"http:{server.url}/state")
    server.body = written = b'{ "deals":{"2":{"b":1.50,"a":1e2},"10":{"b":0,"a":"\\u00e9"}} }'
    reading = one.capture()
    server.body = b"{}"
    restored(one, reading)
    assert server.body == written
    assert server.seen[-1][0] == "PUT"
    assert server.seen[-1][2]["content-type"] == "application/json"


def test_rows_from_elsewhere_are_put_as_a_document(server: StateServer) -> None:
    one = provider(f"http:{server.url}/state")
    one.restore({"deals": {"1": {"n": 2**70}}})
    assert json.loads(server.body) == {"deals": {"1": {"n": 2**70}}}
    one.restore({"document": {"": [1, None]}})
    assert json.loads(server.body) == [1, None]


def test_nan_in_a_state_is_kept_and_put_back(server: StateServer) -> None:
    server.body = b'{"reward": NaN, "hp": Infinity}'
    one = provider(f"http:{server.url}/state")
    reading = one.capture()
    server.body = b"{}"
    restored(one, reading)
    assert server.body == b'{"reward": NaN, "hp": Infinity}'


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_server_without_the_route_cannot_restore(server: StateServer, status: int) -> None:
    server.answer = lambda method: (status, b"")
    with pytest.raises(CannotRestore, match=str(status)):
        provider(f"http:{server.url}/state").restore({})


def test_a_restore_that_is_refused_says_how(server: StateServer) -> None:
    server.answer = lambda method: (409, b"busy")
    with pytest.raises(RestoreFailed, match="answered 409"):
        provider(f"http:{server.url}/state").restore({})


def test_restore_none_turns_it_off(server: StateServer) -> None:
    one = provider(f"http:{server.url}/state,restore=none")
    assert not one.can_restore
    with pytest.raises(CannotRestore):
        one.restore({})
    assert server.seen == []


def test_another_route_can_restore(server: StateServer) -> None:
    one = provider(f'http:{server.url}/state,restore="POST {server.url}/load"')
    one.restore({"t": {}})
    assert server.seen[-1][:2] == ("POST", "/load")


def test_headers_are_sent_with_both(server: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "s3cret")
    one = provider(f"http:{server.url}/state,header=Authorization: Bearer env:CRM_TOKEN,header=X-A:1, 2")
    one.capture()
    one.restore({})
    for _, _, fields, _ in server.seen:
        assert fields["authorization"] == "Bearer s3cret"
        assert fields["x-a"] == "1, 2"
        assert fields["user-agent"] == "replayproxy-snapshot"


def test_a_user_in_the_url_is_sent_as_basic(server: StateServer) -> None:
    one = provider(f"http:http://me:p%40ss@{server.url[7:]}/state")
    one.capture()
    assert server.seen[0][2]["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()


def test_braces_are_filled_in_encoded(server: StateServer) -> None:
    spec = f"http:{server.url}/state/{{episode}}?step={{meta.step}}"
    one = provider(spec, episode="a b/../c", **{"meta.step": "1&x=2"})
    one.capture()
    assert server.seen[0][1] == "/state/a%20b%2F..%2Fc?step=1%26x%3D2"
    assert one.scope == "episode"
    assert provider(f"http:{server.url}/state").scope == "instance"


def test_a_value_cannot_begin_another_header(server: StateServer) -> None:
    with pytest.raises(WrongUsage, match="control character"):
        load("crm", f"http:{server.url}/s,header=X-T:{{task}}", context={"task": "a\r\nX-B: 1"})


def test_proxies_of_the_variables_are_not_used(server: StateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert provider(f"http:{server.url}/state").capture().rows


def test_a_gzipped_state_is_read(server: StateServer) -> None:
    server.body = gzip.compress(b'{"t": {}}')
    assert provider(f"http:{server.url}/state").capture().rows == {"t": {}}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (503, b"{}", "answered 503"),
        (200, b"", "not JSON"),
        (200, b"<html>", "not JSON"),
        (200, b"null", "null"),
        (200, b'{"a": 1, "a": 2}', "repeats a member"),
        (200, b'{"a": NaN, "a": 2}', "not JSON"),
    ],
)
def test_what_is_no_state_is_never_an_empty_one(server: StateServer, status: int, body: bytes, words: str) -> None:
    server.answer = lambda method: (status, body)
    with pytest.raises(StateUnreadable, match=words):
        provider(f"http:{server.url}/state?token=hidden").capture()


def test_messages_name_the_url_without_its_secrets() -> None:
    with pytest.raises(StateUnreadable) as caught:
        provider("http:http://me:pw@127.0.0.1:9/state?token=hidden").capture()
    assert "http://127.0.0.1:9/state" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "pw" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    ["http:", "http:ftp://x/", "http:/path", "http:http://h:99999/", "http:http://", "http:http://h/s,restore=PUT",
     "http:http://h/s,restore=put http://h", "http:http://h/s,header=Name", "http:http://h/s t"],
)  # fmt: skip
def test_a_bad_spec_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        load("crm", spec)
    assert "\n" not in str(caught.value)
    assert "crm=" in str(caught.value)
