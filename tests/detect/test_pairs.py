"""Which pairs a sequential recording is said to be risky in, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from replayproxy.core.values import Exchange, RowChange
from replayproxy.detect.cells import Tables
from replayproxy.detect.ops import Op, op_of
from replayproxy.detect.pairs import Risky, guard_of, risky_pairs
from replayproxy.detect.views import Views
from replayproxy.testing import exchange, run

TABLES = Tables(("slots", "accounts", "deals"), {})


def sent(seq: int, method: str, target: str, status: int = 200, body: str = "", *headers: tuple[str, str]) -> Exchange:
    fields = [("Host", "app"), ("Content-Type", "application/json"), *headers]
    return exchange(method, target, seq=seq, status=status, sent=body.encode(), body=b"{}", request_headers=fields,
                    at_ms=seq * 10)  # fmt: skip


def turned(table: str, key: str, before: dict[str, Any], **after: Any) -> RowChange:
    return RowChange(table=table, key=key, before=before, after={**before, **after})


def pairs(
    exchanges: list[Exchange], changed: dict[int, list[RowChange]] | None = None,
    drawn: dict[int, set[int]] | None = None,
) -> list[Risky]:  # fmt: skip
    recorded = run()
    ops: dict[int, Op] = {e.seq: op_of(recorded, "e", e, TABLES, Views()) for e in exchanges}
    return risky_pairs(exchanges, ops, changed or {}, drawn or {})


BOOK = sent(1, "POST", "/slots/S-1/book", 201, '{"holder": "ada"}')
TAKEN = {1: [turned("slots", "S-1", {"holder": None}, holder="ada")]}


def test_a_claim_of_a_free_thing_is_a_pair_with_itself() -> None:
    (one,) = pairs([BOOK], TAKEN)
    assert (one.how, one.key) == ("twice", (1, 1))
    assert one.why == ("takes slots/S-1 /holder: null -> ada",)
    assert one.row is not None
    assert (one.row.table, one.row.key) == ("slots", "S-1")


def test_that_it_was_refused_when_sent_again_ranks_it_higher() -> None:
    again = sent(2, "POST", "/slots/S-1/book", 409, '{"holder": "ada"}')
    (one,) = pairs([BOOK, again], TAKEN)
    assert one.rank > pairs([BOOK], TAKEN)[0].rank
    assert one.why[-1] == "sent again it was refused (#2, 409)"


def test_a_sum_is_told_from_a_claim() -> None:
    deposit = sent(1, "POST", "/accounts/1/deposit", 200, '{"amount": 10}')
    (one,) = pairs([deposit], {1: [turned("accounts", "1", {"balance": 0}, balance=10)]})
    assert one.why == ("counts in accounts/1 /balance: 0 -> 10",)


def test_two_that_set_different_columns_of_one_row_are_a_pair() -> None:
    exchanges = [sent(1, "PATCH", "/deals/7", 200, '{"stage": "won"}'), sent(2, "PATCH", "/deals/7", 200, '{"n": 5}')]
    changed = {1: [turned("deals", "7", {"stage": "lead", "n": 1}, stage="won")],
               2: [turned("deals", "7", {"stage": "won", "n": 1}, n=5)]}  # fmt: skip
    (two,) = [one for one in pairs(exchanges, changed) if one.how == "two"]
    assert two.key == (1, 2)
    assert two.why == ("both act on deals/7", "they set stage and n: a row written whole loses one")


def test_what_needs_the_answer_of_the_other_is_no_pair() -> None:
    exchanges = [sent(1, "PATCH", "/deals/7", 200, '{"stage": "won"}'), sent(3, "PATCH", "/deals/7", 200, '{"n": 5}')]
    assert [one for one in pairs(exchanges, drawn={3: {2}, 2: {1}}) if one.how == "two"] == []
    assert [one.key for one in pairs(exchanges, drawn={3: {2}}) if one.how == "two"] == [(1, 3)]


@pytest.mark.parametrize(
    "exchanges",
    [
        [sent(1, "GET", "/slots/S-1")],
        [sent(1, "POST", "/slots/S-1/book", 409)],
        [sent(1, "PUT", "/deals/7")],
        [sent(1, "DELETE", "/deals/7", 204)],
    ],
)
def test_reads_refusals_and_plain_repeats_are_none(exchanges: list[Exchange]) -> None:
    assert pairs(exchanges) == []


def test_a_post_that_the_snapshots_show_to_change_nothing_is_none() -> None:
    verify = sent(1, "POST", "/verify")
    assert [one.key for one in pairs([verify])] == [(1, 1)]
    assert pairs([verify], {1: []}) == []


def test_writes_of_different_rows_or_of_a_bare_collection_are_none() -> None:
    exchanges = [sent(1, "PATCH", "/deals/7"), sent(2, "PATCH", "/deals/8"), sent(3, "POST", "/deals", 201),
                 sent(4, "POST", "/deals", 201)]  # fmt: skip
    assert [one for one in pairs(exchanges) if one.how == "two"] == []


@pytest.mark.parametrize("name", ["If-Match", "Idempotency-Key", "if-unmodified-since"])
def test_a_guard_puts_a_pair_last_and_is_told(name: str) -> None:
    guarded = sent(1, "POST", "/slots/S-1/book", 201, '{"holder": "ada"}', (name, '"1"'))
    assert guard_of(guarded) == name.lower()
    (one,) = pairs([guarded], TAKEN)
    assert one.guard == name.lower()
    assert one.rank < pairs([BOOK], TAKEN)[0].rank


def test_of_pairs_of_one_kind_the_best_stands_for_all() -> None:
    other = sent(2, "POST", "/slots/S-2/book", 201, '{"holder": "ada"}')
    (one,) = pairs([BOOK, other], TAKEN)
    assert (one.key, one.more) == ((1, 1), 1)


def test_the_likeliest_is_first() -> None:
    make = sent(1, "POST", "/deals", 201, '{"name": "x"}')
    claim = sent(2, "POST", "/slots/S-1/book", 201, '{"holder": "ada"}')
    assert [one.a for one in pairs([make, claim], {2: TAKEN[1]})] == [2, 1]
