"""One validator for two bodies: when that is told, how surely, and what looks like it and is lawful."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from replayproxy.core.rules import parse_rules
from replayproxy.core.values import UNATTRIBUTED, EpisodeState, Outcome
from replayproxy.detect.finding import Blame, Finding, Grade, Kind
from replayproxy.detect.judge import judge_run
from replayproxy.detect.source import Source
from replayproxy.detect.verdicts import Word
from replayproxy.testing import exchange
from tests.detect.hand import Hand

OLD, NEW = {"id": "D-1", "stage": "lead"}, {"id": "D-1", "stage": "won"}
UUIDS = ["6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2", "0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3"]


def get(at: float, body: Any, tag: str | None = '"5"', *, more: Mapping[str, str] | None = None, **given: Any) -> Any:
    headers = {"Content-Type": "application/json", **({"ETag": tag} if tag else {}), **(more or {})}
    return exchange("GET", given.pop("target", "/report/D-1"), body=body, headers=headers, at_ms=at, **given)


def found(exchanges: Sequence[Any], **more: Any) -> list[Finding]:
    hand = Hand()
    hand.episode("e", exchanges, **more)
    return [f for f in hand.findings() if f.sub == "validator"]


def grades(exchanges: Sequence[Any], **more: Any) -> list[str]:
    return [f.grade.value for f in found(exchanges, **more)]


def test_one_strong_etag_for_two_bodies_is_proven_and_names_both_answers() -> None:
    hand = Hand()
    hand.episode("e", [get(10, OLD, seq=1), get(20, NEW, seq=2)])
    judgement = hand.judge()
    (finding,) = judgement.findings
    assert (finding.kind, finding.sub, finding.grade) == (Kind.NONDETERMINISM, "validator", Grade.PROVEN)
    assert finding.blame is Blame.ENVIRONMENT
    assert [(w.role, w.address.rpartition("#")[2]) for w in finding.exchanges] == [("witness", "1"), ("read", "2")]
    assert (finding.pointer, finding.values) == ("body/stage", ("lead", "won"))
    assert 'ETag "5"' in finding.title
    assert judgement.words["e"] is Word.POISONED
    # Nothing was compared with a sibling: the kind as a whole was not looked for.
    assert "nondeterminism" in judgement.coverage["e"].not_checked


def test_the_same_body_under_several_etags_is_no_fault() -> None:
    assert found([get(10, OLD, '"5"'), get(20, OLD, '"6"')]) == []


def test_the_same_body_with_its_members_in_another_order_is_the_same() -> None:
    assert found([get(10, OLD), get(20, dict(reversed(OLD.items())))]) == []


def test_an_etag_that_changes_with_the_body_is_right() -> None:
    assert found([get(10, OLD, '"5"'), get(20, NEW, '"6"'), get(30, OLD, '"5"')]) == []


@pytest.mark.parametrize("other", [
    {"target": "/report/D-2"}, {"target": "/report/D-1?full=1"}, {"env": "other"}, {"status": 206},
    {"outcome": Outcome.CUT}, {"outcome": Outcome.LOCAL}, {"is_probe": True},
    {"request_headers": {"Authorization": "Bearer b"}}, {"sent": {"q": 1}},
    {"more": {"Content-Type": "application/hal+json"}}, {"more": {"Content-Language": "de"}}, {"more": {"Vary": "*"}},
])  # fmt: skip
def test_another_uri_requester_or_representation_is_not_compared(other: dict[str, Any]) -> None:
    assert found([get(10, OLD), get(20, NEW, **other)]) == []


def test_what_vary_names_chooses_the_body() -> None:
    def asked(at: float, body: Any, language: str) -> Any:
        return get(at, body, more={"Vary": "X-Tenant"}, request_headers={"X-Tenant": language})

    assert found([asked(10, OLD, "a"), asked(20, NEW, "b")]) == []
    assert grades([asked(10, OLD, "a"), asked(20, NEW, "a")]) == ["proven"]


def test_a_header_that_vary_does_not_name_leaves_it_suspected() -> None:
    (finding,) = found([get(10, OLD), get(20, NEW, request_headers={"X-Tenant": "b"})])
    assert finding.grade is Grade.SUSPECTED
    assert "x-tenant" in finding.cannot_say
    assert grades([get(10, OLD), get(20, NEW, request_headers={"traceparent": "00-1-2-01"})]) == ["proven"]


@pytest.mark.parametrize("hit", [{"Age": "0"}, {"Cache-Status": "edge; hit"}, {"X-Cache": "HIT from a"},
                                 {"X-Cache-Status": "STALE"}])  # fmt: skip
def test_an_answer_out_of_a_cache_leaves_it_suspected(hit: dict[str, str]) -> None:
    assert grades([get(10, OLD), get(20, NEW, more=hit)]) == ["suspected"]


def test_a_miss_of_a_cache_came_from_the_origin() -> None:
    assert grades([get(10, OLD), get(20, NEW, more={"X-Cache": "MISS"})]) == ["proven"]


def test_only_a_clock_or_a_fresh_id_is_suspected_of_a_strong_etag_and_let_be_of_a_weak_one() -> None:
    def answer(at: float, number: int, tag: str) -> Any:
        told = {**OLD, "served_at": f"2023-11-14T22:13:{20 + number}.{number}00Z", "request": UUIDS[number]}
        return get(at, told, tag)

    assert grades([answer(20, 0, '"5"'), answer(1120, 1, '"5"')]) == ["suspected"]
    assert found([answer(20, 0, 'W/"5"'), answer(1120, 1, 'W/"5"')]) == []


def test_a_weak_etag_that_outlasts_a_change_is_suspected() -> None:
    (finding,) = found([get(10, OLD, 'W/"5"'), get(20, NEW, 'W/"5"')])
    assert finding.grade is Grade.SUSPECTED
    assert "weak" in finding.cannot_say


def test_another_order_under_a_weak_etag_is_let_be() -> None:
    assert found([get(10, {"tags": ["a", "b"]}, 'W/"5"'), get(20, {"tags": ["b", "a"]}, 'W/"5"')]) == []


LAST = "Tue, 14 Nov 2023 22:13:20 GMT"


@pytest.mark.parametrize(("first", "second", "told"), [
    (25, 26, ["suspected"]),
    (20, 26, []),  # the first was given in the second in which it changed: it may have changed once more
    (21, 22, []),
])  # fmt: skip
def test_last_modified_counts_only_past_its_resolution(first: int, second: int, told: list[str]) -> None:
    def answer(at: float, body: Any, second: int) -> Any:
        return get(at, body, None, more={"Last-Modified": LAST, "Date": f"Tue, 14 Nov 2023 22:13:{second} GMT"})

    assert grades([answer(10, OLD, first), answer(20, NEW, second)]) == told


def test_last_modified_says_nothing_beside_an_etag() -> None:
    date = {"Last-Modified": LAST, "Date": "Tue, 14 Nov 2023 22:13:40 GMT"}
    assert found([get(10, OLD, '"5"', more=date), get(20, NEW, '"6"', more=date)]) == []


def test_compressed_in_two_ways_it_is_one_body() -> None:
    def packed(at: float, body: bytes, level: int) -> Any:
        return get(at, gzip.compress(body, level), more={"Content-Encoding": "gzip"})

    assert found([packed(10, b'{"a": 1}', 1), packed(20, b'{"a": 1}', 9)]) == []
    assert grades([packed(10, b'{"a": 1}', 1), packed(20, b'{"a": 2}', 1)]) == ["proven"]
    brotli = {"Content-Encoding": "br"}
    assert found([get(10, b"\x0b\x01", more=brotli), get(20, b"\x0b\x02", more=brotli)]) == []


def test_what_a_reset_put_back_may_bear_its_old_name() -> None:
    reset = exchange("POST", "/reset", at_ms=15, is_reset=True)
    assert found([get(10, OLD), reset, get(20, NEW)]) == []
    hand = Hand()
    hand.episode("e", [get(10, OLD), get(20, NEW)])
    hand.episode(UNATTRIBUTED, [reset])
    assert hand.findings() == ()


def test_an_episode_that_began_on_the_instance_meanwhile_may_have_put_it_back() -> None:
    def beside(opened: float) -> list[str]:
        hand = Hand()
        hand.episode("e", [get(10, OLD), get(20, NEW)])
        hand.episode("f", [get(18, OLD, target="/x")], opened_ms=opened)
        return [f.grade.value for f in hand.findings()]

    assert beside(15) == []
    assert beside(5) == ["suspected"]
    assert beside(500) == ["proven"]


def test_episodes_are_not_compared_with_each_other() -> None:
    hand = Hand()
    hand.episode("e", [get(10, OLD)])
    hand.episode("f", [get(1010, NEW)], opened_ms=1000)
    assert hand.findings() == ()


def test_one_finding_for_an_endpoint_however_many_of_its_uris() -> None:
    many = [get(10 * n, {"n": n}, '"constant"', target=f"/report/{n % 4}") for n in range(1, 40)]
    (finding,) = found(many)
    assert finding.count > 1
    assert finding.effect["uris"] == 4


def test_a_rule_takes_its_member_out() -> None:
    rules = parse_rules([{"name": "s", "at": "GET /report/{id}", "pointer": "body/stage", "action": "ignore",
                          "reason": "a demo value"}])  # fmt: skip
    hand = Hand()
    hand.episode("e", [get(10, OLD), get(20, NEW)])
    source = Source(
        run=hand.run, episodes=[hand.traces["e"].episode], trace=lambda episode: hand.traces[episode.name],
        load=hand.nodes.__getitem__, rules=rules,
    )  # fmt: skip
    assert judge_run(source).findings == ()


def test_an_episode_that_is_not_sealed_is_not_judged() -> None:
    assert found([get(10, OLD), get(20, NEW)], state=EpisodeState.INCOMPLETE) == []


def test_what_a_stale_read_explains_is_not_told_again() -> None:
    def states(stage: str) -> dict[str, Any]:
        return {"deals": {"D-1": {"id": "D-1", "stage": stage}, "D-2": {"id": "D-2", "stage": "lead"}}}

    def deal(at: float, body: Any, tag: str) -> Any:
        return get(at, body, tag, target="/deals/D-1")

    write = exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body=NEW, at_ms=20)
    hand = Hand()
    # A cache that put the new tag on the old body, which is a stale read first of all.
    hand.episode("e", [deal(10, OLD, '"5"'), write, deal(30, NEW, '"6"'), deal(40, OLD, '"6"')],
                 [(0, states("lead")), (22, states("won"))])  # fmt: skip
    assert [(f.kind, f.sub) for f in hand.findings()] == [(Kind.STALE_READ, "RYW")]
