"""`export FINDING`: a finding with all that it rests on in one archive, and beside it what people read and run.

In the archive: the run's record, the episodes that the finding names, whole (so that they replay and their seals hold),
the reference that a start was compared with, a check document that speaks of this finding alone, and its trials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replayproxy.core.values import UNATTRIBUTED, Episode, Run
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.session.evidence import evidence, place
from replayproxy.session.look import Found
from replayproxy.session.porting import STDIO, Chosen, Exported, file_name, holds_secrets, written
from replayproxy.session.trials import told_of
from replayproxy.storage import Reader
from replayproxy.storage.archive import ArchiveWriter
from replayproxy.storage.packing import Packer

ALONE = "of_finding"
"""The member of a check document that says: this archive was made for one finding, whose id it is."""


def finding_of(reader: Reader, run: Run) -> dict[str, Any] | None:
    """The finding that an archive was made for; None: it is another archive."""
    check = reader.check(run) or {}
    return next((f for f in check.get("findings", ()) if f.get("id") == check.get(ALONE)), None)


def export_finding(found: Found, out: Path | None, beside: Mapping[str, str]) -> Exported:
    """`beside`: ending (`.md`) -> text, for files of the archive's name. Nothing that exists is replaced, and nothing
    is written where the run holds secrets, since this is made to be handed on. Raises WrongUsage, UnknownAddress."""
    finding, reader = dict(found.resolved.finding or {}), found.reader
    path = out or Path(f"{file_name(str(finding.get('number') or finding.get('id') or 'finding'))}.replay")
    chosen = list(_chosen(reader, finding))
    if not any(one.episodes for one in chosen):
        raise UnknownAddress(f"{found.resolved.text}: none of its episodes is in the store any more")
    if any(map(holds_secrets, chosen)):
        raise WrongUsage(
            f"run {found.resolved.run.name} was recorded with its secrets, and a finding is made to be handed on",
            hint="replayproxy export RUN/EPISODE --format archive takes them along knowingly",
        )
    texts = {} if path == STDIO else {path.with_name(path.stem + ending): text for ending, text in beside.items()}
    for other in (path, *texts):
        if other != STDIO and (other.exists() or other.is_symlink()):
            raise WrongUsage(f"{other} exists already", hint="another --out, or remove it")
    done = Exported(form="archive", runs=[one.run.name for one in chosen])
    with written(path) as file:
        archive = ArchiveWriter(file)
        packer = Packer(archive)
        for one in chosen:
            _pack(packer, one, finding)
        archive.end()
    for other, text in texts.items():
        with written(other) as file:
            file.write(text.encode())
    done.paths += [str(path), *map(str, texts)]
    done.episodes, done.exchanges = packer.count["episodes"], packer.count["exchanges"]
    return done


def _chosen(reader: Reader, finding: Mapping[str, Any]) -> Iterator[Chosen]:
    """The runs and episodes that a finding names, its own first."""
    named = [f"{finding.get('run')}/{finding.get('episode')}"]
    named += [str(w.get("address")) for w in finding.get("exchanges") or ()]
    named += map(str, finding.get("snapshots") or ())
    by_run: dict[int, Chosen] = {}
    for address in named:
        at = place(reader, address)
        if at is None:
            continue
        run, episode, _ = at
        one = by_run.setdefault(run.key, Chosen(reader=reader, run=run))
        if episode.key not in {known.key for known in one.episodes}:
            one.episodes.append(episode)
    yield from by_run.values()


def _pack(packer: Packer, one: Chosen, finding: Mapping[str, Any]) -> None:
    mine = one.run.name == finding.get("run")
    check = _check(one, finding) if mine else None
    roots = [bytes.fromhex(r["root"]) for r in (check or {}).get("references", ()) if r.get("root")]
    trials = [t for t in one.reader.trials(one.run) if t.get("finding") == finding.get("id")] if mine else []
    packer.run(one.reader, one.run, one.episodes, whole=False, check=check, trials=trials, roots=roots)


def _check(one: Chosen, finding: Mapping[str, Any]) -> dict[str, Any]:
    """What the saved check says of this finding and of the episodes that go along."""
    saved = one.reader.check(one.run) or {}
    names = {episode.name for episode in one.episodes} - {UNATTRIBUTED}
    told = told_of(finding, one.reader.trials(one.run)) | {"number": "F1"}
    compared = evidence(one.reader, finding).compared
    if compared is not None:
        told["compared"] = compared.to_json()
    return {
        "run": one.run.name, ALONE: finding.get("id"), "findings": [told],
        "verdicts": {name: word for name, word in (saved.get("verdicts") or {}).items() if name in names},
        "coverage": {name: seen for name, seen in (saved.get("coverage") or {}).items() if name in names},
        "references": list(_references(saved, one.episodes)),
        "detectors": saved.get("detectors"), "checked_wall": saved.get("checked_wall"),
    }  # fmt: skip


def _references(saved: Mapping[str, Any], episodes: list[Episode]) -> Iterator[Mapping[str, Any]]:
    groups = {(episode.task, episode.seed) for episode in episodes}
    yield from (one for one in saved.get("references") or () if (one.get("task"), one.get("seed")) in groups)
