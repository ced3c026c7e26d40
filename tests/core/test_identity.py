from __future__ import annotations

import pytest

from replayproxy.core.identity import Attribution, Claims, EpisodeBook, why_not_a_lane, with_key
from replayproxy.core.values import MAIN_LANE, UNATTRIBUTED, Episode


def episode(name: str) -> Episode:
    return Episode(key=1, run_key=1, name=name)


def book(*names: str, undeclared: str | None = None, option: str | None = None) -> EpisodeBook:
    made = EpisodeBook(undeclared=undeclared, option=option)
    for name in names:
        made.open(episode(name))
    return made


def name_of(answer: Attribution) -> str | None:
    return answer.episode.name if answer.episode else None


ORDER = ["port_episode", "prefix", "header", "baggage", "proxy_user", "rule"]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_strongest_carrier_present_decides(first: int) -> None:
    names = {slot: f"by-{slot}" for slot in ORDER[first:]}
    answer = book(*names.values(), "fallback", option="fallback").attribute(Claims(**names))
    assert name_of(answer) == f"by-{ORDER[first]}"


def test_the_option_takes_what_no_carrier_claimed() -> None:
    answer = book("x", option="x").attribute(Claims())
    assert (name_of(answer), answer.carrier, answer.reason) == ("x", "option", "")


def test_without_a_carrier_a_request_is_unattributed_though_one_episode_is_open() -> None:
    answer = book("only").attribute(Claims())
    assert (answer.episode, answer.reason) == (None, "no carrier")


@pytest.mark.parametrize("bad", ["", ".", "..", UNATTRIBUTED, "a/b", "a b", "a#b", "a\x00", "\udcff", "x" * 201])
def test_a_refused_name_makes_the_request_unattributed_and_never_falls_to_a_weaker_carrier(bad: str) -> None:
    answer = book("weak").attribute(Claims(prefix=bad, header="weak"))
    assert answer.episode is None
    assert answer.reason.startswith("refused name: ")


def test_an_id_first_seen_opens_an_undeclared_episode_while_none_was_declared_by_the_api() -> None:
    the_book = book()
    first = the_book.attribute(Claims(header="new"), at=5, wall=7)
    second = the_book.attribute(Claims(header="new"), at=6, wall=8)
    assert first.opened
    assert first.episode is not None
    assert (first.episode.declared, first.episode.opened, first.episode.opened_wall) == (False, 5, 7)
    assert not second.opened
    assert second.episode == first.episode


def test_once_the_api_opened_one_an_undeclared_id_is_refused_by_default() -> None:
    the_book = book()
    the_book.open(episode("declared"), by_api=True)
    answer = the_book.attribute(Claims(header="typo"))
    assert (answer.episode, answer.reason, answer.carrier) == (None, "undeclared: typo", "header")


@pytest.mark.parametrize(("policy", "opened"), [("accept", True), ("refuse", False)])
def test_a_policy_said_aloud_holds_before_and_after_the_api_is_used(policy: str, opened: bool) -> None:
    the_book = book(undeclared=policy)
    assert the_book.attribute(Claims(header="one")).opened is opened
    the_book.open(episode("declared"), by_api=True)
    assert the_book.attribute(Claims(header="two")).opened is opened


def test_traffic_after_the_end_is_unattributed_as_sealed_even_where_undeclared_is_accepted() -> None:
    the_book = book("x", undeclared="accept")
    assert the_book.end("x").name == "x"
    answer = the_book.attribute(Claims(prefix="x"))
    assert (answer.episode, answer.reason) == (None, "episode sealed")


def test_the_option_episode_that_has_ended_takes_nothing_more() -> None:
    the_book = book("x", option="x")
    the_book.end("x")
    assert the_book.attribute(Claims()).reason == "episode sealed"


def test_names_of_an_earlier_recording_are_taken() -> None:
    the_book = book(undeclared="accept")
    the_book.reserve(["old"])
    assert the_book.is_taken("old")
    assert the_book.attribute(Claims(header="old")).reason == "episode sealed"
    with pytest.raises(ValueError, match="already there"):
        the_book.open(episode("old"))


def test_a_taken_name_is_offered_with_the_next_free_attempt() -> None:
    the_book = book("x", "x-a2")
    the_book.end("x-a2")
    assert the_book.free_name("x") == "x-a3"
    assert book("n" * 200).free_name("n" * 200) == "n" * 197 + "-a2"


def test_a_minted_name_comes_from_the_task() -> None:
    the_book = book()
    names = []
    for task, attempt in [("crm-7", None), ("crm-7", None), ("crm-7", 5), ("a b/c", 1), (None, None), (None, None)]:
        names.append(the_book.mint(task, attempt))
        the_book.open(episode(names[-1]))
    assert names == ["crm-7-a1", "crm-7-a2", "crm-7-a5", "a-b-c-a1", "e1", "e2"]


def test_a_lane_is_main_unless_marked() -> None:
    the_book = book("x")
    assert the_book.attribute(Claims(header="x")).lane == MAIN_LANE
    assert the_book.attribute(Claims(header="x", lane="")).lane == MAIN_LANE
    assert the_book.attribute(Claims(header="x", lane="tool/1")).lane == "tool/1"


@pytest.mark.parametrize("lane", ["\x07", "\udcff", "l" * 201])
def test_a_lane_that_cannot_be_named_makes_the_request_unattributed(lane: str) -> None:
    answer = book("x").attribute(Claims(header="x", lane=lane))
    assert answer.episode is None
    assert answer.reason == f"refused lane: {why_not_a_lane(lane)}"


def test_an_update_never_reopens_an_episode() -> None:
    the_book = book("x")
    the_book.update(Episode(key=9, run_key=1, name="x"))
    current = the_book.get("x")
    assert current is not None
    assert current.key == 9
    the_book.end("x")
    the_book.update(Episode(key=10, run_key=1, name="x"))
    assert the_book.get("x") is None
    assert list(the_book) == []


def test_the_key_that_the_store_gave_goes_into_the_answer() -> None:
    answer = book().attribute(Claims(header="new"))
    keyed = with_key(answer, episode("new"))
    assert keyed.episode is not None
    assert (keyed.episode.key, keyed.opened, keyed.carrier) == (1, True, "header")
