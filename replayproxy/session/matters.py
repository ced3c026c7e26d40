"""The exchanges under way of a recording with rules: what passes of each is shown to the rules, until it is decided."""

from __future__ import annotations

from collections.abc import Callable

from replayproxy.core.belonging import at_odds
from replayproxy.core.identity import Attribution, Claims
from replayproxy.core.values import Exchange, Fields, Message, Request
from replayproxy.proxy.scribe import BodySink, TalkSink, Ticket
from replayproxy.session.identities import Identities
from replayproxy.session.matter import UNNAMED, Matter, Overheard
from replayproxy.session.tally import Tally

type Order = tuple[int, int]


class Matters:
    """`begin` is told of each exchange once, as soon as it is known whose it is, and gives the attribution with the
    episode as the store knows it. Without `identities` there is no matter, and everything here does nothing."""

    def __init__(
        self, identities: Identities | None, begin: Callable[[Order, Attribution, int], Attribution], tally: Tally
    ) -> None:
        self.identities = identities
        self._begin, self._tally = begin, tally
        self._all: dict[Order, Matter] = {}
        if identities is not None:
            tally.rules, tally.rule_names = identities.uses, identities.extractors.names
            tally.rules_expired = identities.extractors.expired

    def wanted(self, claims: Claims) -> bool:
        """Whether there is anything to find out: rules to apply, or marks that contradict each other."""
        return self.identities is not None and (bool(self.identities.extractors) or at_odds(claims))

    def of(self, ticket: Ticket) -> Matter | None:
        return self._all.get(ticket.order)

    def forget(self, ticket: Ticket) -> None:
        self._all.pop(ticket.order, None)

    def attribution(self, ticket: Ticket) -> Attribution:
        """Whose a ticket is, as far as it is known by now."""
        matter = self._all.get(ticket.order)
        return ticket.attribution if matter is None else matter.attribution or UNNAMED

    def arrived(
        self,
        order: Order,
        claims: Claims,
        *,
        env: str,
        method: bytes,
        target: bytes,
        fields: Fields,
        at: int,
        wall: int,
    ) -> Matter:
        assert self.identities is not None
        matter = self._all[order] = self.identities.arrived(
            claims, env=env, method=method, target=target, fields=fields, at=at, wall=wall
        )
        self._known(order, matter)
        return matter

    def _known(self, order: Order, matter: Matter) -> None:
        if matter.attribution is not None and not matter.begun:
            matter.begun = True
            matter.attribution = self._begin(order, matter.attribution, matter.at)

    def sink(self, ticket: Ticket, sink: BodySink, *, answer: bool) -> BodySink:
        """The sink of a body, watched where a rule asks for it."""
        matter = self._all.get(ticket.order)
        return sink if matter is None or self.identities is None else self.identities.peek(matter, sink, answer=answer)

    def talk(self, ticket: Ticket, sink: TalkSink) -> TalkSink:
        """The sink of a conversation, the same way."""
        matter = self._all.get(ticket.order)
        if matter is None or not matter.asks.frames:
            return sink

        def heard(message: Message) -> None:
            assert self.identities is not None
            self.identities.overheard(matter, message)
            self._known(ticket.order, matter)

        return Overheard(sink, heard)

    def request(self, ticket: Ticket, request: Request) -> None:
        """The request has ended, unless it is streamed on: then its end shows at the answer's."""
        matter = self._all.get(ticket.order)
        if matter is not None and self.identities is not None and request.body is not None:
            self.identities.request_whole(matter, request.fields)
            self._known(ticket.order, matter)

    def told(self, ticket: Ticket, exchange: Exchange) -> Matter | None:
        """The answer is whole: what it says of whose it is counts too, and everything is decided."""
        matter = self._all.get(ticket.order)
        if matter is not None and self.identities is not None:
            self.identities.answer_whole(matter, exchange)
            self._known(ticket.order, matter)
            self._tally.rules_too_large = self.identities.too_large
        return matter
