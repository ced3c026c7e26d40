"""Two requests together on a live environment: what no order explains is found, and what is whole stays silent."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest

from replayproxy.core.values import Request
from replayproxy.detect.finding import Grade, Kind
from replayproxy.errors import CannotJudge, Exit, WrongUsage
from replayproxy.session.race import NOT_SHOWN, SHOWN, UNDECIDED, _around
from replayproxy.session.race_tries import controls
from replayproxy.storage import Store
from replayproxy.testing import MS, snapshot
from tests.session.race_shop import Booking, raced, recorded
from tests.session.redrive_lab import Recording, ask, body_of, kept, serving


@pytest.fixture(autouse=True)
def soon_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop acts before it answers: nothing has to be waited for."""
    monkeypatch.setattr("replayproxy.session.race_ground.SETTLE", 0.01)


BOOK = ask("POST", "/slots/S-1/book", {"holder": "ada"})
LOOK = ask("GET", "/slots/S-1")
ROW = ask("POST", "/bookings", {"slot": "S-1", "holder": "ada"})
DEPOSIT = ask("POST", "/accounts/A-1/deposit", {"amount": 10})


def keyed(request: Request) -> Request:
    return replace(request, fields=(*request.fields, (b"Idempotency-Key", b"k-1")))


async def one_pair(store: Store, tmp_path: Path, gap: float | None, *requests: Request, **more: Any) -> Any:
    shop = Booking(tmp_path / "shop.db", gap, capacity=more.pop("capacity", 1))
    await recorded(store, shop, *requests)
    return await raced(store, shop, **more)


@pytest.mark.parametrize("gap", [0.005, 0.05])
async def test_check_then_act_is_shown_k_of_n(store: Store, tmp_path: Path, gap: float) -> None:
    done = await one_pair(store, tmp_path, gap, LOOK, BOOK, times=10)
    (one,) = done.raced
    assert (done.verdict, done.exit) == (SHOWN, Exit.DIFFERENT)
    finding = one.finding
    assert finding is not None
    assert (finding.kind, finding.sub, finding.grade) == (Kind.RACE, "double-claim", finding.grade)
    assert finding.grade is (Grade.CONFIRMED if len(one.shown) > 1 else Grade.SUSPECTED)
    assert finding.pointer == "/slots/S-1/holder"
    assert finding.values == ("201, 409 or 409, 201", "201, 201")
    assert finding.effect["k"] == len(one.shown) >= 1
    assert finding.effect["n"] == 10
    assert [w.address for w in finding.exchanges] == ["r/e#2", "r/e#2"]


async def test_check_and_act_in_one_step_stays_silent(store: Store, tmp_path: Path) -> None:
    done = await one_pair(store, tmp_path, None, LOOK, BOOK)
    assert done.verdict == NOT_SHOWN
    assert {attempt.outcome.statuses for attempt in done.raced[0].attempts} == {"201, 409", "409, 201"}
    assert len(done.raced[0].attempts) == 20


async def test_two_rows_for_one_slot(store: Store, tmp_path: Path) -> None:
    done = await one_pair(store, tmp_path, 0.01, ROW, times=6)
    assert done.raced[0].finding is not None
    assert done.raced[0].finding.sub == "double-claim"


async def test_a_lost_update_of_a_sum(store: Store, tmp_path: Path) -> None:
    done = await one_pair(store, tmp_path, 0.01, DEPOSIT, times=6)
    finding = done.raced[0].finding
    assert finding is not None
    assert (finding.kind, finding.sub, finding.pointer) == (Kind.LOST_UPDATE, "lost-update", "/accounts/A-1/balance")
    assert finding.values == ("120", "110")


async def test_a_row_written_whole_loses_the_other_ones_column(store: Store, tmp_path: Path) -> None:
    requests = (ask("PATCH", "/accounts/A-1", {"owner": "grace"}), ask("PATCH", "/accounts/A-1", {"note": "hello"}))
    done = await one_pair(store, tmp_path, 0.01, *requests, times=6)
    (one,) = [one for one in done.raced if one.risky.how == "two"]
    assert one.finding is not None
    assert (one.finding.kind, one.finding.sub) == (Kind.LOST_UPDATE, "lost-update")
    assert [w.address for w in one.finding.exchanges] == ["r/e#1", "r/e#2"]


