"""Clients made up for tests: one that does as it should, and some that do not."""

from __future__ import annotations

import sys
from typing import Any

from replayproxy.session.canary_clients import Client, Way

OBEYS = """import os, sys, http.client
from urllib.parse import urlsplit
how, base, path = sys.argv[1:]
proxy = os.environ.get("http_proxy") if how == "forward" else None
at = urlsplit(proxy or base)
connection = http.client.HTTPConnection(at.hostname, at.port, timeout=4)
target = base + path if proxy else urlsplit(base + path).path
headers = {}
if proxy and at.username:
    import base64
    headers = {"Proxy-Authorization": "Basic " + base64.b64encode(f"{at.username}:x".encode()).decode()}
connection.request("GET", target, headers=headers)
sys.exit(connection.getresponse().status != 200)
"""

DROPS_THE_PATH = OBEYS.replace("urlsplit(base + path).path", "path")
IGNORES_THE_PROXY = OBEYS.replace('os.environ.get("http_proxy") if how == "forward" else None', "None")
HANGS = "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)\n"
CRASHES = "import sys\nsys.exit('no such option')\n"
BABBLES = "import os\nos.write(1, os.urandom(300_000))\nos.write(2, os.urandom(300_000))\n"
SENDS_AND_FAILS = OBEYS.rpartition("sys.exit(")[0] + "connection.getresponse()\nsys.exit('I do not like it')\n"


SEVERAL = """import sys, time, urllib.request
for job in sys.argv[1:]:
    how, base, path = job.split(" ")
    if how == "resolve":
        print(path, "cannot do that", file=sys.stderr)
    elif base.startswith("https"):
        time.sleep(60)
    else:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(base + path).read()
        print(path, flush=True)
"""


def fake(name: str, source: str, *ways: Way, seconds: float = 20.0, **given: Any) -> Client:
    """A client that is this interpreter with `source`. Its time is long: a test's machine may be busy."""
    how = "forward" if any(style == "forward" for style, _ in ways) else "{how}"
    return Client(
        name=name, program=(sys.executable,), argv=("-S", "-E", "-c", source, how, "{base}", "{path}"),
        ways=ways or (("append", "http"),), seconds=seconds, **given,
    )  # fmt: skip
