"""The states that a finding compares: its snapshots one with the next, or its start with the reference, else with the
start of the episode that wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from replayproxy.core import prolly
from replayproxy.core.values import Episode, RowChange, Run, Snapshot
from replayproxy.detect.states import starts
from replayproxy.errors import DamagedRecord, StoreTrouble
from replayproxy.session.evidence import place
from replayproxy.session.portrait import MOST_CHANGES
from replayproxy.storage import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDiff:
    """What differs between two states; `before` and `after` name them. `more`: there are more than `rows`."""

    before: str
    after: str
    rows: tuple[RowChange, ...]
    more: bool
    root: bytes  # of the second state

    def to_json(self) -> dict[str, Any]:
        return {
            "from": self.before, "to": self.after, "more": self.more,
            "rows": [{"table": r.table, "key": r.key, "before": r.before, "after": r.after} for r in self.rows],
        }  # fmt: skip


def state_diffs(reader: Reader, finding: Mapping[str, Any]) -> Iterator[StateDiff]:
    """Of each series of the finding's snapshots; a series of one is compared with its reference, or with the start of
    the episode that the finding names first. Raises StoreTrouble where a state cannot be read."""
    by_series: dict[str, list[tuple[str, Run, Episode, Snapshot]]] = {}
    for address in finding.get("snapshots") or ():
        at = place(reader, str(address))
        shot = None if at is None else next((s for s in reader.snapshots(at[1]) if str(s.n) == at[2]), None)
        if at is not None and shot is not None and shot.root is not None:
            by_series.setdefault(shot.name, []).append((str(address), at[0], at[1], shot))
    for shots in by_series.values():
        if len(shots) == 1:
            known = list(_against_reference(reader, *shots[0]))
            yield from known or _against_first(reader, finding, *shots[0])
        for (a, _, _, old), (b, _, _, new) in pairwise(shots):
            assert old.root is not None
            assert new.root is not None
            yield _diff(reader, a, b, old.root, new.root)


def _against_reference(reader: Reader, address: str, run: Run, episode: Episode, shot: Snapshot) -> Iterator[StateDiff]:
    for one in (reader.check(run) or {}).get("references", ()):
        same = (one.get("task"), one.get("seed"), one.get("snapshot")) == (episode.task, episode.seed, shot.name)
        if same and one.get("root") and shot.root is not None:
            which = "named" if one.get("given") else f"{one.get('agree')} of {one.get('starts')} starts"
            yield _diff(reader, f"the reference ({which})", address, bytes.fromhex(one["root"]), shot.root)
            return


def _against_first(
    reader: Reader, finding: Mapping[str, Any], address: str, run: Run, episode: Episode, shot: Snapshot
) -> Iterator[StateDiff]:
    """What is there now, and was not before another episode's exchange."""
    for witness in finding.get("exchanges") or ():
        at = place(reader, str(witness.get("address")))
        start = None if at is None else starts(reader.snapshots(at[1])).get(shot.name)
        if at is not None and start is not None and start.root is not None and shot.root is not None:
            if (at[1].key, start.n) != (episode.key, shot.n):
                yield _diff(reader, f"{at[0].name}/{at[1].name}/s{start.n}", address, start.root, shot.root)
            return


def _diff(reader: Reader, before: str, after: str, old: bytes, new: bytes) -> StateDiff:
    try:
        rows = tuple(islice(prolly.diff(old, new, reader.node), MOST_CHANGES + 1))
    except (ValueError, DamagedRecord) as error:
        raise StoreTrouble(f"the states {before} and {after} cannot be read: {error}") from error
    return StateDiff(before=before, after=after, rows=rows[:MOST_CHANGES], more=len(rows) > MOST_CHANGES, root=new)
