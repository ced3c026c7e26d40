"""The rollout files of known frameworks: how their lines name the episode, so that `--on` may be left out.

Rules of this file: nothing is joined by chance. A way to join is taken only where every line looked at has exactly one
episode by it, the rewards of both sides do not contradict, and no other known way leads to another episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from replayproxy.core.values import Episode
from replayproxy.errors import WrongUsage
from replayproxy.session.rollouts import MISSING, Document, field
from replayproxy.session.rollouts_join import Join, Pair, pairs

LOOKED_AT = 200
"""Rollouts at the head of the file that decide how it is joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rollouts of one framework. `has`: fields that each has; `on`: the ways to join, the surest first; `reward`: where
    its reward is."""

    name: str
    has: tuple[str, ...]
    on: tuple[tuple[str, ...], ...]
    reward: str = "reward"


def _id(name: str) -> tuple[tuple[str, ...], ...]:
    """A field that may be the episode's name, one of its ids, or a member of its meta of that name."""
    return (f"{name}=episode",), (f"{name}=alias",), (f"{name}=meta.{name.rpartition('/')[2]}",)


SHAPES = (
    Shape(name="an earlier mask", has=("replay_episode",), on=(("replay_episode=episode",),)),
    Shape(
        name="NeMo Gym",
        has=("_ng_task_index", "_ng_rollout_index"),
        on=(
            *_id("_ng_rollout_id"),
            ("_ng_task_index=meta._ng_task_index", "_ng_rollout_index=meta._ng_rollout_index",
             "_ng_attempt_index=meta._ng_attempt_index"),
            ("_ng_task_index=meta._ng_task_index", "_ng_rollout_index=meta._ng_rollout_index"),
            ("_ng_task_index=task", "_ng_rollout_index=attempt"),
        ),
    ),
    Shape(
        name="verifiers",
        has=("id", "task", "traces"),
        on=(*_id("id"), *_id("/traces/0/id"), ("task.key=task", "group.id=group")),
    ),
    Shape(name="prime-rl", has=("example_id", "trajectory_id"), on=(*_id("trajectory_id"), *_id("rollout_id"))),
    Shape(name="inspect", has=("uuid", "epoch"), on=(*_id("uuid"), ("id=task", "epoch=attempt"))),
    Shape(name="inspect", has=("sample_id", "epoch"), on=(*_id("sample_id"), ("id=task", "epoch=attempt"))),
    Shape(
        name="tau2",
        has=("id", "task_id", "trial"),
        on=(*_id("id"), ("task_id=task", "trial=attempt", "seed=seed"), ("task_id=task", "trial=attempt")),
        reward="reward_info.reward",
    ),
    Shape(name="Harbor", has=("trial_name", "task_checksum"), on=(*_id("trial_name"), *_id("id"))),
    Shape(
        name="Agent Lightning",
        has=("rollout_id", "attempt_id"),
        on=(("rollout_id=meta.rollout_id", "attempt_id=meta.attempt_id"), *_id("attempt_id"), *_id("rollout_id")),
    ),
    Shape(name="OpenEnv", has=("episode_id",), on=_id("episode_id")),
    Shape(name="rollouts that name their episode", has=("episode",), on=_id("episode")),
    Shape(name="rollouts with an id", has=("rollout_id",), on=_id("rollout_id")),
    Shape(
        name="rollouts of a task",
        has=("task", "seed", "attempt"),
        on=(("task=task", "seed=seed", "attempt=attempt"),),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How a file is joined, and of what shape it was found to be."""

    shape: Shape
    on: tuple[Pair, ...]

    def __str__(self) -> str:
        return " ".join(f"--on {pair}" for pair in self.on)


def shapes_of(head: Sequence[Document]) -> list[Shape]:
    """The shapes that every rollout looked at has."""
    return [shape for shape in SHAPES if head and all(_has(one, shape.has) for one in head)]


def _has(document: Document, names: Iterable[str]) -> bool:
    return all(field(name)(document) is not MISSING for name in names)


def choose(documents: Iterable[Document], episodes: Sequence[Episode], *, by_reward: bool = True) -> Chosen:
    """The one way to join. `by_reward`: rewards that contradict speak against a way. Raises WrongUsage where there is
    none, or two that disagree."""
    head = list(islice(documents, LOOKED_AT))
    if not head:
        raise WrongUsage("the file holds no rollout", hint="--on LINE_FIELD=EPISODE_FIELD")
    tried = [(shape, on) for shape in shapes_of(head) for on in shape.on]
    fitting: list[tuple[Chosen, list[str]]] = []
    against: list[tuple[Chosen, str]] = []
    for shape, texts in tried:
        on = pairs(texts)
        one, reward = Chosen(shape=shape, on=on), shape.reward if by_reward else None
        joined = _joined(head, Join(on, episodes))
        if joined is None:
            continue
        if reward is not None and (why := _contradiction(reward, head, joined)):
            against.append((one, why))
        else:
            fitting.append((one, [episode.name for episode in joined]))
    if not fitting and against:
        one, why = against[0]
        what = f"it looks like {one.shape.name}, but where {one} joins them, the rewards contradict: {why}"
        raise WrongUsage(what, hint=f"{one}, if it is the right way nevertheless")
    if not fitting:
        raise WrongUsage(_why_none(tried), hint="--on LINE_FIELD=EPISODE_FIELD")
    chosen, names = fitting[0]
    other = next((one for one, theirs in fitting if theirs != names), None)
    if other is not None:
        raise WrongUsage(
            f"two ways to join lead to different episodes: {chosen}, or {other}",
            hint="say which by --on",
        )
    return chosen


def _joined(head: Sequence[Document], join: Join) -> list[Episode] | None:
    """The episode of each; None where one has none, or several."""
    found = [join.match(document).episodes for document in head]
    return [episodes[0] for episodes in found] if all(len(episodes) == 1 for episodes in found) else None


def _contradiction(reward: str, head: Sequence[Document], joined: Sequence[Episode]) -> str:
    """The first rollout that has another reward than its episode, and how many have; "" where none has."""
    reward_of = field(reward)
    both = [(reward_of(document), episode) for document, episode in zip(head, joined, strict=True)]
    wrong = [(theirs, episode) for theirs, episode in both if contradict(theirs, episode.reward)]
    if not wrong:
        return ""
    theirs, episode = wrong[0]
    return f"{theirs} where {episode.name} has {episode.reward}; so {len(wrong)} of the {len(both)} looked at"


def contradict(theirs: object, ours: float | None) -> bool:
    """Whether a rollout's reward is another than its episode's. Not where one of the two is not known."""
    if isinstance(theirs, bool) or not isinstance(theirs, int | float) or ours is None:
        return False
    return abs(theirs - ours) > 1e-6 * max(1.0, abs(theirs), abs(ours))


def _why_none(tried: Sequence[tuple[Shape, tuple[str, ...]]]) -> str:
    if not tried:
        return "how these rollouts name their episodes is not known"
    named = ", ".join(dict.fromkeys(shape.name for shape, _ in tried))
    return f"it looks like {named}, but by none of {len(tried)} ways has each rollout exactly one episode"
