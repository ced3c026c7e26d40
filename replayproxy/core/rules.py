"""The rules of a config file: what a user declares about one place of one kind of request, and why.

A rule never hides anything silently: every use is counted under its name, an expired one no longer applies, and one
that matched nothing is named, so that a rule that has outlived its reason is seen.

| form of `pointer` | place |
|---|---|
| `/amount` | in the body, of the request and of the answer |
| `body/amount`, `request/body/amount` | in the answer's body, in the request's |
| `header/etag` or `header.etag`, `request/header/cookie` | a header field |
| `query/fields` or `query.fields` | a query parameter |
| `path`, `status`, `outcome` | the request's path, the answer's status, how the exchange ended |
| `state/TABLE/KEY/column` | a row of a snapshot |

In a replay, which has requests only, `body/..` and `header/..` are the request's place: so a miss names it.

A `*` stands for one token, `**` for any number; a pointer names all that lies under it too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from replayproxy.errors import WrongUsage

ACTIONS = ("ignore", "mask", "order-insensitive", "bind", "repeat", "extract")
COMPARING = frozenset({"ignore", "mask", "order-insensitive", "bind"})
"""The actions that a comparison obeys; the others speak to recording and replay."""

_HEADS = frozenset(
    ["body", "header", "cookie", "query", "path", "status", "outcome", "state", "episode", "websocket", "trailer",
     "trailers", "interim", "informational", "request", "response", "*", "**"]
)  # fmt: skip
"""What the first token of a place may be."""

_MEMBERS = {"name", "at", "pointer", "action", "reason", "until"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One `[[rule]]`. `at` is `METHOD TEMPLATE` (`*` for any method or, at the end, any rest); "" is everywhere.
    `pointer` "" is the whole exchange. `until` is the last day on which it applies."""

    name: str
    at: str = ""
    pointer: str = ""
    action: str = "ignore"
    reason: str = ""
    until: date | None = None

    def applies(self, today: date | None) -> bool:
        """Whether it has not expired. `today` None: nobody knows the day, so it has not."""
        return self.until is None or today is None or today <= self.until


