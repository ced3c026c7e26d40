from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from replayproxy.core.values import Message, Outcome, WebSocket
from replayproxy.storage import open_store
from replayproxy.testing import episode, exchange, run
from tests.cli.conftest import EVIL, Call
from tests.serve.talks import agent, talk

EVERYTHING = (
    ["show", "nightly"], ["show", "nightly/a"], ["show", "nightly/a", "--state"], ["show", "nightly/a", "--md"],
    *(["show", f"nightly/a#{seq}", *more] for seq in range(1, 6) for more in ([], ["--curl"], ["--state"], ["--md"])),
    ["show", "nightly/a/s1"], ["show", "nightly/a/s2"], ["show", "F1"], ["show", "F1", "--md"],
    ["show", "nightly/unattributed"], ["ls"], ["ls", "nightly"],
)  # fmt: skip


@pytest.mark.parametrize("command", EVERYTHING, ids=" ".join)
def test_nothing_recorded_reaches_a_terminal_raw(call: Call, recorded: Path, command: list[str]) -> None:
    told = call(*command)
    assert told.code == 0, told.err
    assert told.out
    for char in told.text:
        assert char == "\n" or char.isprintable(), f"{char!r} in {told.text!r}"


def test_an_episode_is_shown_as_a_dialogue(call: Call, recorded: Path) -> None:
    lines = call("show", "nightly/a").text.splitlines()
    assert lines[0] == (
        "nightly/a   crm-7 seed 7 attempt 1   step 398   reward 1.00   sealed (end)   verdict POISONED by F1"
    )
    assert lines[1].startswith("start  s0  crm  ")
    assert " ".join(lines[4].split()) == "2 main 6.10 PATCH crm /deals/42 200 14 ms F1 read"
    assert " ".join(lines[5].split()) == 'deals/42 /stage "lead" -> "won" (2 rows)'
    assert [line.endswith("| side by side") for line in lines[3:9]] == [False, False, False, True, True, False]
    assert "refused" in lines[8]
    assert max(map(len, lines[2:])) <= 100
    assert lines[9] == "end    s2  crm  MISSING: no answer in 30 s"
    assert lines[10] == "5 exchanges, 3 snapshots        next: replayproxy show F1"


def test_unattributed_traffic_is_shown_with_the_reason(call: Call, recorded: Path) -> None:
    assert call("show", "nightly/unattributed").text.splitlines()[2].endswith("1 ms  no carrier")


def test_an_episode_as_json(call: Call, recorded: Path) -> None:
    told = call("show", "nightly/a", "--json").json
    wanted = {"run": "nightly", "episode": "a", "task": "crm-7", "seed": 7, "attempt": 1, "state": "sealed",
              "ended_by": "end", "reward": 1.0}  # fmt: skip
    assert {name: told[name] for name in wanted} == wanted
    assert [shot["status"] for shot in told["snapshots"]] == ["taken", "taken", "missing"]
    assert told["snapshots"][1]["after"] == 2
    assert [one["seq"] for one in told["exchanges"]] == [1, 2, 3, 4, 5]
    fourth = {"seq": 4, "lane": "tool-b", "env": "cal", "method": "POST", "target": "/slots/8", "status": 409,
              "outcome": "answered"}  # fmt: skip
    assert {name: told["exchanges"][3][name] for name in fourth} == fourth
    assert (told["exchanges"][4]["status"], told["exchanges"][4]["outcome"]) == (None, "refused")
    assert call("show", "nightly/b", "--json").json["state"] == "incomplete"


def test_the_state_of_an_episode_is_every_row_that_changed(call: Call, recorded: Path) -> None:
    text = call("show", "nightly/a", "--state").text
    assert "s0 -> s1  crm  2 rows changed" in text
    assert 'deals/42 /stage "lead" -> "won"' in text
    assert "deals/9\\x1b]0;evil\\x07 new" in text
    states = call("show", "nightly/a", "--state", "--json").json["states"]
    assert states[0]["rows"][0]["before"] == {"stage": "lead", "n": 1.1}
    assert states[0]["rows"][1] == {"table": "deals", "key": f"9{EVIL}", "before": None, "after": {"a": 2**70}}


def test_an_exchange_is_readable_and_its_numbers_are_exact(call: Call, recorded: Path) -> None:
    text = call("show", "nightly/a#2").text
    assert "> PATCH /deals/42 HTTP/1.1" in text
    assert '  "amount": 1.10,\n  "big": 12345678901234567890\n}' in text
    assert "the answer waited 2 ms for a snapshot" in text
    assert "no answer: refused" in call("show", "nightly/a#5").text
    assert "(10 bytes, binary)" in call("show", "nightly/a#1").text
    assert "< X-\\xff: \\xfe" in call("show", "nightly/a#1").text
    assert "\\x1b[31mtext" in call("show", "nightly/a/3").text


