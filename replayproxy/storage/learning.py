"""Learns a dictionary from the records that one writer writes, and has them compressed with it.

Small exchanges resemble each other, and alone each is too short to show it: with a dictionary a record of 1.3 KB takes
220 bytes instead of 830, and less time. After `FIRST` records one is trained of them in a thread of its own (100 ms of
one core, without the GIL), and again whenever ten times as many have been written: traffic changes. One that saves
less than a tenth of what the present one leaves is not taken. What was written before there was any is compressed anew.
Secrets were taken out of what a dictionary is made of, and where they are kept (`--keep-secrets`) none is made; when
some of it is removed, `gc` takes the dictionary out of use (`storage.retiring`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import zstandard

from replayproxy.errors import Problem
from replayproxy.storage.dictionaries import DictionaryPress, put_dictionary
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import CHECKSUM_AT, PLAIN, Broken, Press, dictionary_of, pressed

FIRST = 2000
SIZE = 32 * 1024
"""Bytes of a dictionary: of twice as many a record gains one in a hundred."""

SEGMENT, STRIDE = 2000, 8
"""zstd's `k` and `d`, as they came out best for JSON exchanges. Given, one pass trains; else it tries 40 of them."""

SAMPLE_MOST = 16 * 1024
SAMPLES_BYTES = 8 * 1024 * 1024
PLAIN_BYTES = 8 * 1024 * 1024
"""What is held: the newest records to learn from, and those that were written without any dictionary."""


class Learner:
    """One writer's. `press` is what is to be used now. For the thread that writes; it starts another."""

    def __init__(self, env: Environment, *, learns: bool = True) -> None:
        self._env, self._learns = env, learns
        self._guard = threading.Lock()
        self._samples: deque[bytes] = deque()
        self._size = 0
        self._plain: list[tuple[bytes, bytes]] = []
        self._held = 0
        self._count, self._due = 0, FIRST
        self._training: threading.Thread | None = None
        self._made: DictionaryPress | None = None
        self._closed = False
        self.press: Press = env.press()

    def wrote(self, key: bytes, record: bytes, content: bytes) -> None:
        """An exchange's record, as it is about to be put under a key."""
        if not self._learns:
            return
        self._count += 1
        if len(content) <= SAMPLE_MOST:
            self._samples.append(content)
            self._size += len(content)
            while self._size > SAMPLES_BYTES or len(self._samples) > FIRST:
                self._size -= len(self._samples.popleft())
        if not self.press.number and self._held < PLAIN_BYTES:
            self._plain.append((key, record))
            self._held += len(record)
        if self._count >= self._due and self._training is None:
            self._due = self._count * 10
            self._training = threading.Thread(
                target=self._train, args=(list(self._samples), self.press), name="replayproxy-dictionary", daemon=True
            )
            self._training.start()

    def settle(self) -> list[tuple[bytes, bytes]]:
        """Takes a dictionary that is ready into use; gives the records that are to be put anew, compressed with it."""
        if self._training is None or self._training.is_alive():
            return []
        self._training = None
        made, self._made = self._made, None
        if made is None:
            return []
        self.press = made
        plain, self._plain, self._held = self._plain, [], 0
        return sorted((key, pressed(record, None, made)) for key, record in plain)

    def close(self) -> None:
        """Waits for a training; what comes of it is not used."""
        with self._guard:
            self._closed = True
        if self._training is not None:
            self._training.join()

    # The other thread

    def _train(self, samples: list[bytes], press: Press) -> None:
        try:
            made = train(samples)
            if not _is_worth_it(made, samples[::10], press):
                return
            with self._guard:  # after `close` nothing is written any more
                if self._closed:
                    return
                with self._env.changing() as txn:
                    number = put_dictionary(txn, self._env.dbs["meta"], made)
            self._made = DictionaryPress(number, made)
        except (zstandard.ZstdError, Problem):
            pass  # too little to learn from, or a full disk: records are whole without a dictionary


def train(samples: Sequence[bytes]) -> bytes:
    """A dictionary. Every tenth sample, from the first, is not learned from: on those it has to show what it is worth.
    Raises zstandard.ZstdError where there is too little."""
    shown: list[bytes | bytearray | memoryview] = [one for n, one in enumerate(samples) if n % 10]
    return zstandard.train_dictionary(SIZE, shown, k=SEGMENT, d=STRIDE).as_bytes()


def _is_worth_it(data: bytes, tried: Sequence[bytes], press: Press) -> bool:
    # The present press is at work in the writer's thread.
    old = PLAIN if not press.number else DictionaryPress(press.number, press.data)
    new = DictionaryPress(0, data)
    return 10 * sum(len(new.compress(one)) for one in tried) <= 9 * sum(len(old.compress(one)) for one in tried)


def put_anew(txn: Any, exchanges: Any, records: Sequence[tuple[bytes, bytes]]) -> int:
    """Puts records that were compressed anew in the place of those without a dictionary; how many. What has been
    replaced or deleted meanwhile is left alone."""
    todo = [(key, new) for key, new in records if _is_same(txn.get(key, db=exchanges), new)]
    # LMDB joins pages only where something is deleted: replaced in place, each would leave its page two thirds empty.
    for key, _ in todo:
        txn.delete(key, db=exchanges)
    for key, new in todo:
        txn.put(key, new, db=exchanges)
    return len(todo)


def _is_same(there: bytes | None, new: bytes) -> bool:
    if there is None:
        return False
    try:
        return dictionary_of(there) == 0 and there[CHECKSUM_AT] == new[CHECKSUM_AT]
    except Broken:
        return False
