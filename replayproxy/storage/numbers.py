"""Numbers for runs, episodes and writers that no other writer of the same store ever gives."""

from __future__ import annotations

import threading

from replayproxy.storage.environment import Environment
from replayproxy.storage.layout import META_NEXT_KEY, META_SESSION, number, u64

AT_ONCE = 1024
"""Keys reserved by one short transaction, so that opening an episode costs none."""


class Numbers:
    """`session` is the writer's own number. Numbers that were reserved and not given are lost; there are enough."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._guard = threading.Lock()
        self.session, self._next, self._end = self._reserve(writers=1)

    def next(self) -> int:
        with self._guard:
            if self._next == self._end:
                _, self._next, self._end = self._reserve(writers=0)
            self._next += 1
            return self._next - 1

    def _reserve(self, *, writers: int) -> tuple[int, int, int]:
        meta = self._env.dbs["meta"]
        with self._env.changing() as txn:
            first = number(txn.get(META_NEXT_KEY, db=meta) or u64(1))
            txn.put(META_NEXT_KEY, u64(first + AT_ONCE), db=meta)
            session = number(txn.get(META_SESSION, db=meta) or u64(0)) + writers
            txn.put(META_SESSION, u64(session), db=meta)
        return session, first, first + AT_ONCE
