"""`replayproxy replay` as a process: what it prints, its exit codes, and that it stays closed."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replayproxy.cli.replay_text import PAST, miss_lines, receipt_lines
from replayproxy.core.conversation import unlike
from replayproxy.core.misses import message_document, miss_document
from replayproxy.core.nearest import Situation, nearest
from replayproxy.core.receipt import Stray, episode_receipt, run_receipt
from replayproxy.core.replayer import Miss, Replayer, Serve
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import EnvWiring, Exchange, Outcome, Run
from replayproxy.storage import Store
from replayproxy.testing import episode as made_episode
from replayproxy.testing import exchange, request, trace
from tests.serve.talks import agent, talk

GET = "import os, urllib.request as u; print(u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/x').read().decode())"


def record(store: Store, *exchanges: Exchange, upstream: str = "http://127.0.0.1:9", forward: bool = False) -> Path:
    writer = store.writer()
    wiring = EnvWiring(name="app", upstream=upstream, options={"forward": True} if forward else {})
    run = writer.open_run(Run(key=0, name="r", opened_wall=1, envs={"app": wiring}))
    opened = writer.open_episode(made_episode("e", run_key=run.key))
    for one in trace(exchanges).exchanges:
        writer.put_exchange(opened.key, one)
    writer.seal(opened).result(10)
    writer.close()
    return store.path


def ran(path: Path, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "replayproxy", "replay", "--store", str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload, no-any-return]


def test_a_replay_without_mitmproxy_and_without_a_look_up_or_connection(store: Store) -> None:
    path = record(store, exchange("GET", "/x", body=b"hello"))
    watch = (
        "import sys\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, _: event.startswith(('socket.connect', 'socket.get', 'socket.sendto'))"
        " and event not in ('socket.getsockname',) and seen.append(event))\n"
        "from replayproxy.cli.main import run\n"
        f"code = run(['replay', '--store', {str(path)!r}, 'r/e', '--', sys.executable, '-c', {GET!r}])\n"
        "print(code, seen, sorted(m for m in ('mitmproxy', 'tornado', 'cryptography') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["hello", "0 [] []"]


def test_a_run_with_its_secrets_in_it_is_replayed_and_says_so(store: Store) -> None:
    path = record(store, exchange("GET", "/x", request_headers={"Authorization": "Bearer abcdefgh12345678"}))
    ask = (
        "import os, urllib.request as u; "
        "u.urlopen(u.Request(os.environ['REPLAYPROXY_URL_APP'] + '/x', headers={'Authorization': 'Bearer ' + %r}))"
    )
    done = ran(path, "r/e", "--", sys.executable, "-c", ask % "abcdefgh12345678")
    assert (done.returncode, "in it as they were sent" in done.stderr) == (0, True), done.stderr
    assert ran(path, "r/e", "--", sys.executable, "-c", ask % "another-credential").returncode == 1


def test_the_receipt_is_the_one_document_on_stdout(store: Store, tmp_path: Path) -> None:
    path = record(store, exchange("GET", "/x", body=b"hello"))
    summary = tmp_path / "summary.json"
    done = ran(path, "r/e", "--json", "--summary", str(summary), "--", sys.executable, "-c", GET)
    receipt = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert receipt["served"] == {"exact": 1, "canonical": 0, "relaxed": 0, "repeat": 0}
    assert (receipt["reproduced"], receipt["missed"], receipt["unused"]) == (True, 0, 0)
    assert (receipt["order_divergences"], receipt["upstream_contacts"], receipt["first_divergence"]) == (0, 0, None)
    assert "hello" in done.stderr
    assert done.stderr.splitlines()[-3].startswith("REPRODUCED  r/e")
    assert json.loads(summary.read_text()) == {"command_exit": 0, "exit": 0, "receipt": receipt}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nope/e"], 2, "nope"),
        (["r/e#1"], 2, "replay takes a run or an episode"),
        (["r/unattributed"], 2, ""),
        (["r/e", "--pace", "fast"], 2, "--pace"),
        (["r/e", "--", "no-such-program-anywhere"], 127, "command not found"),
        (["r/e", "--", "/"], 126, "not executable"),
    ],
)
def test_what_is_refused_is_one_line(store: Store, words: list[str], code: int, told: str) -> None:
    done = ran(record(store, exchange()), *words)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("replayproxy:")]
    assert len(lines) == 1
    assert told in lines[0]
    assert "Traceback" not in done.stderr


def test_a_command_that_cannot_be_started_is_one_document_too(store: Store) -> None:
    done = ran(record(store, exchange()), "r/e", "--json", "--", "no-such-program-anywhere")
    assert (done.returncode, json.loads(done.stdout)["exit"]) == (127, 127)


@contextmanager
def server(path: Path, ready: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A replay of r/e without a COMMAND, and the URL of its environment."""
    command = [
        sys.executable, "-m", "replayproxy", "replay", "--store", str(path), "r/e", "--json", "--ready-file", str(ready)
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            deadline = time.monotonic() + 30
            while not ready.exists() and time.monotonic() < deadline and running.poll() is None:
                time.sleep(0.02)
            yield running, json.loads(ready.read_text())["envs"]["app"]
        finally:
            running.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_servers_normal_end(store: Store, tmp_path: Path, number: int) -> None:
    path = record(store, exchange("GET", "/x", body=b"hello"))
    with server(path, tmp_path / "ready.json") as (running, url):
        assert urllib.request.urlopen(url + "/x").read() == b"hello"
        running.send_signal(number)
        out, _ = running.communicate(timeout=20)
    assert running.returncode == 0
    assert json.loads(out)["reproduced"] is True


def test_a_second_signal_ends_it_at_once_with_130(store: Store, tmp_path: Path) -> None:
    # The read waits for a write of another lane that never comes: the first signal gives it time, the second does not.
    path = record(
        store, exchange("POST", "/x", lane="a", at_ms=0), exchange("GET", "/x", lane="main", at_ms=50, body=b"late")
    )
    with server(path, tmp_path / "ready.json") as (running, url):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as agent:
            agent.sendall(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            time.sleep(0.3)
            assert running.poll() is None
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert json.loads(out)["exit"] == 130
    assert "Traceback" not in err


def test_a_fault_of_ours_is_70_with_a_report_and_never_a_contact(store: Store) -> None:
    path = record(store, exchange("GET", "/x", body=b"hello"))
    planted = (
        "import sys\n"
        "import replayproxy.core.replayer as replayer\n"
        "def broken(*_): raise ZeroDivisionError('planted')\n"
        "replayer.Replayer.ask = broken\n"
        "from replayproxy.cli.main import run\n"
        f"print(run(['replay', '--store', {str(path)!r}, 'r/e', '--', sys.executable, '-c', sys.argv[1]]))"
    )
    agent = (
        "import os, urllib.request as u, urllib.error as e\n"
        "try: u.urlopen(os.environ['REPLAYPROXY_URL_APP'] + '/x')\n"
        "except e.HTTPError as got: print(got.code, got.headers['Replay-Local'])"
    )
    done = subprocess.run([sys.executable, "-c", planted, agent], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["500 fault", "70"]
    assert "NOT REPRODUCED" in done.stderr
    report = done.stderr.rstrip().rpartition("report ")[2]
    assert "ZeroDivisionError: planted" in Path(report).read_text()
    Path(report).unlink()


def played(*exchanges: Exchange, asks: list[tuple[str, str, object]]) -> Replayer:
    on = Replayer(
        build(trace(exchanges, run="nightly", episode="crm-7-a1").exchanges, run="nightly", episode="crm-7-a1")
    )
    for method, target, sent in asks:
        found = on.ask(on.script.identify("app", request(method, target, sent)), "main")
        if isinstance(found, Serve):
            on.done(found)
        elif isinstance(found, Miss):
            now = Situation(asked=found.asked, lane="main", consumers=dict(on.consumers))
            found.near = nearest(on.script, now, lambda body: body)
    return on


def test_the_receipt_tells_the_first_divergence_with_both_sides() -> None:
    on = played(
        exchange("GET", "/deals/42"),
        exchange("POST", "/deals/42/notes", sent={"text": "Called. No answer."}),
        asks=[("GET", "/deals/42", b""), ("POST", "/deals/42/notes", {"text": "Called, no answer"})],
    )
    lines = receipt_lines(episode_receipt(on), 1)
    assert lines == [
        "NOT REPRODUCED  nightly/crm-7-a1".ljust(49) + "the replay itself contacted the environment 0 times",
        (
            "  served 1 of 2   exact 1  canonical 0  relaxed 0  repeat 0"
            "      missed 1   unused 1 (1 write)   out of order 0"
        ),
        "  first divergence  request 2 of 2, lane main",
        '    asked     POST /deals/42/notes   body/text "Called, no answer"',
        '    recorded  POST /deals/42/notes   body/text "Called. No answer."     crm-7-a1/2, free',
        "  after it nothing the agent saw is supported by the recording",
        (
            "  an agent that chooses its own words cannot be replayed closed: "
            "redrive the requests, or record the model too"
        ),
        "exit 1     explain: replayproxy show nightly/crm-7-a1/2",
    ]


def test_a_miss_is_logged_with_what_comes_near_and_again_in_one_line() -> None:
    on = played(
        exchange("GET", "/deals/42?fields=name,owner"),
        exchange("GET", "/deals/42?fields=owner,name"),
        asks=[("GET", "/deals/42?fields=name,owner", b"")] * 2,
    )
    (miss,) = on.misses.values()
    assert miss_lines(miss_document(on.script, miss)) == [
        (
            "470  GET /deals/42?fields=name,owner      crm-7-a1  lane main  request 2     "
            "(from replayproxy, not the environment)"
        ),
        "  1  crm-7-a1/1  consumed    same request; 1 recorded, 1 served (the last to request 1)",
        '  2  crm-7-a1/2  free        query.fields  "owner,name" | "name,owner"',
    ]
    miss.count = 3
    assert len(miss_lines(miss_document(on.script, miss))) == 1


def test_a_run_tells_its_episodes_and_its_strays() -> None:
    good = played(exchange("GET", "/a"), asks=[("GET", "/a", b"")])
    receipt = run_receipt(
        "nightly", [episode_receipt(good)], not_replayed=["x", "y"], incomplete=["z"],
        strays=[Stray(request="GET /q", reason="no carrier", at=1)],
    )  # fmt: skip
    text = "\n".join(receipt_lines(receipt, 1))
    for wanted in ("episodes  1 of 1 reproduced", "not replayed  2   x, y", "incomplete", "GET /q: no carrier"):
        assert wanted in text


def test_a_request_of_no_episode_is_told_with_its_place() -> None:
    receipt = run_receipt("r", [], not_replayed=["x"], strays=[Stray(request="GET /q", reason="no carrier", at=1)])
    lines = receipt_lines(receipt, 1)
    at = lines.index("  first divergence  at a request of no episode")
    assert lines[at + 1] == "    GET /q     no carrier"


def test_what_only_rules_made_fit_says_so() -> None:
    on = played(exchange("GET", "/a"), asks=[("GET", "/a", b"")])
    receipt = episode_receipt(on)
    receipt |= {
        "served": {"exact": 0, "canonical": 0, "relaxed": 2, "repeat": 1}, "reproduced": False,
        "rules": [{"name": "clock", "action": "mask", "uses": 2}, {"name": "poll", "action": "repeat", "uses": 1}],
    }  # fmt: skip
    lines = receipt_lines(receipt, 1)
    assert lines[0].startswith("NOT REPRODUCED")
    assert "  because 2 answers needed rule clock" in lines
    assert "  because 1 answer was a repeat (rule poll)" in lines


def test_what_cannot_be_judged_for_lack_of_answers_or_credentials_says_so() -> None:
    on = played(exchange("GET", "/a", status=None, outcome=Outcome.REFUSED), asks=[("GET", "/a", b"")])
    receipt = episode_receipt(on)
    assert receipt_lines(receipt, 3)[0].startswith("CANNOT BE JUDGED (nothing served was an environment's answer)")
    told = "  credentials were recorded under another key: any would have matched"
    assert told not in receipt_lines(receipt, 3)
    assert receipt_lines(receipt | {"credentials_compared": False}, 3)[1:3].count(told) == 1


def test_the_name_stands_apart_from_what_follows_it_however_long_the_verdict_is() -> None:
    line = receipt_lines(episode_receipt(played(exchange("GET", "/a"), asks=[])), 3)[0]
    verdict = "CANNOT BE JUDGED (nothing was asked for)"
    assert re.fullmatch(rf"{re.escape(verdict)}  nightly/crm-7-a1 {{3,}}the replay itself contacted .*", line)


@pytest.mark.parametrize(("words", "warned"), [((), True), (("--env", "app"), False)])
def test_what_was_recorded_through_the_forward_proxy_is_warned_of(
    store: Store, words: tuple[str, ...], warned: bool
) -> None:
    path = record(store, exchange("GET", "/x"), forward=True)
    done = ran(path, "r/e", *words, "--", sys.executable, "-c", "pass")
    assert (f"  {PAST}" in done.stderr.splitlines()) is warned


def test_a_message_that_was_not_recorded_is_told_with_its_place_and_field() -> None:
    player = Replayer(build([talk(agent('{"n": 1}'), seq=1)], run="r", episode="e"))
    asked = player.script.identify("app", player.script.entries[0].exchange.request)
    serve = player.ask(asked, "main")
    assert isinstance(serve, Serve)
    found = unlike(1, agent('{"n": 2}'), [(1, agent('{"n": 1}'))])
    miss = player.unlike(serve, found)
    lines = miss_lines(message_document(player.script, miss))
    assert lines[0].startswith("4470  GET /ws      e  lane main  request 1  message 1     (from replayproxy")
    assert lines[1] == "  1  e/1 message 1  free        messages/1/n  1 | 2"
    told = receipt_lines(episode_receipt(player), 1)
    assert "    GET /ws     r/e/1: messages/1/n: recorded 1, asked 2" in told


def test_a_conversation_that_was_left_says_where() -> None:
    player = Replayer(build([talk(agent("a"), seq=1)], run="r", episode="e"))
    serve = player.ask(player.script.identify("app", player.script.entries[0].exchange.request), "main")
    assert isinstance(serve, Serve)
    player.left(serve, 5, "the agent left before message 1")
    assert "    GET /ws     the agent left before message 1" in receipt_lines(episode_receipt(player), 1)