async def test_one_number_given_to_two(store: Store, tmp_path: Path) -> None:
    done = await one_pair(store, tmp_path, 0.01, ask("POST", "/tickets", {"event": "E"}), times=6)
    assert done.raced[0].finding is not None
    assert done.raced[0].finding.kind is Kind.RACE


async def test_what_came_before_is_sent_again_with_the_ids_of_this_time(store: Store, tmp_path: Path) -> None:
    shop = Booking(tmp_path / "shop.db", 0.01)
    async with serving(shop.app()) as url:
        recording = Recording(url, {"app": f"sqlite:{shop.path}"})
        await recording.begin()
        key = body_of(await recording.send(ask("POST", "/accounts", {"owner": "joan"})))["id"]
        await recording.send(ask("POST", f"/accounts/{key}/deposit", {"amount": 7}))
        await recording.end()
    await kept(store, recording)
    done = await raced(store, shop, times=5, only=(2, 2))
    finding = done.raced[0].finding
    assert finding is not None
    assert (finding.sub, finding.pointer) == ("lost-update", "/accounts/(new account 1)/balance")


@pytest.mark.parametrize(
    ("what", "gap", "capacity", "requests"),
    [
        ("one 201 and one 409", None, 1, [ROW]),
        ("capacity 2", None, 2, [ROW]),
        ("capacity 2, however far apart", 0.01, 2, [ROW]),
        ("idempotent", None, 1, [keyed(ROW)]),
        ("if-match", None, 1, [LOOK, ask("PUT", "/slots/S-1", {"holder": "ada"}, headers=[("If-Match", '"1"')])]),
        ("a sum in one statement", None, 1, [DEPOSIT]),
        ("columns in statements of their own", None, 1,
         [ask("PATCH", "/accounts/A-1", {"owner": "grace"}), ask("PATCH", "/accounts/A-1", {"note": "hello"})]),
        ("numbers one after the other", None, 1, [ask("POST", "/tickets", {"event": "E"})]),
    ],
)  # fmt: skip
async def test_the_whole_look_alikes_stay_silent(
    store: Store, tmp_path: Path, what: str, gap: float | None, capacity: int, requests: list[Request]
) -> None:
    done = await one_pair(store, tmp_path, gap, *requests, capacity=capacity)
    assert [one.verdict for one in done.raced] == [NOT_SHOWN] * len(done.raced) != [], [o.reason for o in done.raced]
    assert all(len(one.attempts) == 20 for one in done.raced)
    assert done.exit == Exit.OK
    reader = store.reader()
    assert reader.trials(done.trace.run) == []


async def test_a_guard_that_is_checked_and_then_forgotten_is_shown(store: Store, tmp_path: Path) -> None:
    put = ask("PUT", "/slots/S-1", {"holder": "ada"}, headers=[("If-Match", '"1"')])
    done = await one_pair(store, tmp_path, 0.01, LOOK, put, times=5, only=(2, 2))
    assert done.raced[0].finding is not None
    assert done.raced[0].risky.guard in ("if-match", "")


async def test_a_repeat_that_is_made_anew_when_it_comes_too_soon(store: Store, tmp_path: Path) -> None:
    done = await one_pair(store, tmp_path, 0.01, keyed(ROW), capacity=5, times=6)
    finding = done.raced[0].finding
    assert finding is not None
    assert (finding.kind, finding.sub, finding.effect["guard"]) == (Kind.RACE, "duplicate", "idempotency-key")


