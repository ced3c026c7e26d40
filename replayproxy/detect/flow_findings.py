"""A value of one episode in an answer to another as a finding: how sure it is, and whose fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from replayproxy.detect.baselines import Baseline
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness, exchange_address, seconds
from replayproxy.detect.flows import Flow

SHOWN_WRITES = 20


class Together(Enum):
    """How maker and reader ran: one after the other; at the same time on one instance that both see; or at the same
    time where neither should see the other."""

    NO = "no"
    SHARED = "shared"
    APART = "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Flows into one episode that make one finding. `witnesses`: the exchanges that made and showed a value;
    `starts`: the reader's start snapshots; `lanes`: how many it had."""

    flows: Sequence[Flow]
    together: Together
    baselines: Mapping[Flow, Baseline]
    witnesses: Callable[[Flow], Sequence[Witness]]
    starts: tuple[str, ...]
    lanes: int
    anew: bool = False  # whether ids may be drawn alike in each episode: some were


def finding(run: str, told: Told) -> Finding | None:
    """None: no value is worth telling."""
    judged = [flow for flow in told.flows if _believable(flow, told.baselines[flow])]
    if not judged:
        return None
    proven = [flow for flow in judged if _sure(flow, told)]
    first = min(proven or judged, key=lambda flow: (not flow.canary, flow.seq, flow.pointer or ""))
    makers = sorted({flow.made.episode for flow in judged})
    shared = told.together is Together.SHARED
    beside = ", open at the same time" if told.together is not Together.NO else ""
    return Finding(
        kind=Kind.STATE_BLEED, sub="flow" if told.together is Together.NO else "isolation",
        grade=Grade.PROVEN if proven else Grade.SUSPECTED,
        blame=Blame.UNDECIDED if shared else Blame.ENVIRONMENT,
        blame_reason=_REASONS[told.together],
        run=run, episode=first.episode, lane=first.lane, pointer=first.pointer or "", values=(None, first.value),
        exchanges=tuple(told.witnesses(first)), snapshots=told.starts,
        assumptions=_assumptions(first, told.baselines[first]),
        ruled_out=_ruled_out(first, told.baselines[first]),
        reproduce=f"replayproxy redrive {run}/{first.made.episode} {run}/{first.episode} --env NAME=URL",
        title=f"{first.episode} was shown what {_listed(makers)} had made{beside}",
        cannot_say="whether the reward depends on it",
        times=seconds(made=first.made.fwd or None, read=first.up_end),
        effect=_effect(run, judged, first, makers, shared),
        scope={"lanes": told.lanes, "start_states": told.baselines[first].checked},
        covers=frozenset((flow.episode, flow.seq) for flow in judged), count=len(judged), at=first.up_end,
    )  # fmt: skip


_REASONS = {
    Together.NO: "the value came from an earlier episode",
    Together.SHARED: "both were open on one instance",
    Together.APART: "both were open, each with a state of its own",
}


def _believable(flow: Flow, state: Baseline) -> bool:
    """Without states to look into, only the id that an answer gave to what it made is taken for a made value."""
    if flow.canary:
        return True
    return flow.made.own_id if state.checked == 0 else state.free


def _sure(flow: Flow, told: Told) -> bool:
    """A canary that its episode is known to have sent is one whatever the states say; of another value they must show
    that it was not there before, and that the environment kept it. A state that both share shows what both may see.
    """
    if flow.canary:
        return flow.made.seq > 0
    state = told.baselines[flow]
    if (told.anew or flow.perhaps_own) and not flow.made.sent and not state.begun:
        return False  # the reader may have been given it by a generator that began anew
    return state.free and state.kept and told.together is not Together.SHARED


def _effect(run: str, judged: Sequence[Flow], first: Flow, makers: Sequence[str], shared: bool) -> dict[str, Any]:
    writes = sorted({(flow.made.episode, flow.made.seq) for flow in judged if flow.made.seq})
    return {
        "from": list(makers) if shared else makers[0], "values": len(judged),
        "reads": len({flow.seq for flow in judged}), "canaries": sum(flow.canary for flow in judged),
        "form": first.form, "episodes": list(makers),
        "writes": [exchange_address(run, episode, seq) for episode, seq in writes[:SHOWN_WRITES]],
    }  # fmt: skip


def _assumptions(first: Flow, state: Baseline) -> tuple[str, ...]:
    if first.canary:
        return (f"the harness gave this canary to {first.made.episode} alone",)
    return (f"the value holds too much chance to be met twice; start states searched: {state.checked}",)


def _ruled_out(first: Flow, state: Baseline) -> tuple[str, ...]:
    own = f"own value: {first.episode} neither sent it before nor was given it by a write"
    if first.canary:
        return own, "a constant, a seeded generator: a canary is drawn for one episode"
    constant = "in no start state before it was made" if state.free else "not decided, no start state"
    return own, f"a constant: {constant}", "a seeded generator: no other episode was given it"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"