def test_an_exchange_as_json_has_its_bytes(call: Call, recorded: Path) -> None:
    told = call("show", "nightly/a#4", "--json").json
    assert told["request"]["body"]["base64"] == "aXQncyAB/w=="
    assert told["response"]["body"]["text"] == "c" * 9000
    assert told["times"]["head"] == 6_311_000_000
    assert call("show", "nightly/a#5", "--json").json["response"] is None


def test_the_wire_is_byte_for_byte(call: Call, recorded: Path) -> None:
    raw = call("show", "nightly/a#4", "--wire").out
    assert raw == (
        b"POST /slots/8 HTTP/1.1\r\nHost: env.test\r\nContent-Type: application/octet-stream\r\n"
        b"Content-Length: 7\r\n\r\nit's \x01\xff"
        b"HTTP/1.1 409 Conflict\r\nContent-Type: application/octet-stream\r\nContent-Length: 9000\r\n\r\n" + b"c" * 9000
    )
    assert call("show", "nightly/a#4", "--body", "answer").out == b"c" * 9000
    assert call("show", "nightly/a#4", "--body", "request").out == b"it's \x01\xff"
    assert call("show", "nightly/a#5", "--body", "answer").out == b""


def test_a_chunked_answer_is_chunked_on_the_wire_as_it_was(call: Call, recorded: Path) -> None:
    add(recorded, exchange(body=b"abcde", chunks=[(2, 1), (3, 2)], headers={"Transfer-Encoding": "chunked"}))
    raw = call("show", "extra/e#1", "--wire").out
    assert raw.endswith(b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n")


def add(path: Path, one: object) -> None:
    with open_store(path) as store:
        writer = store.writer()
        made = writer.open_run(run("extra"))
        rollout = writer.open_episode(episode("e", run_key=made.key))
        writer.put_exchange(rollout.key, one)  # type: ignore[arg-type]
        writer.seal(rollout).result(5)
        writer.close()


def test_curl_sends_the_recorded_bytes(call: Call, recorded: Path, tmp_path: Path) -> None:
    """The printed command, run by a real shell with a stand-in for curl that prints what it was given."""
    stand_in = tmp_path / "curl"
    stand_in.write_text(f"#!{sys.executable}\nimport os, sys\n"
                        "for a in sys.argv[1:]: sys.stdout.buffer.write(os.fsencode(a) + b'\\n')\n"
                        "if '@-' in sys.argv: sys.stdout.buffer.write(sys.stdin.buffer.read())\n")  # fmt: skip
    stand_in.chmod(0o755)

    def sent(seq: int) -> list[bytes]:
        line = call("show", f"nightly/a#{seq}", "--curl").text
        done = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env={"PATH": f"{tmp_path}:/bin"})
        return done.stdout.split(b"\n")

    second = sent(2)
    assert second[-2] == b"http://127.0.0.1:9000/deals/42"
    assert second[second.index(b"-X") + 1] == b"PATCH"
    assert second[second.index(b"--data-raw") + 1] == b'{"stage": "won"}'
    assert sent(1)[-2] == b"http://crm.test/deals?q=" + EVIL.encode()
    assert sent(4)[-1] == b"it's \x01\xff"


def test_a_snapshot_shows_its_rows(call: Call, recorded: Path) -> None:
    text = call("show", "nightly/a/s0").text
    assert "deals   2 rows" in text
    assert '  42  {"n":1.1,"stage":"lead"}' in text
    told = call("show", "nightly/a/s1", "--json").json
    assert told["state"]["deals"]["42"] == {"n": 1.1, "stage": "won"}
    assert '"a":1180591620717411303424' in call("show", "nightly/a/s1", "--json").text
    assert call("show", "nightly/a/s2", "--json").json["state"] is None
    assert "MISSING: no answer in 30 s" in call("show", "nightly/a/s2").text


def test_a_run_shows_its_wiring_and_its_episodes(call: Call, recorded: Path) -> None:
    text = call("show", "nightly").text
    assert "  env       crm http://crm.test" in text
    assert "  snapshot  crm = sqlite:crm.db" in text
    assert "  secrets   credentials, cookies and tokens are in it as they were sent" in text
    assert "a        crm-7" in text
    told = call("show", "nightly", "--json").json
    assert told["envs"]["cal"]["upstream"] == "http://cal.test"
    assert len(told["episodes"]) == 2


