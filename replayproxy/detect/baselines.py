"""Whether a value was there before it was made: looks for it in the start states of a run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from replayproxy.core import jsonvalue
from replayproxy.core.values import Snapshot
from replayproxy.detect.flows import Flow
from replayproxy.detect.source import Summary
from replayproxy.detect.states import States
from replayproxy.detect.tracers import key_of, of_text

MAX_ROOTS = 32
"""Start states that are searched for a value; the most recent before it was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is known of a value's place in states. `free`: no start before it was made holds it, its maker's among
    them, and there is at least one; `kept`: a later state of its maker, or the reader's start, holds it; `begun`: the
    reader's start does."""

    free: bool
    kept: bool
    checked: int
    begun: bool = False


class Baselines:
    """Linear in the states that are looked into; each is read once for all the values of neighbouring episodes."""

    def __init__(self, states: States, summaries: Mapping[str, Summary]) -> None:
        self._states = states
        self._summaries = summaries
        self._values: OrderedDict[bytes, frozenset[str]] = OrderedDict()
        self._before: dict[str, list[bytes]] = {}

    def of(self, flow: Flow, reader: Summary) -> Baseline:
        maker = self._summaries[flow.made.episode]
        value = key_of(flow.value)
        own = [root for name in maker.starts if (s := maker.usable_start(name)) and (root := s.root)]
        if not own:
            return Baseline(free=False, kept=False, checked=0)
        roots = list(dict.fromkeys([*own, *self._starts_before(maker)]))[:MAX_ROOTS]
        free = not any(value in self._held(root) for root in roots)
        later = [s.root for name in reader.starts if (s := reader.usable_start(name)) and s.root is not None]
        begun = any(value in self._held(root) for root in later)
        kept = begun or any(value in self._held(root) for root in maker.last.values())
        return Baseline(free=free, kept=kept, checked=len(roots), begun=begun)

    def _starts_before(self, maker: Summary) -> list[bytes]:
        if maker.name not in self._before:
            found: list[Snapshot] = [
                snapshot
                for summary in self._summaries.values()
                if summary.span.opened_wall <= maker.span.opened_wall
                for name in summary.starts
                if (snapshot := summary.usable_start(name)) is not None
            ]
            recent = sorted(found, key=lambda snapshot: -snapshot.wall)[: 4 * MAX_ROOTS]
            self._before[maker.name] = [s.root for s in recent if s.root is not None]
        return self._before[maker.name]

    def _held(self, root: bytes) -> frozenset[str]:
        """Every value with much chance in it that a state holds."""
        held = self._values.pop(root, None)
        if held is None:
            held = frozenset(_long_values(self._states.rows(root)))
        self._values[root] = held
        while len(self._values) > MAX_ROOTS:
            self._values.popitem(last=False)
        return held


def _long_values(rows: Mapping[str, Mapping[str, object]]) -> set[str]:
    found: set[str] = set()
    for content in rows.values():
        for key, row in content.items():
            found |= {key_of(token.value) for token in of_text(key)}
            for path, leaf in jsonvalue.leaves(row):
                if isinstance(leaf, str):
                    found |= {key_of(token.value) for token in of_text(leaf)}
                elif isinstance(leaf, int) and leaf > 1 << 46:
                    found.add(str(leaf))
                found |= {key_of(t.value) for name in path if isinstance(name, str) for t in of_text(name)}
    return found
