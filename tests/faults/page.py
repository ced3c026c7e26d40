"""docs/accuracy.md: every figure of a run of the matrix, and what it does not show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from replayproxy.detect.finding import CONVINCING, Grade, Kind
from tests.faults import figures, words
from tests.faults.figures import Share
from tests.faults.outcome import Outcome
from tests.faults.score import Score

ROOT = Path(__file__).parents[2]
PATH = ROOT / "docs" / "accuracy.md"

type Table = Iterable[Sequence[object]]


def text(outcomes: Sequence[Outcome], seeds: str) -> str:
    """The whole page."""
    scores = [one.score for one in outcomes]
    parts = [
        words.LEAD.format(seeds=words.SEEDS[seeds], **_sizes(scores)),
        "## Targets\n\n" + words.TARGETS + "\n\n" + table(_targets(scores)),
        "## What was missed or wrong, and why\n\n" + words.CAUSES_LEAD + "\n\n" + table(_causes(scores)),
        "## Found, by fault, strength and lanes\n\n" + words.RECALL + "\n\n" + "\n\n".join(_recalls(scores)),
        "## Wrong findings\n\n" + words.PRECISION + "\n\n" + table(_precisions(scores)),
        "## Look-alikes\n\n" + words.CONTROLS + "\n\n" + table(_controls(scores)),
        "## Episodes without a fault\n\n" + words.CLEAN + "\n\n" + table(_clean(scores)),
        "## What each source of evidence buys\n\n" + words.ABLATION + "\n\n" + table(_ablation(outcomes)),
        "## Without a named reference\n\n" + words.UNNAMED + "\n\n" + table(_unnamed(outcomes)),
        words.METAMORPHIC,
        words.TAIL,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def table(rows: Table) -> str:
    """A Markdown table; the first row is its head."""
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _sizes(scores: Sequence[Score]) -> Mapping[str, object]:
    return {
        "cells": len(scores), "episodes": f"{sum(s.episodes for s in scores):,}",
        "exchanges": f"{sum(s.exchanges for s in scores):,}", "faults": f"{sum(len(s.best) for s in scores):,}",
        "environments": ", ".join(words.ENVS[env] for env in dict.fromkeys(s.plan.env for s in scores)),
    }  # fmt: skip


def _verdict(share: float | None, least: float) -> str:
    return "not measured" if share is None else "met" if share >= least else "MISSED"


def _targets(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    yield "target", "at least", "measured", ""
    for env in ["all", *dict.fromkeys(s.plan.env for s in scores)]:
        mine = [s for s in scores if env in ("all", s.plan.env)]
        told = "" if env == "all" else f", {env}"
        right = figures.precision(mine, figures.convincing)
        yield f"precision of proven and confirmed{told}", "0.98", right, _verdict(right.value, 0.98)
        clean = [s for s in mine if s.plan.row == "clean"]
        false = sum(s.wrong[name] for s in clean for name in s.wrong if name[1] in CONVINCING)
        yield (
            f"proven or confirmed on clean episodes{told}", "none",
            f"{false} in {sum(s.episodes for s in clean)} episodes", "met" if not false else "MISSED",
        )  # fmt: skip
        for row, least, chosen, name in ROWS:
            found = figures.recall(s for s in mine if s.plan.row == row and not s.plan.control and chosen(s))
            yield f"found: {name}{told}", f"{least:g}", found, _verdict(found.value, least)


def _one_lane(score: Score) -> bool:
    return score.plan.lanes == 1


ROWS: Sequence[tuple[str, float, Callable[[Score], bool], str]] = (
    ("a", 0.95, lambda s: s.plan.lanes == 1 and s.plan.p >= 0.2, "(a) non-determinism, one lane, P at least 0.2"),
    ("b", 0.98, _one_lane, "(b) stale reads, one lane"),
    ("b", 0.8, lambda s: s.plan.lanes == 4, "(b) stale reads, four lanes, with snapshots"),
    ("c", 0.95, _one_lane, "(c) state bleed, one lane"),
    ("f", 0.95, _one_lane, "(f) resets, one lane"),
    ("d", 0.95, lambda s: True, "(d) races that occurred"),
)


def _causes(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    """Each fault or look-alike that was not got right in every cell, with the cause as far as it is known."""
    yield "row", "fault", "missed", "wrong findings", "why"
    for (row, fault), mine in _grouped(scores, lambda s: (s.plan.row, s.plan.fault)).items():
        found, wrong = figures.recall(mine), sum(figures.summed(mine, "wrong").values())
        if found.hits < found.n or wrong:
            why = words.CAUSES.get((row, fault)) or words.CAUSES.get((row, ""), "not known")
            yield f"({row})", fault, f"{found.n - found.hits} of {found.n}", wrong or "", why


def _recalls(scores: Sequence[Score]) -> Iterator[str]:
    for row, name in words.ROWS.items():
        rows = [s for s in scores if s.plan.row == row and not s.plan.control]
        if rows:
            yield f"### {name}\n\n" + table(_of_row(rows))


def _of_row(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    yield (
        "environment",
        "fault",
        "strength",
        "lanes",
        "episodes",
        "found",
        "of them proven or confirmed",
        "findings each",
    )
    for score in scores:
        each = figures.per_fault([score])
        yield (
            score.plan.env, score.plan.fault, score.plan.strength, _lanes(score), score.episodes,
            figures.recall([score]), figures.firm([score]).hits, "" if each is None else f"{each:.2f}",
            score.first or "",
        )  # fmt: skip


def _lanes(score: Score) -> str:
    workers = score.plan.workers
    return f"{score.plan.lanes}" + (f", {workers} episodes side by side" if workers > 1 else "")


def _precisions(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    yield "kind", "grade", "right", "right place, other kind", "wrong", "precision"
    right, aside, wrong = (figures.summed(scores, part) for part in ("right", "aside", "wrong"))
    for kind in Kind:
        for grade in Grade:
            at = kind.value, grade.value
            share = Share(right[at] + aside[at], right[at] + aside[at] + wrong[at])
            if share.n:
                yield kind.value, grade.value, right[at], aside[at], wrong[at], share


def _controls(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    yield "environment", "row", "look-alike", "lanes", "episodes", "proven or confirmed", "weaker"
    for (env, row, fault, lanes), mine in _grouped(
        (s for s in scores if s.plan.control and s.plan.row != "clean"),
        lambda s: (s.plan.env, s.plan.row, s.plan.fault, _lanes(s)),
    ).items():
        wrong = figures.summed(mine, "wrong")
        strong = sum(n for (_, grade), n in wrong.items() if grade in CONVINCING)
        yield (
            env,
            row,
            words.LOOK_ALIKES.get(fault, fault),
            lanes,
            sum(s.episodes for s in mine),
            strong,
            (sum(wrong.values()) - strong),
        )


def _clean(scores: Sequence[Score]) -> Iterator[Sequence[object]]:
    yield (
        "environment",
        "episodes",
        "with a proven or confirmed finding",
        "rate at most (95 %, one-sided)",
        "weaker findings",
    )
    for (env,), mine in _grouped((s for s in scores if s.plan.row == "clean"), lambda s: (s.plan.env,)).items():
        episodes, struck = sum(s.episodes for s in mine), sum(s.struck for s in mine)
        wrong = figures.summed(mine, "wrong")
        weak = sum(n for (_, grade), n in wrong.items() if grade not in CONVINCING)
        yield env, episodes, struck, f"{figures.at_most(struck, episodes):.4f}", weak


def _ablation(outcomes: Sequence[Outcome]) -> Iterator[Sequence[object]]:
    judged = [one for one in outcomes if one.ablated]
    names = list(dict.fromkeys(name for one in judged for name in one.ablated))
    yield "row", "lanes", "judged with", "found", "of them proven or confirmed", "wrong"
    for (row, lanes), mine in _grouped(judged, lambda one: (one.score.plan.row, one.score.plan.lanes)).items():
        for name in names:
            scores = [one.ablated[name] for one in mine]
            wrong = sum(figures.summed(scores, "wrong").values())
            yield f"({row})", lanes, name, figures.recall(scores), figures.firm(scores).hits, wrong


def _unnamed(outcomes: Sequence[Outcome]) -> Iterator[Sequence[object]]:
    yield "row", "fault", "environment", "found with it", "found without it", "wrong without it"
    named = [one for one in outcomes if one.unnamed is not None]
    for (row, fault, env), mine in _grouped(named, lambda one: _fault(one.score)).items():
        without = [one.unnamed for one in mine if one.unnamed is not None]
        with_it = figures.recall(one.score for one in mine)
        yield f"({row})", fault, env, with_it, figures.recall(without), sum(figures.summed(without, "wrong").values())


def _fault(score: Score) -> tuple[str, str, str]:
    return score.plan.row, score.plan.fault, score.plan.env


def _grouped[T, K](items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    found: dict[K, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found
