from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from replayproxy.core.values import Exchange, Outcome
from replayproxy.detect.provenance import Flow, Provenance
from replayproxy.detect.tracers import in_text
from replayproxy.detect.views import Views
from replayproxy.testing import exchange, run, trace

UUID = "6f1c2a52-8a0f-4d0f-9a55-1d4d5cf0a1b2"
OTHER = "0b7cfa7e-9d55-4c54-b1c5-57b1f7a1c9d3"


def flows(*episodes: list[Exchange]) -> list[tuple[str, int, str, int, str | None]]:
    index = Provenance()
    for number, exchanges in enumerate(episodes):
        index.add(run(), f"e{number}", trace(exchanges).exchanges, Views())
    return [_told(flow) for flow in index.evidence()]


def _told(flow: Flow) -> tuple[str, int, str, int, str | None]:
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


# Values that were changed on the way


def changed(shown: str, made: str = UUID) -> list[str]:
    index = Provenance()
    for name, exchanges in (("e0", [post({"name": "x"}, {"id": made})]), ("e1", [get({"seen": shown})])):
        index.add(run(), name, trace(exchanges).exchanges, Views())
    return [flow.form for flow in index.evidence()]


def test_a_value_is_known_in_base64_percent_encoding_another_case_and_inside_a_name() -> None:
    assert changed(base64.b64encode(f"note={UUID}".encode()).decode()) == ["in base64"]
    assert changed(base64.urlsafe_b64encode(UUID.encode()).decode().rstrip("=")) == ["in base64"]
    assert changed(quote(f"id:{UUID}?/", safe="").replace("-", "%2D")) == ["percent-encoded"]
    assert changed(UUID.upper()) == [""]
    assert changed("TOKEN9X8Y7Z6W5V4".lower(), "TOKEN9X8Y7Z6W5V4") == [""]
    assert changed(f"user-{UUID}-v2") == ["inside a longer name"]


def test_the_beginning_or_the_end_of_an_id_is_one_if_it_holds_enough() -> None:
    sha = "3f786850e387550fdab836ed7e6dc881de23001b"
    assert changed(sha[:14], sha) == ["cut short"]
    assert changed(sha[-14:], sha) == ["cut short"]
    assert changed(sha[:8], sha) == []
    assert changed(sha[:12] + "00", sha) == []


def test_the_header_that_all_web_tokens_share_is_no_part_of_one() -> None:
    header = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    assert changed(header, f"{header}.eyJzdWIiOiIxIn0.aQx9LmP2kTz8VbN4") == []


# Episodes beside each other


def test_a_reader_that_was_opened_before_the_maker_is_found_too() -> None:
    made, read = post({"name": "x"}, {"id": UUID}, at=50), get([{"id": 1}, {"id": UUID}], at=100)
    index = Provenance()
    index.add(run(), "reader", trace([read]).exchanges, Views())
    index.add(run(), "maker", trace([made]).exchanges, Views())
    (flow,) = index.evidence()
    assert (flow.made.episode, flow.episode, flow.seq, flow.pointer) == ("maker", "reader", 1, None)


def test_what_another_had_sent_is_a_flow_also_where_every_call_counts_as_a_write() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list"}}
    said = post({"text": f"note {UUID}"}, {"ok": True})
    assert flows([said], [post(call, {"notes": [UUID]}, at=50)]) == [("e0", 1, "e1", 1, "/notes/0")]


def test_what_two_agents_sent_is_a_constant_of_theirs() -> None:
    said = post({"client": UUID}, {"ok": True})
    told = get({"client": UUID}, at=200)
    assert flows([said], [get({}, target=f"/login?client={UUID}", at=50)], [told]) == []


def test_an_episode_may_be_given_piece_by_piece() -> None:
    index = Provenance()
    index.add(run(), "e0", trace([post({}, {"id": UUID})]).exchanges, Views())
    own, read = trace([get({}, target=f"/deals/{OTHER}", at=20), get([OTHER, UUID], at=50)]).exchanges
    index.add(run(), "e1", [own], Views(), more=True)
    assert list(index.evidence()) == []
    index.add(run(), "e1", [read], Views(), more=True)
    assert [(f.value, f.seq) for f in index.evidence()] == [(UUID, 2)]


# Canaries

CANARY = "rpc-00c0ffee12ab34cd"


def planted(*episodes: tuple[str, list[Exchange]], owner: str = "e0") -> list[tuple[str, int, str, int, str | None]]:
    index = Provenance()
    index.plant(owner, [CANARY])
    for name, exchanges in episodes:
        index.add(run(), name, trace(exchanges).exchanges, Views())
    return [(f.made.episode, f.made.seq, f.episode, f.seq, f.pointer) for f in index.evidence()]


SAID = post({"text": f"Call Ada back. {CANARY}"}, {"id": 1, "text": f"Call Ada back. {CANARY}"})


def test_a_canary_names_who_brought_it_and_who_was_shown_it() -> None:
    look = get({"items": [{"text": f"Call Ada back. {CANARY}"}]})
    told = [("e0", 1, "e1", 1, "/items/0/text")]
    assert planted(("e0", [SAID]), ("e1", [look])) == told
    assert planted(("e1", [look]), ("e0", [SAID])) == told, "whoever was opened first"


def test_a_canary_is_found_in_any_text_whatever_its_case_and_in_base64() -> None:
    for text in (CANARY.upper(), f"x{CANARY}y", base64.b64encode(f"see {CANARY}!".encode()).decode()):
        assert planted(("e0", [SAID]), ("e1", [get({"t": text})])) == [("e0", 1, "e1", 1, "/t")], text
        plain = exchange("GET", "/page", body=f"<p>{text}</p>", headers={"Content-Type": "text/html"})
        assert planted(("e0", [SAID]), ("e1", [plain])) == [("e0", 1, "e1", 1, "")], text


def test_a_canary_that_its_own_episode_or_a_reader_s_own_request_holds_is_no_flow() -> None:
    assert planted(("e0", [SAID, get({"text": CANARY})])) == []
    assert planted(("e0", [SAID]), ("e1", [get({"q": CANARY}, target=f"/search?q={CANARY}")])) == []


def test_the_write_is_named_and_not_a_search_before_it() -> None:
    search = get({}, target=f"/search?q={CANARY}", at=1)
    assert planted(("e0", [search, SAID]), ("e1", [get({"t": CANARY})])) == [("e0", 2, "e1", 1, "/t")]


def test_a_token_of_a_canary_s_form_that_nobody_planted_is_an_ordinary_value() -> None:
    assert planted(("e0", [get({"t": CANARY})]), ("e1", [get({"t": CANARY})]), owner="other") == [
        ("other", 0, "e0", 1, "/t"), ("other", 0, "e1", 1, "/t"),
    ]  # fmt: skip
    assert flows([get({"t": CANARY})], [get({"t": CANARY})]) == []


def test_an_answer_whose_reader_left_once_it_had_read_enough_counts() -> None:
    look = get({"text": CANARY, "id": UUID})
    left = replace(look, outcome=Outcome.CLIENT_GONE, times=replace(look.times, up_end=None))
    assert planted(("e0", [SAID]), ("e1", [left])) == [("e0", 1, "e1", 1, "/text")]
    assert flows([post({}, {"id": UUID})], [left]) == [("e0", 1, "e1", 1, "/id")]
