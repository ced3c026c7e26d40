"""Values that an agent mints: others in each run, one for one, and never a guess."""

from __future__ import annotations

import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.nonces import Clash, Renaming, Slot
from replayproxy.core.replayer import Grade, Order
from replayproxy.testing import exchange
from tests.core.play import Play
from tests.core.world import relaxed

A, B, C = (str(uuid.UUID(int=0x5EED0000_1234_4ABC_8DEF_000000000000 + n * 0x9E3779B97F4A7C15)) for n in (1, 2, 3))
X, Y, Z = (str(uuid.UUID(int=0x11FE0000_9876_4CBA_9FED_000000000000 + n * 0xC2B2AE3D27D4EB4F)) for n in (1, 2, 3))


def order(key: str, action: str = "left") -> dict[str, str]:
    return {"call_id": key, "action": action}


def test_a_minted_uuid_binds_and_is_listed_and_the_answer_names_the_live_one() -> None:
    play = Play(exchange("POST", "/act", sent=order(A), body={"done": A}))
    found = play.served("POST", "/act", order(X))
    assert found.grade is Grade.CANONICAL
    assert found.renames is not None
    assert found.renames.tokens == {A: X}
    assert play.bound == [(A, X, "body/call_id", "value")]
    assert play.receipt()["reproduced"]


def test_a_changed_action_is_a_miss_that_names_it() -> None:
    play = Play(exchange("POST", "/act", sent=order(A)))
    near = play.missed("POST", "/act", order(A, "right"))["nearest"][0]
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/action", "left", "right")
    near = play.missed("POST", "/act", order(X, "right"))["nearest"][0]
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/action", "left", "right")


def test_a_bound_value_must_stand_for_the_same_wherever_it_comes_again() -> None:
    play = Play(
        exchange("POST", "/act", sent=order(A)), exchange("POST", "/act", sent=order(B)),
        exchange("GET", f"/history?call_id={A}"), exchange("POST", "/other", sent=order(B)),
    )  # fmt: skip
    assert play.ask("POST", "/act", order(X)) == 1
    assert play.ask("POST", "/act", order(Y)) == 2
    assert play.ask("GET", f"/history?call_id={Y}") is None
    assert play.ask("GET", f"/history?call_id={X}") == 3
    missed = play.missed("POST", "/other", order(X))
    assert f"{B} is bound to {Y} since exchange 2" in missed["detail"]
    assert not play.receipt()["reproduced"]


def test_one_live_value_never_stands_for_two_recorded_ones() -> None:
    play = Play(exchange("POST", "/act", sent=order(A)), exchange("POST", "/act", sent=order(B)))
    assert play.ask("POST", "/act", order(X)) == 1
    assert f"{X} stands for {A} already" in play.missed("POST", "/act", order(X))["detail"]


def test_a_value_as_it_was_recorded_stands_for_itself() -> None:
    play = Play(exchange("POST", "/act", sent=order(A)), exchange("POST", "/act", sent=order(B)))
    assert play.served("POST", "/act", order(A)).grade is Grade.EXACT
    assert play.ask("POST", "/act", order(A)) is None
    assert play.bound == []


def test_a_value_bound_to_another_is_no_longer_what_was_recorded() -> None:
    play = Play(exchange("POST", "/act", sent=order(A)), exchange("POST", "/again", sent=order(A)))
    assert play.ask("POST", "/act", order(X)) == 1
    assert play.ask("POST", "/again", order(A)) is None
    assert play.ask("POST", "/again", order(X)) == 2


def test_a_retry_with_the_same_value_gets_the_next_answer() -> None:
    play = Play(exchange("POST", "/act", sent=order(A), status=503), exchange("POST", "/act", sent=order(A)))
    assert [play.ask("POST", "/act", order(X)) for _ in range(3)] == [1, 2, None]


def test_what_an_earlier_answer_told_is_no_agents_to_mint() -> None:
    play = Play(exchange("GET", "/next", body={"call": A}), exchange("POST", "/act", sent=order(A)))
    assert play.ask("GET", "/next") == 1
    near = play.missed("POST", "/act", order(X))["nearest"][0]
    assert (near["pointer"], near["recorded"], near["asked"]) == ("body/call_id", A, X)


@pytest.mark.parametrize(
    ("method", "target", "sent"),
    [
        ("GET", f"/deals/{A}", b""), ("PATCH", f"/deals/{A}", {"x": 1}), ("POST", f"/deals/{A}/notes", {"x": 1}),
        ("POST", "/deals/notes", {"deal_id": A}), ("GET", f"/deals?deal_id={A}", b""), ("GET", f"/deals?id={A}", b""),
    ],
)  # fmt: skip
def test_what_the_environment_must_have_known_is_a_reference_and_never_bound(method: str, target: str, sent) -> None:
    play = Play(exchange(method, target, sent=sent))
    other = {name: X if value == A else value for name, value in sent.items()} if sent else sent
    assert play.ask(method, target.replace(A, X), other) is None
    assert play.ask(method, target, sent) == 1


def test_a_resource_that_the_agent_names_itself_is_followed_by_its_live_name() -> None:
    play = Play(
        exchange("PUT", f"/deals/{A}", status=201, sent={"x": 1}), exchange("GET", f"/deals/{A}", body={"id": A}),
        exchange("POST", "/deals", status=201, sent={"id": B}), exchange("DELETE", f"/deals/{B}"),
    )  # fmt: skip
    assert play.ask("PUT", f"/deals/{X}", {"x": 1}) == 1
    assert play.ask("GET", f"/deals/{X}") == 2
    assert play.ask("POST", "/deals", {"id": Y}) == 3
    assert play.ask("DELETE", f"/deals/{X}") is None
    assert play.ask("DELETE", f"/deals/{Y}") == 4


