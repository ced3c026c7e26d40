"""`[[rule]]` with `action = "extract"`: where an id stands, how it is decoded, what it fills. Refused here if wrong.

| source | value |
|---|---|
| `cookie = NAME`, `answer-cookie = NAME` | that cookie of the request, or of the answer; `*` in NAME is any text |
| `header = NAME`, `answer-header = NAME` | a header field of the request, of the answer |
| `baggage = KEY` | a member of the W3C `baggage` header |
| `path = N`, `path = "/x/{id}/*"` | the N-th segment, or `{id}`: the one parameter of that name |
| `query = NAME` | a query parameter, as it is spelt |
| `body = POINTER` (or `pointer`), `answer = POINTER` | a scalar in the JSON body of the request, of the answer |
| `api-key = HEADER` | the credential in that header; kept and shown as its keyed hash only |
| `connection = true`, `frame = POINTER` | the WebSocket connection, named by that field of the agent's messages |

`probe` and `end` need no source: where the rule applies is enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from replayproxy.core import decoding, jsonvalue
from replayproxy.core.names import why_not_an_env
from replayproxy.core.patterns import endpoint, glob, template_pattern
from replayproxy.core.redact_rules import SecretRule
from replayproxy.core.rules import Rule, parse_rules
from replayproxy.core.secretnames import is_secret_name, kind_of_header
from replayproxy.errors import WrongUsage

FILLS = ("episode", "alias", "lane", "task", "seed", "attempt", "group", "reward", "end", "probe")
FROM_REQUEST = ("cookie", "header", "baggage", "path", "query", "body", "api-key")
FROM_ANSWER = ("answer", "answer-cookie", "answer-header")
SOURCES = (*FROM_REQUEST, *FROM_ANSWER, "connection")
OF_BODY = frozenset({"body", "answer"})
MEMBERS = frozenset(
    {"name", "action", "at", "env", "reason", "until", "pointer", "frame", "decode", "fills", "space", "secret",
     "example", *SOURCES}
)  # fmt: skip
EXAMPLE = frozenset({"request", "headers", "body", "status", "answer", "answer-headers", "frame", "value"})

_SECRET_SOURCES = frozenset({"cookie", "answer-cookie", "api-key"})
_SECRET_NAMES = re.compile(
    r"authorization|cookie|token|secret|api-?key|password|session-?_?id|signature", re.IGNORECASE
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtractRule:
    """One rule, compiled. `source` "" has no value of its own ("true"). `wanted`: the name, the pointer or the number
    in the source; `pattern` matches names and paths. `space`: rules of one space speak of the same ids. `secret`: its
    value is shown as a keyed hash."""

    name: str
    at: re.Pattern[str]
    env: str | None
    source: str
    wanted: str | int
    pattern: re.Pattern[str] | None
    frame: str | None
    decode: tuple[decoding.Step, ...]
    fills: str
    space: str
    secret: bool
    until: date | None
    example: Mapping[str, Any] | None

    @property
    def of_request(self) -> bool:
        return self.source in FROM_REQUEST or not self.source

    @property
    def of_answer(self) -> bool:
        return self.source in FROM_ANSWER


def extract_rules(tables: Sequence[Mapping[str, Any]]) -> tuple[ExtractRule, ...]:
    """The extracting rules among the `[[rule]]` tables. Raises WrongUsage, naming the rule that cannot be meant."""
    ours = [table for table in tables if isinstance(table, Mapping) and table.get("action") == "extract"]
    rules = []
    for number, table in enumerate(ours, 1):
        name = table.get("name")
        if not isinstance(name, str) or not name.strip():
            raise WrongUsage(f"extract rule {number} has no name", hint='name = "session-cookie"')
        try:
            rules.append(_rule(name, table))
        except ValueError as wrong:
            raise WrongUsage(f"rule {name!r}: {wrong}") from None
    names = [rule.name for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WrongUsage(f"two rules are named {twice!r}", hint="give each rule a name of its own")
    return tuple(rules)


def _rule(name: str, table: Mapping[str, Any]) -> ExtractRule:
    if unknown := sorted(set(table) - MEMBERS):
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(MEMBERS))}")
    fills = table.get("fills")
    if fills not in FILLS:
        raise ValueError(f"fills is {fills!r}, and must be one of {', '.join(FILLS)}")
    source, wanted = _source(table)
    if not source and fills not in ("probe", "end"):
        raise ValueError(f"it names no source; exactly one of {', '.join(SOURCES)}")
    if fills == "lane" and source not in FROM_REQUEST:
        raise ValueError(f"a lane is found in the request, so that a replay can find it too; not by {source}")
    if source == "connection" and "frame" not in table and fills not in ("episode", "alias"):
        raise ValueError(f"a connection alone fills episode or alias; for {fills} add frame = POINTER")
    secret = _is_secret(table, source, wanted)
    if secret and fills not in ("alias", "end", "probe"):
        raise ValueError(
            f"{source} holds a secret, and {fills} would be stored and shown: fills alias, or secret = false"
        )
    return ExtractRule(
        name=name,
        at=endpoint(_text(table, "at", "")),
        env=_env(table),
        source=source,
        wanted=wanted,
        pattern=_pattern(source, wanted),
        frame=_frame(table, source),
        decode=_decode(table),
        fills=fills,
        space=_text(table, "space", name),
        secret=secret,
        until=_until(table),
        example=_example(table),
    )


def _source(table: Mapping[str, Any]) -> tuple[str, str | int]:
    given = {key: table[key] for key in SOURCES if key in table}
    if "pointer" in table:
        if "body" in given:
            raise ValueError("pointer and body are the same; give one")
        given["body"] = table["pointer"]
    if len(given) > 1:
        raise ValueError(f"it names {len(given)} sources, {' and '.join(given)}; exactly one is taken")
    if not given:
        return "", ""
    source, wanted = next(iter(given.items()))
    if source == "connection":
        if wanted is not True:
            raise ValueError("connection is true, or is left out")
        return source, ""
    if source == "path" and isinstance(wanted, int) and not isinstance(wanted, bool):
        if not 1 <= wanted <= 99:
            raise ValueError(f"path = {wanted}: segments count from 1")
        return source, wanted
    if not isinstance(wanted, str) or (not wanted and source not in OF_BODY):
        raise ValueError(f"{source} must be {'a number or ' if source == 'path' else ''}a text, not {wanted!r}")
    if source in OF_BODY:
        wanted = wanted.removeprefix("request/body").removeprefix("body")
        jsonvalue.tokens(wanted)
    elif source in ("header", "answer-header", "api-key") and not _TOKEN.fullmatch(wanted):
        raise ValueError(f"{source}: {wanted!r} is no name of a header field")
    return source, wanted


def _pattern(source: str, wanted: str | int) -> re.Pattern[str] | None:
    if source in ("cookie", "answer-cookie"):
        return glob(str(wanted))
    if source == "path" and isinstance(wanted, str):
        named = re.findall(r"\{([^}/]*)\}", wanted)
        if not wanted.startswith("/") or not named or (len(named) > 1 and named.count("id") != 1):
            raise ValueError(f"path {wanted!r} is no template with one parameter to take, as /{{id}}/tools/*")
        return re.compile(template_pattern(wanted, named[0] if len(named) == 1 else "id") + r"\Z", re.DOTALL)
    return None


def _frame(table: Mapping[str, Any], source: str) -> str | None:
    frame = table.get("frame")
    if frame is None:
        return None
    if source != "connection":
        raise ValueError("frame goes with connection = true")
    if not isinstance(frame, str):
        raise ValueError(f"frame must be a JSON pointer, not {frame!r}")
    jsonvalue.tokens(frame)
    return frame


def _decode(table: Mapping[str, Any]) -> tuple[decoding.Step, ...]:
    steps = table.get("decode", [])
    steps = [steps] if isinstance(steps, str) else steps
    if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
        raise ValueError(f"decode must be a list of steps, not {steps!r}")
    try:
        return decoding.compiled(steps)
    except ValueError as wrong:
        raise ValueError(f"decode: {wrong}") from None


def _env(table: Mapping[str, Any]) -> str | None:
    env = table.get("env")
    if env is not None and (not isinstance(env, str) or why_not_an_env(env)):
        raise ValueError(f"env is {env!r}, and no name of an environment")
    return env


def _text(table: Mapping[str, Any], member: str, default: str) -> str:
    value = table.get(member, default)
    if not isinstance(value, str):
        raise ValueError(f"{member} must be a text, not {value!r}")
    return value


def _until(table: Mapping[str, Any]) -> date | None:
    _text(table, "reason", "")
    checked: tuple[Rule, ...] = parse_rules([{"action": "extract", "until": table.get("until")}])
    return checked[0].until


def _is_secret(table: Mapping[str, Any], source: str, wanted: str | int) -> bool:
    """By default: what is named like a credential; a pointer is named by its last member. Nothing else in a path or in
    `baggage` could be kept out of the store, so there it is refused."""
    name = str(table.get("frame") if source == "connection" else wanted).rpartition("/")[2]
    named = bool(_SECRET_NAMES.search(name)) or is_secret_name(name)
    default = source in _SECRET_SOURCES or (named and source not in ("path", "baggage"))
    secret = table.get("secret", default)
    if not isinstance(secret, bool) or (source == "api-key" and not secret):
        raise ValueError("secret must be true or false, and an api-key is always secret")
    if secret and (source in ("path", "baggage") or (source == "connection" and not is_secret_name(name))):
        raise ValueError(
            f"what stands in {'a message' if source == 'connection' else source} is kept as it is, not secret"
        )
    return secret


def secrets_of(rules: Sequence[ExtractRule]) -> tuple[SecretRule, ...]:
    """What has to be kept out of the store too, where a secret id stands: places that are not known by their names."""
    found = []
    for rule in rules:
        place, what = _PLACES.get(rule.source, ""), str(rule.wanted)
        known = kind_of_header(what.encode()) if place == "header" else is_secret_name(what.rpartition("/")[2])
        if rule.secret and place and not known:
            found.append(SecretRule(name=rule.name, place=place, what=what, env=rule.env or ""))
    return tuple(found)


_PLACES = {
    "header": "header", "answer-header": "header", "api-key": "header", "query": "query", "body": "pointer",
    "answer": "pointer",
}  # fmt: skip


def _example(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    example = table.get("example")
    if example is None:
        return None
    if not isinstance(example, Mapping):
        raise ValueError('example must be a table with request and value, as { request = "GET /x", value = "x" }')
    if unknown := sorted(set(example) - EXAMPLE):
        raise ValueError(f"example: unknown key {unknown[0]!r}; known are {', '.join(sorted(EXAMPLE))}")
    for member, value in example.items():
        listed = member in ("headers", "answer-headers")
        fits = (
            isinstance(value, list | tuple) and all(isinstance(one, str) and ":" in one for one in value) if listed
            else isinstance(value, int) if member == "status" else isinstance(value, str)
        )  # fmt: skip
        if not fits:
            raise ValueError(f"example: {member} is {value!r}{', and must list "Name: value"' if listed else ''}")
    if missing := [member for member in ("request", "value") if member not in example]:
        raise ValueError(f"example lacks {missing[0]}")
    if len(example["request"].split(" ")) != 2:
        raise ValueError(f'example: request is {example["request"]!r}, and must be as "POST /step"')
    return example
