"""Who made a value first: an index of values with so much chance in them that two makers cannot have met by accident.

An episode makes a value by a write: what the environment minted in the answer, or what the agent sent in the body.
A sight of it in another episode is a flow from one to the other, whichever of the two was opened first. Values that
were seen before anybody made them, that an episode itself sent or was given by a write of its own, or that several
episodes were given (a seeded generator, a constant) are no evidence. A canary has the maker that its mark names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, View, all_fields
from replayproxy.core.effects import is_write
from replayproxy.core.values import Exchange, Outcome, Run
from replayproxy.detect.flows import Flow, Made, shown_at
from replayproxy.detect.planted import Planted
from replayproxy.detect.tracers import Path, Token, in_head, key_of, of_text, tokens
from replayproxy.detect.views import Views

MAX_MADE = 300_000
MAX_SEEN = 600_000
"""Values kept of a whole run; what comes after is not looked at, and the check says so."""

MAX_WHOLE = 50_000
"""Ids kept in full, so that a part of one is known as such."""

MAX_FLOWS = 200
"""Flows kept of one episode."""

CUT = "cut short"
HEAD, TAIL = 12, -12
"""By so many characters a cut value is looked up; it counts only if the whole of it is the beginning or the end."""

_ID_NAMES = frozenset({"id", "uuid", "_id", "guid", "key"})
_SEQ_BITS, _EPISODE_BITS = 24, 24


@dataclass(slots=True)
class Own:
    """What an episode has sent or was given by its own writes, and what was counted of it already."""

    values: set[int] = field(default_factory=set)
    flowed: set[int] = field(default_factory=set)
    unanswered: bool = False  # it has sent a write and was not told what came of it


class Provenance:
    """Fed with the exchanges of episodes, best in the order in which these were opened; an episode may be given piece
    by piece (`more`). `evidence` may be asked at any time."""

    def __init__(self) -> None:
        self._made: dict[int, Made] = {}
        self._seen: dict[int, int] = {}
        self._whole: dict[int, list[str]] = {}
        self._common: set[int] = set()
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._own: dict[str, Own] = {}
        self._planted = Planted()
        self.flows: list[Flow] = []
        self.full = False
        self.repeats = False  # one value was given so to two episodes: a generator begins anew with each

    def plant(self, episode: str, canaries: Iterable[str]) -> None:
        """Says whose these canaries are."""
        self._planted.plant(episode, canaries)

    def add(
        self, run: Run, episode: str, exchanges: Sequence[Exchange], views: Views, *, judged: bool = True,
        more: bool = False,
    ) -> None:  # fmt: skip
        """`judged`: whether flows into this episode are collected; its own values are known either way. `more`: the
        episode goes on, and further exchanges of it follow."""
        own = self._own.pop(episode, None) or Own()
        if more:
            self._own[episode] = own
        if episode not in self._numbers:
            self._numbers[episode] = len(self._names)
            self._names.append(episode)
        for exchange in exchanges:
            if exchange.outcome is Outcome.LOCAL or exchange.times.fwd is None or exchange.is_probe:
                continue
            wiring = run.envs.get(exchange.env)
            writes = is_write(exchange.request, wiring.reads if wiring else ())
            self._request(episode, exchange, own, views, writes)
            own.unanswered |= writes and (exchange.response is None or exchange.response.status >= 500)
            if exchange.response is not None and exchange.response.status < 500:
                seen = views.of(exchange.response.fields, exchange.response.body)
                self._answer(episode, exchange, own, seen, writes, judged)
                if judged:
                    self._planted.shown(episode, exchange, seen)

    def _request(self, episode: str, exchange: Exchange, own: Own, views: Views, writes: bool) -> None:
        for text in in_head(exchange):
            self._send(hash(key_of(text)), episode, own)
        sent = views.of(exchange.request.fields, exchange.request.body)
        worked = exchange.response is not None and 200 <= exchange.response.status < 300
        for token in tokens(sent):
            value = hash(key_of(token.value))
            if writes and worked and value not in own.values and not token.form:
                self._make(value, _made(episode, exchange, (), sent=True), token.value)
            self._send(value, episode, own)
        self._planted.sent(episode, exchange, sent, worked=writes and worked)

    def _send(self, value: int, episode: str, own: Own) -> None:
        """What two episodes' agents say of themselves they had from elsewhere: a shared token, a constant."""
        if value not in own.values:
            own.values.add(value)
            made = self._made.get(value)
            if made is not None and made.episode != episode and value not in own.flowed:
                self._common.add(value)

    def _answer(self, episode: str, exchange: Exchange, own: Own, seen: View, writes: bool, judged: bool) -> None:
        assert exchange.response is not None
        envelope = seen.kind is Kind.JSON and isinstance(seen.value, dict) and len(seen.value) == 1
        found = list(tokens(seen))
        for location in all_fields(exchange.response.fields, b"location"):
            found += [Token(one.value, ("id",), one.form) for one in of_text(location.decode("utf-8", "replace"))]
        for token in found:
            value = hash(key_of(token.value))
            if value in own.values:
                continue
            made = self._made.get(value)
            # What another agent had sent cannot have been minted here, by whatever kind of request it is shown.
            foreign = made is not None and made.episode != episode and (made.sent or not writes)
            if foreign and made is not None:
                if judged:
                    self._flow(token.value, value, made, episode, exchange, token, own)
            elif writes and token.form:
                own.values.add(value)
            elif writes:
                own.values.add(value)
                path = token.path[1:] if envelope and len(token.path) == 2 else token.path
                self._make(value, _made(episode, exchange, path, sent=False), token.value)
            elif made is None:
                self._see(value, episode, exchange, judged)
                if judged and (whole := self._part_of(key_of(token.value))) is not None:
                    self._cut(whole, episode, exchange, token, own)

    def _cut(self, whole: str, episode: str, exchange: Exchange, token: Token, own: Own) -> None:
        value = hash(whole)
        made = self._made.get(value)
        if made is not None and made.episode != episode and value not in own.values:
            self._flow(whole, value, made, episode, exchange, token._replace(form=CUT), own)

    def _flow(
        self, text: str, value: int, made: Made, episode: str, exchange: Exchange, token: Token, own: Own
    ) -> None:
        if value in own.flowed or len(own.flowed) >= MAX_FLOWS:
            return
        own.flowed.add(value)
        end = shown_at(exchange)
        if end < made.fwd:
            self._common.add(value)  # read before it was made: it was there already
            return
        self.flows.append(
            Flow(
                value=text, made=made, episode=episode, seq=exchange.seq, lane=exchange.lane,
                pointer=jsonvalue.pointer(*token.path), up_end=end, form=token.form, perhaps_own=own.unanswered,
            )
        )  # fmt: skip

    # What was made, and what was seen of which no maker is known

    def _make(self, value: int, made: Made, text: str) -> None:
        known = self._made.get(value)
        if known is not None:
            if known.episode != made.episode:
                self.repeats |= not made.sent and not known.sent
                self._common.add(value)  # it was given to two episodes: seeded, or a constant
            return
        if value in self._seen and not self._seen_since(value, made, text):
            return
        if len(self._made) >= MAX_MADE:
            self.full = True
            return
        self._made[value] = made
        if made.own_id and len(self._whole) < MAX_WHOLE:
            self._keep_whole(key_of(text))

    def _seen_since(self, value: int, made: Made, text: str) -> bool:
        """Whether all sights of the value came after it was made, though their episode was read before: then the
        first of them is a flow."""
        packed = self._seen[value]
        end = packed >> (_SEQ_BITS + _EPISODE_BITS)
        reader = self._names[(packed >> _SEQ_BITS) & ((1 << _EPISODE_BITS) - 1)]
        if end < made.fwd:
            return False
        if reader != made.episode:
            seq = packed & ((1 << _SEQ_BITS) - 1)
            self.flows.append(
                Flow(value=text, made=made, episode=reader, seq=seq, lane="", pointer=None, up_end=end)
            )  # fmt: skip
        return True

    def _see(self, value: int, episode: str, exchange: Exchange, judged: bool) -> None:
        """Notes the earliest sight: what was seen before it was made is not its maker's."""
        end = shown_at(exchange) if judged else 0
        place = self._numbers[episode] << _SEQ_BITS | min(exchange.seq, (1 << _SEQ_BITS) - 1)
        packed = end << (_SEQ_BITS + _EPISODE_BITS) | place
        known = self._seen.get(value)
        if known is not None:
            if packed < known:
                self._seen[value] = packed
        elif len(self._seen) < MAX_SEEN:
            self._seen[value] = packed
        else:
            self.full = True

    def _keep_whole(self, key: str) -> None:
        if len(key) > 16 and not key.lower().startswith("eyj"):  # the beginning of every JSON web token is one
            for end in (key[:HEAD], key[TAIL:]):
                self._whole.setdefault(hash(end), []).append(key)

    def _part_of(self, key: str) -> str | None:
        """The id that the value is the beginning or the end of; None: of none, or of several."""
        if len(key) < HEAD:
            return None
        near = {*self._whole.get(hash(key[:HEAD]), ()), *self._whole.get(hash(key[TAIL:]), ())}
        found = [one for one in near if len(one) > len(key) and (one.startswith(key) or one.endswith(key))]
        return found[0] if len(found) == 1 else None

    def evidence(self) -> Iterator[Flow]:
        """The flows of canaries, and those whose value only one episode was given."""
        yield from self._planted.flows()
        for flow in self.flows:
            value = hash(key_of(flow.value))
            if value not in self._common and not self._planted.is_one(flow.value):
                yield flow


def _made(episode: str, exchange: Exchange, path: Path, *, sent: bool) -> Made:
    named = len(path) == 1 and str(path[0]).lower() in _ID_NAMES
    fwd = exchange.times.fwd if exchange.times.fwd is not None else exchange.times.head
    return Made(episode=episode, seq=exchange.seq, fwd=fwd, own_id=named and not sent, sent=sent)
