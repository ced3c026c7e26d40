"""What changed between two whole states, for a provider that gets the whole each time and wants to be quick.

It must not change what it once gave: objects that are the same are taken to be equal.
"""

from __future__ import annotations

from decimal import Decimal

from replayproxy.core.values import Row, RowChange, Rows


def changes_between(known: Rows, rows: Rows) -> tuple[RowChange, ...] | None:
    """What to change in `known` to have `rows`, or None when that is better built anew: a table has gone, or come."""
    if known.keys() != rows.keys():
        return None
    changes: list[RowChange] = []
    for table, content in rows.items():
        before = known[table]
        if before is content:
            continue  # not read again
        for key, row in content.items():
            if key not in before or not _alike(before[key], row):
                changes.append(RowChange(table=table, key=key, before=None, after=row))
        gone = before.keys() - content.keys()
        changes += [RowChange(table=table, key=key, before=None, after=None) for key in gone]
    return tuple(changes)


_EXACT = (Decimal, float)


def _alike(a: Row, b: Row) -> bool:
    """Whether two rows are surely one value; much quicker than writing both as JSON. False is no proof."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False  # 1 == True, 1 == 1.0
    if isinstance(a, dict):
        return a == b and all(map(_alike, a.values(), b.values()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b) and (not isinstance(a, _EXACT) or repr(a) == repr(b))  # 0.0 == -0.0
