"""A real browser: what a page loads, recorded over forward TLS, and loaded again with the server stopped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ROOT, SERVERS, Lab, NoContact
from tests.needs import program
from tests.session.tls_server import make_tls_files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAMES = ("chromium", "chromium-browser", "google-chrome")
OWN_HOSTS = ("*.google.com", "*.googleapis.com", "*.gvt1.com")
QUIET = (
    "--disable-background-networking", "--disable-component-update",
    "--proxy-bypass-list=" + ";".join(("<-loopback>", *OWN_HOSTS)),
    "--host-resolver-rules=" + ",".join(f"MAP {host} ~NOTFOUND" for host in OWN_HOSTS),
)  # fmt: skip
"""Not what a browser asks for by itself, with values of the day: that goes past the proxy, and nowhere. These are the
flags of docs/forward.md."""


def browser() -> str:
    return program(*NAMES)


def agent(lab: Lab, url: str) -> list[str]:
    """The browser with a profile of its own, so with an empty cache; it prints the page as its scripts left it."""
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *QUIET,
        "--virtual-time-budget=60000", "--dump-dom",
    )  # fmt: skip
    script = (
        f'exec "$@" --user-data-dir="$(mktemp -d -p {lab.path})" --proxy-server="$REPLAYPROXY_FORWARD" '
        f'--ignore-certificate-errors-spki-list="$REPLAYPROXY_CA_KEY_HASH" {url}/'
    )
    return ["sh", "-c", script, "browser", browser(), *flags]


def start(lab: Lab, folder: Path) -> tuple[str, Path]:
    files = make_tls_files(folder)
    server = subprocess.Popen([sys.executable, str(SERVERS / "page.py"), str(files.server)], stdout=subprocess.PIPE)
    lab.servers.append(server)
    assert server.stdout is not None
    url = str(json.loads(server.stdout.readline())["url"])
    server.stdout.close()
    return url, files.ca


def shown(err: str) -> list[Any]:
    """What the page says when its last script is done; with --json it is on stderr."""
    assert "<title>done</title>" in err, err
    found = re.search(r"<main>(.*)</main>", err)
    assert found, err
    return list(json.loads(found[1]))


def test_a_page_of_thirty_resources_loads_with_its_server_stopped(
    lab: Lab, tmp_path: Path, no_contact: Callable[[int], NoContact]
) -> None:
    url, ca = start(lab, tmp_path / "tls")
    ran = lab.run(
        "record", "--forward", "0", "--env", f"shop={url},ca={ca}", "--run", "r", "--episode", "e", "--json", "--",
        *agent(lab, url),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    said = shown(ran.err)
    items = ["item 1", "item 2", "item 3", "item 4"]
    assert said == [
        "packed", "plain", items, "item 9", [3], ["file", "note"], [3], 0.30000000000000004, 0.30000000000000004, "tea",
        16, "rgb(1, 2, 3)", "5px",
    ]  # fmt: skip
    lab.stop_all()
    listed = lab.run("show", "r/e", "--json").json["exchanges"]
    assert len(listed) == 36
    assert {one["env"] for one in listed} == {"shop"}, "the browser's own traffic stays out of it"
    assert {200, 302, 304} == {one["status"] for one in listed}

    counter = no_contact(int(url.rpartition(":")[2]))
    again = lab.run("replay", "r/e", "--forward", "0", "--json", "--", *agent(lab, url))
    assert again.json["reproduced"] is True, again.out + again.err
    assert again.json["served"]["exact"] + again.json["served"]["canonical"] == ran.json["exchanges"]
    assert (again.code, again.json["upstream_contacts"], counter.count()) == (0, 0, 0)
    assert shown(again.err) == said


def test_the_page_on_forward_mode_has_these_flags() -> None:
    page = (ROOT / "docs" / "forward.md").read_text().replace('"', "")
    assert [flag for flag in QUIET if flag not in page] == []
