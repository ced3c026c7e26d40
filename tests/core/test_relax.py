"""User rules in a replay: what they let pass, that it is counted, and that nothing else passes."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.replayer import Grade
from replayproxy.core.values import Exchange
from replayproxy.testing import exchange
from tests.core.play import Play

ACT = {"call_id": "c-8f2a", "ts": 1712000000.12, "action": "left"}
KIND = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def rule(action: str, pointer: str = "/ts", at: str = "POST /act", **more: Any) -> dict[str, Any]:
    table = {"name": "r", "action": action, "at": at, "reason": "a clock", **more}
    return table if action == "repeat" else {**table, "pointer": pointer}


def uses(play: Play) -> dict[str, int]:
    return {one["name"]: one["uses"] for one in play.receipt()["rules"]}


def test_two_rules_let_a_clock_and_a_call_id_pass_and_a_changed_action_is_still_a_miss() -> None:
    rules = [rule("ignore", name="clock"), rule("bind", "/call_id", name="calls")]
    play = Play(exchange("POST", "/act", sent=ACT, body={"call_id": "c-8f2a"}), exchange("POST", "/act", sent=ACT),
                rules=rules)  # fmt: skip
    near = play.missed("POST", "/act", {**ACT, "ts": 2, "call_id": "c-1", "action": "right"})["nearest"][0]
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/action", "left", "right")
    found = play.served("POST", "/act", {**ACT, "ts": 2, "call_id": "c-1"})
    assert found.grade is Grade.RELAXED
    assert found.renames is not None
    assert dict(found.renames.named) == {("call_id", '"c-8f2a"'): '"c-1"'}
    assert play.bound == [("c-8f2a", "c-1", "body/call_id", "calls")]
    assert uses(play) == {"clock": 1, "calls": 1}
    assert play.receipt()["served"]["relaxed"] == 1
    assert not play.receipt()["reproduced"]
    assert play.ask("POST", "/act", {**ACT, "call_id": "c-2"}) is None


def test_an_equal_request_needs_no_rule_and_an_unused_one_is_named() -> None:
    play = Play(exchange("POST", "/act", sent=ACT), rules=[rule("ignore")])
    assert play.served("POST", "/act", ACT).grade is Grade.EXACT
    assert play.receipt()["unused_rules"] == ["r"]
    assert play.receipt()["reproduced"]


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        (("/act", ACT, "0-1"), ("/act", {**ACT, "ts": 2}, "0-1")),
        (("/act?t=1", ACT, "0-1"), ("/act?t=2", ACT, "0-1")),
        (("/act/a", ACT, "0-1"), ("/act/b", ACT, "0-1")),
        (("/act", ACT, "0-1"), ("/act", ACT, "2-3")),
    ],
)
def test_the_pointer_of_a_miss_is_the_pointer_of_a_rule(recorded: Any, asked: Any) -> None:
    def made(target: str, sent: Any, part: str) -> Exchange:
        return exchange("POST", target, sent=sent, request_headers={**KIND, "Range": f"bytes={part}"})

    target, sent, part = asked
    live = {"sent": sent, "headers": {**KIND, "Range": f"bytes={part}"}}
    pointer = Play(made(*recorded)).missed("POST", target, **live)["nearest"][0]["pointer"]
    play = Play(made(*recorded), rules=[rule("ignore", pointer, at="POST *")])
    assert play.served("POST", target, **live).grade is Grade.RELAXED
    assert uses(play) == {"r": 1}


def test_a_rule_that_matched_nothing_is_told_apart_from_one_that_was_not_needed() -> None:
    rules = [rule("ignore", "body/ts"), rule("ignore", "/nowhere", name="gone"), rule("ignore", at="/x", name="else"),
             rule("repeat", name="again"), rule("repeat", name="never", at="GET /poll")]  # fmt: skip
    play = Play(exchange("POST", "/act", sent=ACT), rules=rules)
    play.served("POST", "/act", ACT)
    receipt = play.receipt()
    assert receipt["unused_rules"] == ["r", "gone", "else", "again", "never"]
    assert receipt["unmatched_rules"] == ["gone", "else", "never"]


def test_an_expired_rule_is_named_and_not_applied() -> None:
    play = Play(exchange("POST", "/act", sent=ACT), rules=[rule("ignore", until="2026-11-28")])
    assert play.ask("POST", "/act", {**ACT, "ts": 2}) is None
    assert play.receipt()["expired_rules"] == ["r"]
    assert play.receipt()["rules"] == []


@pytest.mark.parametrize(
    ("action", "ts", "served"),
    [("ignore", 1, True), ("ignore", "now", True), ("ignore", None, True), ("ignore", "absent", True),
     ("mask", 1, True), ("mask", "now", False), ("mask", None, False), ("mask", "absent", False)],
)  # fmt: skip
def test_ignore_drops_the_place_and_mask_keeps_that_it_is_there_and_its_type(action, ts, served) -> None:
    play = Play(exchange("POST", "/act", sent=ACT), rules=[rule(action)])
    sent = {k: v for k, v in {**ACT, "ts": ts}.items() if v != "absent"}
    assert (play.ask("POST", "/act", sent) == 1) is served


def test_a_rule_speaks_of_its_endpoint_only() -> None:
    play = Play(exchange("POST", "/other", sent=ACT), rules=[rule("ignore")])
    assert play.ask("POST", "/other", {**ACT, "ts": 2}) is None
    wild = Play(exchange("POST", "/deals/17/act", sent=ACT), rules=[rule("ignore", at="POST /deals/{id}/act")])
    assert wild.ask("POST", "/deals/17/act", {**ACT, "ts": 2}) == 1
    assert wild.ask("POST", "/deals/18/act", {**ACT, "ts": 2}) is None


def test_order_insensitive_sorts_one_array_and_no_other() -> None:
    sent = {"tags": ["a", "b", "b"], "path": [1, 2]}
    play = Play(exchange("POST", "/act", sent=sent), exchange("POST", "/act", sent=sent),
                rules=[rule("order-insensitive", "/tags")])  # fmt: skip
    assert play.served("POST", "/act", {**sent, "tags": ["b", "a", "b"]}).grade is Grade.RELAXED
    assert play.ask("POST", "/act", {**sent, "tags": ["b", "a"]}) is None
    assert play.ask("POST", "/act", {**sent, "path": [2, 1]}) is None


@pytest.mark.parametrize(
    ("pointer", "recorded", "live"),
    [
        ("query/t", ("GET", "/q?a=1&t=5", b"", {}), ("GET", "/q?a=1&t=6", b"", {})),
        (
            "request/header/range",
            ("GET", "/q", b"", {"Range": "bytes=0-1"}),
            ("GET", "/q", b"", {"Range": "bytes=0-2"}),
        ),
        ("path/1", ("GET", "/q/1/x", b"", {}), ("GET", "/q/2/x", b"", {})),
        ("/t", ("POST", "/q", "a=1&t=5", FORM), ("POST", "/q", "t=6&a=1", FORM)),
        ("/items/*/at", ("POST", "/q", [], KIND), ("POST", "/q", [], KIND)),
        ("request/body", ("POST", "/q", "one", {}), ("POST", "/q", "two", {})),
    ],
)
def test_a_pointer_leads_into_every_part_of_a_request(pointer: str, recorded: Any, live: Any) -> None:
    play = Play(exchange(*recorded[:2], sent=recorded[2], request_headers=recorded[3]),
                rules=[rule("ignore", pointer, at="*")])  # fmt: skip
    assert play.ask(*live[:3], headers=live[3]) == 1


def test_a_star_stands_for_each_member_of_an_array() -> None:
    sent = {"items": [{"at": 1, "n": 1}, {"at": 2, "n": 2}]}
    play = Play(exchange("POST", "/act", sent=sent), rules=[rule("ignore", "/items/*/at")])
    assert play.ask("POST", "/act", {"items": [{"at": 8, "n": 1}, {"at": 9, "n": 3}]}) is None
    assert play.ask("POST", "/act", {"items": [{"at": 8, "n": 1}, {"at": 9, "n": 2}]}) == 1


def test_bind_by_rule_is_injective_within_the_rule() -> None:
    first, second = {"turn": 1}, {"turn": 2}
    play = Play(
        exchange("POST", "/act", sent=first), exchange("POST", "/act", sent=second),
        exchange("POST", "/act", sent=first), rules=[rule("bind", "/turn")],
    )  # fmt: skip
    assert play.ask("POST", "/act", {"turn": 7}) == 1
    assert play.ask("POST", "/act", {"turn": 7}) == 3
    assert "stands for 1 already" in play.missed("POST", "/act", {"turn": 7})["detail"]
    assert play.ask("POST", "/act", {"turn": 8}) == 2


def test_an_exhausted_request_repeats_only_by_a_rule_and_is_graded_so() -> None:
    job = [exchange("GET", "/job", status=202), exchange("GET", "/job", body={"ok": 1})]
    assert [Play(*job).ask("GET", "/job") for _ in range(1)] == [1]
    play = Play(*job, rules=[rule("repeat", at="GET /job")])
    assert [play.served("GET", "/job").grade for _ in range(4)] == ["exact", "exact", "repeat", "repeat"]
    assert play.ask("GET", "/never") is None
    assert uses(play) == {"r": 2}
    assert not play.receipt()["reproduced"]
    plain = Play(*job)
    assert [plain.ask("GET", "/job") for _ in range(3)] == [1, 2, None]


def test_rules_and_minted_values_work_together() -> None:
    one, two = "5eed0000-1234-4abc-8def-9e3779b97f4a", "11fe0000-9876-4cba-9fed-c2b2ae3d27d4"
    play = Play(exchange("POST", "/act", sent={"id": one, "ts": 1}), rules=[rule("ignore")])
    found = play.served("POST", "/act", {"id": two, "ts": 2})
    assert found.grade is Grade.RELAXED
    assert play.bound == [(one, two, "body/id", "value")]
