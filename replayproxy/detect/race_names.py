"""Which words of a state say that something is held by one at a time, how many may hold it, and until when.

Words only propose. What a claim is worth is decided by what the environment did: whether it refused a second claim,
what its snapshots show. A word that is missing here hides a fault; one too many is checked against those facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

_HOLDER = re.compile(
    r"(?:current_)?(?:holder|occupant|lessee|tenant_of)(?:_id|_name)?"
    r"|(?:held|booked|reserved|claimed|taken|occupied|locked|leased|rented|hired|checked_out|checkedout)_(?:by|for|to)"
    r"(?:_id|_user|_user_id|_name)?"
    r"|(?:lock|lease)_(?:owner|holder)|(?:booking|reservation|hold|claim|lease|lock)(?:_id)?"
)
_OWNER = re.compile(
    r"(?:owner|assignee|assigned_to|agent|user|customer|guest|patient|buyer|winner|member)(?:_id|_name)?"
)
_CAPACITY = re.compile(
    r"capacity|quota|places|seats|(?:max|total)_(?:capacity|seats|places|bookings|attendees|participants|holders|guests)"
    r"|(?:seat|booking|attendee|participant)_(?:limit|capacity)|(?:capacity|seats|places)_(?:max|total)"
)
_LEFT = re.compile(
    r"(?:seats|places|units|tickets|rooms|items|spots|slots)_(?:left|free|available|remaining)|stock|in_stock|on_hand"
    r"|remaining|available_(?:seats|places|units|tickets|spots|stock)|quantity_available|inventory"
)
_UNTIL = re.compile(r"(?:\w+_)?(?:expires|expiry|expires_at|expires_on|expire_at|until|ttl|deadline)")
_LEDGER = re.compile(
    r"booking|reservation|registration|signup|sign_up|enrollment|enrolment|appointment|ticket|hold|claim|rsvp|attendee"
)
_UNIT = re.compile(r"(?:time_?)?slot|seat|appointment_slot|parking_space|locker|desk|berth|bay")
_ROOM = re.compile(r"room|table|hall|venue|vehicle|car|bus|office|building|house|hotel")
"""Things whose capacity counts people, not bookings: three bookings of a room for two are three nights."""

_OVER = frozenset(
    ["cancelled", "canceled", "released", "expired", "deleted", "void", "voided", "rejected", "refunded",
     "declined", "denied", "failed", "archived", "returned", "no_show", "waitlist", "waitlisted", "waiting",
     "queued", "pending", "requested", "draft", "tentative", "ended", "closed", "inactive", "removed",
     "error", "blocked", "invalid"]
)  # fmt: skip
_STATUS = ("status", "state")
_ENDED = ("deleted_at", "cancelled_at", "canceled_at", "released_at", "removed_at", "returned_at", "ended_at")
_ENDED_FLAGS = ("deleted", "is_deleted", "cancelled", "canceled", "released")
EMPTY = ("", None, 0, False, "none", "null")


@lru_cache(maxsize=4096)
def spelled(name: str) -> str:
    """`heldBy` and `Held-By` as `held_by`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")


def is_holder(column: str) -> bool:
    """Whether the name says that one at a time has the row."""
    return _HOLDER.fullmatch(spelled(column)) is not None


def is_owner(column: str) -> bool:
    """Whether the name says whose the row is: that may change lawfully, unless the environment refuses it."""
    return _OWNER.fullmatch(spelled(column)) is not None


def empty(value: Any) -> bool:
    return value is None or (not isinstance(value, list | dict) and value in EMPTY)


def capacity(row: Any) -> tuple[str, int] | None:
    """The column of a row that says how many may hold it, and the number."""
    if not isinstance(row, Mapping):
        return None
    for name, value in row.items():
        if _CAPACITY.fullmatch(spelled(name)) and _whole(value) and value > 0:
            return name, int(value)
    return None


def left_below_zero(row: Any) -> str | None:
    """The column that says how many are left, where it says fewer than none."""
    if not isinstance(row, Mapping):
        return None
    return next((n for n, v in row.items() if _LEFT.fullmatch(spelled(n)) and _whole(v) and v < 0), None)


def overfull(row: Any) -> str | None:
    """The column with a list of holders that is longer than the row's capacity."""
    found = capacity(row)
    if found is None:
        return None
    held = re.compile(r"(?:holders|attendees|participants|bookings|reservations|members|guests)(?:_ids)?")
    return next(
        (n for n, v in row.items() if isinstance(v, list) and held.fullmatch(spelled(n)) and len(v) > found[1]), None
    )


def _whole(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and value == int(value)


def until(row: Any) -> tuple[str, ...]:
    """The columns that say when a hold ends by itself."""
    if not isinstance(row, Mapping):
        return ()
    return tuple(name for name, value in row.items() if _UNTIL.fullmatch(spelled(name)) and not empty(value))


def counts_holders(parent: str, child: str) -> bool:
    """Whether rows of table `child` hold rows of table `parent`, so that the parent's capacity counts them."""
    return _LEDGER.search(spelled(child)) is not None and not is_room(parent)


def is_room(table: str) -> bool:
    """Whether the capacity of a row of the table counts people, not those who booked it."""
    return _ROOM.search(spelled(table)) is not None


def is_unit(table: str) -> bool:
    """Whether a row of the table is a thing for one."""
    return _UNIT.fullmatch(spelled(table)) is not None


def status_of(row: Mapping[str, Any]) -> str:
    found = next((row[name] for name in row if spelled(name) in _STATUS), "")
    return spelled(str(found)).replace(" ", "_")


def live(row: Any) -> bool:
    """Whether a row that holds something still does: not cancelled, not deleted softly, not waiting for its turn."""
    if not isinstance(row, Mapping) or status_of(row) in _OVER:
        return False
    for name, value in row.items():
        word = spelled(name)
        if (word in _ENDED and not empty(value)) or (word in _ENDED_FLAGS and not empty(value)):
            return False
        if word in ("active", "is_active") and empty(value):
            return False
    return True
