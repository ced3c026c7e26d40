"""What the rules do to a recording: whose an exchange is, when that is known, and what it says of its episode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from replayproxy.core.identity import LATE
from replayproxy.core.values import UNATTRIBUTED, Exchange, Message, SnapshotStatus, WebSocket
from replayproxy.proxy.scribe import Ticket
from replayproxy.session.camera import Plan
from tests.session.desk_kit import Kit, Table, made

type Make = Callable[..., Kit]

HEADER = {"header": "X-Thread"}
BODY = {"body": "/session"}
ANSWER = {"answer": "/session", "space": "r0"}
FRAME = {"at": "GET /ws", "connection": True, "frame": "/id"}


class Passing:
    """One exchange on its way, step by step, with the bytes that the proxy would hand over."""

    def __init__(
        self, one: Kit, method: str = "POST", target: str = "/x", *, sent: Any = None, told: Any = None,
        streamed: bool = False, messages: tuple[Any, ...] | None = None, headers: dict[str, str] | None = None,
        answered: dict[str, str] | None = None, **claims: Any,
    ) -> None:  # fmt: skip
        self.one, self.streamed = one, streamed
        self.fields = tuple((n.encode(), v.encode()) for n, v in (headers or {}).items())
        self.ticket: Ticket = one.arrive(method, target, fields=self.fields, **claims)
        sent_raw, told_raw = (b"" if each is None else json.dumps(each).encode() for each in (sent, told))
        for raw, answer in ((sent_raw, False), (told_raw, True)):
            if raw:
                one.recording.sink(self.ticket, self.fields, answer=answer).write(raw)
        talk = None
        if messages is not None:
            self.talk = one.recording.talk(self.ticket)
            self.say(*messages)
            talk = WebSocket(messages=(), close_code=1000)
        self.exchange: Exchange = made(
            self.ticket, method, target, sent=sent_raw, body=told_raw, headers=answered, request_headers=headers,
            websocket=talk, status=101 if talk else 200,
        )  # fmt: skip

    def say(self, *messages: Any) -> None:
        for each in messages:
            self.talk.add(Message(from_agent=True, text=True, payload=json.dumps(each).encode(), at=0))

    async def request(self) -> Passing:
        if not self.streamed:
            await self.one.recording.before_forward(self.ticket, self.exchange.request)
        return self

    async def answer(self) -> int:
        return await self.one.recording.hold(self.ticket, self.exchange)

    def end(self) -> None:
        self.one.recording.finished(self.ticket, self.exchange)

    async def whole(self) -> Passing:
        await self.request()
        await self.answer()
        self.end()
        return self

    @property
    def episode(self) -> str | None:
        episode = self.one.recording.attribution(self.ticket).episode
        return None if episode is None else episode.name


async def carried(one: Kit, name: str) -> list[tuple[str, bool]]:
    return [(each.carrier, LATE in each.notes) for each in await one.stored(name)]


async def test_an_id_in_the_head_is_known_at_once_and_opens_an_episode_of_its_name(kit: Make) -> None:
    one = kit(rules=[HEADER], tables={"app": Table()})
    first = Passing(one, headers={"X-Thread": "t 1"})
    assert first.episode == "t-1"
    await first.whole()
    await Passing(one, headers={"X-Thread": "t 1"}).whole()
    assert await carried(one, "t-1") == [("rule", False)] * 2
    assert (await one.episode("t-1")).aliases == (("r0", "t 1"),)
    assert [s.reason for s in await one.snapshots("t-1") if s.when == "start"] == ["undeclared"]
    assert one.recording.tally.why_not_whole() == []
    assert dict(one.recording.tally.rules) == {"r0": 2}


async def test_an_id_in_a_buffered_request_is_known_before_it_is_forwarded(kit: Make) -> None:
    one = kit(rules=[BODY], tables={"app": Table()}, plan=Plan(when=("write",)))
    passing = Passing(one, sent={"session": "s7"})
    assert passing.episode is None
    await passing.request()
    assert passing.episode == "s7"
    assert await passing.answer() > 0, "the write is held"
    passing.end()
    assert await carried(one, "s7") == [("rule", False)]


async def test_an_id_in_a_streamed_request_is_known_at_its_end(kit: Make) -> None:
    one = kit(rules=[BODY])
    await Passing(one, sent={"session": "s7"}, streamed=True).whole()
    assert await carried(one, "s7") == [("rule", False)]


async def test_an_id_that_only_the_answer_tells_is_late_and_known_before_the_agent_has_it(kit: Make) -> None:
    one = kit(rules=[BODY, ANSWER], tables={"app": Table()}, plan=Plan(when=("write",)))
    opening = Passing(one, sent={}, told={"session": "s7"})
    await opening.request()
    assert opening.episode is None
    assert await opening.answer() > 0
    assert opening.episode == "s7"
    opening.end()
    await Passing(one, sent={"session": "s7"}).whole()
    assert await carried(one, "s7") == [("rule", True), ("rule", False)]
    assert [s.status for s in await one.snapshots("s7")] == [SnapshotStatus.TAKEN] * 2


async def test_an_answer_that_streamed_names_its_episode_at_its_end_and_in_its_place(kit: Make) -> None:
    one = kit(rules=[HEADER, {"answer-header": "X-Thread", "space": "r0"}])
    opening = await Passing(one, target="/first", answered={"X-Thread": "t1"}).request()
    await Passing(one, target="/second", headers={"X-Thread": "t1"}).whole()
    opening.end()
    assert [(x.request.target, LATE in x.notes) for x in await one.stored("t1")] == [
        (b"/first", True), (b"/second", False),
    ]  # fmt: skip


async def test_without_any_id_it_is_the_option_s_or_nobody_s(kit: Make) -> None:
    one = kit(rules=[BODY, ANSWER])
    await Passing(one, sent={"other": 1}, told={}).whole()
    assert [x.carrier for x in await one.stored(UNATTRIBUTED)] == ["no carrier"]
    assert one.recording.tally.why_not_whole() == [
        "no exchange was recorded in an episode", "1 exchange unattributed",
    ]  # fmt: skip


async def test_with_an_option_what_no_rule_claims_is_the_option_s(kit: Make) -> None:
    one = kit(rules=[BODY], option="e")
    await one.open()
    await Passing(one, sent={"other": 1}).whole()
    await Passing(one, sent={"session": "s7"}).whole()
    assert await carried(one, "e") == [("option", False)]
    assert await carried(one, "s7") == [("rule", False)]


async def test_ids_of_one_exchange_are_joined(kit: Make) -> None:
    one = kit(rules=[HEADER, {"path": "/{id}/go"}, {"answer": "/ref"}])
    await Passing(one, target="/p1/go", headers={"X-Thread": "t1"}, told={"ref": "k1"}).whole()
    await Passing(one, target="/p1/go").whole()
    await Passing(one, target="/x", told={"ref": "k1"}).whole()
    assert len(await one.stored("t1")) == 3
    assert (await one.episode("t1")).aliases == (("r0", "t1"), ("r1", "p1"), ("r2", "k1"))
    assert one.recording.tally.contradictions == 0


async def test_ids_join_the_episode_that_a_stronger_carrier_names(kit: Make) -> None:
    one = kit(rules=[HEADER])
    await one.open("mine")
    await Passing(one, headers={"X-Thread": "t1"}, prefix="mine").whole()
    await Passing(one, headers={"X-Thread": "t1"}).whole()
    assert await carried(one, "mine") == [("prefix", False), ("rule", False)]


async def test_an_id_that_is_the_name_of_an_open_episode_is_that_episode_s(kit: Make) -> None:
    one = kit(rules=[HEADER], undeclared="refuse")
    await one.open("ep-42")
    await Passing(one, headers={"X-Thread": "ep-42"}).whole()
    assert await carried(one, "ep-42") == [("rule", False)]


async def test_a_rule_may_name_the_episode_itself_and_a_name_that_cannot_be_is_refused(kit: Make) -> None:
    one = kit(rules=[{"header": "X-Episode", "fills": "episode"}])
    await Passing(one, headers={"X-Episode": "crm-7"}).whole()
    await Passing(one, headers={"X-Episode": "crm/7"}).whole()
    assert await carried(one, "crm-7") == [("rule", False)]
    assert [x.carrier for x in await one.stored(UNATTRIBUTED)] == ["refused name: it contains '/'"]


async def test_equal_values_of_two_spaces_are_two_ids(kit: Make) -> None:
    one = kit(rules=[{"path": "/a/{id}"}, {"path": "/b/{id}"}])
    await Passing(one, target="/a/1").whole()
    await Passing(one, target="/b/1").whole()
    assert {live.episode.name: live.exchanges for live in one.recording.ledger.lives.values()} == {"1": 1, "1-a2": 1}


@pytest.mark.parametrize(
    ("claims", "headers", "target", "kept", "says"),
    [
        ({"prefix": "a"}, {"X-Thread": "tb"}, "/x", "a", "prefix says a, rule r0 says b"),
        ({}, {"X-Thread": "ta"}, "/pb/go", "a", "rule r0 says a, rule r1 says b"),
        ({"header": "a", "baggage": "b"}, {}, "/x", "a", "header says a, baggage says b"),
    ],
)
async def test_two_episodes_claimed_by_one_request_are_reported_and_the_stronger_wins(
    kit: Make, claims: dict[str, str], headers: dict[str, str], target: str, kept: str, says: str
) -> None:
    one = kit(rules=[HEADER, {"path": "/{id}/go"}])
    for name in "ab":
        await one.open(name)
        await Passing(one, target=f"/p{name}/go", headers={"X-Thread": f"t{name}"}, prefix=name).whole()
    await Passing(one, target=target, headers=headers, **claims).whole()
    stored = await one.stored(kept)
    assert f"contradiction: {says}" in stored[-1].notes
    assert len(await one.stored("b")) == 1
    assert one.recording.tally.why_not_whole() == ["1 contradiction"]
    assert one.recording.tally.contradiction_first == f"r/{kept}: contradiction: {says}"
    reader = one.store.reader()
    events = reader.events(reader.episode(reader.run("r"), kept))
    assert [event.kind for event in events] == ["contradiction"]


async def test_what_the_head_says_decides_before_the_body_whichever_rule_comes_first(kit: Make) -> None:
    one = kit(rules=[{"body": "/region", "fills": "episode"}, {"header": "X-Region", "fills": "episode"}])
    for name in ("north", "south"):
        await one.open(name)
    await Passing(one, "POST", "/x", sent={"region": "north"}, headers={"X-Region": "south"}).whole()
    stored = await one.stored("south")
    assert "contradiction: rule r1 says south, rule r0 says north" in stored[-1].notes


async def test_an_id_outlives_its_episode_and_passes_on_to_the_next_that_a_mark_names(kit: Make) -> None:
    one = kit(rules=[HEADER])
    for name in "ab":
        await one.open(name)
        await Passing(one, headers={"X-Thread": "worker"}, prefix=name).whole()
        await Passing(one, headers={"X-Thread": "worker"}).whole()
        await one.desk.end_live(one.recording.ledger.lives[name], by="end")
    assert [await carried(one, name) for name in "ab"] == [[("prefix", False), ("rule", False)]] * 2
    await Passing(one, headers={"X-Thread": "worker"}).whole()
    assert [x.carrier for x in await one.stored(UNATTRIBUTED)] == ["episode sealed"]
    assert one.recording.tally.contradictions == 0


async def test_marks_that_contradict_each_other_are_reported_without_any_rule(kit: Make) -> None:
    one = kit()
    for name in "ab":
        await one.open(name)
    await Passing(one, header="a", baggage="b").whole()
    await Passing(one, header="b", prefix="b").whole()
    assert [x.notes for x in await one.stored("a")] == [("contradiction: header says a, baggage says b",)]
    assert [x.notes for x in await one.stored("b")] == [()]
    assert one.recording.tally.why_not_whole() == ["1 contradiction"]


async def test_one_id_on_two_connections_is_reported(kit: Make) -> None:
    one = kit(rules=[FRAME])
    for passing in [Passing(one, "GET", "/ws", messages=({"id": "ep-42"}, {"id": "ep-42"})) for _ in range(2)]:
        passing.end()
    assert [bool([n for n in x.notes if "two connections" in n]) for x in await one.stored("ep-42")] == [False, True]
    assert one.recording.tally.contradictions == 1


async def test_the_first_message_that_names_a_connection_opens_its_episode(kit: Make) -> None:
    one = kit(rules=[FRAME, {**FRAME, "frame": "/seed", "fills": "seed"}])
    passing = await Passing(one, "GET", "/ws", messages=({"type": "hello"},)).request()
    assert passing.episode is None
    passing.say({"id": "ep-42", "seed": 3})
    assert passing.episode == "ep-42"
    assert len(one.recording.ledger.lives["ep-42"].flights) == 1
    passing.end()
    assert await carried(one, "ep-42") == [("rule", True)]
    assert (await one.episode("ep-42")).seed == 3


async def test_two_ids_on_one_connection_are_reported_and_the_first_wins(kit: Make) -> None:
    one = kit(rules=[FRAME])
    Passing(one, "GET", "/ws", messages=({"id": "e1"}, {"id": "e2"}, {"id": "e1"})).end()
    (stored,) = await one.stored("e1")
    assert stored.notes == ("contradiction: rule r0: one connection says two names", LATE)
    assert (await one.episode("e1")).aliases == (("r0", "e1"),)
    assert one.recording.tally.contradictions == 1


async def test_a_connection_that_names_itself_by_nothing_is_an_episode_of_its_own(kit: Make) -> None:
    one = kit(rules=[FRAME])
    for _ in range(2):
        Passing(one, "GET", "/ws", messages=({"type": "reset"},)).end()
    assert [(name, live.exchanges) for name, live in one.recording.ledger.lives.items()] == [("r0-1", 1), ("r0-2", 1)]


async def test_a_secret_is_kept_and_named_by_its_token_only(kit: Make) -> None:
    one = kit(rules=[{"api-key": "Authorization"}])
    await Passing(one, headers={"Authorization": "Bearer hunter2-hunter2"}).whole()
    await Passing(one, headers={"Authorization": "Bearer hunter2-hunter2"}).whole()
    await Passing(one, headers={"Authorization": "Bearer other"}).whole()
    names = list(one.recording.ledger.lives)
    assert [one.recording.ledger.lives[name].exchanges for name in names] == [2, 1]
    for name in names:
        aliases = (await one.episode(name)).aliases
        assert "hunter2" not in f"{name} {aliases}"
        assert aliases[0][1].startswith("rp-secret-")
        assert name == f"r0-{aliases[0][1][-12:]}"


async def test_what_rules_fill_is_the_episode_s(kit: Make) -> None:
    fills = {"task": "/task", "seed": "/seed", "attempt": "/attempt", "group": "/group"}
    one = kit(rules=[HEADER, *({"body": at, "fills": what} for what, at in fills.items()),
                     {"answer": "/reward", "fills": "reward"}])  # fmt: skip
    sent = {"task": "crm", "seed": 7, "attempt": 2, "group": "g"}
    await Passing(one, headers={"X-Thread": "t"}, sent=sent, told={"reward": 0.5}).whole()
    await Passing(one, headers={"X-Thread": "t"}, sent=sent, told={"reward": 1}).whole()
    episode = await one.episode("t")
    assert (episode.task, episode.seed, episode.attempt, episode.group) == ("crm", 7, 2, "g")
    assert (episode.reward, type(episode.reward)) == (1.0, float)
    assert [x.notes for x in await one.stored("t")] == [(), ()]


async def test_what_cannot_be_is_refused_with_a_note(kit: Make) -> None:
    one = kit(rules=[HEADER, {"body": "/seed", "fills": "seed"}, {"answer": "/reward", "fills": "reward"}])
    await Passing(one, headers={"X-Thread": "t"}, sent={"seed": "x"}, told={"reward": "NaN"}).whole()
    await Passing(one, headers={"X-Thread": "t"}, sent={"seed": 1}).whole()
    await Passing(one, headers={"X-Thread": "t"}, sent={"seed": 2}).whole()
    assert [x.notes for x in await one.stored("t")] == [
        ("rule r1: 'x' is no seed", "rule r2: 'NaN' is no reward"), (),
        ("rule r1: seed is 2 here, and was known already",),
    ]  # fmt: skip
    assert ((await one.episode("t")).seed, (await one.episode("t")).reward) == (1, None)


@pytest.mark.parametrize(
    "rule", [{"header": "X-Worker", "fills": "lane"}, {"body": "/worker", "fills": "lane"}], ids=["head", "body"]
)
async def test_a_rule_gives_the_lane_where_no_mark_does(kit: Make, rule: dict[str, Any]) -> None:
    one = kit(rules=[HEADER, rule])
    given = {"headers": {"X-Thread": "t", "X-Worker": "w2"}, "sent": {"worker": "w2"}}
    await Passing(one, **given).whole()
    await Passing(one, lane="mine", **given).whole()
    assert [x.lane for x in await one.stored("t")] == ["w2", "mine"]


async def test_a_rule_ends_its_episode_after_that_exchange(kit: Make) -> None:
    one = kit(rules=[HEADER, {"answer": "/done", "fills": "end"}, {"answer": "/reward", "fills": "reward"}])
    for done in (False, True):
        await Passing(one, headers={"X-Thread": "t"}, told={"done": done, "reward": 2}).whole()
    while "t" in one.recording.ledger.lives:
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    episode = await one.episode("t")
    assert (str(episode.state), episode.ended_by, episode.reward) == ("sealed", "end", 2.0)
    await Passing(one, headers={"X-Thread": "t"}).whole()
    assert [x.carrier for x in await one.stored(UNATTRIBUTED)] == ["episode sealed"]


async def test_a_probe_is_kept_opens_nothing_and_makes_nothing_unclean(kit: Make) -> None:
    one = kit(rules=[HEADER, {"at": "GET /health", "fills": "probe"}])
    probe = Passing(one, "GET", "/health", headers={"X-Thread": "unheard-of"})
    assert probe.ticket.is_probe
    await probe.whole()
    await Passing(one, headers={"X-Thread": "t"}).whole()
    assert [x.is_probe for x in await one.stored(UNATTRIBUTED)] == [True]
    assert list(one.recording.ledger.lives) == ["t"]
    assert (one.recording.tally.probes, one.recording.tally.why_not_whole()) == (1, [])


async def test_nothing_but_probes_is_no_recording(kit: Make) -> None:
    one = kit(rules=[{"at": "GET /health", "fills": "probe"}])
    await Passing(one, "GET", "/health").whole()
    assert one.recording.tally.why_not_whole() == ["no exchange was recorded in an episode"]


async def test_undeclared_refuse_holds_for_ids_too(kit: Make) -> None:
    one = kit(rules=[HEADER], undeclared="refuse")
    await Passing(one, headers={"X-Thread": "t1"}).whole()
    assert [x.carrier for x in await one.stored(UNATTRIBUTED)] == ["undeclared: t1"]


async def test_rules_are_not_applied_to_a_body_too_long_and_it_is_counted(kit: Make) -> None:
    one = kit(rules=[HEADER, BODY])
    await Passing(one, headers={"X-Thread": "t"}, sent={"pad": "x" * 1_100_000, "session": "s"}).whole()
    assert one.recording.tally.rules_too_large == 1
    assert [x.notes for x in await one.stored("t")] == [("body-too-large-for-rules",)]
    assert one.recording.tally.rules_unused == ["r1"]
