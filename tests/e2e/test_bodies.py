"""Bodies of every kind are byte-equal at replay."""

from __future__ import annotations

import hashlib
import json
import sys
import time

import pytest

from tests.e2e.conftest import Lab, Ran

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# Reads every body raw (no decoding), and prints status, header fields and digest of each.
AGENT = """
import hashlib, http.client, json, os, sys, time
from urllib.parse import urlsplit
parts = urlsplit(os.environ["REPLAYPROXY_URL_APP"])
seen = []
def call(method, path, body=None, headers={}):
    http_ = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    http_.request(method, parts.path + path, body=body, headers=headers)
    answer = http_.getresponse()
    digest, size, first = hashlib.sha256(), 0, None
    began = time.monotonic()
    while piece := answer.read1(65536):
        first = first or time.monotonic() - began
        digest.update(piece); size += len(piece)
    fields = [[n, v] for n, v in answer.getheaders()]
    seen.append([path, answer.status, fields, size, digest.hexdigest()])
    return time.monotonic() - began
call("GET", "/body?size=0")
call("GET", "/body?size=1")
call("GET", "/body?size=4096")
call("GET", "/body?size=52428800")
call("GET", "/gzip")
call("HEAD", "/body?size=4096")
call("POST", "/upload", bytes(range(256)) * 4096, {"Content-Type": "application/octet-stream"})
call("POST", "/upload", b"", {"Content-Type": "application/octet-stream"})
took = call("GET", "/events?s=3")
print("SEEN " + json.dumps({"seen": seen, "events_took": took}), file=sys.stderr)
"""


def seen(ran: Ran) -> tuple[list[list[object]], float]:
    line = next(line for line in ran.err.splitlines() if line.startswith("SEEN "))
    told = json.loads(line.removeprefix("SEEN "))
    return told["seen"], told["events_took"]


def test_empty_large_binary_gzip_and_streamed_bodies_replay_byte_equal(lab: Lab) -> None:
    agent = [sys.executable, "-c", AGENT]
    url = lab.toy()
    ran = lab.run("record", "--env", f"app={url}", "--run", "r", "--episode", "e", "--json", "--", *agent)
    assert ran.code == 0, ran.err
    recorded, took = seen(ran)
    assert took > 2.5, "the event stream was held back and came at once"
    assert [row[3] for row in recorded[:4]] == [0, 1, 4096, 52428800]
    block = hashlib.sha256(b"52428800").digest() * 2048
    assert recorded[3][4] == hashlib.sha256((block * (52428800 // len(block) + 1))[:52428800]).hexdigest()
    lab.stop_all()

    began = time.monotonic()
    again = lab.run("replay", "r/e", "--json", "--", *agent)
    assert again.code == 0, again.out + again.err
    assert again.json["reproduced"] is True
    replayed, took = seen(again)
    assert replayed == recorded
    assert took < 2, "instant pace replays a stream without its pauses"

    paced = lab.run("replay", "r/e", "--pace", "recorded", "--json", "--", *agent)
    assert paced.json["reproduced"] is True
    replayed, took = seen(paced)
    assert replayed == recorded
    assert took > 2.5
    assert time.monotonic() - began < 120
