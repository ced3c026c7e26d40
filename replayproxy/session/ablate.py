"""Ablation: what makes repetitions differ? One thing at a time is held fast, and the repetitions are made again.

| knob | held fast | the source, if it removes the difference |
|---|---|---|
| `clock` | the environment's clock, at the recorded beginning (`[env.NAME] clock`) | time |
| `seed` | its random numbers (`[env.NAME] seed`) | rng |
| `lanes` | one request after the other | scheduling |
| `pacing` | the agent's pauses, or none where they were kept | pacing |

A knob removes it only if as many equal repetitions are unlikely (5 %) with the shares seen without it. None that was
available removes it, and all were: the source is external, or state that no restore puts back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from replayproxy.core.plans import in_turn
from replayproxy.core.schedule import seen_at, sent_at
from replayproxy.core.values import Trace
from replayproxy.errors import CannotJudge
from replayproxy.session.ablation import Ablation, Knob, Tally, differs, judged
from replayproxy.session.outcomes import classes
from replayproxy.session.redrive_once import DIFFERENT, Ask, Redriven, Repetition, Session, Way

_LAST = ("seed", "clock")
_AS_IT_IS = Way(kept=False)


def tallied(session: Session, repetitions: Sequence[Repetition]) -> Tally:
    """The repetitions by outcome. What one of them lacks (a request not sent) makes it another outcome."""
    groups = classes(repetitions, lambda a, b: not session.between(a, b).roots)
    different = sum(one.verdict == DIFFERENT for one in repetitions)
    return Tally(outcomes=tuple(map(len, groups)), different=different)


async def ablate(session: Session, one: Redriven, ask: Ask, say: Callable[[str], None]) -> Ablation:
    """The repetitions that were made, and as many again with each knob."""
    bare = tallied(session, one.repetitions)
    found: dict[str, Knob] = {}
    stays = ""
    # What a hook has set may stay set: those come last, and each only while the difference is still there.
    for name in sorted(ask.ablate, key=lambda name: _LAST.index(name) + 1 if name in _LAST else 0):
        way, why = _way(name, one, ask)
        why = why or (stays if name in _LAST else "")
        if way is None or why or not differs(bare):
            found[name] = Knob(name=name, why=why or "the repetitions do not differ")
            continue
        say(f"{one.trace.address}: {name} held fast, {bare.n} times")
        found[name] = await _held(session, name, way, bare)
        if way.hooks and found[name].removes is not False and await _stays(session, name, bare):
            stays = f"what sets the {name} stays set: nothing can be told apart any more"
    return Ablation(bare=bare, knobs=tuple(found[name] for name in ask.ablate))


async def _made(session: Session, times: int, way: Way) -> Tally:
    return tallied(session, [await session.once(number, way) for number in range(1, times + 1)])


async def _stays(session: Session, name: str, bare: Tally) -> bool:
    """Whether the difference is gone also without the knob, since it was once turned."""
    return judged(name, bare, await _made(session, bare.n, _AS_IT_IS)).removes is not False


async def _held(session: Session, name: str, way: Way, bare: Tally) -> Knob:
    try:
        return judged(name, bare, await _made(session, bare.n, way))
    except CannotJudge as refused:
        return Knob(name=name, why=str(refused))


def _way(name: str, one: Redriven, ask: Ask) -> tuple[Way | None, str]:
    assert one.plan is not None
    assert one.targets is not None
    if name == "lanes":
        if not _overlaps(one.trace):
            return None, "nothing overlaps: the requests go one after the other anyway"
        return Way(plan=in_turn(one.plan), kept=False), ""
    if name == "pacing":
        return Way(pace=1.0 if ask.pace is None else None, kept=False), ""
    known = one.targets.hooks.get(name, {})
    if not known:
        return None, f'no environment offers it: [env.NAME] {name} = "METHOD URL" in the config'
    return Way(hooks=tuple(known.values()), kept=False), ""


def _overlaps(trace: Trace) -> bool:
    ordered = sorted(trace.exchanges, key=sent_at)
    return any(seen_at(a) >= b.times.head for a, b in pairwise(ordered))
