"""Radicale (CalDAV): the same four facts, with the collection folder as its system of record."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import SERVERS, Lab, NoContact, Resetter, free_port, server_python

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# The recording holds a token in the place of what the agent's Basic credential held.
CREDENTIAL = ("--credential", "Authorization=agent:")
AGENT = [sys.executable, str(SERVERS / "radicale_agent.py")]


def start_radicale(lab: Lab, *, changed: bool = False) -> tuple[str, int]:
    port = free_port()
    config = lab.path / f"radicale-{port}.ini"
    folder = data(lab)
    folder.mkdir(exist_ok=True)
    config.write_text(
        f"[server]\nhosts = 127.0.0.1:{port}\n[auth]\ntype = none\n[storage]\nfilesystem_folder = {folder}\n"
        "[logging]\nlevel = warning\n"
    )
    python = server_python("radicale")
    words = [python, "-m", "radicale", "--config", str(config)]
    if changed:
        words = [python, str(SERVERS / "radicale_changed.py"), str(config), str(port)]
    lab.serve(words, f"http://127.0.0.1:{port}/.web/")
    return f"http://127.0.0.1:{port}", port


def data(lab: Lab) -> Path:
    return lab.path / "collections"


def snapshot(lab: Lab) -> str:
    # What Radicale derives from its items (ETags, sync history) is a cache and not its state.
    return f"cal=dir:{data(lab)},exclude=**/.Radicale.*"


def recorded(lab: Lab) -> int:
    url, port = start_radicale(lab)
    ran = lab.run(
        "record", "--env", f"cal={url}", "--snapshot", snapshot(lab), "--run", "nightly",
        "--episode", "e1", "--json", "--", *AGENT,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["exchanges"] >= 15
    assert ran.json["unattributed"] == 0
    lab.stop_all()
    return port


def test_radicale_replays_with_the_server_stopped(lab: Lab, no_contact: Callable[[int], NoContact]) -> None:
    counter = no_contact(recorded(lab))
    ran = lab.run("replay", "nightly/e1", "--json", "--", *AGENT)
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["reproduced"] is True
    assert ran.json["upstream_contacts"] == 0
    assert counter.count() == 0


def test_radicale_redriven_to_a_fresh_server_is_the_same(lab: Lab) -> None:
    recorded(lab)
    shutil.rmtree(data(lab))
    url, _ = start_radicale(lab)
    ran = lab.run("redrive", "nightly/e1", *CREDENTIAL, "--env", f"cal={url}", "--snapshot", snapshot(lab), "--json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["verdict"] == "same"


def test_a_wrapper_that_rewrites_a_summary_is_a_difference_with_exchange_and_row(lab: Lab) -> None:
    recorded(lab)
    url, _ = start_radicale(lab, changed=True)
    ran = lab.run("redrive", "nightly/e1", *CREDENTIAL, "--env", f"cal={url}", "--snapshot", snapshot(lab), "--json")
    assert ran.code == 1, ran.out + ran.err
    assert ran.json["verdict"] == "different"
    assert ran.json["roots"][0]["a"] == "nightly/e1#5"
    assert "e2.ics" in ran.out


def test_a_reset_that_leaves_a_changed_file_is_refused_with_that_file(
    lab: Lab, resetter: Callable[[Callable[[], None]], Resetter]
) -> None:
    folder = data(lab) / "collection-root" / "agent" / "home"
    folder.mkdir(parents=True)
    (folder / ".keep").write_text("before")
    recorded(lab)
    url, _ = start_radicale(lab)

    def leaves_one_file_changed() -> None:
        shutil.rmtree(data(lab) / "collection-root" / "agent" / "work")
        (folder / ".keep").write_text("after")

    reset = resetter(leaves_one_file_changed)
    ran = lab.run(
        "redrive", "nightly/e1", *CREDENTIAL, "--env", f"cal={url}", "--snapshot", snapshot(lab),
        "--reset", f"cal=POST {reset.url}",
    )  # fmt: skip
    assert ran.code == 3, ran.out + ran.err
    assert reset.calls == 1
    assert "home/.keep" in ran.err