def test_a_finding_shows_its_evidence(call: Call, recorded: Path) -> None:
    lines = call("show", "F1").text.splitlines()
    assert lines[0] == "F1  STATE BLEED (row)  PROVEN  a was poisoned by b"
    assert lines[1] == "  falls on nightly/a, lane main   blame: environment (reset)"
    assert lines[2].split()[:6] == ["a/s0", "state", "snapshot", "crm,", "start", "22:13:20.000"]
    assert " ".join(lines[3].split()[:9]) == 'a/2 read GET /deals 200 22:13:26.100 /items/3/id = "D-9"'
    assert '  values      /items/3/id   expected "absent"   there was "D-9\\x1b]0;evil\\x07"' in lines
    assert "  ruled out   own write: none" in lines
    assert "  reproduce   replayproxy reproduce F1 --env crm=URL" in lines
    assert call("show", "state-bleed-0123456789ab", "--json").json["id"] == "state-bleed-0123456789ab"


def test_markdown_is_one_fenced_block(call: Call, recorded: Path) -> None:
    lines = call("show", "nightly/a", "--md").text.splitlines()
    assert lines[:3] == ["### `nightly/a`", "", "````text"]
    assert lines[-1] == "````"


def test_a_websocket_is_shown_message_by_message(call: Call, recorded: Path) -> None:
    talk = WebSocket(
        messages=(
            Message(from_agent=True, text=True, payload=b"hi\x1b", at=1_000_000),
            Message(from_agent=False, text=False, payload=b"\x00\x01", at=2_000_000),
        ),
        close_code=1006,
    )
    add(recorded, exchange(status=101, websocket=talk))
    lines = call("show", "extra/e#1").text.splitlines()
    assert lines[-3:] == [
        ">    1     0.001  text         3  hi\\x1b",
        "<    2     0.002  binary       2  00 01",
        "2 messages, closed: 1006 without a close frame",
    ]
    told = call("show", "extra/e#1", "--json").json["websocket"]
    assert [m["from_agent"] for m in told["messages"]] == [True, False]
    assert (told["count"], told["messages"][1]["base64"], told["messages"][1]["size"]) == (2, "AAE=", 2)


@pytest.mark.parametrize(
    ("outcome", "end"), [(Outcome.OPEN_AT_END, "open at the end"), (Outcome.LOST, "what followed is not known")]
)
def test_the_end_of_a_conversation_is_told_where_it_is_known(
    call: Call, recorded: Path, outcome: Outcome, end: str
) -> None:
    said = talk(agent("hi", 0), code=None)
    add(recorded, replace(said, outcome=outcome))
    assert call("show", "extra/e#1").text.splitlines()[-1] == f"1 message, {end}"
    assert f" 1 message, {end}\n" in call("show", "extra/e").text


def test_a_long_conversation_is_listed_from_the_store(call: Call, recorded: Path) -> None:
    said = [agent("x" * 5000, at) for at in range(3)]
    add(recorded, talk(*said, code=4001, reason="bye", by_agent=False))
    lines = call("show", "extra/e#1").text.splitlines()
    assert lines[-1] == "3 messages, closed by the environment: 4001 bye"
    assert "\n" + " " * 26 + "3 messages, closed by the environment: 4001 bye\n" in call("show", "extra/e").text
    assert lines[-2] == ">    3     0.002  text     5,000  " + "x" * 2000 + "…"
    told = call("show", "extra/e#1", "--json").json["websocket"]
    assert [len(one["payload"]) for one in told["messages"]] == [5000] * 3
    assert told["cut"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "no run 'nope'"), (["nightly/nope"], "no episode 'nope'"), (["nightly/a#6"], "no exchange 6"),
        (["nightly/a/s3"], "no snapshot s3"), (["F2"], "no finding F2"), (["nightly/a#0"], "counted from 1"),
        (["nightly/a", "--curl"], "--curl needs an exchange"), (["nightly/a#1", "--curl", "--wire"], "exclude each"),
        (["nightly/a#1", "--wire", "--json"], "exclude each"), (["x.replay"], "x.replay cannot be read: no such file"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_line_and_exit_2(call: Call, recorded: Path, arguments: list[str], said: str) -> None:
    told = call("show", *arguments)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("nightly/a#99", "it has 5 -> name one from #1 to #5"),
        ("nightly/b#1", "it has 0 -> name another episode"),
        ("nightly/a/s9", "it has 3 -> name one from s0 to s2"),
    ],
)
def test_what_an_episode_does_not_have_is_told_with_what_it_has(
    call: Call, recorded: Path, address: str, hint: str
) -> None:
    told = call("show", address)
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert hint in told.err
