"""Writes the recordings of the bench into a real store."""

from __future__ import annotations

from dataclasses import replace

from replayproxy.core.values import EpisodeState, Run
from replayproxy.storage import Store
from tests.detect.bench import RUN, Bench


def keep(store: Store, bench: Bench, name: str = "r", *, incomplete: tuple[str, ...] = ()) -> Run:
    """All episodes of the bench, sealed, as a run of this name; those of `incomplete` carry a fault."""
    bench.run()
    writer = store.writer()
    run = writer.open_run(replace(RUN, key=0, name=name))
    writer.put_nodes(bench.nodes)
    for trace in bench.traces:
        opened = writer.open_episode(replace(trace.episode, key=0, run_key=run.key, state=EpisodeState.OPEN))
        for exchange in trace.exchanges:
            writer.put_exchange(opened.key, exchange)
        for snapshot in trace.snapshots:
            writer.put_snapshot(opened.key, snapshot)
        faults = ("queue full",) if opened.name in incomplete else ()
        writer.seal(replace(opened, state=EpisodeState.SEALED, faults=faults)).result(10)
    writer.close()
    return run
