from __future__ import annotations

import json
from typing import Any

from replayproxy.core.values import Exchange
from replayproxy.detect.provenance import Flow, Provenance, in_text
from replayproxy.detect.views import Views
from replayproxy.testing import exchange, run, trace

UUID = "6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2"
OTHER = "0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3"


def flows(*episodes: list[Exchange]) -> list[tuple[str, int, str, int, str]]:
    index = Provenance()
    for number, exchanges in enumerate(episodes):
        index.add(run(), f"e{number}", trace(exchanges).exchanges, Views())
    return [_told(flow) for flow in index.evidence()]


def _told(flow: Flow) -> tuple[str, int, str, int, str]:
    return flow.made.episode, flow.made.seq, flow.episode, flow.seq, flow.pointer


def get(body: Any, target: str = "/deals", at: float = 100, **more: Any) -> Exchange:
    return exchange("GET", target, body=body, at_ms=at, **more)


def post(sent: Any, body: Any, at: float = 10, target: str = "/deals", status: int = 201) -> Exchange:
    return exchange("POST", target, sent=sent, body=body, at_ms=at, status=status)


def test_an_id_that_one_episode_was_given_and_another_reads_is_a_flow() -> None:
    made, read = post({"name": "x"}, {"id": UUID}), get({"items": [{"id": 1}, {"id": UUID}]})
    assert flows([made], [read]) == [("e0", 1, "e1", 1, "/items/1/id")]


def test_one_spelling_of_a_uuid_is_found_in_another() -> None:
    assert flows([post({}, {"id": UUID})], [get({"id": UUID.replace("-", "").upper()})])


def test_what_an_episode_itself_sent_or_was_given_is_its_own() -> None:
    made = post({}, {"id": UUID})
    assert flows([made], [get({"id": UUID}, target=f"/deals/{UUID}")]) == []
    assert flows([made], [post({}, {"id": UUID}, at=90), get({"id": UUID})]) == []
    cookie = get({"token": UUID}, request_headers={"Cookie": f"sid={UUID}"})
    assert flows([made], [cookie]) == []


def test_what_was_read_before_it_was_made_was_there_already() -> None:
    made, read = post({"owner": UUID}, {"id": OTHER}), get({"owner": UUID})
    assert flows([get({"owner": UUID}, at=1), made], [read]) == []
    assert flows([get({"owner": UUID}, at=1)], [made], [read]) == []


def test_a_value_that_two_episodes_were_given_is_a_constant_or_a_seeded_one() -> None:
    made = post({}, {"id": UUID})
    assert flows([made], [post({}, {"id": UUID})], [get({"id": UUID})]) == []


def test_a_refused_write_makes_nothing_of_what_was_sent() -> None:
    assert flows([post({"id": UUID}, {"error": "no"}, status=409)], [get({"id": UUID})]) == []


def test_words_small_numbers_and_times_are_no_evidence() -> None:
    body = {"id": 42, "stage": "negotiation-with-the-customer", "at": "2026-01-05T09:00:00Z", "n": 1767600000000}
    assert flows([post({}, body)], [get(body)]) == []


def test_a_flow_is_found_in_text_and_in_json_within_text() -> None:
    made = post({}, {"id": UUID})
    text = {"content": [{"type": "text", "text": f"Created note {UUID}."}]}
    assert flows([made], [get(text)]) == [("e0", 1, "e1", 1, "/content/0/text")]
    inner = {"content": [{"type": "text", "text": json.dumps({"note": {"id": UUID}})}]}
    assert flows([made], [get(inner)]) == [("e0", 1, "e1", 1, "/content/0/text/note/id")]


def test_each_value_is_told_once_per_reader() -> None:
    read = get({"id": UUID})
    assert len(flows([post({}, {"id": UUID})], [read, get({"id": UUID}, at=200)], [read])) == 2


def test_a_token_is_taken_whole_and_not_by_a_part_that_all_tokens_share() -> None:
    header = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    assert list(in_text(f"{header}.eyJzdWIiOiIxIn0.aQx9LmP2kTz8VbN4")) == [f"{header}.eyJzdWIiOiIxIn0.aQx9LmP2kTz8VbN4"]
    one = post({}, {"token": f"{header}.eyJzdWIiOiIxIn0.aQx9LmP2kTz8VbN4"})
    assert flows([one], [get({"token": f"{header}.eyJzdWIiOiIyIn0.Zt7RwC3yHg5DfK1s"})]) == []


def test_a_full_index_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr("replayproxy.detect.provenance.MAX_MADE", 1)
    index = Provenance()
    index.add(run(), "e0", trace([post({}, {"id": UUID}), post({}, {"id": OTHER}, at=20)]).exchanges, Views())
    assert index.full
