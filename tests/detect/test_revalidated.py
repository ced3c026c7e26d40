"""Answers 304 in stale reads: what the requester holds is current, says the environment. Is it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from replayproxy.detect.finding import Finding
from replayproxy.testing import exchange
from tests.detect.hand import Hand, with_interval

OLD, NEW = {"id": "D-1", "stage": "lead"}, {"id": "D-1", "stage": "won"}
DATES = {"Last-Modified": "Tue, 14 Nov 2023 22:13:00 GMT", "Date": "Tue, 14 Nov 2023 22:13:20 GMT"}


def state(stage: str) -> dict[str, Any]:
    return {"deals": {"D-1": {"id": "D-1", "stage": stage}, "D-2": {"id": "D-2", "stage": "lead"}}}


def get(at: float, body: Any = OLD, tag: str | None = '"5"', *, more: Mapping[str, str] | None = None, **given: Any):
    headers = {"Content-Type": "application/json", **({"ETag": tag} if tag else {}), **(more or {})}
    return exchange("GET", "/deals/D-1", body=body, headers=headers, at_ms=at, **given)


def again(at: float, tag: str = '"5"', *, told: str | None = '"5"', asked: Mapping[str, str] = {}, **given: Any):
    """A conditional request that is answered 304."""
    headers = {"ETag": told} if told else {}
    condition = {"If-None-Match": tag} if tag else {}
    return exchange(
        "GET", "/deals/D-1", status=304, headers={**headers, **given.pop("more", {})},
        request_headers={**condition, **asked}, at_ms=at, **given,
    )  # fmt: skip


def patch(at: float = 20, tag: str | None = '"6"', body: Any = NEW, **given: Any):
    headers = {"Content-Type": "application/json", **({"ETag": tag} if tag else {})}
    return exchange("PATCH", "/deals/D-1", sent={"stage": "won"}, body=body, headers=headers, at_ms=at, **given)


def found(exchanges: Sequence[Any], states: Sequence[Any] | None = None) -> list[Finding]:
    hand = Hand()
    hand.episode("e", exchanges, [(0, state("lead")), (22, state("won"))] if states is None else states)
    return list(hand.findings())


def told(exchanges: Sequence[Any], states: Sequence[Any] | None = None) -> list[tuple[str, str]]:
    return [(f.sub, f.grade.value) for f in found(exchanges, states)]


STALE = [("RYW", "proven")]


def test_a_304_after_an_own_write_is_stale_and_names_all_three() -> None:
    (finding,) = found([get(10, seq=1), patch(seq=2), again(30, seq=3)])
    assert (finding.kind, finding.sub, finding.grade) == ("stale-read", "RYW", "proven")
    named = [(w.role, w.address.rpartition("#")[2], w.status) for w in finding.exchanges]
    assert named == [("write", "2", 200), ("witness", "1", 200), ("read", "3", 304)]
    assert finding.values == ("won", "lead")
    assert finding.pointer == "/stage"
    assert "304" in finding.title
    assert any("#1" in line for line in finding.assumptions)


def test_a_304_when_nothing_has_changed_is_lawful() -> None:
    assert told([get(10), again(15), patch(), get(30, NEW, '"6"'), again(40, '"6"', told='"6"')]) == []


def test_a_304_that_was_asked_before_the_write_ended_is_lawful() -> None:
    assert told([get(10), patch(), with_interval(again(20.1), 20.2, 40)]) == []


def test_a_304_for_what_was_put_back_is_lawful() -> None:
    back = exchange("PATCH", "/deals/D-1", sent={"stage": "lead"}, body=OLD, at_ms=30)
    assert (
        told([get(10), patch(), back, again(40)], [(0, state("lead")), (22, state("won")), (32, state("lead"))]) == []
    )


def test_a_304_without_snapshots_is_suspected() -> None:
    assert told([get(10), patch(), again(30)], []) == [("RYW", "suspected")]


@pytest.mark.parametrize("unknown", [
    again(30, '"4"', told=None),  # a name that nobody was given here
    again(30, '"5"', told='"6"'),  # the answer names another than was asked for
    again(30, "*"),
    again(30, "5", told=None),
    again(30, '"5", "6"', told=None),
    again(30, "", asked={"If-Modified-Since": "Tue, 14 Nov 2023 22:13:00 GMT"}),
    again(30, asked={"Authorization": "Bearer b"}),  # another requester
])  # fmt: skip
def test_a_304_whose_representation_is_not_known_shows_nothing(unknown: Any) -> None:
    assert told([get(10), patch(), unknown]) == []


def test_of_several_names_the_answer_says_which() -> None:
    assert told([get(10), patch(), again(30, '"4", "5"', told='"5"')]) == STALE


def test_a_name_that_was_given_to_two_bodies_shows_nothing() -> None:
    mixed = [get(5, {**OLD, "note": "x"}), get(10), patch(), again(30)]
    assert [one for one in told(mixed) if one[0] != "validator"] == []


def test_a_name_that_the_write_gave_to_what_it_made_shows_nothing() -> None:
    assert told([get(10), patch(tag='"5"'), again(30)]) == []


def test_what_was_given_only_afterwards_was_not_meant() -> None:
    assert told([patch(), again(30), get(40, NEW)]) == []


def test_a_reset_ends_what_a_name_means() -> None:
    reset = exchange("POST", "/reset", at_ms=15, is_reset=True)
    assert told([get(10), reset, patch(), again(30)]) == []


def test_what_vary_names_must_be_the_same() -> None:
    given = get(10, more={"Vary": "Accept"}, request_headers={"Accept": "text/json"})
    assert told([given, patch(), again(30, asked={"Accept": "text/json"})]) == STALE
    assert told([given, patch(), again(30, asked={"Accept": "text/csv"})]) == []


@pytest.mark.parametrize("names", [('W/"5"', '"5"'), ('"5"', 'W/"5"'), ('W/"5"', 'W/"5"')])
def test_a_weak_validator_may_outlast_a_change(names: tuple[str, str]) -> None:
    given, sent = names
    (finding,) = found([get(10, tag=given), patch(), again(30, sent, told=None)])
    assert (finding.sub, finding.grade) == ("RYW", "suspected")
    assert "weak" in finding.cannot_say


def test_a_weak_validator_is_not_proven_by_a_version_either() -> None:
    def row(version: int) -> dict[str, Any]:
        return {"deals": {"D-1": {"id": "D-1", "stage": f"s{version}", "version": version}, "D-2": {"id": "D-2"}}}

    def body(version: int) -> dict[str, Any]:
        return {"id": "D-1", "stage": f"s{version}", "version": version}

    exchanges, states = [], [(0.0, row(1))]
    for version in range(2, 8):
        at = 20.0 * version
        exchanges.append(get(at, body(version - 1), f'W/"t{version - 1}"'))
        exchanges.append(
            exchange("PATCH", "/deals/D-1", sent={"stage": f"s{version}"}, body=body(version), at_ms=at + 5)
        )
        states.append((at + 8, row(version)))
    exchanges.append(again(200, 'W/"t4"', told=None))
    assert [grade for _, grade in told(exchanges, states)] == ["suspected"]


def test_last_modified_names_it_past_its_resolution() -> None:
    late = get(10, tag=None, more=DATES)
    soon = get(10, tag=None, more={**DATES, "Date": "Tue, 14 Nov 2023 22:13:01 GMT"})
    condition = again(30, "", told=None, asked={"If-Modified-Since": DATES["Last-Modified"]})
    assert told([late, patch(), condition]) == STALE
    assert told([soon, patch(), condition]) == []  # written in the same second, it may lawfully keep its date


def test_a_condition_by_time_does_not_count_beside_one_by_etag() -> None:
    both = again(30, '"4"', told=None, asked={"If-Modified-Since": DATES["Last-Modified"]})
    assert told([get(10, more=DATES), patch(), both]) == []


def test_another_lanes_write_is_missed_too_and_a_declared_cache_may() -> None:
    given = [get(10), patch(lane="other"), again(30)]
    assert told(given) == [("RT", "proven")]
    kept = {"Cache-Control": "max-age=60"}
    assert told([get(10, more=kept), patch(lane="other"), again(30)]) == []
    assert told([get(10, more=kept), patch(), again(30)]) == STALE  # its own write it must see


def test_a_list_that_is_said_to_be_current_lacks_the_new_row() -> None:
    def rows(*keys: str) -> dict[str, Any]:
        return {"deals": {key: {"id": key, "stage": "lead"} for key in keys}}

    def listed(at: float, *keys: str, tag: str, **given: Any) -> Any:
        body = {"items": [{"id": key, "stage": "lead"} for key in keys]}
        headers = {"Content-Type": "application/json", "ETag": tag}
        return exchange("GET", "/deals", body=body, headers=headers, at_ms=at, **given)

    made = exchange("POST", "/deals", status=201, sent={"stage": "lead"}, body={"id": "D-3", "stage": "lead"}, at_ms=20)
    stale = exchange(
        "GET", "/deals", status=304, headers={"ETag": '"5"'}, request_headers={"If-None-Match": '"5"'}, at_ms=40
    )
    states = [(0, rows("D-1", "D-2")), (22, rows("D-1", "D-2", "D-3"))]
    first, full = listed(10, "D-1", "D-2", tag='"5"'), listed(30, "D-1", "D-2", "D-3", tag='"6"')
    assert told([first, made, full, stale], states) == [("membership", "proven")]
