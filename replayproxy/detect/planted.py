"""Canaries in traffic: whose each is, which exchange brought it to the environment, and who was shown it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from replayproxy.core import jsonvalue
from replayproxy.core.canaries import found_in
from replayproxy.core.canonical import View, field
from replayproxy.core.values import Exchange, Request, Response
from replayproxy.detect.flows import Flow, Made, shown_at
from replayproxy.detect.tracers import all_texts, decoded_pieces

MAX_SHOWN = 100_000
"""Sights kept of a whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A canary in an answer."""

    token: str
    episode: str
    seq: int
    lane: str
    pointer: str
    up_end: int


class Planted:
    """Fed with the exchanges of episodes in any order: whose a canary is may be said after it was seen."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._made: dict[str, Made] = {}
        self._known: dict[str, set[str]] = defaultdict(set)  # episode -> what it has sent, or was seen to be shown
        self._shown: list[_Shown] = []

    def plant(self, episode: str, canaries: Iterable[str]) -> None:
        self._owners.update(dict.fromkeys(canaries, episode))

    def is_one(self, value: str) -> bool:
        return value.lower() in self._owners

    def sent(self, episode: str, exchange: Exchange, body: View, *, worked: bool) -> None:
        """`worked`: it is a write that was taken."""
        said = [text for text, _ in all_texts(body)] if self._may_hold(exchange.request) else []
        for text in (*said, exchange.request.target.decode("utf-8", "replace")):
            for token in _canaries_in(text):
                self._known[episode].add(token)
                self._sow(token, exchange, episode, worked=worked)

    def _sow(self, token: str, exchange: Exchange, episode: str, *, worked: bool) -> None:
        """Keeps the first write that brought it to the environment; failing one, the first request that held it."""
        known = self._made.get(token)
        if self._owners.get(token) == episode and (known is None or (worked and not known.sent)):
            fwd = exchange.times.fwd or exchange.times.head
            self._made[token] = Made(episode=episode, seq=exchange.seq, fwd=fwd, own_id=False, sent=worked)

    def shown(self, episode: str, exchange: Exchange, body: View) -> None:
        """What an answer shows of them; each is told once in an episode."""
        if exchange.response is None or not self._may_hold(exchange.response):
            return
        for text, path in all_texts(body):
            for token in _canaries_in(text):
                if token not in self._known[episode] and len(self._shown) < MAX_SHOWN:
                    self._known[episode].add(token)
                    self._shown.append(
                        _Shown(
                            token=token, episode=episode, seq=exchange.seq, lane=exchange.lane,
                            pointer=jsonvalue.pointer(*path), up_end=shown_at(exchange),
                        )
                    )  # fmt: skip

    def _may_hold(self, message: Request | Response) -> bool:
        """Cheap for the many bodies that hold none: where nobody planted any, only what stands there plainly counts."""
        body = message.body
        if body is None or not body.size:
            return False
        if self._owners or body.inline is None or field(message.fields, b"content-encoding") is not None:
            return True
        return b"rpc-" in body.inline.lower()

    def flows(self) -> Iterator[Flow]:
        for one in self._shown:
            owner = self._owners.get(one.token)
            if owner is not None and owner != one.episode:
                unsent = Made(episode=owner, seq=0, fwd=0, own_id=False, sent=False)
                yield Flow(
                    value=one.token, made=self._made.get(one.token, unsent), episode=one.episode, seq=one.seq,
                    lane=one.lane, pointer=one.pointer, up_end=one.up_end, canary=True,
                )  # fmt: skip


def _canaries_in(text: str) -> Iterator[str]:
    """Those that stand in a text plainly, and those in what it holds in base64."""
    yield from found_in(text)
    if len(text) >= 24:
        for plain in decoded_pieces(text):
            yield from found_in(plain)
