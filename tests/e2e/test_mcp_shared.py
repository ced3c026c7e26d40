"""An MCP server whose module keeps one list for all clients: two episodes hear each other, and both are named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import SERVERS, Lab, free_port, server_python

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def checked(lab: Lab, *flags: str, together: bool) -> Any:
    port = free_port()
    words = [server_python("mcp"), str(SERVERS / "mcp_memory.py"), "--port", str(port), *flags]
    lab.serve(words, f"http://127.0.0.1:{port}/mcp")
    (lab.path / "replayproxy_client.py").write_text(lab.call("client").out)
    ran = lab.run(
        "record", "--env", f"memory=http://127.0.0.1:{port}", "--run", "nightly", "--json",
        "--", server_python("mcp"), str(SERVERS / "mcp_two.py"),
        env={"TOGETHER": "1" if together else "", "PYTHONPATH": str(lab.path)},
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert (ran.json["episodes"], ran.json["unattributed"]) == (2, 0)
    return lab.run("check", "nightly", "--json").json


def tool(lab: Lab, address: str) -> str:
    """The tool that an exchange called."""
    shown = lab.run("show", address).out
    return next(name for name in ("remember", "recall") if f'"{name}"' in shown)


def named(lab: Lab, finding: Any) -> list[tuple[str, str, str]]:
    return [
        (w["role"], w["address"].partition("#")[0].rpartition("/")[2], tool(lab, w["address"]))
        for w in finding["exchanges"]
    ]


def test_what_the_first_client_said_and_the_second_heard_is_a_proven_bleed(lab: Lab) -> None:
    report = checked(lab, "--shared", together=False)
    (found,) = report["findings"]
    assert (found["kind"], found["sub"], found["grade"], found["blame"], found["episode"]) == (
        "state-bleed", "flow", "proven", "environment", "second",
    )  # fmt: skip
    assert named(lab, found) == [("write", "first", "remember"), ("read", "second", "recall")]
    assert found["values"][1].startswith("rpc-")
    assert report["verdicts"] == {"first": "unknown", "second": "poisoned"}


def test_clients_at_the_same_time_that_hear_each_other_are_both_told(lab: Lab) -> None:
    report = checked(lab, "--shared", together=True)
    assert [(f["kind"], f["sub"], f["grade"], f["blame"]) for f in report["findings"]] == [
        ("state-bleed", "isolation", "proven", "undecided"),
    ] * 2  # fmt: skip
    assert sorted(f["episode"] for f in report["findings"]) == ["first", "second"]
    for found in report["findings"]:
        other = "first" if found["episode"] == "second" else "second"
        assert named(lab, found) == [("write", other, "remember"), ("read", found["episode"], "recall")]


@pytest.mark.parametrize("together", [False, True])
def test_a_memory_for_each_session_gives_no_finding(lab: Lab, together: bool) -> None:
    assert checked(lab, together=together)["findings"] == []
