"""What the findings of a run come to: since when, what changed then, who is behind it, what it did to rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

from replayproxy.core.values import Episode
from replayproxy.detect.finding import CONVINCING
from replayproxy.detect.judge import Judgement
from replayproxy.detect.onset import onset
from replayproxy.detect.verdicts import Word


def began(judgement: Judgement, names: Collection[str]) -> dict[str, Any] | None:
    """Since when something is wrong: the first episode on which a convincing finding falls, or, where the share of bad
    episodes (poisoned or lost) rose later, the first after that, with what changed of the meta between."""
    fallen = {f.episode for f in judgement.findings if f.grade in CONVINCING and f.episode in names}
    ordered = sorted(
        (judgement.episodes[name] for name in names if name in judgement.counted), key=lambda e: (e.opened_wall, e.key)
    )
    bad = [e.name in fallen or e.name in judgement.lost for e in ordered]
    rose = onset(bad, [_circumstances(e) for e in ordered])
    first = next((e for e in ordered if e.name in fallen), None) if rose is None else ordered[rose.at]
    if first is None:
        return None
    told: dict[str, Any] = {
        "episode": first.name, "wall": first.opened_wall, "meta": dict(first.meta), "instance": dict(first.instance),
        "rose": None, "changed": {}, "only": _only(ordered, bad),
    }  # fmt: skip
    if rose is not None:
        told |= {
            "rose": {"before": list(rose.before), "since": list(rose.since), "p": rose.p},
            "changed": {name: list(pair) for name, pair in rose.changed.items()},
        }
    return told


def _circumstances(episode: Episode) -> Mapping[str, Any]:
    """Meta by name, instances as `instance.ENV`."""
    return {**episode.meta, **{f"instance.{env}": name for env, name in episode.instance.items()}}


def _only(ordered: list[Episode], bad: list[bool]) -> dict[str, Any]:
    """Where all bad episodes share what at least one good one has otherwise: `instance.crm` -> `pod-17`."""
    found: dict[str, Any] = {}
    if sum(bad) < 2:
        return found
    all_of = [_circumstances(e) for e in ordered]
    for name in sorted({name for one in all_of for name in one}):
        values = {str(one.get(name)) for one, is_bad in zip(all_of, bad, strict=True) if is_bad}
        others = {str(one.get(name)) for one, is_bad in zip(all_of, bad, strict=True) if not is_bad}
        if len(values) == 1 and others - values:
            found[name] = next(one.get(name) for one, is_bad in zip(all_of, bad, strict=True) if is_bad)
    return found


def worst(judgement: Judgement, names: Collection[str]) -> dict[str, Any] | None:
    """The exchange behind findings on most episodes, if there is one behind several."""
    behind: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, finding in enumerate(judgement.findings, 1):
        # Only a write is behind anything; what a nondeterministic answer is compared with is its witness.
        if finding.exchanges and finding.exchanges[0].role == "write" and finding.episode in names:
            behind.setdefault((finding.kind.value, finding.exchanges[0].address), []).append((number, finding.episode))
    ranked = sorted(behind.items(), key=lambda item: -len({episode for _, episode in item[1]}))
    if not ranked or len({episode for _, episode in ranked[0][1]}) < 2:
        return None
    (kind, address), found = ranked[0]
    return {"number": f"F{found[0][0]}", "kind": kind, "exchange": address, "episodes": len({e for _, e in found})}


def rewards(judgement: Judgement, names: Collection[str]) -> list[dict[str, Any]]:
    """Per task with a poisoned episode: the mean reward with the poisoned ones and without them."""
    tasks: dict[str | None, list[tuple[float, bool]]] = {}
    for name in names:
        episode = judgement.episodes[name]
        if episode.reward is not None:
            poisoned = judgement.words[name] is Word.POISONED
            tasks.setdefault(episode.task, []).append((episode.reward, poisoned))
    told = []
    for task, all_of in sorted(tasks.items(), key=lambda item: str(item[0])):
        clean = [reward for reward, poisoned in all_of if not poisoned]
        if len(clean) < len(all_of):
            told.append({
                "task": task, "with": fmean(reward for reward, _ in all_of),
                "without": fmean(clean) if clean else None, "poisoned": len(all_of) - len(clean), "of": len(all_of),
            })  # fmt: skip
    return told


def groups(judgement: Judgement, names: Collection[str]) -> list[dict[str, Any]]:
    """The groups that lose siblings when the poisoned episodes go. A group is the harness's own, else task and seed."""
    of: Counter[tuple[str | None, ...]] = Counter()
    poisoned: dict[tuple[str | None, ...], list[str]] = {}
    for name in names:
        key = _group(judgement.episodes[name])
        if key is not None:
            of[key] += 1
            if judgement.words[name] is Word.POISONED:
                poisoned.setdefault(key, []).append(name)
    return [
        {"group": key[0], "task": key[1], "seed": None if key[2] is None else int(key[2]), "of": of[key],
         "poisoned": poisoned[key], "left": of[key] - len(poisoned[key])}
        for key in of if key in poisoned and of[key] > 1
    ]  # fmt: skip


def _group(episode: Episode) -> tuple[str | None, ...] | None:
    seed = None if episode.seed is None else str(episode.seed)
    if episode.group is not None:
        return episode.group, None, None
    return None if episode.task is None and seed is None else (None, episode.task, seed)
