from __future__ import annotations

import base64
import json
import random
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replayproxy.core import prolly
from replayproxy.core.compare import compare
from replayproxy.core.values import Trace
from replayproxy.testing import MS, WALL0, exchange, snapshot, trace
from tests.core.world import JSON, World, answers, deals, played, pointers, relaxed


@given(st.integers(1, 2**32), st.integers(1000, 10**9), st.integers(20, 5000))
@relaxed
def test_a_consistent_renaming_and_a_moved_clock_are_the_same(seed: int, start_ms: int, pace_ms: int) -> None:
    comparison = compare(played(deals, 0), played(deals, seed, start_ms=start_ms, pace_ms=pace_ms))
    assert comparison.roots == ()
    assert comparison.verdict == "same"
    # the deal's id in 3 bodies, 2 paths and Location, the note's id; 2 ETags; created_at 3 times and the note's time
    assert dict(comparison.explained) == {"fresh-id": 7, "validator": 2, "clock": 4}
    assert comparison.not_compared == {"x-request-id": 1}


@given(st.integers(1, 2**32))
@relaxed
def test_an_inconsistent_renaming_is_different(seed: int) -> None:
    def lost(world: World) -> None:
        deals(world)
        world.step("GET", f"/deals/{world.id('deal')}", body={"id": world.id("deal" if world.seed == 0 else "other")})

    comparison = compare(played(lost, 0), played(lost, seed))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(5, "body/id")]


def test_a_value_of_the_other_run_is_a_difference_where_both_have_it() -> None:
    old = World(0)

    def stale(world: World) -> None:
        deals(world)
        world.step("GET", "/deals/latest", body={"latest": {"id": old.id("deal")}})

    (root,) = compare(played(stale, 0), played(stale, 1)).roots
    assert (root.kind, root.a, root.pointer) == ("renaming", 5, "body/latest/id")


def test_ids_that_change_places_are_no_renaming() -> None:
    world = World(0)
    one, two = world.id("1"), world.id("2")
    comparison = compare(answers({"owner": one}, {"owner": two}), answers({"owner": two}, {"owner": one}))
    assert comparison.verdict == "different"


def test_an_id_that_stood_in_the_start_state_is_not_fresh() -> None:
    world = World(0)
    users = {"users": {"1": {"ref": world.id("ann")}, "2": {"ref": world.id("bob")}}}
    tree = prolly.build(users)
    shots = [snapshot(0, tree.root, when="start", rows=2)]

    def assigned(owner: str) -> Trace:
        return trace([exchange("POST", "/deals", body={"owner": world.id(owner)}, at_ms=10)], snapshots=shots)

    assert compare(assigned("ann"), assigned("bob"), load=tree.nodes.__getitem__).verdict == "different"
    assert compare(assigned("new"), assigned("newer"), load=tree.nodes.__getitem__).verdict == "same"


@pytest.mark.parametrize(("one", "other"), [("D-30", "D-40"), (30, 40)])
def test_a_small_id_of_a_row_that_both_runs_began_with_is_another_row(one: Any, other: Any) -> None:
    tree = prolly.build({"deals": {str(one): {"n": 1}, str(other): {"n": 1}}})
    shots = [snapshot(0, tree.root, when="start", rows=2)]

    def top(key: Any) -> Trace:
        asked = [exchange("GET", "/deals", body=[{"id": key}], at_ms=10), exchange("GET", f"/deals/{key}", at_ms=20)]
        return trace(asked, snapshots=shots)

    comparison = compare(top(one), top(other), load=tree.nodes.__getitem__)
    assert (comparison.verdict, comparison.roots[0].pointer) == ("different", "body/0/id")
    minted = (58, 59) if isinstance(one, int) else ("D-58", "D-59")
    assert compare(top(minted[0]), top(minted[1]), load=tree.nodes.__getitem__).verdict == "same"


def test_another_of_two_equal_rows_that_is_gone_is_a_difference() -> None:
    full, gone = {"D-3": {"n": 1}, "D-4": {"n": 1}}, [{"D-4": {"n": 1}}, {"D-3": {"n": 1}}]
    trees = [prolly.build({"deals": rows}) for rows in (full, *gone)]
    nodes = {address: node for tree in trees for address, node in tree.nodes.items()}

    def popped(after: int) -> Trace:
        write = exchange("POST", "/deals/pop", body={"ok": True}, at_ms=10)
        shots = [snapshot(0, trees[0].root, when="start", rows=2, at_ms=1),
                 snapshot(1, trees[after].root, rows=1, at_ms=20, after=write)]  # fmt: skip
        return trace([write], snapshots=shots)

    comparison = compare(popped(1), popped(2), load=nodes.__getitem__)
    assert (comparison.verdict, comparison.roots[0].kind) == ("different", "state")


