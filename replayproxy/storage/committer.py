"""The writer's queue and its thread, which encodes, compresses and commits in groups.

A commit that fails (disk full, directory removed) keeps its batch and is tried again; `failed` says why, the queue
fills up, and after `GIVE_UP_SECONDS` those who wait for an acknowledgement get StoreTrouble instead.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import lmdb

from replayproxy.errors import StoreTrouble
from replayproxy.storage.batch import Batch
from replayproxy.storage.environment import Environment
from replayproxy.storage.learning import Learner
from replayproxy.storage.trouble import not_written

QUEUE_BYTES = 64 * 1024 * 1024
QUEUE_ITEMS = 50_000
GROUP_SECONDS = 0.05
"""The longest that anything waits for others to be committed with."""

DURABLE_SECONDS = 0.08
"""What has to be on disk by then does not wait for others, if a commit takes as long as one has lately taken: of the
100 ms that are promised, the rest is for what differs from one to the next."""

GROUP_BYTES = 8 * 1024 * 1024
RETRY_SECONDS = 0.25
GIVE_UP_SECONDS = 5.0


@dataclass(slots=True)
class Work:
    """Something queued. `prepare` runs in the thread; `episode` (its run, itself) gets a fault when it cannot."""

    prepare: Callable[[Batch], None]
    cost: int = 256
    episode: tuple[int, int] | None = None
    future: Future[Any] | None = None
    urgent: bool = False


def begins(oldest: float, took: float) -> float:
    """When a commit begins whose oldest record came at `oldest`, where one takes `took` seconds. It counts from there,
    and not from the commit before, during which the record may have waited long enough."""
    return oldest + min(GROUP_SECONDS, DURABLE_SECONDS - took)


class Committer:
    """One per writer. `put` may be called from any thread."""

    def __init__(self, env: Environment, *, recorder: bool, learns: bool = True) -> None:
        """`recorder`: it lives on where it cannot write, and is not a command that ends with that. `learns`: small
        records may teach it a dictionary, which then holds pieces of them."""
        self.failed: BaseException | None = None
        self.count = 0  # items that are not committed yet
        self._env, self._recorder = env, recorder
        self._state = threading.Condition()
        self._queue: deque[Work] = deque()
        self._cost = 0
        self._oldest = 0.0  # when the first of what is queued came
        self._took = 0.0  # seconds that a commit takes, all in all
        self._urgent = self._closing = False
        self._learner = Learner(env, learns=learns)
        self._thread = threading.Thread(target=self._work, name="replayproxy-writer", daemon=True)
        self._thread.start()

    def room(self) -> bool:
        """False while the queue is full: a put would wait."""
        return self._cost < QUEUE_BYTES and self.count < QUEUE_ITEMS

    def ample(self) -> bool:
        """False from half full on: what is under way will still find room if nothing new is let in."""
        return self._cost * 2 < QUEUE_BYTES and self.count * 2 < QUEUE_ITEMS

    def put(self, work: Work) -> None:
        """Waits while the queue is full and being worked off; StoreTrouble when it is full and cannot be."""
        self._env.check_process()
        with self._state:
            while not self.room() and self.failed is None and not self._closing:
                self._state.wait()
            if self._closing:
                raise StoreTrouble(f"the writer of {self._env.path} is closed")
            if not self.room():
                raise self._trouble(self.failed or RuntimeError("the queue is full"))
            if not self._queue:
                self._oldest = time.monotonic()
            self._queue.append(work)
            self._cost += work.cost
            self.count += 1
            self._urgent |= work.urgent
            if len(self._queue) == 1 or work.urgent or self._cost >= GROUP_BYTES or not self.room():
                self._state.notify_all()

    def close(self) -> None:
        """Commits what is queued, if that can be done, and ends the thread. `count` is what could not."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._thread.join()
        self._learner.close()

    # The thread

    def _work(self) -> None:
        try:
            while (works := self._take()) is not None:
                began = time.monotonic()
                if not self._committed(self._prepared(works)):
                    return
                # A slow one is not forgotten at once: the next may be as slow.
                self._took = max(time.monotonic() - began, self._took * 0.9)
        except BaseException as error:  # nobody may go on believing that things are written
            with self._state:
                self.failed, self._closing = error, True
                self._state.notify_all()
            self._refuse_queued(error)

    def _take(self) -> list[Work] | None:
        """What is to be committed next; None when the queue was closed and nothing is left."""
        with self._state:
            while not self._queue and not self._closing:
                self._state.wait()
            due = begins(self._oldest, self._took)
            while not (self._closing or self._urgent or self._cost >= GROUP_BYTES) and self.room():
                left = due - time.monotonic()
                if left <= 0:
                    break
                self._state.wait(left)
            works = list(self._queue)
            self._queue.clear()
            self._urgent = False
            return works or None

    def _prepared(self, works: list[Work]) -> Batch:
        anew = self._learner.settle()
        batch = Batch(self._env, press=self._learner.press, wrote=self._learner.wrote)
        if anew:
            batch.put_anew(anew)
        for work in works:
            batch.cost += work.cost
            batch.count += 1
            try:
                work.prepare(batch)
            except Exception as error:  # one value that cannot be encoded must not keep the others from the disk
                if work.future is not None and not work.future.done():
                    work.future.set_exception(error)
                if work.episode is not None:
                    batch.fault(*work.episode, f"not stored: {error}")
        return batch

    def _committed(self, batch: Batch) -> bool:
        """Tries for as long as it takes; False when the queue was closed meanwhile and it cannot be done."""
        began = time.monotonic()
        while True:
            try:
                self._commit(batch)
            except (lmdb.Error, OSError, StoreTrouble) as error:
                waited = time.monotonic() - began
                self._not_now(batch, error, tell=waited >= GIVE_UP_SECONDS or isinstance(error, StoreTrouble))
                if self._closing and waited >= RETRY_SECONDS:
                    self._refuse_queued(error)
                    return False
                continue
            with self._state:
                self.failed = None
                self._cost -= batch.cost
                self.count -= batch.count
                self._state.notify_all()
            batch.tell()
            return True

    def _commit(self, batch: Batch) -> None:
        self._refuse_moved()
        batch.commit()
        self._refuse_moved()  # also behind it: what is acknowledged must be where the next one will look
        self._env.fill_up()

    def _refuse_moved(self) -> None:
        if self._env.moved():
            raise StoreTrouble(
                f"{self._env.path} was removed or replaced while it was written to",
                hint="put it back; it is tried again",
            )

    def _not_now(self, batch: Batch, error: Exception, *, tell: bool) -> None:
        with self._state:
            self.failed = error
            self._state.notify_all()
        if tell or self._closing:
            # Those behind the batch wait for it too: nothing of theirs is tried before it is on disk.
            batch.refuse(self._trouble(error))
            self._refuse_queued(error)
        with self._state:
            self._state.wait_for(lambda: self._closing, timeout=RETRY_SECONDS)

    def _refuse_queued(self, error: BaseException) -> None:
        with self._state:
            waiting = list(self._queue)
        for work in waiting:
            if work.future is not None and not work.future.done():
                work.future.set_exception(self._trouble(error))

    def _trouble(self, error: BaseException) -> StoreTrouble:
        return not_written(self._env.path, error, again=self._recorder)
