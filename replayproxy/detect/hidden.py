"""Bleeds through state that no snapshot shows: a cache, a session, a counter in the process.

Two episodes of a task and seed begin in equal states, ask the same, and are answered otherwise. By itself that is
nondeterminism. If the odd answer shows what an earlier episode on the instance had brought there, and the usual one
does not, then it is that episode's doing: one fault, told as a bleed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import unquote_plus

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind as BodyKind
from replayproxy.core.canonical import view
from replayproxy.core.effects import is_write
from replayproxy.core.times import parse_text
from replayproxy.core.tokens import bits
from replayproxy.core.values import Exchange, Trace
from replayproxy.detect.dirty import STRONG_BITS
from replayproxy.detect.finding import Finding, Grade, Kind, exchange_address, plain, witness
from replayproxy.detect.source import Source, Summary

LOOKED_BACK = 4
"""Episodes before it on its instance whose writes are looked through."""

type Place = tuple[str, int]
"""Episode and number of an exchange."""


class Hidden:
    """Retells findings. Reads the traces of the odd episodes and of a few before them again."""

    def __init__(self, source: Source, summaries: Mapping[str, Summary]) -> None:
        self._source = source
        self._summaries = summaries

    def retold(self, findings: Iterable[Finding], contradicted: Collection[Place]) -> Iterator[Finding]:
        """`contradicted`: answers that a sibling with an equal past was not given, although another finding explains
        them."""
        for finding in findings:
            if finding.kind is Kind.NONDETERMINISM and finding.sub == "answer":
                yield self._bleed(finding) or finding
            elif _only_suspected(finding) and any(place in contradicted for place in finding.covers):
                yield _outside(finding)
            else:
                yield finding

    def _bleed(self, finding: Finding) -> Finding | None:
        odd = next((w for w in finding.exchanges if w.role == "read"), None)
        usual = next((w for w in finding.exchanges if w.role == "witness"), None)
        summary = self._summaries.get(finding.episode)
        if odd is None or usual is None or summary is None:
            return None
        answer, other = self._exchange(odd.address), self._exchange(usual.address)
        if answer is None or other is None:
            return None
        foreign = _values(answer)
        for text in {*_values(other), *_sent(self._source.trace(summary.episode).exchanges, answer.seq)}:
            foreign.pop(text, None)
        for polluter in self._before(summary):
            found = _brought(self._source.trace(polluter.episode), foreign, self._reads)
            if sum(_weight(text) for text in found) >= STRONG_BITS:
                return self._told(finding, polluter, found, foreign, answer)
        return None

    def _exchange(self, address: str) -> Exchange | None:
        episode, _, seq = address.rpartition("/")[2].partition("#")
        if episode not in self._summaries or not seq.isdigit():
            return None
        trace = self._source.trace(self._summaries[episode].episode)
        return next((e for e in trace.exchanges if e.seq == int(seq)), None)

    def _reads(self, exchange: Exchange) -> bool:
        wiring = self._source.run.envs.get(exchange.env)
        return not is_write(exchange.request, wiring.reads if wiring else ())

    def _before(self, summary: Summary) -> list[Summary]:
        found = [
            other for other in self._summaries.values()
            if other.writes and other.span.before(summary.span) and other.span.shares(summary.span, summary.envs)
        ]  # fmt: skip
        return sorted(found, key=lambda other: -other.span.opened_wall)[:LOOKED_BACK]

    def _told(
        self, finding: Finding, polluter: Summary, found: Mapping[str, Exchange],
        foreign: Mapping[str, tuple[str, Any]], answer: Exchange,
    ) -> Finding:  # fmt: skip
        run, best = self._source.run.name, max(found, key=_weight)
        pointer, value = foreign[best]
        writes = {exchange.seq for exchange in found.values()}
        usual = next(w for w in finding.exchanges if w.role == "witness")
        return replace(
            finding, kind=Kind.STATE_BLEED, sub="hidden", pointer=pointer, values=(None, plain(value)),
            blame_reason="the start states are equal, and an earlier episode's words were in the answer",
            exchanges=(
                witness(run, polluter.name, found[best], "write", value=value),
                witness(run, finding.episode, answer, "read", pointer=pointer, value=value), usual,
            ),
            ruled_out=(
                *finding.ruled_out,
                f"own value: {finding.episode} had not sent it",
                f"a constant of the task: {usual.address} was not shown it",
            ),
            reproduce=finding.reproduce.replace(
                f"{run}/{finding.episode} ", f"{run}/{polluter.name} {run}/{finding.episode} "
            ).replace(" --repeat 5", ""),
            title=f"{finding.episode} was shown what {polluter.name} had left outside the snapshots",
            cannot_say="where it was kept (a cache, a session, the process); whether the reward depends on it",
            effect={
                "from": polluter.name, "episodes": [polluter.name], "values": len(found), "reads": 1,
                "writes": [exchange_address(run, polluter.name, seq) for seq in sorted(writes)],
                "bits": round(sum(_weight(text) for text in found)),
            },
            times={},
        )  # fmt: skip


def _only_suspected(finding: Finding) -> bool:
    return finding.kind is Kind.STATE_BLEED and finding.sub == "flow" and finding.grade is Grade.SUSPECTED


def _outside(finding: Finding) -> Finding:
    """A value that no state holds may be a constant; not if a sibling that began and asked alike was not shown it."""
    return replace(
        finding, sub="hidden", grade=Grade.PROVEN,
        ruled_out=(*finding.ruled_out, "a constant of the task: a sibling that began and asked alike was not shown it"),
        cannot_say="where it was kept (a cache, a session, the process); whether the reward depends on it",
    )  # fmt: skip


def _brought(trace: Trace, wanted: Mapping[str, object], reads: Callable[[Exchange], bool]) -> dict[str, Exchange]:
    """Of the wanted values those that an episode had sent with its writes, each with the first of them. What it had
    been shown before it sent it was there already: a row that is read and put back is not its own."""
    found: dict[str, Exchange] = {}
    shown: set[str] = set()
    for exchange in trace.exchanges:
        worked = exchange.response is not None and 200 <= exchange.response.status < 400
        if worked and not reads(exchange):
            for text in _said(exchange):
                if text in wanted and text not in shown:
                    found.setdefault(text, exchange)
        if exchange.response is not None:
            shown.update(_values(exchange))
    return found


def _sent(exchanges: Sequence[Exchange], until: int) -> set[str]:
    """What an episode had said itself before an exchange, and in it."""
    before = [exchange for exchange in exchanges if exchange.seq <= until]
    targets = {part for e in before for part in re.split("[/?=&]", e.request.target.decode("utf-8", "replace"))}
    return {text for exchange in before for text in _said(exchange)} | targets


def _said(exchange: Exchange) -> set[str]:
    """The values of a request's body."""
    seen = view(exchange.request.fields, exchange.request.body)
    if seen.kind is BodyKind.JSON:
        return {text for _, leaf in jsonvalue.leaves(seen.value) if (text := _telling(leaf)) is not None}
    if seen.kind is BodyKind.FORM:
        return {unquote_plus((value or b"").decode("utf-8", "replace")) for _, value in seen.value}
    return set()


def _values(exchange: Exchange) -> dict[str, tuple[str, Any]]:
    """Every value of an answer that says something, with its pointer, as the first of equals stands there."""
    assert exchange.response is not None
    seen = view(exchange.response.fields, exchange.response.body)
    found: dict[str, tuple[str, Any]] = {}
    if seen.kind is BodyKind.JSON:
        for path, leaf in jsonvalue.leaves(seen.value):
            text = _telling(leaf)
            if text is not None:
                found.setdefault(text, (jsonvalue.pointer(*path), leaf))
    return found


def _telling(leaf: Any) -> str | None:
    """The text of a value; None: it says nothing, or only what time it is."""
    if isinstance(leaf, bool) or leaf is None or isinstance(leaf, dict | list):
        return None
    if isinstance(leaf, int | Decimal):
        return jsonvalue.number_text(leaf)
    return None if len(leaf) < 2 or parse_text(leaf) is not None else str(leaf)


def _weight(text: str) -> float:
    """About two bits a character, more for what is drawn."""
    return max(bits(text), 2.0 * min(len(text), 64))
