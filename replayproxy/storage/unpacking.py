"""An archive's runs into a store, record by record as they are, numbered anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from replayproxy.core.values import UNATTRIBUTED, Run
from replayproxy.errors import WrongUsage
from replayproxy.storage import cold
from replayproxy.storage.archive import Archive
from replayproxy.storage.intake import Intake
from replayproxy.storage.layout import u64
from replayproxy.storage.reader import Reader
from replayproxy.storage.scans import under


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """What came in: runs by the names they have here, records by kind, and what was left behind and why."""

    runs: tuple[str, ...]
    count: Counter[str]
    left: Counter[str] = field(default_factory=Counter)


def unpack(archive: Archive, intake: Intake, *, name: str | None = None, append: bool = False) -> Unpacked:
    """Everything is in the store and nothing of it is seen; `Intake.publish` does that.

    `name` is for an archive of one run. Raises WrongUsage for names that are taken.
    """
    runs = Reader(archive).runs()
    if name is not None and len(runs) != 1:
        raise WrongUsage(f"{archive.path} holds {len(runs)} runs: one --run cannot name them", hint="leave it out")
    count, left = Counter[str](), Counter[str]()
    made = [_run(archive, intake, run, name or run.name, append, count, left) for run in runs]
    with archive.reading() as txn:
        for address, raw in under(txn, archive.dbs["blobs"], b""):
            intake.blob(address, raw)
            count["blobs"] += 1
    return Unpacked(runs=tuple(run.name for run in made), count=count, left=left)


def _run(
    archive: Archive, intake: Intake, run: Run, name: str, append: bool, count: Counter[str], left: Counter[str]
) -> Run:
    made = intake.run(replace(run, name=name), append=append)
    with archive.reading() as txn:
        for _, raw in under(txn, archive.dbs["episodes"], u64(run.key)):
            episode, _ = cold.decode_episode(raw)
            if episode.name == UNATTRIBUTED and intake.has(made, UNATTRIBUTED):
                left[f"traffic without an episode ({name} has its own)"] += 1
                continue
            number = u64(intake.episode(made, episode).key)
            count["episodes"] += 1
            for db in ("exchanges", "snapshots", "events"):
                for key, record in under(txn, archive.dbs[db], u64(episode.key)):
                    intake.put(db, number + key[8:], record)
                    count[db] += 1
        check = txn.get(u64(run.key), db=archive.dbs["checks"])
        trials = list(under(txn, archive.dbs["trials"], u64(run.key)))
    if check is not None:
        if made.name == run.name and not append:
            intake.put("checks", u64(made.key), check)
            count["checks"] += 1
        else:  # its findings name addresses, and its verdicts all episodes of a run
            left["the check that was saved for the run (run `replayproxy check` again)"] += 1
    if trials and made.name == run.name and not append:
        for key, raw in trials:
            intake.put("trials", u64(made.key) + key[8:], raw)
            count["trials"] += 1
    elif trials:  # the findings that they name are those of a run of another name
        left["what came of sending its findings again"] += len(trials)
    return made
