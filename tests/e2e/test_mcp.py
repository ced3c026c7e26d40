"""The official MCP SDK over streamable HTTP, server and client, with SSE and with JSON answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import SERVERS, Lab, NoContact, Resetter, free_port, server_python

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ERAS = ("session", "stateless")


def agent(era: str) -> list[str]:
    return [server_python("mcp"), str(SERVERS / "mcp_agent.py"), "--era", era]


def start_notes(lab: Lab, *flags: str) -> tuple[str, int]:
    port = free_port()
    words = [server_python("mcp"), str(SERVERS / "mcp_notes.py"), "--port", str(port), "--db", str(notes(lab)), *flags]
    lab.serve(words, f"http://127.0.0.1:{port}/mcp")
    return f"http://127.0.0.1:{port}", port


def notes(lab: Lab) -> Path:
    return lab.path / "notes.db"


def flags(era: str) -> tuple[str, ...]:
    return () if era == "session" else ("--json",)


def recorded(lab: Lab, era: str) -> int:
    url, port = start_notes(lab, *flags(era))
    with sqlite3.connect(notes(lab)) as db:
        db.execute("INSERT INTO notes (id, text, done) VALUES (1, 'there before', 0)")
    ran = lab.run(
        "record", "--env", f"notes={url}", "--snapshot", f"notes=sqlite:{notes(lab)}", "--run", "nightly",
        "--episode", "e1", "--json", "--", *agent(era),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.json["exchanges"] >= 15
    assert ran.json["unattributed"] == 0
    lab.stop_all()
    return port


@pytest.mark.parametrize("era", ERAS)
def test_mcp_replays_with_the_server_stopped(lab: Lab, era: str, no_contact: Callable[[int], NoContact]) -> None:
    counter = no_contact(recorded(lab, era))
    # Longer than a client takes to reconnect: its GET stream must not have ended by then.
    ran = lab.run("replay", "nightly/e1", "--json", "--", *agent(era), "--pause", "2.5")
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["reproduced"] is True
    assert ran.json["upstream_contacts"] == 0
    assert counter.count() == 0


@pytest.mark.parametrize(("era", "ids"), [(ERAS[0], "uuid"), (ERAS[1], "later")])
def test_a_client_that_names_its_calls_otherwise_is_understood_and_each_name_is_listed(
    lab: Lab, era: str, ids: str
) -> None:
    recorded(lab, era)
    ran = lab.run("replay", "nightly/e1", "--json", "--", *agent(era), "--ids", ids)
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["reproduced"] is True
    bound = [one for one in ran.json["bindings"] if one["place"] == "body/id"]
    assert len(bound) >= 13
    assert all(str(one["live"]).isdigit() is (ids == "later") for one in bound)


@pytest.mark.parametrize("era", ERAS)
def test_mcp_redriven_to_a_fresh_server_is_the_same(lab: Lab, era: str) -> None:
    recorded(lab, era)
    url, _ = start_notes(lab, *flags(era))
    ran = lab.run(
        "redrive", "nightly/e1", "--env", f"notes={url}", "--snapshot", f"notes=sqlite:{notes(lab)}", "--json"
    )
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["verdict"] == "same"


@pytest.mark.parametrize("era", ERAS)
def test_a_changed_tool_is_a_difference_with_exchange_pointer_and_row(lab: Lab, era: str) -> None:
    recorded(lab, era)
    url, _ = start_notes(lab, *flags(era), "--changed")
    ran = lab.run(
        "redrive", "nightly/e1", "--env", f"notes={url}", "--snapshot", f"notes=sqlite:{notes(lab)}", "--json"
    )
    assert ran.code == 1, ran.out + ran.err
    assert ran.json["verdict"] == "different"
    first = ran.json["roots"][0]
    assert "milk" in str(first["values"][0])
    assert "MILK" in str(first["values"][1])
    assert '"notes"' in ran.out


def test_a_reset_that_leaves_a_changed_row_is_refused_with_that_row(
    lab: Lab, resetter: Callable[[Callable[[], None]], Resetter]
) -> None:
    recorded(lab, "session")
    url, _ = start_notes(lab)

    def leaves_one_row_changed() -> None:
        with sqlite3.connect(notes(lab)) as db:
            db.execute("DELETE FROM notes WHERE id > 1")
            db.execute("UPDATE notes SET text = 'changed', done = 0 WHERE id = 1")

    reset = resetter(leaves_one_row_changed)
    ran = lab.run(
        "redrive", "nightly/e1", "--env", f"notes={url}", "--snapshot", f"notes=sqlite:{notes(lab)}",
        "--reset", f"notes=POST {reset.url}",
    )  # fmt: skip
    assert ran.code == 3, ran.out + ran.err
    assert reset.calls == 1
    assert "notes" in ran.err
    assert "/text" in ran.err
    assert "changed" in ran.err


def test_clients_without_a_mark_are_told_apart_by_their_sessions(
    lab: Lab, no_contact: Callable[[int], NoContact]
) -> None:
    url, port = start_notes(lab)
    both = ["sh", "-c", '"$@" && "$@"', "twice", *agent("session")]
    ran = lab.run("record", "--env", f"notes={url}", "--run", "unmarked", "--rules", "mcp", "--json", "--", *both)
    assert ran.code == 0, ran.err
    assert (ran.json["episodes"], ran.json["unattributed"], ran.json["contradictions"]) == (2, 0, 0)
    lab.stop_all()
    counter = no_contact(port)
    again = lab.run("replay", "unmarked", "--json", "--", *both)
    # The server ends each client's GET stream with its session: it must not end before, or the client asks for another.
    assert again.json["reproduced"] is True, again.out + again.err
    assert [(one["recorded"], one["unused"], one["missed"]) for one in again.json["episodes"]] == [(19, 0, 0)] * 2
    assert (len(again.json["adopted"]), again.json["unattributed"]) == (2, [])
    assert (again.code, again.json["upstream_contacts"], counter.count()) == (0, 0, 0)
