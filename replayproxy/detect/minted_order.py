"""Lists whose order is that of ids which are minted anew each time: another order of theirs means nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, view
from replayproxy.core.comparison import Root
from replayproxy.core.opaque import is_opaque
from replayproxy.core.values import Exchange


def sorted_by_ids(root: Root, x: Exchange, y: Exchange) -> bool:
    """Whether another order is only that of fresh ids: both lists are sorted by a member that was minted anew."""
    if root.kind != "order" or not root.pointer.startswith("body"):
        return False
    lists = [_list_at(exchange, root.pointer.removeprefix("body")) for exchange in (x, y)]
    if not all(lists):
        return False
    names = set.intersection(*({*item} for found in lists for item in found))
    return any(_minted_order([[item[name] for item in found] for found in lists]) for name in names)


def spells_ids(root: Root, x: Exchange, y: Exchange) -> bool:
    """Whether two texts are one but for the id of the object that they stand in, which was given anew: a label made of
    it, an address."""
    a, b = root.values
    if not isinstance(a, str) or not isinstance(b, str) or not root.pointer.startswith("body"):
        return False
    ids = [_id_beside(exchange, root.pointer.removeprefix("body")) for exchange in (x, y)]
    return "" not in ids and ids[0] != ids[1] and ids[0] in a and a.replace(ids[0], ids[1]) == b


def _id_beside(exchange: Exchange, pointer: str) -> str:
    """The id of the object whose member the pointer names; "" it has none."""
    assert exchange.response is not None
    seen = view(exchange.response.fields, exchange.response.body)
    try:
        found = jsonvalue.resolve(seen.value, pointer.rpartition("/")[0]) if seen.kind is Kind.JSON else None
    except (KeyError, ValueError):
        return ""
    value = found.get("id") if isinstance(found, dict) else None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _minted_order(columns: Sequence[Sequence[Any]]) -> bool:
    a, b = ([value for value in column if isinstance(value, str)] for column in columns)
    whole = len(a) == len(columns[0]) and len(b) == len(columns[1])
    minted = {*a} ^ {*b}
    return (
        whole and bool(minted) and all(map(is_opaque, minted))
        and all(column in (sorted(column), sorted(column, reverse=True)) for column in (a, b))
    )  # fmt: skip


def _list_at(exchange: Exchange, pointer: str) -> list[dict[str, Any]]:
    assert exchange.response is not None
    seen = view(exchange.response.fields, exchange.response.body)
    try:
        found = jsonvalue.resolve(seen.value, pointer) if seen.kind is Kind.JSON else None
    except (KeyError, ValueError):
        return []
    return found if isinstance(found, list) and all(isinstance(item, dict) for item in found) else []
