from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import replayproxy
from replayproxy import client

FILE = Path(client.__file__)


class Recorder:
    """A control API that answers by a script and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refuses: tuple[int, Any] | None = None
        self.mark: dict[str, Any] = {}
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                ours.asked.append(("POST", self.path, json.loads(raw)))
                ours.headers.append(dict(self.headers.items()))
                status, document = ours.refuses or ours.answer(self.path, json.loads(raw))
                data = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/v1/episodes":
            return 201, {"episode": body.get("episode", "minted é"), "urls": {"crm": "http://127.0.0.1:1/rp/x"}}
        if path.endswith("/snapshot"):
            return 200, {"snapshots": [{"snapshot": "s1"}]}
        if path.endswith("/end"):
            return 200, {
                "state": "sealed", "verdict": "clean", "mask": True, "reasons": [{"kind": "x"}],
                "coverage": {"checked": []},
            }  # fmt: skip
        return 200, self.mark


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    made = Recorder()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("REPLAYPROXY_CONTROL", made.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REPLAYPROXY_CONTROL", "REPLAYPROXY_TOKEN", "REPLAYPROXY_OPTIONAL", "REPLAYPROXY_URL_CRM"):
        monkeypatch.delenv(name, raising=False)


def test_an_episode_is_opened_used_and_ended(recorder: Recorder) -> None:
    with replayproxy.episode(task="crm-7", seed=7, meta={"step": 1}) as ep:
        assert ep.active
        assert ep.name == "minted é"
        assert ep.url("crm") == "http://127.0.0.1:1/rp/x"
        assert ep.headers == {"X-Replay-Episode": "minted%20%C3%A9"}
        assert ep.lane("a b") == {"X-Replay-Episode": "minted%20%C3%A9", "X-Replay-Lane": "a%20b"}
        ep.mark(step=3, label="l")
        assert ep.snapshot("before") == [{"snapshot": "s1"}]
        ep.reward = 1.0
        ep.meta["after"] = True
    assert (ep.state, ep.verdict, ep.mask, ep.reasons) == ("sealed", "clean", True, [{"kind": "x"}])
    assert recorder.asked == [
        ("POST", "/v1/episodes", {"task": "crm-7", "seed": 7, "meta": {"step": 1}}),
        ("POST", "/v1/episodes/minted%20%C3%A9/mark", {"step": 3, "label": "l"}),
        ("POST", "/v1/episodes/minted%20%C3%A9/snapshot", {"label": "before"}),
        ("POST", "/v1/episodes/minted%20%C3%A9/end", {"reward": 1.0, "meta": {"after": True}}),
    ]


def test_without_with_it_is_ended_once(recorder: Recorder) -> None:
    ep = replayproxy.open_episode("x", task="t")
    ep.end(0.5, outcome="solved")
    ep.end()
    assert [path for _, path, _ in recorder.asked] == ["/v1/episodes", "/v1/episodes/x/end"]
    assert recorder.asked[1][2] == {"reward": 0.5, "outcome": "solved"}


async def test_the_same_object_works_with_async_with(recorder: Recorder) -> None:
    async with replayproxy.episode(episode="x") as ep:
        await ep.amark(step=1)
        assert await ep.asnapshot() == [{"snapshot": "s1"}]
        ep.reward = 0.0
    assert ep.verdict == "clean"
    assert recorder.asked[-1][2] == {"reward": 0.0}
    other = await client.aopen_episode("y")
    assert (await other.aend(1.0)).state == "sealed"


def test_the_token_is_sent(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYPROXY_TOKEN", "s3cret")
    replayproxy.open_episode()
    assert recorder.headers[0]["Authorization"] == "Bearer s3cret"


def test_an_exception_becomes_the_outcome_and_goes_on(recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError):
        with replayproxy.episode(episode="x"):
            1 / 0  # noqa: B018
    assert recorder.asked[-1][2] == {"outcome": "raised ZeroDivisionError"}


def test_what_the_caller_raised_is_not_hidden_by_a_recorder_that_refuses(recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError):
        with replayproxy.episode(episode="x"):
            recorder.refuses = (500, b"broken")
            1 / 0  # noqa: B018


def test_an_unknown_environment_is_a_lookup_error_even_with_a_default(recorder: Recorder) -> None:
    ep = replayproxy.open_episode("x")
    with pytest.raises(LookupError, match="it has crm"):
        ep.url("cal", default="http://live")


def test_a_refusal_names_what_to_try(recorder: Recorder) -> None:
    recorder.refuses = (409, {"title": "name taken", "detail": "x is there", "try": "x-a2"})
    with pytest.raises(client.RecorderRefused, match=r"x is there \(409\)") as no:
        replayproxy.open_episode("x")
    assert (no.value.status, no.value.suggestion) == (409, "x-a2")


def test_a_canary_is_a_token_of_its_own_that_the_recorder_is_told(recorder: Recorder) -> None:
    with replayproxy.episode(episode="x") as ep, replayproxy.episode(episode="y") as other:
        token = ep.canary()
        assert re.fullmatch("rpc-[0-9a-f]{16}", token)
        assert ep.canary() == token
        assert len({token, ep.canary("note"), other.canary()}) == 3
    marks = [(path, body) for _, path, body in recorder.asked if path.endswith("/mark")]
    assert marks[0] == ("/v1/episodes/x/mark", {"label": "canary", "data": {"canary": token, "for": ""}})
    assert [body["data"]["for"] for _, body in marks] == ["", "note", ""]


def test_a_replay_answers_with_the_canary_that_was_recorded(recorder: Recorder) -> None:
    recorder.mark = {"canary": "rpc-00112233445566aa"}
    with replayproxy.episode(episode="x") as ep:
        assert ep.canary() == "rpc-00112233445566aa"


def test_a_canary_of_an_episode_that_is_not_open_would_be_nobody_s(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError, match="not open yet"):
        replayproxy.episode().canary()


async def test_a_canary_is_there_for_asyncio(recorder: Recorder) -> None:
    async with replayproxy.episode(episode="x") as ep:
        assert await ep.acanary("a") == ep.canary("a")


def test_inert_it_is_a_token_all_the_same() -> None:
    with replayproxy.episode() as ep:
        assert re.fullmatch("rpc-[0-9a-f]{16}", ep.canary())
        assert ep.canary() == ep.canary()


def test_without_a_recorder_s_address_it_is_inert() -> None:
    with replayproxy.episode(task="t") as ep:
        assert ep.url("crm", default="http://live") == "http://live"
        with pytest.raises(LookupError, match="REPLAYPROXY_CONTROL is not set"):
            ep.url("crm")
        ep.mark(step=1)
        assert ep.snapshot() == []
        assert (ep.headers, ep.lane("a")) == ({}, {})
        ep.reward = 1.0
    assert (ep.active, ep.verdict, ep.mask, ep.state) == (False, "unknown", False, None)


def test_while_replaying_the_address_of_the_replay_beats_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYPROXY_URL_CRM", "http://127.0.0.1:5/api")
    assert replayproxy.episode().url("crm", default="http://live") == "http://127.0.0.1:5/api"
    assert replayproxy.episode(episode="a b").url("crm") == "http://127.0.0.1:5/rp/a%20b/api"
    monkeypatch.setenv("REPLAYPROXY_URL_CRM", "http://127.0.0.1:5/rp/e/api")
    assert replayproxy.episode(episode="x").url("crm") == "http://127.0.0.1:5/rp/e/api"


def test_with_an_address_and_no_recorder_it_raises_unless_that_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAYPROXY_CONTROL", "http://127.0.0.1:1")
    with pytest.raises(client.RecorderGone, match="no recorder answers at REPLAYPROXY_CONTROL"):
        replayproxy.open_episode()
    monkeypatch.setenv("REPLAYPROXY_OPTIONAL", "1")
    with pytest.warns(RuntimeWarning, match="not recorded"):
        ep = replayproxy.open_episode()
    assert ep.url("crm", default="http://live") == "http://live"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ep.end(1.0)


def test_a_recorder_that_dies_in_the_middle_raises_at_the_end_unless_optional(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ep = replayproxy.open_episode("x")
    ep._control = "http://127.0.0.1:1"
    with pytest.raises(client.RecorderGone):
        ep.end()
    ep._optional = True
    with pytest.warns(RuntimeWarning):
        assert ep.end().verdict == "unknown"


def test_the_file_imports_nothing_but_the_standard_library() -> None:
    imported = [line.split()[1] for line in FILE.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize("python", ["python3.9", "python3.10"])
def test_the_one_file_works_on_old_pythons(recorder: Recorder, tmp_path: Path, python: str) -> None:
    found = shutil.which(python)
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"{python} is not on this machine")
    (tmp_path / "replayproxy_client.py").write_text(FILE.read_text())
    code = (
        "import asyncio, replayproxy_client as r\n"
        "with r.episode(task='t') as ep: ep.reward = 1.0\n"
        "async def go():\n"
        "    async with r.episode(episode='y') as e: assert e.url('crm')\n"
        "    return e\n"
        "print(ep.verdict, asyncio.run(go()).state)\n"
    )
    environ = {"REPLAYPROXY_CONTROL": recorder.url, "PATH": "/usr/bin:/bin"}
    ran = subprocess.run([found, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["clean", "sealed"], ran.stderr


def test_asyncio_is_not_blocked_while_the_recorder_thinks(recorder: Recorder) -> None:
    async def main() -> bool:
        opening = asyncio.create_task(replayproxy.episode(episode="x").aopen())
        await asyncio.sleep(0)
        waited = not opening.done()
        await opening
        return waited

    assert asyncio.run(main())
