"""What is done around each exchange of a re-drive: snapshots where the recording took them, a look for a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from replayproxy.core.bindings import Bindings
from replayproxy.core.values import Exchange, Snapshot, SnapshotStatus, Trace
from replayproxy.drive.driver import Drive
from replayproxy.session.redrive_state import Restored, States


class Watch:
    """Takes the snapshots that the recording took, and looks for the first difference if that is to be the last."""

    def __init__(
        self, trace: Trace, states: States, restored: Restored,
        differs: Callable[[Exchange, Exchange, dict[str, str]], bool] | None,
    ) -> None:  # fmt: skip
        self.drive = Drive()
        self.bindings: Bindings | None = None
        self.taken: list[Snapshot] = []
        self._trace, self._states, self._restored, self._differs = trace, states, restored, differs
        self._after: dict[int, list[Snapshot]] = {}
        for shot in trace.snapshots:
            if shot.when == "write" and shot.after_seq is not None:
                self._after.setdefault(shot.after_seq, []).append(shot)

    async def at(self, when: str) -> None:
        await self._take([shot for shot in self._trace.snapshots if shot.when == when], None)

    async def answered(self, recorded: Exchange, live: Exchange) -> bool:
        await self._take(self._after.get(recorded.seq, []), live)
        values = self.bindings.values() if self.bindings else {}
        return self._differs is not None and self._differs(recorded, live, values)

    async def _take(self, shots: Sequence[Snapshot], live: Exchange | None) -> None:
        order = live.order if live else None
        for taken in await self._states.take(shots, after=order, overlapping=self.drive.overlapping):
            seqs = {(at, 0): seq for seq, at in self.drive.running.items()}
            seqs |= {e.order: seq for seq, e in self.drive.live.items()}
            flying = tuple(sorted(seqs[one] for one in taken.in_flight if one in seqs))
            self.taken.append(replace(taken, after_seq=live.seq if live else None, in_flight_seq=flying))

    def _counterparts(self) -> Iterator[tuple[Snapshot, Snapshot | None]]:
        """Recorded snapshots whose state has a meaning here, each with its live one."""
        found = {(s.name, s.when, s.after_seq): s for s in self.taken}
        for shot in self._trace.snapshots:
            if shot.name not in self._restored.verified or shot.when not in ("start", "write", "end"):
                continue
            if shot.when == "write" and shot.after_seq not in self.drive.live:
                continue
            if shot.when == "end" and self.drive.stopped:
                continue
            yield shot, found.get((shot.name, shot.when, shot.after_seq))

    def comparable(self) -> tuple[Snapshot, ...]:
        return tuple(shot for shot, _ in self._counterparts())

    def missing(self) -> list[str]:
        """Which states of the recording have no live one, and why."""
        out = []
        for shot, live in self._counterparts():
            if shot.root is not None and (live is None or live.status is SnapshotStatus.MISSING):
                where = f"after #{shot.after_seq}" if shot.after_seq else f"at the {shot.when}"
                out.append(f"snapshot {shot.name} {where} is missing: {live.reason if live else 'not taken'}")
        return out
