"""A JSON document as a state, and back: `{table: {key: {..}}}` is rows, anything else one opaque document."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from replayproxy.core.jsonvalue import NotJson, canonical, parse
from replayproxy.core.values import Rows
from replayproxy.state.provider import StateUnreadable

DOCUMENT = "document"
"""The table of an opaque document; its one row has the key ""."""


def rows_of(document: Any) -> Rows:
    """The document as a state. Raises StateUnreadable for null: that is no state, most likely an error."""
    if document is None:
        raise StateUnreadable("the document is null")
    if _is_rows(document):
        return dict(document)
    return {DOCUMENT: {"": document}}


def document_of(rows: Rows) -> Any:
    """The document that `rows_of` made these rows from."""
    if list(rows) == [DOCUMENT] and list(rows[DOCUMENT]) == [""]:
        return rows[DOCUMENT][""]
    return rows


def _is_rows(document: Any) -> bool:
    if not isinstance(document, dict) or not all(isinstance(table, dict) for table in document.values()):
        return False
    # A table of that name with that key would read back as an opaque document.
    taken = "" in document.get(DOCUMENT, {})
    return not taken and all(isinstance(row, dict) for table in document.values() for row in table.values())


def read_document(body: bytes) -> Any:
    """The JSON value of a body, numbers exact. NaN and Infinity are let pass: environments do write them."""
    text = body.removeprefix(b"\xef\xbb\xbf")
    try:
        return parse(text)
    except NotJson as strict:
        try:
            return json.loads(text, parse_float=Decimal, object_pairs_hook=_no_repeats)
        except (ValueError, RecursionError):
            raise StateUnreadable(f"it is not JSON: {strict}") from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object repeats a member")
    return members


def write_document(document: Any) -> bytes:
    """The value as JSON. Raises NotJson or TypeError for what JSON cannot hold."""
    return canonical(document)
