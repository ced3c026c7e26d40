"""Extracting rules from the command line: refused in one line, kept with the run, shown."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replayproxy.storage import open_store
from tests.cli.conftest import Call

ENV = ("--env", "app=http://127.0.0.1:1")
RULE = """
[[rule]]
name = "thread"
action = "extract"
header = "X-Thread"
fills = "alias"
[rule.example]
request = "GET /x"
headers = ["X-Thread: t1"]
value = "t1"
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("REPLAYPROXY_STORE", "REPLAYPROXY_CONFIG", "REPLAYPROXY_TOKEN"):
        monkeypatch.delenv(name, raising=False)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def env() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"app=http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def agent(*requests: tuple[str, dict[str, str]]) -> list[str]:
    code = (
        "import json, sys, urllib.request\n"
        "for target, headers in json.loads(sys.argv[2]):\n"
        "    urllib.request.urlopen(urllib.request.Request(sys.argv[1] + target, headers=headers)).read()\n"
    )
    return ["--", sys.executable, "-c", code, "{app}", json.dumps(requests)]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "thread"', "", "extract rule 1 has no name"),
        ('header = "X-Thread"', "", "rule 'thread': it names no source"),
        ('header = "X-Thread"', 'header = "X-Thread"\ncookie = "a"', "rule 'thread': it names 2 sources"),
        ('fills = "alias"', 'fills = "mood"', "rule 'thread': fills is 'mood'"),
        ('fills = "alias"', 'fills = "alias"\ncolour = 1', "rule 'thread': unknown key 'colour'"),
        ('fills = "alias"', 'fills = "alias"\ndecode = ["regex:((?:a+)+)"]', "can take for ever"),
        ('fills = "alias"', 'fills = "alias"\nuntil = "soon"', "until is 'soon'"),
        ('value = "t1"', 'value = "t2"', "rule 'thread': its example gives 't1', not 't2'"),
        (RULE, RULE + RULE, "two rules are named 'thread'"),
        (RULE, "rule = 7", "rule must be a list of tables"),
        (RULE, 'rules = ["nonsense"]', "there is no rule set of that name -> there are mcp, "),
        (RULE, "rules = 7", "rules must be a text or a list of texts"),
        (RULE, 'rules = ["mcp"]' + RULE.replace("thread", "mcp-session"), "two rules are named 'mcp-session'"),
    ],
)
def test_a_file_that_cannot_be_meant_is_2_with_one_line_that_names_the_rule(
    call: Call, old: str, new: str, why: str
) -> None:
    assert old in RULE
    Path("replayproxy.toml").write_text(RULE.replace(old, new))
    told = call("record", *ENV, "--", "true")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert why in told.err
    assert not Path(".replayproxy").exists()


def test_a_rule_set_that_does_not_exist_is_2(call: Call) -> None:
    told = call("record", *ENV, "--rules", "nemo", "--", "true")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "nemo-gym" in told.err


def test_rules_of_the_file_are_used_counted_kept_and_shown(call: Call, env: str) -> None:
    expired = RULE.replace('"thread"', '"old"').replace('fills = "alias"', 'fills = "alias"\nuntil = 2020-01-01')
    Path("replayproxy.toml").write_text(f'rules = "tau2"\n{RULE}{expired}')
    asked = agent(("/a", {"X-Thread": "t1"}), ("/b", {"X-Thread": "t2"}), ("/c", {"X-Thread": "t1"}))
    told = call("record", "--env", env, "--run", "r", "--json", *asked)
    assert told.code == 0, told.err
    rules = told.json["rules"]
    assert rules["used"] == {"thread": 3}
    assert rules["expired"] == ["old"]
    assert rules["unused"] == ["tau2-started", "tau2-tools", "tau2-state", "tau2-trajectory"]
    assert "rule old has expired and is not applied" in told.err
    assert "rules never used: tau2-started" in told.err
    with open_store(Path(".replayproxy")) as store:
        kept = store.reader().run("r").config["rule"]
    assert [rule["name"] for rule in kept] == ["thread", *rules["unused"]]
    assert all("example" not in rule for rule in kept)
    listed = call("ls", "r", "--json").json["episodes"]
    assert [(one["episode"], one["exchanges"], one["aliases"]) for one in listed] == [
        ("t1", 2, [["thread", "t1"]]), ("t2", 1, [["thread", "t2"]]),
    ]  # fmt: skip
    assert "ALIAS" in call("ls", "r").text
    assert "alias  thread t1\n" in call("show", "r/t1").text
    assert call("show", "r/t1", "--json").json["aliases"] == [["thread", "t1"]]


def test_a_contradiction_is_3_and_named_with_its_address(call: Call, env: str) -> None:
    Path("replayproxy.toml").write_text(RULE)
    asked = agent(("/rp/a/x", {"X-Thread": "t1"}), ("/rp/b/x", {"X-Thread": "t1"}))
    told = call("record", "--env", env, "--run", "r", "--json", *asked)
    assert told.code == 3
    assert told.json["why_not_whole"] == ["1 contradiction"]
    assert told.json["first_contradiction"] == "r/b: contradiction: prefix says b, rule thread says a"
    assert "contradictions: 1, first r/b: " in told.err
    assert "contradiction: prefix says b, rule thread says a" in call("show", "r/b").text


def test_traffic_that_no_rule_knows_is_never_reported_as_clean(call: Call, env: str) -> None:
    Path("replayproxy.toml").write_text(RULE)
    asked = agent(("/a", {"X-Thread": "t1"}), ("/b", {}))
    told = call("record", "--env", env, "--json", *asked)
    assert told.code == 3
    assert (told.json["whole"], told.json["unattributed"]) == (False, 1)
    assert told.json["unattributed_reasons"] == {"no carrier": 1}


def test_a_recording_without_an_exchange_is_never_reported_as_clean(call: Call, env: str) -> None:
    told = call("record", "--env", env, "--rules", "nemo-gym", "--json", "--", "true")
    assert (told.code, told.json["whole"]) == (3, False)
    assert told.json["why_not_whole"] == ["no exchange was recorded in an episode"]
