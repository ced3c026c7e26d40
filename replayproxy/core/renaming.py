"""Which value of one run is which value of the other: injective, and the same in the whole episode.

A value of enough chance is renamed by its value alone, and is fresh: it is never seen on the other side, so no chain
`x -> y -> z` is admitted. A small id (`17`, `D-9f41`) is renamed only within what it names (`deal`, from the path
`/deals/17`, the member `deal_id`, the table `deals`); there chains are natural: 17 is 18, and 18 is 19.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from replayproxy.core.jsonvalue import tokens as pointer_tokens
from replayproxy.core.templates import is_parameter

_DEFINING = frozenset({"id", "ids", "_id", "uuid", "guid", "uid", "key", "number", "no", "ref", "code"})
_REFERRING = re.compile(r"(.+?)_(?:id|ids|uuid|guid|uid|key|no|number|ref)\Z")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GENERIC = frozenset({
    "", "body", "request", "response", "items", "item", "data", "result", "results", "rows", "row", "records", "record",
    "objects", "object", "list", "value", "values", "entries", "entry", "page", "content", "contents", "text", "state",
    "(json)", "structuredcontent", "embedded", "_embedded", "payload", "params", "arguments", "attributes", "api",
})  # fmt: skip
_DIGEST = re.compile(r"(?:^|_)(?:hash|digest|checksum|sha|sha1|sha256|sha512|md5|crc|crc32|blake2b?|fingerprint)\Z")


type Seeded = Callable[[str, str], bool]


class Renaming:
    """An injective partial map between the values of A and of B.

    `chains`: whether a value of A may be another value of B. `seeded` tells of two values whether one of them stood in
    the other run's state before anything happened: such a value is not fresh.
    """

    def __init__(self, *, chains: bool, seeded: Seeded | None = None) -> None:
        self.to: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self._chains = chains
        self._seeded = seeded

    def knows(self, a: str, b: str) -> bool:
        return self.to.get(a) == b

    def admit(self, a: str, b: str) -> bool:
        """Whether `a` is `b`, from now on if it was open. False: one of them is already something else."""
        if self.to.get(a) == b:
            return True
        if a in self.to or b in self.back:
            return False
        if not self._chains and (a in self.back or b in self.to):
            return False
        if self._seeded is not None and self._seeded(a, b):
            return False
        self.to[a], self.back[b] = b, a
        return True


@lru_cache(maxsize=4096)
def snake(name: str) -> str:
    """`dealId` and `deal-id` as `deal_id`."""
    return _HUMP.sub("_", name).replace("-", "_").lower()


@lru_cache(maxsize=4096)
def singular(word: str) -> str:
    """One name for `deals`, `deal` and `Deal`; English plurals only, and the same for both runs at any rate."""
    text = snake(word)
    if text.endswith("ies") and len(text) > 4:
        return text[:-3] + "y"
    if text.endswith(("ses", "xes", "ches", "shes")):
        return text[:-2]
    return text[:-1] if text.endswith("s") and not text.endswith("ss") and len(text) > 2 else text


@lru_cache(maxsize=4096)
def is_digest(member: str) -> bool:
    """Whether a member's name says that its value is made from content: such a value is never a fresh id."""
    return bool(_DIGEST.search(snake(member)))


def path_ids(path: str) -> Iterator[tuple[str, str]]:
    """What a path names: (`deal`, `17`) for `/deals/17/notes`."""
    before = ""
    for segment in path.split("/"):
        if before and segment and not is_parameter(before):
            yield singular(before), segment
        before = segment


def _literals(path: str) -> list[str]:
    """The words of a path, the last first."""
    return [singular(segment) for segment in reversed(path.split("/")) if segment and not is_parameter(segment)]


def owners(tokens: tuple[str | int, ...], path: str) -> tuple[tuple[str, ...], bool]:
    """What the id at a place of a body may name, the likeliest first, and whether that place introduces it.

    () when the place is none of an id. A place introduces an id when the thing itself stands there: `id` in a deal,
    `deal_id` in what `POST /deals` answers; a `deal_id` elsewhere only refers to it.
    """
    inside = tokens[3:] if tokens[0] == "state" else tokens  # state, table, key: what the row is, not what is in it
    words = [str(token) for token in inside if not isinstance(token, int)]
    if not words:
        return (), False
    name = snake(words[-1])
    nouns = _literals(path)
    if name in _DEFINING:
        inner = [singular(word) for word in reversed(words[:-1]) if word.lower() not in _GENERIC][:1]
        return tuple(dict.fromkeys((*inner, *nouns))), True
    if match := _REFERRING.match(name):
        kind = singular(match.group(1))
        return (kind,), kind in nouns[:1]
    return (), False


class Identifiers:
    """The values that serve as identifiers in one run: in paths, in Location, as keys of rows that changed.

    `rows` gives the (table, key) of those.
    """

    def __init__(self, rows: Callable[[], Iterable[tuple[str, str]]]) -> None:
        self._rows = rows
        self._asked = False
        self._seen: set[tuple[str, str]] = set()

    def add_path(self, path: str) -> None:
        self._seen.update(path_ids(path))

    def has(self, noun: str, value: str) -> bool:
        if (noun, value) not in self._seen and not self._asked:
            self._asked = True  # the rows cost a walk over what changed: only when a path did not tell
            self._seen.update((table_noun(table), row_id(key)) for table, key in self._rows())
        return (noun, value) in self._seen


def table_noun(table: str) -> str:
    """What a row of a table is: `helpdesk.tickets` holds a `ticket`."""
    return singular(re.split(r"[./:]", table.rstrip(":"))[-1])


def row_id(key: str) -> str:
    """A row's key as traffic would spell it: a JSON array or string of one part is that part."""
    match = re.fullmatch(r'\[?"?([^",\[\]]*)"?\]?', key)
    return match.group(1) if match else key


class Names:
    """Every renaming of one comparison."""

    def __init__(self, bindings: Mapping[str, str], seeded: Seeded | None = None) -> None:
        self.fresh = Renaming(chains=False, seeded=seeded)
        self.typed: dict[str, Renaming] = {}
        self.bound = dict(bindings)

    def of(self, noun: str) -> Renaming:
        return self.typed.setdefault(noun, Renaming(chains=True))

    def anywhere(self, a: str, b: str) -> bool:
        """Whether some noun knows this pair; for ids with a prefix, which are told apart from mere numbers."""
        return not a.isdigit() and any(renaming.knows(a, b) for renaming in self.typed.values())


def last_member(pointer: str) -> str:
    """The name that a pointer ends with, indices left out."""
    words = [token for token in pointer_tokens("/" + pointer) if not token.isdigit()]
    return words[-1] if words else ""