def parse_rules(config: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules of a config (its `rule` tables, or these alone). Raises WrongUsage for one that cannot be meant."""
    tables = config.get("rule", ()) if isinstance(config, Mapping) else config
    if not isinstance(tables, Sequence) or isinstance(tables, str):
        raise WrongUsage("rule is no list of tables", hint="write [[rule]]")
    rules = tuple(_parse(table, number) for number, table in enumerate(tables, 1))
    names = [rule.name for rule in rules]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WrongUsage(f"two rules are named {twice!r}", hint="give each rule a name of its own")
    return rules


def _parse(table: Any, number: int) -> Rule:
    where = f"rule {number}"
    if not isinstance(table, Mapping):
        raise WrongUsage(f"{where} is no table", hint="write [[rule]]")
    action = table.get("action")
    if action not in ACTIONS:
        raise WrongUsage(f"{where}: action is {action!r}", hint=f"one of {', '.join(ACTIONS)}")
    if action not in COMPARING and action != "repeat":
        return Rule(name=str(table.get("name") or where), at=str(table.get("at", "")),
                    pointer=str(table.get("pointer", "")), action=action, reason=str(table.get("reason", "")),
                    until=_until(table.get("until"), where))  # fmt: skip
    if unknown := sorted(set(table) - _MEMBERS):
        raise WrongUsage(f"{where}: unknown key {unknown[0]!r}", hint=f"known are {', '.join(sorted(_MEMBERS))}")
    texts = {member: table.get(member, "") for member in ("name", "at", "pointer", "reason")}
    if wrong := next((member for member, text in texts.items() if not isinstance(text, str)), None):
        raise WrongUsage(f"{where}: {wrong} is no text")
    if not texts["reason"].strip() and action != "repeat":
        raise WrongUsage(f"{where} gives no reason", hint='add reason = "why this may differ"')
    if not texts["pointer"] and action != "repeat":
        raise WrongUsage(f"{where} names no pointer", hint='pointer = "/amount", "header/etag", "query/fields", ..')
    _check_at(texts["at"].strip(), where)
    _check_pointer(texts["pointer"], where)
    return Rule(
        name=texts["name"] or f"{texts['at'] or '*'} {texts['pointer'] or action}",
        at=texts["at"],
        pointer=texts["pointer"],
        action=action,
        reason=texts["reason"].strip(),
        until=_until(table.get("until"), where),
    )


def _check_at(at: str, where: str) -> None:
    """Raises WrongUsage for what can be no request's line."""
    method, space, path = at.partition(" ")
    path = path.strip() if space else at if at.startswith("/") else ""
    if space and path[:1] not in ("/", "*", "{"):
        raise WrongUsage(f"{where}: at is {at!r}, whose path does not begin with /", hint=f'at = "{method} /{path}"')
    if not path and not re.fullmatch(r"[A-Z*-]*", at):
        raise WrongUsage(f"{where}: at is {at!r}, neither a method nor a path", hint=f'at = "/{at}" or "POST /{at}"')


def _check_pointer(pointer: str, where: str) -> None:
    """Raises WrongUsage for a place that nothing has, or that no rule may let differ."""
    if not pointer or pointer.startswith("/"):
        return
    head = re.split(r"[./]", pointer.removeprefix("request/").removeprefix("request."), maxsplit=1)[0]
    if head in ("method", "env"):
        raise WrongUsage(f"{where}: pointer is {pointer!r}, and no rule lets that differ", hint="record it anew")
    if head not in _HEADS:
        raise WrongUsage(
            f"{where}: pointer is {pointer!r}, which is no place",
            hint=f'"/{pointer}" or "body/{pointer}" in a body, "header/..", "query/..", "path/0"',
        )


def _until(value: Any, where: str) -> date | None:
    """TOML gives a date; a text is read as YYYY-MM-DD, or YYYY-MM for the whole of a month."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}", value):
            year, month = int(value[:4]), int(value[5:])
            after = date(year + month // 12, month % 12 + 1, 1)
            return date.fromordinal(after.toordinal() - 1)
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise WrongUsage(f"{where}: until is {value!r}", hint="a date, as 2027-03-01") from None


class RuleBook:
    """The rules of one comparison and how often each was used."""

    def __init__(self, rules: Sequence[Rule], today: date | None = None) -> None:
        comparing = [rule for rule in rules if rule.action in COMPARING]
        self.expired = tuple(rule for rule in comparing if not rule.applies(today))
        self._rules = [(_at(rule.at), _places(rule.pointer), rule) for rule in comparing if rule.applies(today)]
        self.uses = {rule.name: 0 for _, _, rule in self._rules}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find(self, template: str, pointer: str, actions: frozenset[str]) -> Rule | None:
        """The first rule with one of these actions for a place. `template` is `METHOD /path/{id}`."""
        if not self._rules:
            return None
        tokens = tuple(pointer.split("/"))
        for at, places, rule in self._rules:
            if rule.action in actions and at.match(template) and any(_under(place, tokens) for place in places):
                return rule
        return None

    def used(self, rule: Rule) -> None:
        self.uses[rule.name] += 1

    def unused(self) -> tuple[str, ...]:
        return tuple(name for name, count in self.uses.items() if not count)


def compiled(rule: Rule) -> tuple[re.Pattern[str], tuple[tuple[str, ...], ...]]:
    """What a rule's `at` matches (`METHOD /path`), and every place, as tokens, that its pointer means."""
    return _at(rule.at), _places(rule.pointer)


def is_under(place: tuple[str, ...], tokens: tuple[str, ...]) -> bool:
    """Whether `tokens` is what `place` names, or lies under it."""
    return _under(place, tokens)


def _at(at: str) -> re.Pattern[str]:
    """`GET /deals/{id}` with `*` for any run of characters; a template's `{..}` are one and the same."""
    text = at.strip() or "*"
    if " " not in text and text != "*":
        text = f"* {text}" if text.startswith("/") else f"{text} *"
    pattern = "".join(".*" if part == "*" else "[^/]+" if part[:1] == "{" else re.escape(part)
                      for part in re.split(r"(\*|\{[^}]*\})", text))  # fmt: skip
    return re.compile(pattern + r"\Z")


def _places(pointer: str) -> tuple[tuple[str, ...], ...]:
    """Every place, as tokens, that a pointer of a rule means."""
    if pointer.startswith("/"):
        rest = tuple(pointer[1:].split("/"))
        return (("body", *rest), ("request", "body", *rest))
    text = pointer.removeprefix("request/").removeprefix("request.")
    asked = text != pointer
    head, separator, rest_text = text.partition(".") if _dotted(text) else text.partition("/")
    rest = tuple(rest_text.split("/")) if separator else ()
    if head in ("header", "cookie"):
        rest = tuple(token.lower() if index == 0 else token for index, token in enumerate(rest))
    if asked or head in ("query", "path", "method"):
        return (("request", head, *rest),)
    return ((head, *rest),)


def _dotted(text: str) -> bool:
    return bool(re.match(r"(header|query|body)\.", text))


def _under(place: tuple[str, ...], tokens: tuple[str, ...]) -> bool:
    """Whether `tokens` is what `place` names, or lies under it."""
    if not place:
        return True
    if place[0] == "**":
        return any(_under(place[1:], tokens[skip:]) for skip in range(len(tokens) + 1))
    return bool(tokens) and place[0] in ("*", tokens[0]) and _under(place[1:], tokens[1:])
