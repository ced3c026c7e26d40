from __future__ import annotations

import pytest

from replayproxy.core import prolly
from replayproxy.core.canonical import digest
from replayproxy.storage import Store, cold
from replayproxy.storage.frame import Broken
from replayproxy.storage.layout import u64
from replayproxy.storage.reach import Reach
from replayproxy.storage.scans import under
from replayproxy.testing import episode, exchange, run, snapshot

STATE = prolly.build({"deals": {str(n): {"title": "x" * 60} for n in range(300)}})


def test_every_blob_that_a_record_leads_to_is_found_and_no_other(store: Store) -> None:
    writer = store.writer()
    rollout = writer.open_episode(episode("e", run_key=writer.open_run(run("r")).key))
    writer.put_nodes(STATE.nodes)
    writer.put_blob(digest(b"nobody's"), b"nobody's")
    writer.put_snapshot(rollout.key, snapshot(0, STATE.root))
    writer.put_exchange(rollout.key, exchange(body=b"a" * 5000, sent=b"b" * 300_000))
    writer.seal(rollout).result(9)
    writer.close()
    with store.env.reading() as txn:
        reach = Reach(txn, store.env.dbs, store.env.dictionaries)
        for key, raw in under(txn, store.env.dbs["exchanges"], u64(rollout.key)):
            reach.exchange(key, raw)
        assert reach.blobs == {digest(b"a" * 5000), digest(b"b" * (256 * 1024)), digest(b"b" * (300_000 - 256 * 1024))}
        for _, raw in under(txn, store.env.dbs["snapshots"], u64(rollout.key)):
            reach.snapshot(raw)
        assert len(reach.blobs) == 3 + len(STATE.nodes)


def test_a_document_leads_to_the_states_it_names_wherever_they_stand_in_it(store: Store) -> None:
    writer = store.writer()
    writer.put_nodes(STATE.nodes)
    writer.close()
    with store.env.reading() as txn:
        reach = Reach(txn, store.env.dbs, store.env.dictionaries)
        reach.document(cold.encode_document({"a": "0" * 64, "b": "no address, and as long as one: " + "x" * 32}))
        assert reach.blobs == set()
        reach.document(cold.encode_document({"references": [{"root": STATE.root.hex()}]}))
        assert reach.blobs == set(STATE.nodes)


def test_a_damaged_record_is_never_taken_for_one_that_leads_nowhere(store: Store) -> None:
    with store.env.reading() as txn:
        reach = Reach(txn, store.env.dbs, store.env.dictionaries)
        for read in (reach.snapshot, reach.document, lambda raw: reach.exchange(b"\0" * 18, raw)):
            with pytest.raises(Broken):
                read(b"\x01 nothing of the kind")
