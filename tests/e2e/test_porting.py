"""A recorded run leaves its store in each format, comes into another one, and answers the agent with the server off."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab, Ran

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

AGENT = """
import hashlib, http.client, json, os, sys
from urllib.parse import urlsplit
parts = urlsplit(os.environ["REPLAYPROXY_URL_APP"])
seen = []
def call(method, path, body=None, headers={}):
    http_ = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    http_.request(method, parts.path + path, body=body, headers=headers)
    answer = http_.getresponse()
    seen.append([path, answer.status, answer.getheaders(), hashlib.sha256(answer.read()).hexdigest()])
call("GET", "/body?size=0")
call("GET", "/body?size=300000&x=%2F%7e")
call("GET", "/gzip")
call("HEAD", "/body?size=4096")
call("POST", "/upload", bytes(range(256)) * 40, {"Content-Type": "application/octet-stream"})
call("POST", "/upload", b'{"a": 1}', {"Content-Type": "application/json"})
call("GET", "/events?s=1")
print("SEEN " + json.dumps(seen), file=sys.stderr)
"""
COMMAND = [sys.executable, "-c", AGENT]


def seen(ran: Ran) -> list[list[object]]:
    line = next(line for line in ran.err.splitlines() if line.startswith("SEEN "))
    told: list[list[object]] = json.loads(line.removeprefix("SEEN "))
    return told


@pytest.fixture
def recorded(lab: Lab) -> list[list[object]]:
    """What the agent saw while run `r` was recorded; the server has ended since."""
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--", *COMMAND)
    assert ran.code == 0, ran.err
    lab.stop_all()
    return seen(ran)


@pytest.mark.parametrize("form", ["archive", "har", "flow"])
def test_a_run_goes_through_a_file_and_replays_the_same(lab: Lab, recorded: list[list[object]], form: str) -> None:
    done = lab.run("export", "r", "--format", form, "--out", "carried", "--json")
    assert done.code == 0, done.err
    elsewhere = Lab(lab.path / "elsewhere")
    elsewhere.path.mkdir()
    taken = elsewhere.run("import", str(lab.path / "carried"), "--json")
    assert (taken.code, taken.json["runs"], taken.json["exchanges"]) == (0, ["r"], 7), taken.err
    replayed = elsewhere.run("replay", "r/e", "--json", "--", *COMMAND)
    assert (replayed.code, replayed.json["reproduced"]) == (0, True), replayed.err
    assert seen(replayed) == recorded
    assert elsewhere.run("fsck").code == 0
    assert elsewhere.run("check", "r", "--json").code in (0, 3)
    both = lab.run("diff", "r/e", "r/e", "--store", str(elsewhere.store), "--json")
    assert both.code == 2, "the same name in two stores is ambiguous"
    lab.run("import", str(lab.path / "carried"), "--run", "again")
    assert lab.run("diff", "r/e", "again/e", "--json").json["verdict"] == "same"


def test_an_archive_answers_in_place(lab: Lab, recorded: list[list[object]]) -> None:
    assert lab.run("export", "r", "--format", "archive", "--out", "r.replay").code == 0
    elsewhere = Lab(lab.path / "elsewhere")
    elsewhere.path.mkdir()
    for inside in ("e", "r/e"):
        replayed = elsewhere.run("replay", f"{lab.path / 'r.replay'}/{inside}", "--json", "--", *COMMAND)
        assert (replayed.code, replayed.json["reproduced"]) == (0, True), replayed.err
        assert seen(replayed) == recorded
    assert [path.name for path in elsewhere.path.iterdir()] == [], "no store was needed"


def test_a_har_that_others_have_written_over_replays_as_far_as_it_tells(lab: Lab, recorded: list[list[object]]) -> None:
    """Our own members taken out: what is left is what a browser would have written."""
    lab.run("export", "r/e", "--format", "har", "--out", "own.har")
    document = json.loads((lab.path / "own.har").read_bytes())
    del document["log"]["_replayproxy"]
    for entry in document["log"]["entries"]:
        del entry["_replayproxy"]
    foreign = Path(lab.path / "foreign.har")
    foreign.write_text(json.dumps(document))
    origin = document["log"]["entries"][0]["request"]["url"].partition("/body")[0]
    taken = lab.run("import", "foreign.har", "--env", f"app={origin}", "--json")
    assert (taken.code, taken.json["runs"]) == (0, ["foreign"]), taken.err
    assert {"what": "imported: body as decoded", "count": 1} in taken.json["notes"]
    replayed = lab.run("replay", "foreign/foreign", "--json", "--", *COMMAND)
    assert (replayed.code, replayed.json["reproduced"]) == (0, True), replayed.err
    told = seen(replayed)
    assert [row[:2] for row in told] == [row[:2] for row in recorded]
    plain = [number for number, row in enumerate(recorded) if row[0] != "/gzip"]
    assert [told[number][3] for number in plain] == [recorded[number][3] for number in plain]


KEYED = """
import http.client, os, sys
from urllib.parse import urlsplit
parts = urlsplit(os.environ["REPLAYPROXY_URL_APP"])
for path in ("/body?size=3&api_key=kx9-planted-Zq81hT", "/gzip", "/body?size=4"):
    http_ = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    http_.request("GET", parts.path + path, headers={
        "Authorization": "Bearer kx9-planted-Bb2Tq", "Cookie": "sid=kx9-planted-Cc33"})
    assert http_.getresponse().status == 200
    http_.close()
"""


@pytest.mark.parametrize("form", ["archive", "har", "flow", "in place"])
def test_credentials_of_another_store_are_bound_and_in_no_file(lab: Lab, form: str) -> None:
    command = [sys.executable, "-c", KEYED]
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--", *command)
    assert ran.code == 0, ran.err
    lab.stop_all()
    kind = "archive" if form == "in place" else form
    assert lab.run("export", "r/e", "--format", kind, "--out", "x.replay").code == 0
    elsewhere = Lab(lab.path / "elsewhere")
    elsewhere.path.mkdir()
    address = "r/e"
    if form == "in place":
        address = f"{lab.path / 'x.replay'}/e"
    else:
        taken = elsewhere.run("import", str(lab.path / "x.replay"))
        assert taken.code == 0, taken.err
    replayed = elsewhere.run("replay", address, "--json", "--", *command)
    assert (replayed.code, replayed.json["reproduced"]) == (0, True), replayed.err
    held = [path for path in lab.path.rglob("*") if path.is_file() and path.suffix != ".log"]
    assert [path.name for path in held if b"kx9-planted" in path.read_bytes()] == []
