"""A violated validator: one name for two bodies, so that a cache, or a conditional request, gives the wrong one.

Answers 200 to GET of one URI are compared where requester, media type, coding, and the headers that Vary names are
equal, within one episode and between resets. An ETag that changes though the body does not is no fault (RFC 9110), and
neither is what only a clock or a fresh id makes differ under a name that may be weak.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from replayproxy.core.canonical import Kind as BodyKind
from replayproxy.core.canonical import all_fields
from replayproxy.core.clock import Clock, span_of
from replayproxy.core.comparison import plain
from replayproxy.core.difference import Difference
from replayproxy.core.differences import between
from replayproxy.core.explain import Explainer
from replayproxy.core.pairing import kind_of
from replayproxy.core.renaming import Identifiers
from replayproxy.core.rules import Rule, RuleBook
from replayproxy.core.secrets import Secrets
from replayproxy.core.validators import Validators, uri_of
from replayproxy.core.values import Exchange
from replayproxy.core.where import Where
from replayproxy.detect.finding import Blame, Finding, Grade, Kind, Witness, witness
from replayproxy.detect.representations import Spells, form, from_cache, modified_of, shows, subject, tag_of
from replayproxy.detect.views import Views

MOST_LOOKED_INTO = 16
"""Pairs of one endpoint in one episode that are compared."""

MOST_KEPT = 4
"""Of those, the violations that are kept until it is known which another finding explains."""

SUB = "validator"

_BESIDE = frozenset({
    b"accept-encoding", b"traceparent", b"tracestate", b"baggage", b"x-request-id", b"x-correlation-id", b"user-agent",
    b"connection", b"content-length", b"content-type", b"cache-control", b"pragma", b"if-none-match",
    b"if-modified-since", b"host", b"idempotency-key", b"x-amzn-trace-id", b"b3", b"te",
})  # fmt: skip
"""Request headers that choose no representation; the coding of the answers is compared by itself."""


@dataclass(frozen=True, slots=True)
class Name:
    """The validator that two answers share. `text`: as people write it."""

    text: str
    strong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """Two bodies under one name. `doubt`: what keeps it from being proven; "" nothing does."""

    name: Name
    first: Exchange
    second: Exchange
    at: Difference
    doubt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The same, without the bodies."""

    name: Name
    env: str
    endpoint: str
    episode: str
    places: tuple[int, int]
    witnesses: tuple[Witness, Witness]
    pointer: str
    doubt: str


def name_of(exchange: Exchange) -> Name | None:
    """The validator of a representation; Last-Modified only where there is no ETag. None: it bears none that counts,
    or two of its kind could not be compared."""
    if not shows(exchange):
        return None
    assert exchange.response is not None
    fields = exchange.response.fields
    if all_fields(fields, b"etag"):
        told = tag_of(fields)
        return Name(f"ETag {told}", not told.weak) if told is not None else None
    changed = modified_of(fields)
    return Name(f"Last-Modified {changed}", False) if changed is not None else None


def group_of(exchange: Exchange) -> Hashable | None:
    """Equal for answers that must have one body if they have one validator."""
    kind = form(exchange)
    return (subject(exchange), kind) if kind is not None else None


def differing(
    first: Exchange, second: Exchange, *, views: Views, rules: Sequence[Rule] = (), today: date | None = None
) -> Differing | None:  # fmt: skip
    """What is wrong with two answers; None: nothing, or they are not to be compared."""
    name = name_of(first)
    if name is None or name != name_of(second) or group_of(first) is None or group_of(first) != group_of(second):
        return None
    keys = [_body(exchange, views) for exchange in (first, second)]
    if None in keys or keys[0] == keys[1]:
        return None
    left, explained = _differences(first, second, RuleBook(rules, today))
    if left:
        return Differing(name=name, first=first, second=second, at=left[0], doubt=_doubt(name, first, second))
    if explained and name.strong:
        doubt = "whether anybody depends on it: only times, fresh ids or the order of items differ"
        return Differing(name=name, first=first, second=second, at=explained[0], doubt=doubt)
    return None


def _body(exchange: Exchange, views: Views) -> bytes | None:
    """Equal for equal bodies; None: it is in a coding that cannot be undone, which may write one body in two ways."""
    assert exchange.response is not None
    fields = exchange.response.fields
    seen = views.of(fields, exchange.response.body)
    coded = b"".join(all_fields(fields, b"content-encoding")).strip().lower() not in (b"", b"identity")
    return None if seen.kind is BodyKind.MISSING or (coded and seen.kind is BodyKind.BYTES) else seen.key


def _differences(first: Exchange, second: Exchange, book: RuleBook) -> tuple[list[Difference], list[Difference]]:
    """Those of the bodies that nothing explains, and those that a clock or a fresh id does. A configured rule takes a
    difference out; another order of the same items counts as explained."""
    explainer = Explainer(
        clock=Clock(()), rules=book, validators=Validators(()), bindings={}, authorities=((), ()),
        identifiers=(Identifiers(tuple), Identifiers(tuple)),
    )  # fmt: skip
    where = Where(
        template=kind_of(first.request), path=first.request.target.decode("latin-1").partition("?")[0],
        uri=uri_of(first), a=span_of(first), b=span_of(second),
    )  # fmt: skip
    left, explained = [], []
    for difference in between(first, second, explainer.soften):
        if not str(difference.tokens[0]).startswith("body"):
            continue
        classes = explainer.explain(difference, where)
        if classes is None and difference.kind != "order":
            left.append(difference)
        elif not any(name.startswith("rule:") for name in classes or ()):
            explained.append(difference)
    return left, explained


