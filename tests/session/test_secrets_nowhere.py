"""Secrets are planted everywhere, and looked for in everything that is written or printed afterwards."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from replayproxy.core.redact import TOKEN
from tests.session import planted

pytestmark = pytest.mark.timeout(180)

PROGRAM = [sys.executable, planted.__file__]
ROOT = Path(__file__).parents[2]


@dataclass
class Place:
    """A directory, and all that was said in it."""

    path: Path
    url: str
    said: dict[str, bytes] = field(default_factory=dict)

    def run(self, *words: str, code: int | None = 0) -> str:
        """The command's standard output."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "REPLAYPROXY_STORE": str(self.path / "store")}
        done = subprocess.run(
            [sys.executable, "-m", "replayproxy", *words], cwd=self.path, env=environ, capture_output=True, timeout=120,
            check=False,
        )  # fmt: skip
        self.said[" ".join(words[:4])] = done.stdout + b"\n" + done.stderr
        assert code is None or done.returncode == code, (done.stdout + done.stderr).decode()
        return done.stdout.decode()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen([*PROGRAM, "environment", str(port), str(tmp_path / "app.db")], env=environ)
    try:
        for _ in range(200):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield Place(tmp_path, f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()


CREDENTIALS = [
    word
    for name, place in (
        ("Authorization", "bearer"), ("X-API-key", "header"), ("api_key", "query"), ("a", "cookie"),
        ("password", "nested"), ("secret", "form"), ("token", "gzip"),
    )
    for word in ("--credential", f"{name}={planted.plant(place)}")
]  # fmt: skip


def test_a_planted_secret_is_nowhere(place: Place) -> None:
    summary, ready = place.path / "summary.json", place.path / "ready.json"
    document = place.path / "environment" / "state.json"
    document.parent.mkdir()
    document.write_text(json.dumps({"users": {"1": {"name": "ann", "password": planted.plant("row")}}}))
    place.run(
        "record", "--env", f"app={place.url}", "--run", "r", "--snapshot", f"app=sqlite:{place.path / 'app.db'}",
        "--snapshot", f"app.doc=command:cat {document}",
        "--summary", str(summary), "--ready-file", str(ready), "--json", "--", *PROGRAM, "agent",
    )  # fmt: skip
    key = place.path / "store" / "secret.key"
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)
    replayed = place.run("replay", "r/e1", "--json", "--", *PROGRAM, "agent", code=None)
    assert json.loads(replayed)["missed"] == 0, place.said
    assert json.loads(replayed)["unused"] == 0, place.said
    missed = place.run("replay", "r/e1", "--json", "--", *PROGRAM, "agent", "miss", code=None)
    assert json.loads(missed)["missed"] == 1
    for form in ([], ["--json"], ["--md"]):
        place.run("show", "r/e1", *form, code=None)
    for number, form in ((1, "--curl"), (1, "--json"), (2, "--curl"), (6, "--json"), (9, "--json")):
        place.run("show", f"r/e1#{number}", form, code=None)
    place.run("show", "r/e1/s0", code=None)
    place.run("show", "r/e1/s1", code=None)
    place.run("ls", "r", "--json")
    place.run("check", "r", "--json", code=None)
    place.run("diff", "r/e1", "r/e1", "--json", code=None)
    for form, name in (("har", "r.har"), ("archive", "r.replay"), ("flow", "r.mitm")):
        place.run("export", "--format", form, "r/e1", "--out", name)
    place.run("redrive", "r/e1", "--env", f"app={place.url}", "--save", "again", code=2)
    assert b"--credential" in place.said["redrive r/e1 --env app=" + place.url]
    place.run("redrive", "r/e1", *CREDENTIALS, "--env", f"app={place.url}", "--save", "again", "--json", code=None)
    place.run("diff", "r/e1", "again/e1", "--json", code=None)
    place.run("fsck")
    texts = planted.everything(place.path / "store")
    texts |= {str(path): path.read_bytes() for path in place.path.glob("*") if path.is_file() and path.name != "app.db"}
    assert {name: found for name, data in (texts | place.said).items() if (found := planted.found_in(data))} == {}
    assert sum(len(TOKEN.findall(data)) for data in texts.values()) > 20, "the search sees what is stored"


def test_the_search_finds_what_is_kept(place: Place) -> None:
    place.run(
        "record", "--keep-secrets", "--env", f"app={place.url}", "--run", "r",
        "--snapshot", f"app=sqlite:{place.path / 'app.db'}", "--json", "--", *PROGRAM, "agent",
    )  # fmt: skip
    assert b"--keep-secrets: " in place.said["record --keep-secrets --env app=" + place.url]
    texts = planted.everything(place.path / "store")
    found = {one for data in texts.values() for one in planted.found_in(data)}
    assert found == set(planted.PLACES) - {"miss", "missbody"}  # which are said in replay alone


def test_a_planted_secret_is_in_nothing_that_tells_of_a_finding(place: Place) -> None:
    said = place.run(
        "record", "--probe", "--env", f"app={place.url}", "--run", "r",
        "--snapshot", f"app=sqlite:{place.path / 'app.db'}", "--", *PROGRAM, "agent", "stale",
    )  # fmt: skip
    assert said.count("stale-read") > 1, said
    files = ("--junit", "j.xml", "--md", "c.md", "--write-baseline", "known.json")
    (finding,) = json.loads(place.run("check", "r", "--json", code=1))["findings"]
    place.run("check", "r", *files, code=1)
    place.run("check", "r", "--baseline", "known.json", code=None)
    for form in ([], ["--curl"], ["--md"], ["--state"], ["--json"]):
        place.run("show", "F1", *form)
    place.run("export", "F1", "--out", "F1.replay")
    place.run("show", "F1.replay")
    for text in ("password", "Authorization", "api_key", "X-Auth-Token", "rp-secret", "@h/"):
        place.run("grep", "r", text, code=None)
        place.run("grep", "r", f"{text}.{{0,60}}", "-E", "--json", code=None)
    for pointer in ("/password", "/seen", "/note"):
        place.run("blame", "r/e1#3", pointer, code=None)
    place.run("blame", "r/e1", "/users/ann", "--json", code=None)
    for words in (["--by", "meta.api_key"], ["--where", "outcome~see", "--json"], ["--sort", "meta.api_key"]):
        place.run("ls", "r", *words)
    (place.path / "rollouts.jsonl").write_text('{"id": "e1"}\n')
    joined = ("rollouts.jsonl", "--on", "id=episode")
    place.run("mask", "r", *joined, "--max-masked", "1")
    place.run("mask", "r", "--json", code=1)
    place.run("annotate", "r", *joined, "--set", "meta.of=id")
    again = ("--env", f"app={place.url}", "--snapshot", f"app=sqlite:{place.path / 'app.db'}")
    place.run("reproduce", finding["id"], *again, code=2)
    place.run("reproduce", finding["id"], *again, *CREDENTIALS, "--repeat", "2", "--json", code=None)
    place.run("race", "r/e1", *again, *CREDENTIALS, "--repeat", "2", "--json", code=None)
    place.run("redrive", "r/e1", *again, *CREDENTIALS, "--ablate", "--repeat", "2", code=None)
    place.run("show", finding["id"])
    assert all(b"internal error" not in said and b"a fault of replayproxy" not in said for said in place.said.values())
    texts = planted.everything(place.path / "store")
    texts |= {str(path): path.read_bytes() for path in place.path.glob("*") if path.is_file() and path.name != "app.db"}
    assert {name: found for name, data in (texts | place.said).items() if (found := planted.found_in(data))} == {}
