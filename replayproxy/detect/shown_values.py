"""Values of one episode in the answers to another: what the flows between episodes come to as findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import view
from replayproxy.core.values import Exchange, Trace
from replayproxy.detect.baselines import Baselines
from replayproxy.detect.finding import Finding, Witness, snapshot_address, witness
from replayproxy.detect.flow_findings import Together, Told, finding
from replayproxy.detect.flows import Flow
from replayproxy.detect.source import Source, Summary
from replayproxy.detect.states import States
from replayproxy.detect.tracers import key_of, tokens

MAX_NAMED = 20
"""Values of one finding whose exchanges are looked up."""


class ShownValues:
    """The findings of flows, one episode after the other."""

    def __init__(self, source: Source, states: States, summaries: Mapping[str, Summary], *, anew: bool = False) -> None:
        self._anew = anew
        self._source = source
        self._summaries = summaries
        self._baselines = Baselines(states, summaries)

    def findings(self, reader: Summary, trace: Trace, flows: Sequence[Flow]) -> Iterator[Finding]:
        """One for each episode that the values came from; of those that ran beside it on its instance one for all."""
        by_seq = {exchange.seq: exchange for exchange in trace.exchanges}
        groups: dict[tuple[Together, str], list[Flow]] = defaultdict(list)
        for flow in flows:
            exchange = by_seq.get(flow.seq)
            if exchange is not None:
                together = self._together(reader, self._summaries[flow.made.episode], exchange.env)
                maker = "" if together is Together.SHARED else flow.made.episode
                groups[together, maker].append(_located(flow, exchange))
        for (together, _), values in groups.items():
            told = Told(
                flows=values, together=together,
                baselines={flow: self._baselines.of(flow, reader) for flow in values},
                witnesses=lambda flow: self._witnesses(reader, flow, by_seq),
                starts=tuple(
                    snapshot_address(self._source.run.name, reader.name, s) for s in reader.starts.values() if s.root
                ),
                lanes=len({exchange.lane for exchange in trace.exchanges}), anew=self._anew,
            )  # fmt: skip
            found = finding(self._source.run.name, told)
            if found is not None:
                yield found

    def _together(self, reader: Summary, maker: Summary, env: str) -> Together:
        """Whether the two ran at the same time, and then whether on one instance with one state for both."""
        if not maker.span.overlaps(reader.span):
            return Together.NO
        own = [s.scope == "episode" for s in reader.starts.values() if s.env in (None, env)]
        apart = not maker.span.shares(reader.span, [env]) or (bool(own) and all(own))
        return Together.APART if apart else Together.SHARED

    def _witnesses(self, reader: Summary, flow: Flow, by_seq: Mapping[int, Exchange]) -> list[Witness]:
        run, maker = self._source.run.name, self._summaries[flow.made.episode]
        made = next((e for e in self._source.trace(maker.episode).exchanges if e.seq == flow.made.seq), None)
        read = by_seq.get(flow.seq)
        return [
            witness(run, name, exchange, role, pointer=pointer, value=flow.value)
            for name, exchange, role, pointer in (
                (maker.name, made, "write", ""), (reader.name, read, "read", flow.pointer or ""),
            )
            if exchange is not None
        ]  # fmt: skip


def _located(flow: Flow, exchange: Exchange) -> Flow:
    """The flow with the place where the value stands, which is not kept for what was seen before it was made."""
    if flow.pointer is not None or exchange.response is None:
        return flow
    wanted = key_of(flow.value)
    for token in tokens(view(exchange.response.fields, exchange.response.body)):
        if key_of(token.value) == wanted:
            return replace(flow, pointer=jsonvalue.pointer(*token.path), lane=exchange.lane, form=token.form)
    return replace(flow, pointer="", lane=exchange.lane)
