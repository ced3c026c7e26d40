"""Takes dictionaries out of use that were made of more than what is left: they hold pieces of what was removed.

What needs one is compressed anew, with one that is made of what is left where that saves anything, else with none. That
is one transaction. For `gc`: nobody writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import zstandard

from replayproxy.core.values import Run
from replayproxy.storage import cold
from replayproxy.storage.dictionaries import DictionaryPress, numbers, put_dictionary
from replayproxy.storage.environment import Environment
from replayproxy.storage.frame import PLAIN, Broken, NoDictionary, Press, content, dictionary_of, pressed
from replayproxy.storage.layout import u64
from replayproxy.storage.learning import FIRST, SAMPLE_MOST, SAMPLES_BYTES, train
from replayproxy.storage.scans import keys_under, under

FEWEST = 100
"""Samples from which a dictionary is made: on a tenth of them it has to show what it is worth."""


def retire(env: Environment, upto: int) -> None:
    """No record needs a dictionary of that number, or of a lower one, when it returns."""
    if not _is_needed(env, upto):
        return
    press, exchanges = _press(env, upto), env.dbs["exchanges"]
    # All in one transaction, and put in anew behind one another: put into their old places they would leave each page
    # half empty, and the file larger than before.
    with env.reading() as old, env.changing() as txn:
        press.keep(txn, env.dbs["meta"])
        txn.drop(exchanges, delete=False)
        for key, raw in under(old, exchanges, b""):
            needs = 0 < dictionary_of(raw) <= upto
            txn.put(key, pressed(raw, env.dictionaries, press) if needs else raw, append=True, db=exchanges)


def _is_needed(env: Environment, upto: int) -> bool:
    with env.reading() as txn:
        return any(0 < dictionary_of(raw) <= upto for _, raw in under(txn, env.dbs["exchanges"], b""))


def _press(env: Environment, upto: int) -> Press:
    """One that an earlier call has made already, or a new one, or none."""
    with env.reading() as txn:
        there = [number for number in numbers(txn, env.dbs["meta"]) if number > upto]
        total, samples = _samples(env, txn) if not there else (0, [])
    for number in reversed(there):
        with suppress(NoDictionary):
            return env.dictionaries.press(number)
    if len(samples) < FEWEST:
        return PLAIN
    try:
        data = train(samples)
    except zstandard.ZstdError:
        return PLAIN
    tried = samples[::10]
    made = DictionaryPress(0, data)
    saved = sum(len(PLAIN.compress(one)) - len(made.compress(one)) for one in tried)
    if saved * total <= len(data) * len(tried):
        return PLAIN
    with env.changing() as txn:
        number = put_dictionary(txn, env.dbs["meta"], data)
    return DictionaryPress(number, data)


def _samples(env: Environment, txn: Any) -> tuple[int, list[bytes]]:
    """How many exchanges there are to learn from, and what some of them hold, taken evenly from all."""
    keys = list(_learnable(env, txn))
    samples: list[bytes] = []
    size = 0
    for key in keys[:: max(1, len(keys) // FIRST)]:
        try:
            one = content(txn.get(key, db=env.dbs["exchanges"]), env.dictionaries)
        except Broken:
            continue
        if len(one) <= SAMPLE_MOST and size + len(one) <= SAMPLES_BYTES:
            samples.append(one)
            size += len(one)
    return len(keys), samples


def _learnable(env: Environment, txn: Any) -> Iterator[bytes]:
    """The exchanges of the runs of which it is known that their secrets were taken out."""
    for run, raw in under(txn, env.dbs["runs"], b""):
        said = cold.decode(Run, raw).config.get("secrets")
        if not isinstance(said, dict) or said.get("kept") is not False:
            continue
        for episode in keys_under(txn, env.dbs["episodes"], run):
            yield from keys_under(txn, env.dbs["exchanges"], u64(int.from_bytes(episode[8:], "big")))
