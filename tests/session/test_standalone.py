"""The record add-on in a mitmdump of its own, as a user would start it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from replayproxy.core.values import EpisodeState
from replayproxy.state.loader import bundled
from replayproxy.storage import open_store

pytestmark = pytest.mark.e2e
MITMDUMP = Path(sys.executable).parent / "mitmdump"
ADDON = bundled("addons") / "record.py"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def start(url: str, store: Path, *options: str) -> subprocess.Popen[str]:
    words = [str(MITMDUMP), "-s", str(ADDON), "--mode", f"reverse:{url}@0", "--set", f"replay_store={store}"]
    for option in ("listen_host=127.0.0.1", *options):
        words += ["--set", option]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_until(process: subprocess.Popen[str], *patterns: str) -> list[re.Match[str]]:
    """The first line that fits each, in whichever order they come."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        found = [re.search(pattern, seen) for pattern in patterns]
        if all(found):
            return [one for one in found if one]
    raise AssertionError(seen)


def get(url: str, **headers: str) -> None:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"ok"


def test_traffic_is_recorded_by_its_carriers_and_sealed_at_the_end(url: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = start(url, store, "replay_run=r", f"replay_env=crm={url}")
    try:
        port = read_until(process, r"listening at 127\.0\.0\.1:(\d+)", "recording run r into")[0][1]
        get(f"http://127.0.0.1:{port}/rp/by-prefix/a")
        get(f"http://127.0.0.1:{port}/b", X_Replay_Episode="by-header")
        get(f"http://127.0.0.1:{port}/c")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "recorded r: NOT WHOLE   2 episodes sealed" in out
    assert "Traceback" not in out
    with open_store(store) as opened:
        reader = opened.reader()
        run = reader.run("r")
        episodes = {e.name: e for e in [*reader.episodes(run), reader.episode(run, "unattributed")]}
        seen = {name: [(x.env, x.request.target) for x in reader.exchanges(e)] for name, e in episodes.items()}
    assert seen == {"by-prefix": [("crm", b"/a")], "by-header": [("crm", b"/b")], "unattributed": [("crm", b"/c")]}
    assert {e.state for e in episodes.values()} == {EpisodeState.SEALED}
    assert run.envs["crm"].upstream == url


def test_a_store_that_another_recorder_has_ends_mitmdump_instead_of_running_unrecorded(
    url: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with open_store(store, create=True) as opened:
        writer = opened.writer()
        process = start(url, store)
        out, _ = process.communicate(timeout=30)
        writer.close()
    assert process.returncode != 0
    assert "another recorder" in out
    assert "Traceback" not in out