def test_a_standing_clock_is_a_difference() -> None:
    def stopped(world: World) -> None:
        for _ in range(3):
            world.step("GET", "/now", body={"now": world.iso(None if world.seed == 0 else world.start_ms)})

    comparison = compare(played(stopped, 0), played(stopped, 1, start_ms=86_400_000))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(2, "body/now")]


def test_a_time_zone_and_an_expiry_are_the_clock() -> None:
    def session(world: World) -> None:
        world.step("POST", "/login", body={"expires": world.iso(world.now_ms + 3_600_000),
                                           "local": world.iso(world.now_ms + 7_200_000)[:-1]})  # fmt: skip
        for _ in range(20):
            world.step("GET", "/wait", body={})
        world.step("GET", "/session", body={"expires": world.iso(world.start_ms + 3_600_000)})

    comparison = compare(played(session, 0), played(session, 0, start_ms=5000, pace_ms=10))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"clock": 3})


def test_a_business_date_that_moved_is_no_clock() -> None:
    left, right = answers({"due": "2023-12-01"}), answers({"due": "2023-12-02"})
    assert compare(left, right).verdict == "different"


def test_a_balance_that_moved_is_never_a_counter() -> None:
    def account(world: World) -> None:
        world.step("GET", f"/accounts/{17 + world.seed}", body={"id": 17 + world.seed, "balance": 17 + world.seed})

    comparison = compare(played(account, 0), played(account, 1))
    assert "body/balance" in [root.pointer for root in comparison.roots] + [
        fold.pointer for root in comparison.roots for fold in root.folded
    ]


def test_a_number_that_serves_as_an_identifier_is_a_counter() -> None:
    def ticket(world: World) -> None:
        number = 40 + world.seed
        world.step("POST", "/tickets", status=201, body={"id": number, "subject": "late"},
                   headers={**JSON, "Location": f"/tickets/{number}"})  # fmt: skip
        world.step("GET", f"/tickets/{number}", body={"id": number, "subject": "late"})
        world.step("POST", f"/tickets/{number}/notes", body={"ticket_id": number, "text": "ok"})

    comparison = compare(played(ticket, 0), played(ticket, 3))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"counter": 6})


def test_a_number_that_is_never_used_as_an_identifier_is_none() -> None:
    def ticket(world: World) -> None:
        world.step("POST", "/tickets", status=201, body={"id": 40 + world.seed})

    assert compare(played(ticket, 0), played(ticket, 3)).verdict == "different"


def test_another_choice_of_the_agent_is_no_counter() -> None:
    def reads(world: World) -> None:
        world.step("GET", f"/deals/{42 + world.seed}", body={"title": "Acme"})

    comparison = compare(played(reads, 0), played(reads, 1))
    assert pointers(comparison) == ["request/path"]


def test_short_ids_with_a_prefix_are_renamed_within_what_they_name() -> None:
    def deal(world: World) -> None:
        name = ["D-9f41", "D-77aa"][world.seed]
        world.step("POST", "/deals", body={"id": name})
        world.step("GET", f"/deals/{name}", body={"id": name, "text": f"deal {name} is open"})

    comparison = compare(played(deal, 0), played(deal, 1))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"fresh-id": 4})


def test_a_validator_that_stays_while_the_body_changes_is_a_difference() -> None:
    def versions(world: World) -> None:
        for n in (1, 2):
            tag = n if world.seed == 0 else 1
            world.step("GET", "/doc", body={"n": n}, headers={**JSON, "ETag": f'"{world.id(f"v{tag}")}"'})

    comparison = compare(played(versions, 0), played(versions, 1))
    assert [(root.a, root.pointer) for root in comparison.roots] == [(2, "header/etag")]


def test_a_condition_follows_its_validator() -> None:
    def conditional(world: World) -> None:
        tag = f'"{7 + world.seed}"'
        world.step("GET", "/doc", body={"n": 1}, headers={**JSON, "ETag": tag})
        world.step("PUT", "/doc", sent={"n": 2}, request_headers={**JSON, "If-Match": tag}, body=b"", status=204)

    comparison = compare(played(conditional, 0), played(conditional, 1))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"validator": 2})


def test_the_environments_own_address_is_explained_and_no_other() -> None:
    def links(world: World) -> None:
        world.step("GET", "/", body={"next": f"http://{world.authority}/page/2"})

    a = played(links, 0, authority="app.test")
    b = played(links, 1, authority="127.0.0.1:8001")
    assert compare(a, b).verdict == "different"
    known = compare(a, b, authorities_b=frozenset({"127.0.0.1:8001"}))
    assert (known.verdict, dict(known.explained)) == ("same", {"authority": 1})


