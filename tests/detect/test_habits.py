"""What services do by right and what keeps it from being proven: each habit alone, beside the fault it looks like."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.detect.finding import CONVINCING
from replayproxy.detect.race_habits import alike
from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval


def act(method: str, path: str, at: float, end: float, sent: Any, body: Any, *, lane: str = "one", **more: Any) -> Any:
    made = exchange(method, path, sent=sent, body=body, at_ms=at, lane=lane, **more)
    return with_interval(made, at, end)


def told(exchanges: list[Any], states: list[tuple[float, Any]]) -> list[tuple[str, str]]:
    hand = Hand()
    hand.episode("e", exchanges, states)
    return [(f.sub, f.grade.value) for f in hand.findings()]


def deal(**members: Any) -> dict[str, Any]:
    return {"deals": {"1": {"id": "1", "stage": "new", "deleted_at": None, "approved": False, **members},
                      "2": {"id": "2", "stage": "new"}}}  # fmt: skip


def test_a_row_that_is_marked_as_deleted_was_not_lost() -> None:
    made = act("POST", "/deals", 2, 3, {"stage": "x"}, {"id": "3", "stage": "x"}, status=201)
    after = deal(deleted_at="2024-01-01T00:00:00Z")
    states = [(0, deal()), (4, {"deals": {**deal()["deals"], "3": {"id": "3", "stage": "x"}}})]
    gone = act("DELETE", "/deals/1", 10, 16, None, "", status=204)
    beside = act("PATCH", "/deals/2", 12, 18, {"stage": "won"}, {"id": "2", "stage": "won"}, lane="two")
    last = {"deals": {**after["deals"], "2": {"id": "2", "stage": "won"}, "3": {"id": "3", "stage": "x"}}}
    assert told([made, gone, beside], [*states, (30, last)]) == []


def test_an_approval_that_a_change_takes_back_is_no_proof_of_a_lost_write() -> None:
    def patch(at: float, end: float, sent: dict[str, Any], lane: str) -> Any:
        return act("PATCH", "/deals/1", at, end, sent, {"id": "1", **sent}, lane=lane)

    kept = [patch(2, 3, {"approved": True}, "one"), patch(6, 7, {"approved": False}, "one")]
    begin = [(0, deal()), (4, deal(approved=True)), (8, deal())]
    both = [patch(10, 16, {"approved": True}, "one"), patch(12, 18, {"stage": "won"}, "two")]
    assert told([*kept, *both], [*begin, (30, deal(stage="won"))]) == [("lost-update", "suspected")]


def test_a_payment_that_is_recorded_as_declined_was_not_done() -> None:
    sent = {"amount": 5, "card": "c"}
    declined = act("POST", "/payments", 2, 3, sent, {"error": "no"}, status=402)
    row = {"id": "9", **sent}
    assert told([declined], [(0, {"payments": {}}), (5, {"payments": {"9": {**row, "status": "declined"}}})]) == []
    assert told([declined], [(0, {"payments": {}}), (5, {"payments": {"9": {**row, "status": "paid"}}})]) != []


def test_a_number_that_stops_at_a_bound_is_suspected_until_it_was_seen_beyond() -> None:
    def add(at: float, end: float, amount: int, lane: str = "one") -> Any:
        return act("POST", "/wallets/1/deposit", at, end, {"amount": amount}, {"ok": True}, lane=lane)

    def wallet(balance: int, other: int = 0) -> dict[str, Any]:
        return {"wallets": {"1": {"id": "1", "balance": balance}, "2": {"id": "2", "balance": other}}}

    alone = [add(2, 3, 10), add(6, 7, 10)]
    begin = [(0, wallet(30)), (4, wallet(40)), (8, wallet(50))]
    both = [add(10, 16, 50), add(12, 18, 50, "two")]
    assert told([*alone, *both], [*begin, (30, wallet(100))]) == [("lost-addition", "suspected")]
    higher = act("POST", "/wallets/1/deposit", 40, 41, {"amount": 50}, {"ok": True})
    assert told([*alone, *both, higher], [*begin, (30, wallet(100)), (50, wallet(150))]) == [
        ("lost-addition", "proven")
    ]


def test_a_second_like_of_one_client_may_do_nothing() -> None:
    def like(at: float, end: float, who: str, lane: str = "one") -> Any:
        return act("POST", "/posts/1/like", at, end, {}, {"ok": True}, lane=lane,
                   request_headers={"Authorization": who})  # fmt: skip

    def post(likes: int) -> dict[str, Any]:
        return {"posts": {"1": {"id": "1", "likes": likes}}}

    alone = [like(2, 3, "ann"), like(6, 7, "bob")]
    begin = [(0, post(3)), (4, post(4)), (8, post(5))]
    same = [like(10, 16, "eve"), like(12, 18, "eve", "two")]
    assert told([*alone, *same], [*begin, (30, post(6))]) == [("lost-addition", "suspected")]
    two = [like(10, 16, "eve"), like(12, 18, "joe", "two")]
    assert told([*alone, *two], [*begin, (30, post(6))]) == [("lost-addition", "proven")]


def test_one_key_of_two_clients_is_two_keys() -> None:
    def note(at: float, key: str, who: str) -> Any:
        return act("POST", "/notes", at, at + 2, {"text": "a"}, {"id": key, "text": "a"}, status=201, lane=who,
                   request_headers={"Authorization": who, "Idempotency-Key": "1"})  # fmt: skip

    rows = {"notes": {key: {"id": key, "text": "a"} for key in ("x", "y")}}
    states: list[tuple[float, Any]] = [(0, {"notes": {}}), (30, rows)]
    assert told([note(2, "x", "ann"), note(10, "y", "bob")], states) == []
    assert told([note(2, "x", "ann"), note(10, "y", "ann")], states) == [("applied-twice", "proven")]


def test_a_hold_that_ran_out_may_be_shown_as_gone_while_the_state_still_has_it() -> None:
    until = "2023-11-14T22:13:20.020Z"  # 20 ms after the beginning

    def slot(by: str | None, end: str | None) -> dict[str, Any]:
        return {"slots": {"1": {"id": "1", "held_by": by, "expires_at": end}}}

    def get(at: float, by: str | None, end: str | None) -> Any:
        return act("GET", "/slots/1", at, at + 1, None, {"id": "1", "held_by": by, "expires_at": end})

    hold = act("POST", "/slots/1/hold", 4, 5, {"held_by": "a"}, {"id": "1", "held_by": "a", "expires_at": until},
               status=201)  # fmt: skip
    seen = [get(1, None, None), hold, get(8, "a", until), get(40, None, None)]
    states = [(0, slot(None, None)), (6, slot("a", until)), (60, slot("a", until))]
    assert {grade for _, grade in told(seen, states)} == {"suspected"}
    early = [get(1, None, None), hold, get(8, "a", until), get(12, None, None)]
    assert {grade for _, grade in told(early, states)} == {"proven"}


def test_another_principal_may_be_shown_another_value() -> None:
    def page(title: str) -> dict[str, Any]:
        return {"pages": {"1": {"id": "1", "title": title}}}

    def get(at: float, title: str, who: str) -> Any:
        return act("GET", "/pages/1", at, at + 1, None, {"id": "1", "title": title},
                   request_headers={"Authorization": who})  # fmt: skip

    def patch(at: float, title: str) -> Any:
        return act("PATCH", "/pages/1", at, at + 1, {"title": title}, {"id": "1", "title": title},
                   request_headers={"Authorization": "ed"})  # fmt: skip

    states = [(0, page("one")), (6, page("two"))]
    assert told([get(1, "one", "ann"), patch(4, "two"), get(10, "one", "ann")], states) == [("RYW", "suspected")]
    assert told([get(1, "one", "ed"), patch(4, "two"), get(10, "one", "ed")], states) == [("RYW", "proven")]


@pytest.mark.parametrize(
    ("said", "held", "same"),
    [("' Ada ", "'ada", True), ("10.004", "10", True), ("10", "12", False), ("'new", "'old", False),
     ("'2024-01-01T10:00:00+02:00", "'2024-01-01T08:00:00Z", True)],
)  # fmt: skip
def test_a_value_that_the_environment_spells_in_its_own_way(said: str, held: str, same: bool) -> None:
    assert alike(said, held) is same


def test_a_label_that_is_made_of_a_fresh_id_is_as_fresh() -> None:
    hand = Hand()
    for n, key in enumerate((101, 102, 103)):
        made = act(
            "POST", "/deals", 2 + 100 * n, 3 + 100 * n, {"a": 1}, {"id": key, "label": f"{key}/lost"}, status=201
        )
        hand.episode(f"e{n}", [made], [(100 * n, {"deals": {}})], opened_ms=100 * n, ended_ms=100 * n + 50, task="t",
                     seed=1)  # fmt: skip
    told = {(f.sub, f.grade.value, f.pointer) for f in hand.findings()}
    assert told <= {("counter", "suspected", "body/id")}, "the numbers go on counting, and that is all"


def test_after_a_write_that_was_only_accepted_nothing_is_compared() -> None:
    hand = Hand()
    for n, state in enumerate(("queued", "done", "queued")):
        job = act("POST", "/jobs", 2 + 100 * n, 3 + 100 * n, {"a": 1}, {"id": "j", "state": "queued"}, status=202)
        read = act("GET", "/jobs/j", 10 + 100 * n, 11 + 100 * n, None, {"id": "j", "state": state})
        begin: list[tuple[float, Any]] = [(100 * n, {"jobs": {}}), (20 + 100 * n, {"jobs": {"j": {"id": "j"}}})]
        hand.episode(f"e{n}", [job, read], begin, opened_ms=100 * n, ended_ms=100 * n + 50, task="t", seed=1)
    assert [f for f in hand.findings() if f.grade in CONVINCING] == []