@pytest.mark.parametrize("rolls", [[0, 1, 1, 0, 1], [1], [0, 0, 0, 0, 0, 0, 0, 1]])
async def test_a_value_that_varies_by_itself_is_never_confirmed(store: Store, tmp_path: Path, rolls: list[int]) -> None:
    shop = Booking(tmp_path / "shop.db")
    shop.rolls = chain([7], [0] * 6, cycle(rolls))  # recorded; three times in turn, as luck will have it; and then
    await recorded(store, shop, ask("POST", "/scores/R-1/roll"))
    done = await raced(store, shop, only=(1, 1))
    (one,) = done.raced
    assert one.finding is None or one.finding.grade is Grade.SUSPECTED
    assert "leaves another state each time" in one.reason or one.finding is not None


async def test_what_no_restore_puts_back_leaves_it_undecided(store: Store, tmp_path: Path) -> None:
    shop = Booking(tmp_path / "shop.db")
    await recorded(store, shop, ask("POST", "/codes/c/use"))
    done = await raced(store, shop, only=(1, 1))
    assert (done.verdict, done.exit) == (UNDECIDED, Exit.UNJUDGED)


def test_how_often_it_is_to_stay_away_in_turn() -> None:
    assert [controls(k, 20) for k in (20, 15, 10, 1)] == [1, 4, 7, 60]


async def test_listing_predicts_and_sends_nothing(store: Store, tmp_path: Path) -> None:
    shop = Booking(tmp_path / "shop.db", 0.01)
    await recorded(store, shop, LOOK, BOOK, ask("POST", "/slots/S-2/book", {"holder": "ada"}), DEPOSIT)
    before = shop.path.read_bytes()
    done = await raced(store, shop, listing=True)
    assert shop.path.read_bytes() == before
    assert [(one.how, one.a, one.more) for one in done.predicted] == [("twice", 2, 1), ("twice", 4, 0)]
    assert done.predicted[0].why[0] == "takes slots/S-1 /holder: null -> ada"
    assert done.predicted[1].why[0] == "counts in accounts/A-1 /balance: 100 -> 110"
    assert done.exit == Exit.OK


async def test_without_a_snapshot_or_reset_nothing_can_be_said(store: Store, tmp_path: Path) -> None:
    shop = Booking(tmp_path / "shop.db", 0.01)
    await recorded(store, shop, BOOK, snapshot=False)
    done = await raced(store, shop)
    assert (done.verdict, done.exit) == (UNDECIDED, Exit.UNJUDGED)
    assert "not known to be the recorded one" in done.raced[0].reason


async def test_reads_alone_are_no_race(store: Store, tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="no two requests that look risky"):
        await one_pair(store, tmp_path, 0.01, LOOK, LOOK)


@pytest.mark.parametrize(("pair", "words"), [((1, 9), "no exchange 9"), ((9, 9), "no exchange 9")])
async def test_a_pair_that_is_not_there_is_wrong_usage(
    store: Store, tmp_path: Path, pair: tuple[int, int], words: str
) -> None:
    with pytest.raises(WrongUsage, match=words):
        await one_pair(store, tmp_path, 0.01, BOOK, only=pair)


async def test_the_state_found_is_kept_and_said_once(store: Store, tmp_path: Path) -> None:
    told: list[str] = []
    shop = Booking(tmp_path / "shop.db", 0.005)
    await recorded(store, shop, BOOK)
    done = await raced(store, shop, told=told, times=2)
    assert done.ready is not None
    assert done.ready.before is not None
    assert sum("overwriting" in line for line in told) == 1


def test_a_snapshot_read_while_a_write_was_under_way_does_not_say_what_it_changed() -> None:
    """It may show the effect of a write that is not answered yet; the next one then seems to show that it has none."""
    shots = [snapshot(n, b"%d" % n, at_ms=at, took_ms=1.0) for n, at in enumerate((0, 10, 20))]

    def told(begun: float, ended: float) -> list[tuple[int, int]]:
        found = _around(shots, {4: (round(begun * MS), round(ended * MS))})
        return [(before.begun // MS, after.begun // MS) for _, before, after in found]

    assert told(2, 9) == [(0, 10)]
    assert told(9.5, 10.5) == told(9, 10.2) == told(10.5, 15) == []
    assert told(12, 19) == [(10, 20)]
