"""Bleeds through what no snapshot shows: told once, and only of what an earlier episode had brought there."""

from __future__ import annotations

from typing import Any

from replayproxy.detect.finding import Blame, Grade
from replayproxy.detect.verdicts import Word
from replayproxy.testing import exchange
from tests.detect.test_bleed import CLEAN, UUID, Story


def cart(*items: Any, at: float = 10) -> Any:
    return exchange("GET", "/cart", body={"items": list(items)}, at_ms=at)


def add(what: str, answer: Any, at: float = 20) -> Any:
    return exchange("POST", "/cart", sent={"what": what}, status=201, body=answer, at_ms=at)


def told(shown: Any, made: Any, *, siblings: int = 3) -> Story:
    """p puts something into a cart that no state shows; v4, of the task of v1 to v3, looks into the cart."""
    story = Story()
    for number in range(1, siblings + 1):
        story.look(f"v{number}", CLEAN, cart())
    story.add("p", [made], [(1, CLEAN), (30, CLEAN)], task="other", seed=1)
    story.look("v4", CLEAN, shown)
    return story


def test_words_that_another_had_left_outside_the_snapshots_are_a_bleed_and_told_once() -> None:
    made = told(cart({"what": "the green folder"}), add("the green folder", {"ok": True}))
    (found,) = made.findings()
    assert (found.kind, found.sub, found.grade, found.episode, found.blame) == (
        "state-bleed", "hidden", Grade.PROVEN, "v4", Blame.ENVIRONMENT,
    )  # fmt: skip
    assert [(w.role, w.address) for w in found.exchanges] == [
        ("write", "r/p#1"), ("read", "r/v4#1"), ("witness", "r/v1#1"),
    ]  # fmt: skip
    assert (found.pointer, found.values) == ("/items/0/what", (None, "the green folder"))
    assert (found.effect["from"], found.effect["writes"]) == ("p", ["r/p#1"])
    assert found.reproduce == f"replayproxy reproduce {found.id} --env app=URL"
    assert made.judge().words["v4"] is Word.POISONED


def test_what_nobody_had_brought_there_stays_nondeterminism() -> None:
    (found,) = told(cart({"what": "the green folder"}), add("something else", {"ok": True})).findings()
    assert found.kind == "nondeterminism"


def test_a_small_word_in_common_is_not_enough() -> None:
    (found,) = told(cart({"what": "won"}), add("won", {"ok": True})).findings()
    assert found.kind == "nondeterminism"


def test_a_row_that_was_read_and_put_back_is_not_its_writer_s_own() -> None:
    row = {"id": 1, "what": "the green folder"}
    seen = exchange("GET", "/items/1", body=row, at_ms=15)
    put = exchange("PUT", "/items/1", sent=row, body=row, at_ms=20)
    story = told(cart({"what": "the green folder"}), add("x", {"ok": True}))
    story.traces.clear()
    for number in range(1, 4):
        story.look(f"v{number}", CLEAN, cart())
    story.add("p", [seen, put], [(1, CLEAN), (30, CLEAN)], task="other", seed=1)
    story.look("v4", CLEAN, cart({"what": "the green folder"}))
    assert [f.kind for f in story.findings()] == ["nondeterminism"]


def test_what_the_reader_itself_had_said_is_not_another_s() -> None:
    story = told(cart(at=40), add("the green folder", {"ok": True}))
    story.traces.clear()
    own = add("the green folder", {"ok": True}, at=5)
    for number in range(1, 4):
        story.look(f"v{number}", CLEAN, own, cart())
    story.add("p", [add("the green folder", {"ok": True})], [(1, CLEAN), (30, CLEAN)], task="other", seed=1)
    story.look("v4", CLEAN, own, cart({"what": "the green folder"}))
    assert [f.kind for f in story.findings()] == ["nondeterminism"]


def test_an_id_that_no_state_holds_is_proven_by_a_sibling_that_was_not_shown_it() -> None:
    made = told(cart({"id": UUID}), add("x", {"id": UUID}))
    (found,) = made.findings()
    assert (found.kind, found.sub, found.grade) == ("state-bleed", "hidden", Grade.PROVEN)
    assert [(w.role, w.address) for w in found.exchanges] == [("write", "r/p#1"), ("read", "r/v4#1")]
    assert "a sibling" in found.ruled_out[-1]
    lone = told(cart({"id": UUID}), add("x", {"id": UUID}), siblings=0)
    assert [(f.sub, f.grade) for f in lone.findings()] == [("flow", Grade.SUSPECTED)]


def test_episodes_on_other_instances_have_left_nothing() -> None:
    story = Story()
    for number in range(1, 4):
        story.look(f"v{number}", CLEAN, cart(), instance={"app": "a"})
    story.add(
        "p", [add("the green folder", {"ok": True})], [(1, CLEAN), (30, CLEAN)], task="o", seed=1, instance={"app": "b"}
    )
    story.look("v4", CLEAN, cart({"what": "the green folder"}), instance={"app": "a"})
    assert [f.kind for f in story.findings()] == ["nondeterminism"]
