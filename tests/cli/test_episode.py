from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from replayproxy import client
from replayproxy.cli.episode import reward_of, variables
from replayproxy.cli.main import run


class Recorder:
    """A control API that says yes, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.refuses: tuple[int, Any] | None = None
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                ours.asked.append((self.path, body))
                opened = {"episode": body.get("episode", "t-a1"), "urls": {"app": "http://127.0.0.1:5/rp/t-a1"}}
                ended = {"state": "sealed", "verdict": "unknown", "mask": False, "reasons": [], "coverage": {}}
                status, document = ours.refuses or (200, ended if self.path.endswith("/end") else opened)
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recorder]:
    monkeypatch.chdir(tmp_path)
    made = Recorder()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("REPLAYPROXY_CONTROL", f"http://127.0.0.1:{made.server.server_port}")
    monkeypatch.setenv("REPLAYPROXY_URL_APP", "http://127.0.0.1:5")
    monkeypatch.setenv("APP_URL", "http://127.0.0.1:5")
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def episode(*words: str, code: str = "pass", arguments: tuple[str, ...] = ()) -> int:
    return run(["episode", *words, "--", sys.executable, "-c", f"import os, sys\n{code}", *arguments])


def test_the_program_runs_inside_the_episode_and_its_exit_code_is_the_outcome(recorder: Recorder) -> None:
    inside = "http://127.0.0.1:5/rp/t-a1"
    code = (
        f"assert os.environ['REPLAYPROXY_URL_APP'] == os.environ['APP_URL'] == sys.argv[1] == {inside!r}\n"
        "assert os.environ['REPLAYPROXY_EPISODE'] == 't-a1'\n"
        "sys.exit(4)"
    )
    words = ("--task", "t", "--seed", "7", "--attempt", "1", "--group", "g", "--meta", "step=3")
    assert episode(*words, code=code, arguments=("{app}",)) == 4
    assert recorder.asked == [
        ("/v1/episodes", {"task": "t", "seed": 7, "attempt": 1, "group": "g", "meta": {"step": 3}}),
        ("/v1/episodes/t-a1/end", {"outcome": "exit 4"}),
    ]


def test_a_url_that_record_has_filled_in_leads_into_the_episode(recorder: Recorder) -> None:
    """In `record -- replayproxy episode -- COMMAND {app}` the braces are gone before the episode is there."""
    given = (
        "http://127.0.0.1:5",
        "--url=http://127.0.0.1:5/v1",
        "http://127.0.0.1:55/",
        "http://127.0.0.1:5/rp/mine/x",
    )
    inside = "http://127.0.0.1:5/rp/t-a1"
    got = [inside, f"--url={inside}/v1", *given[2:]]
    assert episode("--task", "t", code=f"sys.exit(sys.argv[1:] != {got!r})", arguments=given) == 0


def test_the_reward_comes_from_its_file(recorder: Recorder) -> None:
    assert episode("--reward-file", "r.json", code="open('r.json', 'w').write('0.25')") == 0
    assert recorder.asked[1][1] == {"outcome": "exit 0", "reward": 0.25}


def test_a_reward_file_that_was_not_written_is_told_and_an_old_one_never_read(
    recorder: Recorder, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("r.json").write_text("1.0")
    assert episode("--reward-file", "r.json") == 3
    assert "the reward file r.json was not written" in capfd.readouterr().err
    assert recorder.asked[1][1] == {"outcome": "exit 0"}
    assert episode("--reward-file", "r.json", code="sys.exit(9)") == 9


def test_a_program_that_is_not_there_is_127_and_the_episode_is_ended(
    recorder: Recorder, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["episode", "--", "/nowhere/agent"]) == 127
    assert "command not found" in capfd.readouterr().err
    assert recorder.asked[-1] == ("/v1/episodes/t-a1/end", {"outcome": "exit 127"})


def test_a_taken_name_is_2_and_says_what_to_try(recorder: Recorder, capfd: pytest.CaptureFixture[str]) -> None:
    recorder.refuses = (409, {"detail": "x is there", "try": "x-a2"})
    assert episode("--episode", "x") == 2
    assert "x is there (409) -> try x-a2" in capfd.readouterr().err


def test_a_name_that_is_none_is_2(recorder: Recorder, capfd: pytest.CaptureFixture[str]) -> None:
    assert episode("--episode", "a b") == 2
    assert "--episode a-b" in capfd.readouterr().err
    assert recorder.asked == []


def test_without_a_recorder_s_address_it_is_2(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REPLAYPROXY_CONTROL", raising=False)
    assert episode() == 2
    assert "REPLAYPROXY_CONTROL is not set" in capfd.readouterr().err


def test_a_recorder_that_is_gone_is_5(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("REPLAYPROXY_CONTROL", "http://127.0.0.1:1")
    assert episode() == 5
    assert "no recorder answers" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("1", 1.0),
        (" 0.5\n", 0.5),
        ('{"reward": -1}', -1.0),
        ("NaN", None),
        ("true", None),
        ("good", None),
        ("[1]", None),
    ],
)
def test_a_reward_is_a_finite_number(tmp_path: Path, text: str, reward: float | None) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    found, trouble = reward_of(path)
    assert found == reward
    assert (trouble is None) == (reward is not None)


def test_variables_that_hold_another_url_are_left_alone() -> None:
    made = client.episode("x")
    made.urls = {"app": "http://127.0.0.1:5/rp/x"}
    found = variables(
        made, {"REPLAYPROXY_URL_APP": "http://127.0.0.1:5", "A": "http://127.0.0.1:5", "B": "http://else"}
    )
    assert found == {
        "REPLAYPROXY_URL_APP": "http://127.0.0.1:5/rp/x", "A": "http://127.0.0.1:5/rp/x", "REPLAYPROXY_EPISODE": "x",
    }  # fmt: skip
