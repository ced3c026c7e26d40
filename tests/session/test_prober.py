"""`record --probe`: what is asked again, what of it is kept, and what it is worth to the check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

AGENT = """
import json, os, urllib.request
base = os.environ["REPLAYPROXY_URL_CRM"]
def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(base + path, data=data, method=method, headers={"Content-Type": "application/json",
                                   "Authorization": "Bearer s3cret-agent-key-0123456789"})
    return json.load(urllib.request.urlopen(asked))
seen = [call("GET", "/deals/1")["stage"], call("GET", "/deals/2")["stage"]]
call("PATCH", "/deals/1", {"stage": "won"})
seen += [call("GET", "/deals/1")["stage"] for _ in range(int(os.environ.get("LOOKS", "1")))]
call("PATCH", "/deals/2", {"stage": "lost"})
print(json.dumps(seen))
"""


class Server:
    """Deals with a cache in front of them that a write does not empty; a writer nobody records touches the state."""

    def __init__(self, *, stale: bool) -> None:
        self.deals = {"1": {"id": "1", "stage": "lead"}, "2": {"id": "2", "stage": "lead"}}
        self.other = {"n": {"id": "n", "count": 0}}
        self.asked: list[tuple[str, str, str]] = []
        cache: dict[str, Any] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/state":
                    outer.other["n"]["count"] += 1  # whoever writes it does not pass the proxy
                    return self.say({"deals": outer.deals, "other": outer.other})
                outer.asked.append(("GET", self.path, self.headers.get("Authorization") or ""))
                deal = dict(outer.deals[self.path.rpartition("/")[2]])
                return self.say(cache.setdefault(self.path, deal) if stale else deal)

            def do_PATCH(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(("PATCH", self.path, ""))
                deal = outer.deals[self.path.rpartition("/")[2]]
                deal |= sent
                self.say(deal)

            def say(self, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for one in made:
        one.close()


class Lab:
    def __init__(self, path: Path, server: Server) -> None:
        self.path, self.server = path, server

    def run(self, *words: str, looks: int = 1) -> tuple[int, Any, str]:
        done = subprocess.run(
            [sys.executable, "-m", "replayproxy", words[0], "--store", str(self.path / "store"), *words[1:]],
            capture_output=True, text=True, timeout=120, cwd=self.path, env={**os.environ, "LOOKS": str(looks)},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout) if "--json" in words else done.stdout, done.stderr

    def record(self, *more: str, looks: int = 1) -> Any:
        code, document, err = self.run(
            "record", "--env", f"crm={self.server.url}", "--snapshot", f"crm=http:{self.server.url}/state",
            "--run", "r", "--episode", "e", "--json", *more, "--", sys.executable, "-c", AGENT, looks=looks,
        )  # fmt: skip
        assert code == 0, err
        return document


def lab(tmp_path: Path, servers: list[Server], *, stale: bool = True) -> Lab:
    servers.append(Server(stale=stale))
    return Lab(tmp_path, servers[-1])


def test_a_suspect_read_is_asked_again_between_two_snapshots_and_then_proven(
    tmp_path: Path, servers: list[Server]
) -> None:  # fmt: skip
    here = lab(tmp_path, servers)
    told = here.record("--probe")
    assert told["exchanges"] == 5, "the agent's own"
    assert told["asked_again"] == 1
    again = [asked for asked in here.server.asked if asked[0] == "GET" and asked[1] == "/deals/1"]
    assert len(again) == 3
    assert len({asked[2] for asked in again}) == 1, "the same request, with the agent's own credential"

    _, shown, _ = here.run("show", "r/e", "--json")
    (probe,) = [x for x in shown["exchanges"] if x["is_probe"]]
    assert (probe["method"], probe["target"], probe["lane"]) == ("GET", "/deals/1", "main")
    assert [s["when"] for s in shown["snapshots"]].count("probe") == 2

    code, report, _ = here.run("check", "r", "--json")
    (finding,) = report["findings"]
    assert (finding["kind"], finding["grade"], finding["pointer"]) == ("stale-read", "proven", "/stage")
    assert [w["role"] for w in finding["exchanges"]] == ["write", "read", "witness"]
    assert finding["exchanges"][2]["address"] == f"r/e#{probe['seq']}"
    assert "asked again" in " ".join(finding["ruled_out"])
    assert finding["scope"]["write_coverage"] < 0.99
    assert {"write_s", "read_s", "before_s", "after_s"} <= set(finding["times"])
    assert code == 1


def test_without_the_option_nothing_is_asked_and_hidden_writers_keep_it_from_being_proven(
    tmp_path: Path, servers: list[Server]
) -> None:  # fmt: skip
    here = lab(tmp_path, servers)
    assert here.record()["asked_again"] == 0
    assert len(here.server.asked) == 5
    _, report, _ = here.run("check", "r", "--json")
    assert [finding["grade"] for finding in report["findings"]] == ["suspected"]


def test_nothing_is_asked_where_nothing_is_suspect(tmp_path: Path, servers: list[Server]) -> None:
    here = lab(tmp_path, servers, stale=False)
    assert here.record("--probe", looks=5)["asked_again"] == 0
    assert len(here.server.asked) == 9


def test_an_agent_that_looks_on_and_on_is_followed_a_few_times_only(tmp_path: Path, servers: list[Server]) -> None:
    here = lab(tmp_path, servers)
    assert here.record("--probe", looks=12)["asked_again"] <= 3
    assert len([asked for asked in here.server.asked if asked[0] == "PATCH"]) == 2, "no write is ever sent again"


def test_a_probe_is_neither_replayed_nor_sent_to_an_environment_again(tmp_path: Path, servers: list[Server]) -> None:
    here = lab(tmp_path, servers)
    here.record("--probe")
    before = len(here.server.asked)
    code, receipt, err = here.run("replay", "r/e", "--json", "--", sys.executable, "-c", AGENT)
    assert code == 0, err
    assert receipt["reproduced"] is True
    assert (receipt["unused"], receipt["missed"]) == (0, 0)
    assert len(here.server.asked) == before
