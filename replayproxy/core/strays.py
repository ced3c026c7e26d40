"""Values that kept the other run's name: equal in both runs at a place where the renaming says they must differ.

Equal places are no differences, so nobody looks at them; but when `U1` of A is `U2` in B, an answer of B that still
says `U1` is how state of one run shows in the next. Looked for only once something was renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replayproxy.core import jsonvalue
from replayproxy.core.bodies import TREES, content
from replayproxy.core.canonical import decoded
from replayproxy.core.difference import Difference
from replayproxy.core.renaming import Names, Renaming, owners
from replayproxy.core.tokens import tokens_among
from replayproxy.core.treediff import ABSENT
from replayproxy.core.values import Body, Exchange, Fields

type Found = tuple[int, Difference]


def strays(
    pairs: Sequence[tuple[Exchange, Exchange]], names: Names, known: Mapping[int, Sequence[Difference]]
) -> Iterator[Found]:
    """(index of the pair, the difference). `known`: the differences that were found anyway are not told twice."""
    fresh = names.fresh
    small = {noun: renaming for noun, renaming in names.typed.items() if renaming.to}
    for index, (a, b) in enumerate(pairs) if fresh.to or small else ():
        told = "\n".join(repr((d.a, d.b)) for d in known.get(index, ()))
        if fresh.to:
            yield from ((index, d) for d in _by_value(a, b, fresh, told))
        if small:
            yield from ((index, d) for d in _by_noun(a, b, small))


def _by_value(a: Exchange, b: Exchange, fresh: Renaming, told: str) -> Iterator[Difference]:
    for side, other, mapping, here in ((b, a, fresh.to, "B"), (a, b, fresh.back, "A")):
        for token in dict.fromkeys(_tokens(side, mapping)):
            if token in told:
                continue
            tokens, mine, theirs = _place(side, other, token)
            note = f"elsewhere it is another value in {here}"
            left, right = (theirs, mine) if here == "B" else (mine, theirs)
            yield Difference(tokens=tokens, kind="renaming", a=left, b=right, note=note)


def _tokens(exchange: Exchange, wanted: Mapping[str, str]) -> Iterator[str]:
    texts = [exchange.request.target.decode("latin-1"), _body_text(exchange.request.fields, exchange.request.body)]
    if exchange.response is not None:
        texts += [_body_text(exchange.response.fields, exchange.response.body)]
        texts += [value.decode("latin-1") for name, value in exchange.response.fields if name.lower() == b"location"]
    for text in texts:
        if text:
            yield from tokens_among(text, wanted)


def _body_text(fields: Fields, body: Body | None) -> str:
    if body is None or not body.inline:
        return ""
    return (decoded(fields, body.inline) or b"").decode("latin-1")


def _place(side: Exchange, other: Exchange, token: str) -> tuple[tuple[str | int, ...], Any, Any]:
    """Where a token stands: its pointer, what stands there, and what the other run has at the same pointer."""
    if side.response is not None and other.response is not None:
        mine, theirs = (content(e.response.fields, e.response.body) for e in (side, other) if e.response)
        if mine.kind in TREES:
            for at, leaf in jsonvalue.leaves(mine.value):
                if isinstance(leaf, str) and token in leaf:
                    return ("body", *at), leaf, _at(theirs.value, at)
    if token in side.request.target.decode("latin-1"):
        return ("request", "path"), side.request.target.decode("latin-1"), other.request.target.decode("latin-1")
    if token in _body_text(side.request.fields, side.request.body):
        return ("request", "body"), token, token
    return ("body",), token, token


def _at(value: Any, at: tuple[str | int, ...]) -> Any:
    try:
        return jsonvalue.resolve(value, jsonvalue.pointer(*at))
    except KeyError:
        return ABSENT


def _by_noun(a: Exchange, b: Exchange, small: Mapping[str, Renaming]) -> Iterator[Difference]:
    """Small ids: only where both runs have the same one at the same place of an answer."""
    if a.response is None or b.response is None:
        return
    mine, theirs = (content(e.response.fields, e.response.body) for e in (b, a) if e.response)
    if mine.kind != "json" or theirs.kind != "json":
        return
    path = a.request.target.decode("latin-1").partition("?")[0]
    for at, leaf in jsonvalue.leaves(mine.value):
        if not at or isinstance(leaf, bool) or not isinstance(leaf, str | int):
            continue
        nouns, _ = owners(("body", *at), path)
        for noun in nouns:
            renaming = small.get(noun)
            if renaming and (str(leaf) in renaming.to or str(leaf) in renaming.back):
                if _at(theirs.value, at) == leaf:
                    note = f"elsewhere this {noun} is another in B"
                    yield Difference(tokens=("body", *at), kind="renaming", a=leaf, b=leaf, note=note)
                break
