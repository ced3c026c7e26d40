"""URL templates learned from traffic, where a segment's form does not say what it is: `/boards/roadmap`, `/u/ada`.

By these rules, the first that fits, for each segment of each path:

1. its form says that it names one of many (`core.templates`);
2. **provenance**: an earlier answer gave it, as the last segment of a Location or as a member that names a thing (`id`,
   `deal_id`, `key`, `slug`, ..);
3. **many of one kind**: it is one of at least 10 words in its place, and of a fifth of all calls that came by there,
   and what follows it looks like what follows the others (half of the shapes in common). A word in 5 % of the calls,
   and twice as frequent as words there are, stays one: `/users/me` beside `/users/{id}`.

Only for grouping what is shown: keys of matching, rules and fingerprints go by form alone, so that what was learned
from one recording never changes how another is matched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from replayproxy.core import jsonvalue
from replayproxy.core.canonical import Kind, split_target, view
from replayproxy.core.canonical import field as header
from replayproxy.core.templates import is_parameter
from replayproxy.core.values import Exchange, Response

VERSION = 1
"""Grows when the same traffic may give other templates."""

MANY = 10
SHARE = 0.2
LITERAL = 0.05
ALIKE = 0.5
PARAMETER = "{id}"

_NAMES = re.compile(r"(?:^|_)(?:id|key|slug|uuid|ref|code|handle|login|username)$|(?:Id|Key|Slug|Uuid|Ref)$")


@dataclass(slots=True)
class _Node:
    calls: int = 0
    children: dict[str, _Node] = field(default_factory=dict)
    many: bool = False  # its children that are no words of their own are one parameter
    word_from: float = 0.0  # so many calls make a child a word of its own

    def shapes(self) -> frozenset[str]:
        """What follows, one segment far; the end of a path is a shape too."""
        here = {PARAMETER if is_parameter(name) else name for name in self.children}
        ends = self.calls > sum(child.calls for child in self.children.values())
        return frozenset(here | ({""} if ends else set()))


class Learned:
    """The templates of some traffic, for its own requests. Linear in its segments, and in the bytes of its answers."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._root = _Node()
        self._given: set[str] = set()
        words: set[str] = set()
        for exchange in (known := list(exchanges)):
            segments = _segments(exchange.request.target)
            self._add(segments)
            words.update(segments)
        # Only what stands in a path, and whose form does not say it anyway, is ever asked for.
        wanted = frozenset(word.encode() for word in words if word and not is_parameter(word))
        for exchange in known if wanted else ():
            self._given.update(_produced(exchange, wanted))
        todo = [self._root]
        while todo:
            node = todo.pop()
            usual = median(child.calls for child in node.children.values()) if node.children else 0
            node.word_from = max(LITERAL * node.calls, 2 * usual)
            node.many = _is_many(node, self._given)
            todo += node.children.values()

    def _add(self, segments: list[str]) -> None:
        node = self._root
        node.calls += 1
        for segment in segments:
            node = node.children.setdefault(segment, _Node())
            node.calls += 1

    def template(self, target: bytes) -> str:
        """The path with each parameter as `{id}`; the query is left out."""
        node: _Node | None = self._root
        out = []
        for depth, segment in enumerate(_segments(target)):
            out.append(PARAMETER if self._is_parameter(node, segment, depth) else segment)
            node = node.children.get(segment) if node is not None else None
        return "/" + "/".join(out)

    def _is_parameter(self, node: _Node | None, segment: str, depth: int) -> bool:
        if not segment:
            return False
        # The first segment names a collection: a login `admin` says nothing about `/admin/..`.
        if is_parameter(segment) or (depth > 0 and segment in self._given):
            return True
        return node is not None and node.many and not _is_word(node, segment)


def _segments(target: bytes) -> list[str]:
    path, _ = split_target(target)
    return path.decode("utf-8", "backslashreplace").removeprefix("/").split("/")


def _is_word(node: _Node, segment: str) -> bool:
    child = node.children.get(segment)
    return child is not None and child.calls >= node.word_from


def _is_many(node: _Node, given: set[str]) -> bool:
    words = {
        name: child for name, child in node.children.items()
        if name and not is_parameter(name) and name not in given and not _is_word(node, name)
    }  # fmt: skip
    if len(words) < max(MANY, ceil(SHARE * node.calls)):
        return False
    shapes = Counter(shape for child in words.values() for shape in child.shapes())
    common = {shape for shape, count in shapes.items() if 2 * count >= len(words)}
    alike = sum(_jaccard(child.shapes(), common) >= ALIKE for child in words.values())
    return bool(common) and 2 * alike >= len(words)


def _jaccard(a: frozenset[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a | b else 1.0


def _produced(exchange: Exchange, wanted: frozenset[bytes]) -> Iterator[str]:
    """What an answer names things by: at least those of the names that are wanted."""
    response = exchange.response
    if response is None or response.status >= 400:
        return
    location = header(response.fields, b"location")
    if location is not None and (last := _segments(location.partition(b"?")[0])[-1]):
        yield last
    if not _may_hold(response, wanted):
        return
    seen = view(response.fields, response.body)
    if seen.kind is not Kind.JSON:
        return
    for path, leaf in jsonvalue.leaves(seen.value):
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        if isinstance(leaf, str) and 0 < len(leaf) <= 128 and "/" not in leaf and _NAMES.search(name):
            yield leaf


def _may_hold(response: Response, wanted: frozenset[bytes]) -> bool:
    """False: the answer is surely no JSON document with one of these texts in it."""
    data = response.body.inline if response.body else None
    if not data:
        return False
    if b"\\" in data or header(response.fields, b"content-encoding"):
        return True  # a text may be spelled in another way
    return not wanted.isdisjoint(data.split(b'"')[1::2])  # without escapes every second piece is a whole text