def test_what_the_agent_was_given_beside_the_traffic_is_none_of_its_own() -> None:
    play = Play(exchange("POST", "/act", sent=order(A)), elsewhere=lambda: [f"task {A}".encode()])
    assert play.ask("POST", "/act", order(X)) is None


def test_a_form_a_query_and_multipart_hold_minted_values_as_well() -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    play = Play(
        exchange("POST", "/f", sent=f"nonce={A}&a=1", request_headers=form), exchange("GET", f"/q?a=1&nonce={A}")
    )
    assert play.ask("POST", "/f", f"a=1&nonce={X}", headers=form) == 1
    assert play.ask("GET", f"/q?nonce={X}&a=1") == 2


def test_short_values_and_another_kind_of_id_do_not_bind() -> None:
    play = Play(exchange("POST", "/act", sent=order("c-8f2a")), exchange("POST", "/act", sent=order(B)))
    assert play.ask("POST", "/act", order("c-77b1")) is None
    assert play.ask("POST", "/act", order("01JDWXA0Q3T7M2R5N8V1C4B6Z9")) is None


def test_bindings_never_lead_into_another_lane() -> None:
    play = Play(exchange("POST", "/act", sent=order(A), lane="b"))
    assert play.ask("POST", "/act", order(X), lane="main") is None
    assert play.ask("POST", "/act", order(X), lane="b") == 1


def test_in_strict_order_only_the_next_of_the_lane_binds() -> None:
    play = Play(exchange("GET", "/first"), exchange("POST", "/act", sent=order(A)), order=Order.STRICT)
    assert play.ask("POST", "/act", order(X)) is None
    assert play.ask("GET", "/first") == 1
    assert play.ask("POST", "/act", order(X)) == 2


TOKENS = tuple(f"rp-secret-{letter * 12}{'a2b3c4d5e6f7'}" for letter in "bcd")


def test_credentials_of_a_recording_made_with_another_key_bind_injectively() -> None:
    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    recorded = [exchange("GET", "/x", request_headers=bearer(TOKENS[0])) for _ in range(3)]
    play = Play(*recorded, foreign_secrets=True)
    assert play.ask("GET", "/x", headers=bearer(TOKENS[1])) == 1
    assert play.ask("GET", "/x", headers=bearer(TOKENS[2])) is None
    assert play.ask("GET", "/x", headers={"Authorization": "Bearer other"}) is None
    assert play.bound == [(TOKENS[0], TOKENS[1], "header/authorization", "credential")]
    assert Play(*recorded).ask("GET", "/x", headers=bearer(TOKENS[1])) is None


def test_a_header_that_the_answer_repeats_is_given_back_as_it_came() -> None:
    play = Play(
        exchange("POST", "/x", sent={"a": 1}, headers={"X-Request-Id": A},
                 request_headers={"Content-Type": "application/json", "X-Request-Id": A, "Idempotency-Key": B}),
    )  # fmt: skip
    kind = {"Content-Type": "application/json", "X-Request-Id": X, "Idempotency-Key": Y}
    found = play.served("POST", "/x", {"a": 1}, headers=kind)
    assert found.grade is Grade.EXACT
    assert found.renames is not None
    assert found.renames.tokens == {A: X}


values = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=6)


@relaxed
@given(values, st.permutations([X, Y, Z]), st.lists(st.sampled_from([X, Y, Z]), min_size=1, max_size=6))
def test_only_an_injective_renaming_unifies(recorded: list[str], names: list[str], other: list[str]) -> None:
    to = dict(zip((A, B, C), names, strict=True))
    slots = [Slot(f"body/{n}", value, "value") for n, value in enumerate(recorded)]
    live = [Slot(slot.place, to[slot.value]) for slot in slots]
    renaming = Renaming()
    new = renaming.unify(slots, live)
    assert not isinstance(new, Clash)
    renaming.bind(new, 1)
    assert renaming.unify(slots, live) == {}
    wrong = [Slot(slot.place, value) for slot, value in zip(slots, other, strict=False)]
    fits = len(wrong) == len(slots) and [slot.value for slot in wrong] == [slot.value for slot in live]
    assert isinstance(renaming.unify(slots, wrong), Clash) is not fits


@relaxed
@given(st.lists(st.sampled_from(["A", "B", "C"]), min_size=2, max_size=8))
def test_an_agent_with_fresh_values_is_understood_whatever_it_repeats(letters: list[str]) -> None:
    recorded = {"A": A, "B": B, "C": C}
    live = {"A": X, "B": Y, "C": Z}
    play = Play(*(exchange("POST", "/act", sent=order(recorded[one])) for one in letters))
    assert [play.ask("POST", "/act", order(live[one])) for one in letters] == list(range(1, len(letters) + 1))
    assert all(a[0] != b[0] for a, b in pairwise(sorted(play.bound)))


def test_equal_writes_made_at_once_under_fresh_values_cannot_be_told_apart_and_the_receipt_says_so() -> None:
    for took, ambiguous in ((50, 2), (0.5, 0)):
        recorded = [exchange("POST", "/act", sent=order(one), at_ms=n, took_ms=took) for n, one in enumerate((A, B))]
        play = Play(*recorded, exchange("POST", "/end", sent=order(B), at_ms=100))
        assert [play.ask("POST", "/act", order(one)) for one in (X, Y)] == [1, 2]
        assert play.ask("POST", "/end", order(Y)) == 3
        assert play.receipt()["lane_ambiguous"] == ambiguous
        same = Play(*recorded)
        assert [same.ask("POST", "/act", order(one)) for one in (B, A)] == [2, 1]
        assert same.receipt()["lane_ambiguous"] == 0