def _doubt(name: Name, first: Exchange, second: Exchange) -> str:
    pair = (first, second)
    if name.text.startswith("Last-Modified"):
        return "whether anybody goes by Last-Modified alone"
    if not name.strong:
        return "whether the change matters: a weak ETag may stay when it does not"
    if any(from_cache(exchange) for exchange in pair):
        return "whether the origin or a cache gave one of them its ETag: Age, Cache-Status or X-Cache tell of a cache"
    if any(all_fields(exchange.request.fields, b"range") for exchange in pair):
        return "whether each is whole: a range was asked for"
    other = [field.decode("latin-1") for field in _asked_otherwise(first, second)]
    if other:
        return f"whether they may differ: asked with another {', '.join(other)}, which Vary does not name"
    return ""


def _asked_otherwise(first: Exchange, second: Exchange) -> list[bytes]:
    by_name: list[dict[bytes, list[bytes]]] = []
    for exchange in (first, second):
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for name, value in exchange.request.fields:
            if name.lower() not in _BESIDE:
                found[name.lower()].append(value)
        by_name.append(found)
    a, b = by_name
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


@dataclass(slots=True)
class ValidatorPairs:
    """Collects over a run; what it keeps of an episode holds no body."""

    rules: Sequence[Rule] = ()
    today: date | None = None
    _broken: dict[tuple[str, str, str], list[Broken]] = field(default_factory=dict)
    _looked: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def look(
        self, run: str, episode: str, exchanges: Iterable[Exchange], spells: Spells, views: Views, *, alone: bool = True
    ) -> None:  # fmt: skip
        """`alone`: no other episode began on the instance meanwhile."""
        last: dict[Hashable, Exchange] = {}
        for exchange in exchanges:
            name = None if exchange.is_probe else name_of(exchange)
            group, spell = (group_of(exchange), spells.of(exchange)) if name is not None else (None, None)
            if name is None or group is None or spell is None:
                continue
            before = last.get((spell, group, name))
            last[spell, group, name] = exchange
            if before is not None and _body(before, views) != _body(exchange, views):
                self._compare(run, episode, before, exchange, views, alone=alone)

    def _compare(
        self, run: str, episode: str, first: Exchange, second: Exchange, views: Views, *, alone: bool
    ) -> None:  # fmt: skip
        key = episode, first.env, kind_of(first.request)
        kept = self._broken.get(key, ())
        self._looked[key] = self._looked.get(key, 0) + 1
        if self._looked[key] > MOST_LOOKED_INTO or len(kept) >= MOST_KEPT:
            return
        found = differing(first, second, views=views, rules=self.rules, today=self.today)
        if found is None:
            return
        hide = Secrets((first, second)).hide
        told = [
            witness(run, episode, exchange, role, pointer=found.at.pointer, value=plain(hide(found.at, value)))
            for exchange, role, value in ((first, "witness", found.at.a), (second, "read", found.at.b))
        ]
        shared = "" if alone else "another episode began on the instance meanwhile, whose reset may have put it back"
        self._broken.setdefault(key, []).append(
            Broken(
                name=found.name, env=first.env, endpoint=key[2], episode=episode, places=(first.seq, second.seq),
                witnesses=(told[0], told[1]), pointer=found.at.pointer, doubt=found.doubt or shared,
            )
        )  # fmt: skip

    def findings(self, run: str, covered: frozenset[tuple[str, int]]) -> Iterator[Finding]:
        """One for each endpoint of an episode. `covered`: answers that another finding explains."""
        for (episode, _, _), broken in self._broken.items():
            left = [one for one in broken if not covered.intersection((episode, seq) for seq in one.places)]
            if left:
                # What is proven is told before what is only suspected.
                yield _finding(run, min(left, key=lambda one: (one.doubt != "", one.places)), left)


def _finding(run: str, one: Broken, all_of_them: Sequence[Broken]) -> Finding:
    first, second = one.witnesses
    uris = len({w.target for broken in all_of_them for w in broken.witnesses})
    return Finding(
        kind=Kind.NONDETERMINISM, sub=SUB, grade=Grade.SUSPECTED if one.doubt else Grade.PROVEN,
        blame=Blame.ENVIRONMENT, blame_reason="it gave two bodies one name",
        run=run, episode=one.episode, lane=second.lane, pointer=one.pointer, values=(first.value, second.value),
        exchanges=one.witnesses, snapshots=(),
        assumptions=(
            "a strong ETag names one body of its URI for good, as RFC 9110 has it" if one.name.strong
            else f"{one.name.text.partition(' ')[0]} changes when the body does so in a way that matters",
            "nothing but the resets that were recorded put the environment back in between",
        ),
        ruled_out=(
            "another requester: the credentials are equal",
            "another representation: target, Content-Type, Content-Encoding and what Vary names are equal",
            "another spelling: the bodies are compared decoded, members in any order",
            "a reset in between: none was recorded",
            *(() if one.doubt else ("an answer out of a cache: no Age, no hit in Cache-Status or X-Cache",)),
        ),
        reproduce=f"replayproxy redrive {run}/{one.episode} --env {one.env}=URL --repeat 5",
        title=f"{second.target} had two bodies under {one.name.text}: who kept the first is told that it is current",
        cannot_say="; ".join(filter(None, (one.doubt, "whether anybody kept the first and took it for the second"))),
        effect={"validator": one.name.text} | ({"uris": uris} if uris > 1 else {}),
        count=len(all_of_them), at=second.fwd or 0,
    )  # fmt: skip