def test_floating_point_noise_is_jitter_and_a_cent_is_not() -> None:
    noise = answers({"x": 0.30000000000000004}), answers({"x": 0.3})
    assert dict(compare(*noise).explained) == {"jitter": 1}
    cents = [trace([exchange("GET", "/x", body=f'{{"x": 1000000000.0{n}}}', headers=JSON)]) for n in (1, 2)]
    assert compare(*cents).verdict == "different"


def test_elapsed_time_is_the_clock_when_it_is_not_longer_than_measured() -> None:
    fast, slow = answers({"elapsed_ms": 1}, took_ms=3), answers({"elapsed_ms": 40}, took_ms=50)
    assert dict(compare(fast, slow).explained) == {"clock": 1}
    late = answers({"elapsed_ms": 4000}, took_ms=50)
    assert compare(fast, late).verdict == "different"


def test_a_digest_is_never_a_fresh_id() -> None:
    chance = random.Random(1)
    a, b = (answers({"sha256": f"{chance.getrandbits(256):064x}"}) for _ in range(2))
    assert compare(a, b).verdict == "different"


# -- tokens that can be read


def packed(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_a_cursor_is_as_much_chance_as_what_it_says() -> None:
    one, two = (answers({"next": packed({"after": n, "order": "asc"})}) for n in (12, 13))
    assert compare(one, two).verdict == "different"

    def cursor(world: World) -> None:
        world.step("GET", "/deals", body={"next": packed({"after": world.id("last")})})

    assert dict(compare(played(cursor, 0), played(cursor, 1)).explained) == {"fresh-id": 1}


def test_a_signed_token_is_explained_by_its_payload() -> None:
    def login(world: World, role: str = "user") -> None:
        now = 1_700_000_000 + world.now_ms // 1000
        payload = {"sub": world.id("ann"), "iat": now, "exp": now + 3600, "role": role}
        signature = world.id("s1").replace("-", "") + world.id("s2").replace("-", "")
        world.step("POST", "/login", body={"token": f"{packed({'alg': 'HS256'})}.{packed(payload)}.{signature}"})

    same = compare(played(login, 0), played(login, 1, start_ms=90_000))
    assert (same.verdict, dict(same.explained)) == ("same", {"fresh-id": 1, "clock": 1})
    other = compare(played(login, 0), played(lambda world: login(world, "admin"), 1))
    assert (other.verdict, other.roots[0].values) == ("different", ("(not shown)", "(not shown)"))


def test_long_content_is_no_id_however_random_it_looks() -> None:
    chance = random.Random(1)
    a, b = (answers({"file": base64.b64encode(chance.randbytes(300)).decode()}) for _ in range(2))
    assert compare(a, b).verdict == "different"


def test_members_may_be_named_by_fresh_ids() -> None:
    def by_id(world: World, stage: str = "lead") -> None:
        world.step("POST", "/deals", body={"id": world.id("one")})
        world.step(
            "GET", "/board", body={"deals": {world.id("one"): {"stage": stage}, world.id("two"): {"stage": "won"}}}
        )

    same = compare(played(by_id, 0), played(by_id, 1))
    assert (same.verdict, dict(same.explained)) == ("same", {"fresh-id": 3})
    (root,) = compare(played(by_id, 0), played(lambda world: by_id(world, "lost"), 1)).roots
    assert (root.pointer, root.values) == (f"body/deals/{World(0).id('one')}/stage", ("lead", "lost"))


# -- whole episodes of real servers' kinds


def test_two_equal_runs_of_one_episode_are_equal_and_say_what_was_masked() -> None:
    def episode(world: World) -> None:
        headers = {**JSON, "Date": f"day {world.seed}", "X-Request-Id": world.id("request")}
        world.step("GET", "/x", body={"elapsed_ms": 1 + world.seed, "session": world.id("session")}, headers=headers)

    comparison = compare(played(episode, 0), played(episode, 1))
    assert (comparison.verdict, dict(comparison.explained)) == ("same", {"clock": 1, "fresh-id": 1})
    assert comparison.not_compared == {"date": 1, "x-request-id": 1}
    shown = {name: [example.pointer for example in found] for name, found in comparison.explained_detail.items()}
    assert shown == {"clock": ["body/elapsed_ms"], "fresh-id": ["body/session"]}


def store_of_records(world: World) -> None:
    """The clock is the validator, in milliseconds: as Kinto has it."""

    def step(method: str, target: str, body: Any, stamp: int, **more: Any) -> None:
        headers = {**JSON, "ETag": f'"{stamp}"', "Last-Modified": formatdate(stamp / 1000, usegmt=True)}
        world.step(method, target, body=body, headers=headers, **more)

    def now() -> int:
        return WALL0 // MS + world.now_ms + 2

    path = f"/v1/records/{world.id('r')}"
    first = now()
    record = {"id": world.id("r"), "title": "a", "last_modified": first}
    step("POST", "/v1/records", {"data": record}, first, status=201, sent={"data": {"title": "a"}})
    step("GET", path, {"data": record}, first)
    step("GET", path, {}, first, status=304, request_headers={"If-None-Match": f'"{first}"'})
    second = now()
    changed = {**record, "title": "b", "last_modified": second}
    step("PUT", path, {"data": changed}, second, sent={"data": {}}, request_headers={**JSON, "If-Match": f'"{first}"'})
    step(
        "PUT", path, {"code": 412, "existing": changed}, second, status=412, request_headers={"If-Match": f'"{first}"'}
    )
    step("GET", f"/v1/records?_since={first}", {"data": [changed]}, second)


def test_a_store_whose_validators_are_its_clock() -> None:
    comparison = compare(played(store_of_records, 0), played(store_of_records, 1, start_ms=3_600_000, pace_ms=30))
    assert (comparison.verdict, comparison.roots) == ("same", ())
    assert comparison.explained["validator"] >= 10


def tools(world: World, texts: tuple[str, ...] = ("one", "two")) -> None:
    """Tool calls over streamable HTTP: event streams with JSON-RPC, documents inside texts."""
    session = world.id("session").replace("-", "")

    def call(number: int, method: str, params: Any, result: Any) -> None:
        event = f"event: message\nid: {world.id(f'event {number}')}\ndata: "
        event += json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\n\n"
        world.step(
            "POST", "/mcp", sent={"jsonrpc": "2.0", "id": number, "method": method, "params": params},
            request_headers={**JSON, "Mcp-Session-Id": session}, body=event.encode(),
            headers={"Content-Type": "text/event-stream", "Mcp-Session-Id": session},
        )  # fmt: skip

    call(1, "initialize", {}, {"serverInfo": {"name": "notes"}})
    for number, text in enumerate(texts, 2):
        note = {"id": world.id(text), "text": text, "at": world.iso()}
        call(number, "tools/call", {"name": "add"}, {"content": [{"type": "text", "text": json.dumps(note)}]})


def test_tool_calls_over_event_streams() -> None:
    comparison = compare(played(tools, 0), played(tools, 1, start_ms=3_600_000, pace_ms=30))
    assert (comparison.verdict, comparison.roots) == ("same", ())
    (root,) = compare(played(tools, 0), played(lambda world: tools(world, ("one", "2")), 1)).roots
    assert (root.a, root.template) == (3, "POST /mcp tools/call add")
    assert (root.pointer, root.values) == ("body/0/data/result/content/0/text/(json)/text", ("two", "2"))


def test_what_a_redrive_substituted_in_a_request_is_explained_and_nowhere_else() -> None:
    def sent(world: World) -> None:
        number = 17 + world.seed
        world.step("POST", f"/deals/{number}/notes?of={number}", sent={"deal": number, "text": f"re {number}"}, body={},
                   request_headers=JSON)  # fmt: skip

    a, b = played(sent, 0), played(sent, 1)
    assert dict(compare(a, b, bindings={"17": "18"}).explained) == {"fresh-id": 4}
    assert compare(a, b).verdict == "different"
    left, right = answers({"balance": 17}), answers({"balance": 18})
    assert compare(left, right, bindings={"17": "18"}).verdict == "different"


@pytest.mark.parametrize("amount", [100, "100", 101])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_verdict_is_the_same_from_both_sides(amount: Any, seed: int) -> None:
    a, b = played(deals, 0), played(lambda world: deals(world, amount=amount), seed, start_ms=3000)
    one, other = compare(a, b), compare(b, a)
    assert (one.verdict, one.explained) == (other.verdict, other.explained)
    assert [root.pointer for root in one.roots] == [root.pointer for root in other.roots]


def test_the_address_of_one_environment_is_not_that_of_another() -> None:
    a = answers({"one": "http://crm:1/x", "two": "http://cal:2/x"})
    same = answers({"one": "http://live:7/x", "two": "http://live:8/x"})
    mixed = answers({"one": "http://live:7/x", "two": "http://live:7/x"})
    known = {"authorities_a": frozenset({"crm:1", "cal:2"}), "authorities_b": frozenset({"live:7", "live:8"})}
    assert dict(compare(a, same, **known).explained) == {"authority": 2}
    assert pointers(compare(a, mixed, **known)) == ["body/two"]
