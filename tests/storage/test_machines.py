from __future__ import annotations

import platform

import pytest

from replayproxy.storage import Store, cold
from replayproxy.storage.frame import Broken
from replayproxy.storage.machines import Machine, decoded, here
from replayproxy.testing import run


def test_a_run_keeps_which_machine_recorded_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, wanted in ((None, platform.node()), ("gpu-7", "gpu-7")):
        if name is not None:
            monkeypatch.setenv("REPLAYPROXY_NODE", name)
        writer = store.writer()
        made = writer.open_run(run(f"on {wanted}".replace(" ", "-")))
        writer.close()
        machine = store.reader().machine(made)
        assert machine is not None
        assert machine.name == wanted


def test_the_offset_is_what_leads_from_one_clock_to_the_other() -> None:
    assert here({"REPLAYPROXY_NODE": "a"}, wall=lambda: 1_000_007, monotonic=lambda: 7) == Machine(
        name="a", offset=1_000_000
    )
    assert decoded(Machine(name="a", offset=-5).encoded()) == Machine(name="a", offset=-5)


def test_a_record_of_another_shape_is_broken() -> None:
    for document in ({}, {"node": 1, "offset": 2}, {"node": "a", "offset": "b"}):
        with pytest.raises(Broken):
            decoded(cold.encode_document(document))


def test_a_run_of_before_has_none(store: Store) -> None:
    writer = store.writer()
    made = writer.open_run(run("r"))
    writer.close()
    with store.env.writing() as txn:
        txn.drop(store.env.dbs["machines"], delete=False)
    assert store.reader().machine(made) is None
    store.env.dbs.pop("machines")
    assert store.reader().machine(made) is None
