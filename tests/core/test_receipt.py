"""The receipt: what counts as reproduced."""

from __future__ import annotations

import json

import pytest

from replayproxy.core.misses import miss_document
from replayproxy.core.nearest import Situation, nearest
from replayproxy.core.receipt import Stray, episode_receipt, judged, run_receipt
from replayproxy.core.replayer import Miss, Replayer, Serve
from replayproxy.core.scriptbuild import build
from replayproxy.core.values import Exchange, Outcome
from replayproxy.testing import exchange, request, trace


def replayer(*exchanges: Exchange, episode: str = "e") -> Replayer:
    return Replayer(build(trace(exchanges).exchanges, run="r", episode=episode))


def play(on: Replayer, *requests: tuple[str, str]) -> list[Serve | Miss]:
    found = []
    for number, (method, target) in enumerate(requests):
        one = on.ask(on.script.identify("app", request(method, target)), "main", at=number)
        if isinstance(one, Serve):
            on.done(one)
        else:
            now = Situation(asked=one.asked, lane="main", consumers=dict(on.consumers))
            one.near = nearest(on.script, now, lambda body: body)
        found.append(one)
    return found


def two() -> Replayer:
    return replayer(exchange("GET", "/a"), exchange("POST", "/b"))


def test_all_served_once_is_reproduced() -> None:
    on = two()
    play(on, ("GET", "/a"), ("POST", "/b"))
    receipt = episode_receipt(on)
    assert receipt["reproduced"] is True
    assert receipt["served"] == {"exact": 2, "canonical": 0, "relaxed": 0, "repeat": 0}
    assert (receipt["missed"], receipt["unused"], receipt["first_divergence"]) == (0, 0, None)
    assert judged(receipt) == 0


@pytest.mark.parametrize(
    ("requests", "code", "kind"),
    [
        ([], 3, "unused"),
        ([("GET", "/c")], 1, "miss"),
        ([("GET", "/a")], 1, "unused"),
        ([("GET", "/a"), ("POST", "/b"), ("GET", "/a")], 1, "miss"),
    ],
)
def test_anything_else_is_not(requests: list[tuple[str, str]], code: int, kind: str) -> None:
    on = two()
    play(on, *requests)
    receipt = episode_receipt(on)
    assert receipt["reproduced"] is False
    assert receipt["first_divergence"]["kind"] == kind
    assert judged(receipt) == code


def test_an_ambiguous_recording_cannot_be_judged_however_well_it_went() -> None:
    on = replayer(exchange("GET", "/a", at_ms=0, took_ms=9), exchange("GET", "/a", at_ms=5, took_ms=9))
    play(on, ("GET", "/a"), ("GET", "/a"))
    receipt = episode_receipt(on)
    assert (receipt["reproduced"], receipt["lane_ambiguous"], receipt["first_divergence"]) == (False, 1, None)
    assert judged(receipt) == 3


def test_what_no_environment_answered_shows_nothing_however_well_it_went() -> None:
    refused = [exchange("GET", "/a", status=None, outcome=Outcome.REFUSED)] * 2
    on = replayer(*refused)
    play(on, ("GET", "/a"), ("GET", "/a"))
    receipt = episode_receipt(on)
    assert (receipt["served"]["exact"], receipt["environment_answers"], receipt["first_divergence"]) == (2, 0, None)
    assert (receipt["reproduced"], judged(receipt)) == (False, 3)
    good = two()
    play(good, ("GET", "/a"), ("POST", "/b"))
    total = run_receipt("r", [episode_receipt(good), receipt], not_replayed=[])
    assert (total["reproduced"], total["environment_answers"], judged(total)) == (False, 2, 3)
    mixed = replayer(*refused[:1], exchange("GET", "/b"))
    play(mixed, ("GET", "/a"), ("GET", "/b"))
    assert episode_receipt(mixed)["reproduced"] is True


def test_what_is_never_served_is_unused_with_its_reason() -> None:
    on = replayer(
        exchange("GET", "/a"), exchange("POST", "/b", outcome=Outcome.LOCAL), exchange("GET", "/p", is_probe=True)
    )
    play(on, ("GET", "/a"))
    receipt = episode_receipt(on)
    assert receipt["unused"] == 1
    assert receipt["unused_exchanges"] == [
        {"exchange": "r/e/2", "lane": "main", "request": "POST /b", "reason": "local"}
    ]


def test_no_request_line_shows_a_parameter_that_is_named_like_a_credential() -> None:
    on = replayer(exchange("GET", "/a?api_key=AAA&x=1"))
    miss = play(on, ("GET", "/a?api_key=AAA&x=2"))[0]
    assert isinstance(miss, Miss)
    shown = json.dumps([miss_document(on.script, miss), episode_receipt(on)])
    assert "AAA" not in shown
    assert "api_key=(not shown)&x=2" in shown


def test_a_miss_document_holds_what_the_interface_names() -> None:
    on = two()
    miss = play(on, ("GET", "/a"), ("GET", "/a"))[-1]
    assert isinstance(miss, Miss)
    document = miss_document(on.script, miss)
    assert (document["episode"], document["lane"], document["request"]) == ("e", "main", "GET /a")
    assert document["nearest"][0] == {
        "exchange": "r/e/1", "state": "consumed", "pointer": None, "recorded": None, "asked": None,
        "note": "same request; 1 recorded, 1 served (the last to request 1)",
    }  # fmt: skip
    assert json.loads(json.dumps(document)) == document


def test_a_request_that_was_recorded_but_is_never_served_says_so() -> None:
    on = replayer(exchange("GET", "/ws", outcome=Outcome.LOCAL))
    miss = play(on, ("GET", "/ws"))[0]
    assert isinstance(miss, Miss)
    assert "r/e/1 is this request, but is not served: local" in miss_document(on.script, miss)["detail"]


def test_a_run_sums_up_its_episodes_and_names_the_untouched() -> None:
    one, other = two(), two()
    play(one, ("GET", "/a"), ("POST", "/b"))
    play(other, ("GET", "/a"), ("POST", "/b"))
    receipt = run_receipt("r", [episode_receipt(one), episode_receipt(other)], not_replayed=["x"])
    assert (receipt["reproduced"], receipt["served"]["exact"], receipt["not_replayed"]) == (True, 4, ["x"])
    assert judged(receipt) == 0


def test_a_run_of_which_nothing_was_touched_is_not_reproduced() -> None:
    receipt = run_receipt("r", [], not_replayed=["x", "y"])
    assert (receipt["reproduced"], judged(receipt)) == (False, 3)


def test_a_stray_request_spoils_the_run_and_can_be_its_first_divergence() -> None:
    one = two()
    play(one, ("GET", "/a"), ("POST", "/b"))
    stray = Stray(request="GET /z", reason="no carrier", at=5)
    receipt = run_receipt("r", [episode_receipt(one)], not_replayed=[], strays=[stray])
    assert (receipt["reproduced"], receipt["missed"]) == (False, 1)
    assert receipt["first_divergence"]["request"] == "GET /z"
    assert judged(receipt) == 1


def test_the_first_divergence_of_a_run_is_the_earliest_of_its_episodes() -> None:
    early, late = two(), replayer(exchange("GET", "/a"), episode="f")
    early.fault("boom", at=3)
    late.fault("later", at=9)
    receipt = run_receipt("r", [episode_receipt(late), episode_receipt(early)], not_replayed=[])
    assert (receipt["first_divergence"]["text"], receipt["first_divergence"]["episode"]) == ("boom", "e")
    assert receipt["faults"] == ["f: later", "e: boom"]
