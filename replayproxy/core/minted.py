"""Which values of a recording its agent minted: a replay's agent mints others, and is to be understood all the same.

A value is minted when it has the form and the place of one, was first seen in a request, and stood in no earlier
answer nor anywhere else. The form: a uuid or ulid under any name; another token of chance only under a name that says
so (`call_id`, `nonce`, `idempotency_key`), for an account number or a file in base64 is chance by its look, too. The
place: what only the environment can have named is no agent's, though first seen in a request (it may stand in the
agent's prompt): a path segment, but of PUT; a name of a collection of the environment; and a name that refers to a
thing (`account_id`, `to`), for a payment to another account is another payment - unless the request creates that very
thing. Whatever is not minted stays in the key as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import unquote

from replayproxy.core.canonical import VIEW_LIMIT, decoded, split_target
from replayproxy.core.effects import SAFE_METHODS, json_rpc_calls
from replayproxy.core.nonces import CREDENTIALS, VALUES, Shape, credential_form
from replayproxy.core.opaque import collection_of, singular
from replayproxy.core.rewrite import subject
from replayproxy.core.values import Body, Exchange, Request, Response

LONGEST = 64
"""A longer token is content, or was made from it."""

_ID = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?=[0-9]*[a-f])[0-9a-f]{32}|[0-7][0-9A-HJKMNP-TV-Z]{25}"
)
"""uuid, with dashes or without, and ulid."""

_DIGEST = re.compile(r"(?:sha\d*|md5)?[:-]?(?:[0-9a-fA-F]{40}|[0-9a-fA-F]{56}|[0-9a-fA-F]{64})")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_FRESH_NAMES = frozenset({"id", "ids", "uid", "uuid", "guid", "nonce", "key", "ref", "reference", "token",
                          "idempotency", "correlation", "trace", "span", "request", "call", "cb"})  # fmt: skip
_ID_WORDS = frozenset({"id", "ids", "uid", "uuid", "guid"})
_OWN_THINGS = _FRESH_NAMES | {"tool", "client", "message", "msg", "event", "invocation", "operation", "op", "step",
                              "turn", "batch", "upload", "draft", "local", "temp", "tmp", "x"}  # fmt: skip
"""What an agent gives ids of its own to: `call_id` is its word, `account_id` is another's."""

_ROLES = frozenset({"to", "from", "account", "user", "customer", "owner", "sender", "recipient", "receiver", "payee",
                    "payer", "target", "source", "assignee", "parent", "member", "tenant"})  # fmt: skip
_DERIVED_NAMES = frozenset({"hash", "digest", "checksum", "sha", "md", "etag", "signature", "sig", "hmac", "crc"})
_CREATES = frozenset({"create", "add", "new", "make", "insert", "post", "register", "open", "start", "submit", "send"})
_FEW = 16  # so many are looked for one by one; more by a set of the answer's tokens
_PLAIN = re.compile(rb"[0-9A-Za-z_-]{8,}")


class Origins:
    """Finds out, exchange by exchange in their order, which values the agent minted."""

    def __init__(self, elsewhere: Callable[[], Iterable[bytes]] = tuple, *, foreign: bool = False) -> None:
        """`elsewhere` gives the texts in which a value may have been before: names, meta, the environment's state at
        the start. It is asked only where there is a value to look for. `foreign`: the credentials' tokens were
        made with another key than ours, so that none of them can come again."""
        self._elsewhere = elsewhere
        self._foreign = foreign
        self._first: dict[str, int] = {}
        self._introduced: dict[str, tuple[str, str | None]] = {}
        self._paths: dict[str, set[bytes]] = {}

    def request(self, at: int, env: str, request: Request, shape: Shape | None) -> None:
        """Notes the values of the request at that place of the script."""
        self._paths.setdefault(env, set()).add(split_target(request.target)[0])
        for slot in shape.slots if shape else ():
            if slot.value not in self._first:
                self._first[slot.value] = at
                if _can_introduce(request, slot.place, slot.value):
                    self._introduced[slot.value] = (env, _named_for(request, slot.place))

    def minted(self, answers: Sequence[Exchange], load: Callable[[Body], Body]) -> Mapping[str, str]:
        """The scope of every minted value. `answers` are the exchanges by place; `load` gives a body's bytes."""
        scopes = {value: CREDENTIALS for value in self._first if self._foreign and credential_form(value)}
        collections = {env: _words(paths) for env, paths in self._paths.items()}
        candidates = {
            value for value, (env, owner) in self._introduced.items()
            if value not in scopes and owner not in collections[env] and credential_form(value) is None
        }  # fmt: skip
        wanted = _Wanted(candidates)
        for text in self._elsewhere() if wanted else ():
            wanted.drop(wanted.among(text))
        last = max((self._first[value] for value in candidates), default=0)
        for at, exchange in enumerate(answers[:last]):
            if not wanted:
                break
            wanted.drop({one for one in _told(exchange.response, wanted, load) if self._first[one] > at})
        return scopes | dict.fromkeys(wanted.left(), VALUES)


