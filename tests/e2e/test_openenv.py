"""An OpenEnv environment with OpenEnv's own client: recorded on its WebSocket, replayed with the server stopped."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.conftest import SERVERS, Lab, NoContact, free_port, server_python

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def agent(*flags: str) -> list[str]:
    return [server_python("openenv"), str(SERVERS / "openenv_agent.py"), *flags]


def test_openenv_replays_with_the_server_stopped_and_a_changed_action_is_named(
    lab: Lab, no_contact: Callable[[int], NoContact]
) -> None:
    url, port = start_cart(lab)
    ran = lab.run("record", "--env", f"cart={url}", "--run", "shop", "--episode", "e1", "--json", "--", *agent())
    assert ran.code == 0, ran.err
    assert ran.json["exchanges"] == 2
    said = answers(ran.err)
    assert len(said) == 2
    assert said[0][2][0]["total"] == 0.30000000000000004
    lab.stop_all()

    counter = no_contact(port)
    again = lab.run("replay", "shop/e1", "--json", "--", *agent())
    assert again.code == 0, again.out + again.err
    assert again.json["reproduced"] is True
    assert again.json["served"]["exact"] == 2
    assert (again.json["upstream_contacts"], counter.count()) == (0, 0)
    assert answers(again.err) == said

    other = lab.run("replay", "shop/e1", "--json", "--", *agent("--third", "jam"))
    assert other.json["reproduced"] is False
    first = other.json["first_divergence"]
    assert (first["kind"], first["pointer"], first["recorded"], first["asked"]) == (
        "message", "messages/7/data/item", "tea", "jam",
    )  # fmt: skip
    assert "4470" in other.err
    assert "messages/7/data/item: recorded tea, asked jam" in other.err
    assert counter.count() == 0


def test_connections_at_once_are_episodes_by_the_ready_rules_in_record_and_in_replay(lab: Lab) -> None:
    url, _ = start_cart(lab)
    ran = lab.run(
        "record", "--env", f"cart={url}", "--run", "night", "--rules", "openenv", "--json", "--", *agent("--at-once")
    )
    assert ran.code == 0, ran.err
    said = answers(ran.err)
    lab.stop_all()
    assert [one["episode"] for one in lab.run("ls", "night", "--json").json["episodes"]] == ["ep-1", "ep-2"]

    again = lab.run("replay", "night", "--json", "--", *agent("--at-once"))
    assert again.code == 0, again.out + again.err
    assert again.json["reproduced"] is True
    assert [one["served"]["exact"] + one["served"]["canonical"] for one in again.json["episodes"]] == [1, 1]
    assert answers(again.err) == said


def start_cart(lab: Lab) -> tuple[str, int]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    lab.serve([server_python("openenv"), str(SERVERS / "openenv_cart.py"), "--port", str(port)], f"{url}/health")
    return url, port


def answers(err: str) -> list[list[dict[str, object]]]:
    """What the agent printed; with --json it is on stderr, among the proxy's own words."""
    line = next(line for line in err.splitlines() if line.startswith("[["))
    found: list[list[dict[str, object]]] = json.loads(line)
    return found
