"""Which live names a re-driven request says in place of the recorded ones, and which never."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core.bindings import Bindings, flows
from replayproxy.core.canonical import body_of
from replayproxy.core.rewrite import rewrite, spans
from replayproxy.core.values import Exchange, Request
from replayproxy.testing import exchange, request, response, trace

A = "3f2a9c1e-1234-4bcd-8ef0-0123456789ab"
B = "77ad0b52-9d3c-4c1e-a0b1-5a5a0c2d9e11"
A2 = "9c0d1e2f-4a5b-4c6d-8e7f-00112233aabb"
B2 = "0b1c2d3e-7f6a-4b5c-9d8e-ffeeddccbbaa"


class Play:
    """Recorded exchanges and what the live environment answered to each, one after the other."""

    def __init__(self, authorities: Mapping[str, str] | None = None) -> None:
        self.bindings = Bindings(authorities)
        self.seq = 0

    def __call__(
        self, method: str, target: str, recorded: Any = b"", live: Any = b"", *, sent: Any = b"",
        ask: Sequence[tuple[str, str]] = (), a: Sequence[tuple[str, str]] = (), b: Sequence[tuple[str, str]] = (),
        status: tuple[int, int] = (200, 200), kind: str = "application/json",
    ) -> Request:  # fmt: skip
        """Sends one; gives the request as it goes out. `ask`, `a`, `b`: fields of request, recorded, live answer."""
        self.seq += 1
        fields = [("Host", "env.test"), *ask]
        content = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        if content:
            fields += [("Content-Type", kind), ("Content-Length", str(len(content)))]
        then = Exchange(
            seq=self.seq, order=(self.seq, 0), env="app", lane="main",
            request=request(method, target, content, headers=fields),
            response=_answer(status[0], recorded, a), outcome=exchange().outcome, times=exchange().times, carrier="",
        )  # fmt: skip
        out = self.bindings.apply(then)
        self.bindings.learn(then, out, _answer(status[1], live, b))
        return out

    @property
    def listed(self) -> list[tuple[str, str, int | None, int, str, str]]:
        return [(s.recorded, s.live, s.producer, s.consumer, s.place, s.kind) for s in self.bindings.substitutions]


def _answer(status: int, content: Any, fields: Sequence[tuple[str, str]]) -> Any:
    made = response(status, content)
    extra = tuple((n.encode("latin-1"), v.encode("latin-1")) for n, v in fields)
    given_names = {name.lower() for name, _ in extra}
    return replace(made, fields=(*extra, *(one for one in made.fields if one[0].lower() not in given_names)))


def body(sent: Request) -> bytes:
    assert sent.body is not None
    return sent.body.inline or b""


def length(sent: Request) -> bytes:
    return next(value for name, value in sent.fields if name == b"Content-Length")


def test_a_random_id_is_replaced_wherever_it_stands_as_a_whole_token() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    assert play("GET", f"/items/{A}?like={A}&q=x").target == f"/items/{A2}?like={A2}&q=x".encode()
    assert (
        body(play("POST", "/links", sent={"to": A, "note": f"see {A}!"}))
        == json.dumps({"to": A2, "note": f"see {A}!"}).encode()
    )
    form = play("POST", "/form", sent=f"to={A}&b=1".encode(), kind="application/x-www-form-urlencoded")
    assert body(form) == f"to={A2}&b=1".encode()
    assert play("GET", "/me", ask=[("Authorization", f"Bearer {A}")]).fields[1] == (
        b"Authorization", b"Bearer " + A2.encode(),
    )  # fmt: skip
    assert play("GET", "/x", ask=[("Referer", f"http://other.test/items/{A}")]).fields[1][1].endswith(A2.encode())
    assert [place for *_, place, _ in play.listed] == [
        "path/2", "query/like", "body/to", "body/to", "header/authorization", "header/referer#path/2",
    ]  # fmt: skip
    assert play.listed[0] == (A, A2, 1, 2, "path/2", "fresh id")


def test_a_longer_token_that_holds_a_known_id_is_left_alone() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    assert play("GET", f"/items/{A}x/{A}.json").target == f"/items/{A}x/{A}.json".encode()


def test_the_rest_of_a_json_body_keeps_its_bytes_and_the_length_is_put_right() -> None:
    play = Play()
    play("POST", "/items", {"token": "tok_9fK2mXq81LpZ0aVb"}, {"token": "tok_3hJ7" + "nYw52RsT8cUdEE"})
    sent = b'{ "a" : 1.0e0,\n "token":"tok_9fK2mXq81LpZ0aVb" , "u": "\\u00e9\\/", "n": [ null,true ] }'
    out = play("POST", "/use", sent=sent)
    want = sent.replace(b"tok_9fK2mXq81LpZ0aVb", b"tok_3hJ7nYw52RsT8cUdEE")
    assert body(out) == want
    assert length(out) == str(len(want)).encode()


def test_a_compressed_body_is_opened_and_closed_again() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    raw = gzip.compress(json.dumps({"to": A}).encode())
    out = play("POST", "/links", sent=raw, ask=[("Content-Encoding", "gzip")])
    assert json.loads(gzip.decompress(body(out))) == {"to": A2}


def test_an_id_inside_a_json_text_inside_json_is_found_on_both_sides() -> None:
    play = Play()
    told, live = ({"content": [{"text": json.dumps({"id": one})}]} for one in (A, A2))
    play("POST", "/mcp", told, live)
    out = play("POST", "/mcp", sent={"arguments": json.dumps({"note": A})})
    assert json.loads(json.loads(body(out))["arguments"]) == {"note": A2}


def test_a_small_id_is_replaced_only_where_its_own_collection_is_meant() -> None:
    play = Play()
    play("POST", "/deals", {"id": 17, "amount": 5}, {"id": 18, "amount": 5})
    assert play("GET", "/deals/17").target == b"/deals/18"
    assert play("GET", "/slots/17").target == b"/slots/17"
    assert play("GET", "/deals?page=17&deal_id=17").target == b"/deals?page=17&deal_id=18"
    out = play("POST", "/notes", sent={"deal_id": 17, "count": 17, "user_id": 17, "deal": {"id": 17}, "text": "17"})
    assert json.loads(body(out)) == {"deal_id": 18, "count": 17, "user_id": 17, "deal": {"id": 18}, "text": "17"}


def test_a_small_id_given_by_location_alone_is_bound_to_its_collection() -> None:
    play = Play()
    play("POST", "/deals", status=(201, 201), a=[("Location", "/deals/17")], b=[("Location", "/deals/18")])
    assert play("GET", "/deals/17").target == b"/deals/18"
    assert play("POST", "/deals/17/notes").target == b"/deals/18/notes"
    assert [kind for *_, kind in play.listed] == ["Location", "fresh id"]


def test_a_location_is_followed_as_a_whole_also_when_it_is_absolute_or_relative() -> None:
    play = Play({"env.test:9000": "127.0.0.1:8000"})
    play("GET", "/a", a=[("Location", "http://env.test:9000/cb?code=12&s=x")],
         b=[("Location", "http://127.0.0.1:8000/cb?code=99&s=x")])  # fmt: skip
    assert play("GET", "/cb?code=12&s=x").target == b"/cb?code=99&s=x"
    play("POST", "/d/x", a=[("Location", "sub/1")], b=[("Location", "sub/2")])
    assert play("GET", "/d/sub/1").target == b"/d/sub/2"


def test_a_location_on_another_host_is_nobodys_target() -> None:
    play = Play({"env.test": "live.test"})
    play("GET", "/a", a=[("Location", "http://else.test/cb?code=12")], b=[("Location", "http://else.test/cb?code=99")])
    assert play("GET", "/cb?code=12").target == b"/cb?code=12"


def test_a_tool_calls_small_id_belongs_to_what_the_tool_is_about() -> None:
    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

    def told(**value: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": json.dumps(value)}]}}

    play = Play()
    play("POST", "/mcp", told(id=3), told(id=8), sent=call("create_note", text="x"))
    out = play("POST", "/mcp", sent=call("get_note", note_id=3))
    assert json.loads(body(out))["params"]["arguments"] == {"note_id": 8}
    assert json.loads(body(out))["id"] == 1


def test_entity_tags_bind_by_their_uri_at_any_entropy() -> None:
    play = Play()
    play("GET", "/a", a=[("ETag", '"1"')], b=[("ETag", '"7"')])
    play("GET", "/b", a=[("ETag", '"1"')], b=[("ETag", 'W/"8"')])
    assert play("PUT", "/a", ask=[("If-Match", '"1"')]).fields[1][1] == b'"7"'
    assert play("GET", "/b", ask=[("If-None-Match", '"0", "1"')]).fields[1][1] == b'"0", W/"8"'
    assert play("GET", "/c", ask=[("If-None-Match", '"1"')]).fields[1][1] == b'"1"'
    assert play("GET", "/a", ask=[("If-Range", '"1"')]).fields[1][1] == b'"7"'
    assert [kind for *_, kind in play.listed] == ["ETag", "ETag", "ETag"]


def test_the_newest_entity_tag_of_a_uri_counts() -> None:
    play = Play()
    play("GET", "/a", a=[("ETag", '"1"')], b=[("ETag", '"7"')])
    play("GET", "/a", a=[("ETag", '"1"')], b=[("ETag", '"8"')])
    assert play("PUT", "/a", ask=[("If-Match", '"1"')]).fields[1][1] == b'"8"'


def test_last_modified_binds_to_the_conditions_on_its_uri() -> None:
    play = Play()
    was, now = "Sat, 01 Jan 2028 10:00:00 GMT", "Sat, 01 Jan 2028 11:30:00 GMT"
    play("GET", "/a?x=1", a=[("Last-Modified", was)], b=[("Last-Modified", now)])
    assert play("GET", "/a?x=1", ask=[("If-Modified-Since", was)]).fields[1][1] == now.encode()
    assert play("PUT", "/a", ask=[("If-Unmodified-Since", was)]).fields[1][1] == now.encode()
    assert play("GET", "/b", ask=[("If-Modified-Since", was)]).fields[1][1] == was.encode()
    assert play("GET", "/a", ask=[("If-Range", was)]).fields[1][1] == now.encode()


def test_cookies_bind_by_name_and_value_and_nothing_else_of_the_field_changes() -> None:
    play = Play()
    play("POST", "/login", a=[("Set-Cookie", "sid=1; Path=/"), ("Set-Cookie", "lang=en")],
         b=[("Set-Cookie", "lang=en"), ("Set-Cookie", "sid=2; Path=/")])  # fmt: skip
    out = play("GET", "/me", ask=[("Cookie", "theme=1;  sid=1; lang=en")])
    assert out.fields[1][1] == b"theme=1;  sid=2; lang=en"
    assert play.listed == [("1", "2", 1, 2, "header/cookie/sid", "cookie")]


def test_a_cookie_that_the_live_environment_did_not_set_is_sent_as_recorded() -> None:
    play = Play()
    play("POST", "/login", a=[("Set-Cookie", "sid=1")])
    assert play("GET", "/me", ask=[("Cookie", "sid=1")]).fields[1][1] == b"sid=1"


def test_an_mcp_session_binds() -> None:
    play = Play()
    play("POST", "/mcp", a=[("Mcp-Session-Id", "s-1")], b=[("Mcp-Session-Id", "s-2")])
    assert play("POST", "/mcp", ask=[("mcp-session-id", "s-1")]).fields[1] == (b"mcp-session-id", b"s-2")


def test_ids_in_server_sent_events_are_learnt() -> None:
    play = Play()
    typed = [("Content-Type", "text/event-stream")]
    play("POST", "/mcp", f'event: message\ndata: {{"id": "{A}"}}\n\n'.encode(),
         f'event: message\r\ndata: {{"id": "{A2}"}}\r\n\r\n'.encode(), a=typed, b=typed)  # fmt: skip
    assert play("GET", f"/items/{A}").target == f"/items/{A2}".encode()


def test_a_token_in_a_page_is_learnt_and_sent_back_in_a_form() -> None:
    play = Play()
    typed = [("Content-Type", "text/html")]
    play("GET", "/form", f'<input name="csrf" value="{"ab12" * 8}">'.encode(),
         f'<input name="csrf" value="{"ef97" * 8}">'.encode(), a=typed, b=typed)  # fmt: skip
    out = play("POST", "/form", sent=b"csrf=" + b"ab12" * 8, kind="application/x-www-form-urlencoded")
    assert body(out) == b"csrf=" + b"ef97" * 8


def test_the_environments_own_address_is_replaced_in_urls_and_nobody_elses() -> None:
    play = Play({"127.0.0.1:9000": "127.0.0.1:8000"})
    out = play("MOVE", "/a", ask=[("Destination", "http://127.0.0.1:9000/b"), ("Origin", "http://127.0.0.1:90001")],
               sent={"callback": "http://127.0.0.1:9000/cb", "text": "127.0.0.1:9000"})  # fmt: skip
    assert out.fields[1][1] == b"http://127.0.0.1:8000/b"
    assert out.fields[2][1] == b"http://127.0.0.1:90001"
    assert json.loads(body(out)) == {"callback": "http://127.0.0.1:8000/cb", "text": "127.0.0.1:9000"}
    assert {(producer, kind) for _, _, producer, _, _, kind in play.listed} == {(None, "authority")}


def test_lists_in_another_order_are_paired_by_what_they_hold_beside_ids() -> None:
    play = Play()
    play("POST", "/x")
    play("GET", "/items", [{"id": A, "n": "a"}, {"id": B, "n": "b"}], [{"id": B2, "n": "b"}, {"id": A2, "n": "a"}])
    assert play("GET", f"/items/{A}").target == f"/items/{A2}".encode()


def test_an_id_that_the_agent_chose_is_never_renamed_by_an_answer() -> None:
    play = Play()
    play("PUT", f"/items/{A}", {"id": A}, {"id": A2}, status=(201, 201))
    assert play("GET", f"/items/{A}").target == f"/items/{A}".encode()
    assert [(v.recorded, v.live, v.held) for v in play.bindings.violations] == [(A, A2, A)]


def test_the_wrong_resource_in_an_answer_is_no_renaming() -> None:
    play = Play()
    play("POST", "/deals", {"id": 5}, {"id": 5})
    play("GET", "/deals/42", {"id": 42}, {"id": 43})
    assert play("GET", "/deals/42").target == b"/deals/42"
    assert [(v.recorded, v.live, v.place) for v in play.bindings.violations] == [("42", "43", "body/id")]


def test_a_small_id_that_differs_before_any_write_is_a_difference_and_not_a_name() -> None:
    play = Play()
    play("GET", "/deals", [{"id": 1}], [{"id": 4}])
    assert play("GET", "/deals/1").target == b"/deals/1"


def test_two_recorded_ids_are_never_one_live_id() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    play("POST", "/items", {"id": B}, {"id": A2})
    assert play("GET", f"/items/{B}").target == f"/items/{B}".encode()
    assert [(v.recorded, v.live, v.held, v.exchange, v.since) for v in play.bindings.violations] == [(B, A2, A, 2, 1)]


def test_one_recorded_id_is_never_two_live_ids() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    play("GET", "/items", {"id": A}, {"id": B2})
    assert play("GET", f"/items/{A}").target == f"/items/{A2}".encode()
    assert len(play.bindings.violations) == 1


def test_prose_times_and_numbers_are_no_names() -> None:
    play = Play()
    same = {"status": "waiting-for-customer", "at": "2031-05-01T10:00:00.123456Z",
            "ms": 1712000000123, "f": "0.12345678901"}  # fmt: skip
    live = {"status": "resolved-by-operator", "at": "2031-05-02T11:00:00.654321Z",
            "ms": 1712000009999, "f": "0.98765432109"}  # fmt: skip
    play("POST", "/x", same, live)
    assert json.loads(body(play("POST", "/y", sent=same))) == same
    assert play.listed == []


def test_a_request_without_known_names_is_the_recorded_one_itself() -> None:
    play = Play()
    recorded = exchange("POST", "/deals", sent={"a": 1})
    assert play.bindings.apply(recorded) is recorded.request


def test_flows_name_the_answers_that_a_request_draws_on() -> None:
    made = trace(
        [
            exchange("POST", "/login", headers=[("Set-Cookie", "sid=1")], at_ms=0, lane="a"),
            exchange("POST", "/deals", body={"id": 17}, at_ms=10, lane="a"),
            exchange("GET", "/deals/17", request_headers=[("Cookie", "sid=1")], at_ms=20, lane="b"),
            exchange("GET", "/slots/17", at_ms=30, lane="c"),
        ]
    )
    assert flows(made.exchanges) == {3: {1, 2}}


def test_an_answer_that_had_not_ended_is_no_source() -> None:
    made = trace(
        [
            exchange("POST", "/deals", body={"id": 17}, at_ms=0, took_ms=100, lane="a"),
            exchange("GET", "/deals/17", at_ms=20, lane="b"),
        ]
    )
    assert flows(made.exchanges) == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.booleans())
def test_every_scalar_of_a_json_text_is_found_with_its_path(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    for path, start, end in spans(text):
        found = value
        for token in path:
            found = found[token]
        assert json.loads(text[start:end]) == found
    scalars = sum(1 for _ in spans(text))
    assert scalars == _count(value)


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list):
        return sum(map(_count, value))
    return 1


@given(json_values)
def test_a_walk_that_replaces_nothing_changes_nothing(value: Any) -> None:
    sent = request(
        "POST",
        "/a/b?c=d&e",
        json.dumps(value).encode(),
        headers=[("Content-Type", "application/json"), ("Cookie", "a=b; c"), ("If-Match", '"x", "y"')],
    )
    assert rewrite(sent, "app", lambda place, scopes, text: None) is sent


def test_a_multipart_body_has_its_tokens_replaced() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    sent = f'--b1\r\nContent-Disposition: form-data; name="item"\r\n\r\n{A}\r\n--b1--\r\n'.encode()
    out = play("POST", "/up", sent=sent, kind="multipart/form-data; boundary=b1")
    assert body(out) == sent.replace(A.encode(), A2.encode())


def test_a_body_that_is_no_json_whatever_its_type_says_is_left_alone() -> None:
    play = Play()
    play("POST", "/items", {"id": A}, {"id": A2})
    assert body(play("POST", "/x", sent=f'{{"id": "{A}"'.encode())) == f'{{"id": "{A}"'.encode()
    assert body_of(b"").size == 0
