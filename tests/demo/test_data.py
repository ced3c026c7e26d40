from __future__ import annotations

import pytest

from replayproxy.demo.data import connect, export, reset, restore


def test_a_state_that_cannot_be_put_back_leaves_the_one_there_was() -> None:
    database = connect(":memory:")
    reset(database, "crm-new", 1)
    before = export(database)
    # A store of an earlier version, whose rows lack a column.
    with pytest.raises(KeyError):
        restore(database, {"deals": {"D-1": {"id": "D-1"}}})
    assert export(database) == before
    restore(database, before)
    assert export(database) == before
