"""Says on stderr, while there is still time to mend it, that a snapshot gives nothing."""

from __future__ import annotations

from collections.abc import Callable

from replayproxy.core.values import Snapshot


class SnapshotWatch:
    """One line for each snapshot's first missing reading; how many there were is told at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: set[str] = set()

    def missing(self, snapshot: Snapshot) -> None:
        if snapshot.name not in self._told:
            self._told.add(snapshot.name)
            self._say(f"snapshot {snapshot.name} is missing: {snapshot.reason}; the traffic goes on")