def _words(paths: Iterable[bytes]) -> set[str]:
    """The collections that paths name."""
    parts = {part for path in paths for part in path.split(b"/") if part}
    return {singular(unquote(part.decode("latin-1"))) for part in parts}


def _can_introduce(request: Request, place: str, value: str) -> bool:
    """Whether the agent may have made the value up: by its form, and by where it stands."""
    if place.startswith("header/"):
        return False
    if place.startswith("path/"):
        return request.method == b"PUT" and bool(_ID.fullmatch(value))
    words = {word.lower() for word in _WORDS.findall(_name(place))}
    if words & _DERIVED_NAMES or len(value) > LONGEST or value.isdigit() or _DIGEST.fullmatch(value):
        return False
    if _refers(words) and _named_for(request, place) is not None:
        return False
    return bool(_ID.fullmatch(value) or words & _FRESH_NAMES)


def _refers(words: set[str]) -> bool:
    """Whether a name of these words says of which thing the value is the id, or in which part a thing acts."""
    return bool(words & _ROLES or (words & _ID_WORDS and not words <= _OWN_THINGS))


def _name(place: str) -> str:
    """The member, parameter or form field that holds the value."""
    tokens = tuple(part for part in re.split(r"[/#.]", place)[1:] if part)
    return next((token for token in reversed(tokens) if not token.isdigit()), "")


def _named_for(request: Request, place: str) -> str | None:
    """The collection whose member the place's name says it is; None: it says so of none, or of what is created."""
    if place.startswith("path/"):
        return None
    about = subject(request)
    name = _name(place)
    owner = collection_of((name,), about) or singular(name)
    return None if owner == about and _creates(request) else owner


def _creates(request: Request) -> bool:
    calls = json_rpc_calls(request)
    if calls is None:
        return request.method not in SAFE_METHODS and request.method not in (b"PATCH", b"DELETE")
    names = [str((call.get("params") or {}).get("name", "")) for call in calls if isinstance(call.get("params"), dict)]
    words = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    return bool(words & _CREATES)


class _Wanted:
    """Values that are looked for in many texts."""

    def __init__(self, values: set[str]) -> None:
        # A value that is one token is found by a look-up of the text's tokens: of thousands of values, each would cost
        # a walk through every text.
        self._tokens = {value for value in values if _PLAIN.fullmatch(value.encode())} if len(values) > _FEW else set()
        self._others = values - self._tokens

    def __bool__(self) -> bool:
        return bool(self._tokens or self._others)

    def among(self, text: bytes) -> set[str]:
        found = {value for value in self._others if value.encode() in text}
        if self._tokens:
            tokens = (match.group().decode() for match in _PLAIN.finditer(text))
            found |= {token for token in tokens if token in self._tokens}
        return found

    def drop(self, values: set[str]) -> None:
        self._tokens -= values
        self._others -= values

    def left(self) -> set[str]:
        return self._tokens | self._others


def _told(response: Response | None, wanted: _Wanted, load: Callable[[Body], Body]) -> set[str]:
    """Those of the wanted values that an answer holds, in a field or in its body."""
    if response is None:
        return set()
    texts = [value for _, value in response.fields]
    body = response.body
    if body is not None and body.size and body.size <= VIEW_LIMIT:
        data = (body if body.inline is not None else load(body)).inline or b""
        texts.append(decoded(response.fields, data) or data)
    return wanted.among(b"\n".join(texts))
