"""Redaction: an exchange as it is stored, matched and shown, with a token in the place of each secret.

Rules of this file: spans are replaced in the raw bytes and nothing is serialised anew, so that what was not a secret
stays byte-equal; lengths are made right for the tokens; the same function runs on what is recorded and on the live
request of a replay; what is redacted already comes back as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from replayproxy.core import redact_text as texts
from replayproxy.core.canonical import VIEW_LIMIT
from replayproxy.core.known import KEPT, Known
from replayproxy.core.redact_body import GIVEN_UP, Shape, Stretch, redacted_body
from replayproxy.core.redact_edit import Edit, applied, merged
from replayproxy.core.redact_rules import Rules, SecretRule
from replayproxy.core.redact_token import TOKEN, Minter
from replayproxy.core.redact_url import in_list, in_target
from replayproxy.core.secretnames import is_secret_name, kind_of_header, may_be_named, may_name
from replayproxy.core.values import Body, Exchange, Fields, Message, Request, Response, WebSocket, changed

__all__ = ["GIVEN_UP", "TOKEN", "Known", "Redactor", "SecretRule"]

_NO_RULES = Rules(())
_NOTHING = Known()
_LOOKS = 2000
"""Secrets of one message in which known ones are looked for: with more, minutes would go by."""
_ESCAPE = 8
"""Bytes at the end of a window that may be the beginning of an escape, and are then left out of a secret."""
_NOT_GROWN: Mapping[bytes, int] = {}


class Redactor:
    """Made once for a store's key and the user's rules. `key` None (--keep-secrets): all passes as it is.

    `known` is what an episode has shown; it is looked for, and what is found is added. Without it nothing outlasts
    the call.
    """

    def __init__(self, key: bytes | None, rules: Sequence[SecretRule] = ()) -> None:
        self._minter = Minter(key) if key is not None else None
        self.key_id = self._minter.key_id if self._minter else ""
        self.rules = tuple(rules)
        self._anywhere = Rules([rule for rule in rules if not rule.at and not rule.env]) if rules else _NO_RULES

    @property
    def keeps(self) -> bool:
        """Whether secrets are kept as they are."""
        return self._minter is None

    def token(self, value: bytes) -> bytes:
        """Keyed and stable; a token given in comes back as it is."""
        return value if self._minter is None else self._minter.token(value)

    # -- messages --------------------------------------------------------------------------------------------------

    def request(self, request: Request, known: Known | None = None, *, env: str = "") -> Request:
        if self._minter is None:
            return request
        known = known or Known()
        rules = self._rules(env, request.method, request.target)
        found = self._finder(known, of_answer=False)
        fields = self._named_fields(request.fields, found, rules)
        target = self._target(request.target, found, known, rules)
        body = self._body(request.body, request.fields, found, known, rules)
        fields = self._known_fields(fields, found, known, rules)
        trailers = self._fields(request.trailers, found, known, rules)
        if known.forms:
            target = known.replaced(target)
        if body is not request.body:
            fields = _resized(fields, request.body, body)
        if (fields, target, trailers) == (request.fields, request.target, request.trailers) and body is request.body:
            return request
        return changed(request, fields=fields, target=target, body=body, trailers=trailers)

    def response(self, response: Response, request: Request, known: Known | None = None, *, env: str = "") -> Response:
        """`request` may be the redacted one: it says which rules hold."""
        if self._minter is None:
            return response
        known = known or Known()
        rules = self._rules(env, request.method, request.target)
        found = self._finder(known, of_answer=True)
        interims = response.informational and tuple(
            (status, self._fields(f, found, known, rules)) for status, f in response.informational
        )
        fields = self._named_fields(response.fields, found, rules)
        body = self._body(response.body, response.fields, found, known, rules)
        fields = self._known_fields(fields, found, known, rules)
        trailers = self._fields(response.trailers, found, known, rules)
        if body is not response.body:
            fields = _resized(fields, response.body, body)
        reason = response.reason
        if rules.patterns or not texts.is_dull(reason) or known.in_text(reason):
            reason = applied(reason, self._scan(reason, found, known, rules, None))
        same = (fields, trailers, interims) == (response.fields, response.trailers, response.informational)
        if same and body is response.body and reason == response.reason:
            return response
        return changed(response, reason=reason, fields=fields, body=body, trailers=trailers, informational=interims)

    def message(self, message: Message, known: Known | None = None) -> Message:
        """A WebSocket message; a close reason goes through `text`."""
        if self._minter is None:
            return message
        payload = self.data(message.payload, known, of_answer=not message.from_agent)
        return message if payload == message.payload else replace(message, payload=payload)

    def exchange(
        self, exchange: Exchange, known: Known | None = None, grown: Mapping[bytes, int] = _NOT_GROWN
    ) -> Exchange:
        """All of it: the error and the notes, too. `grown`: by how much a body that came through `stretch` grew."""
        if self._minter is None:
            return exchange
        known = known or Known()
        request = self.request(exchange.request, known, env=exchange.env)
        answer = exchange.response
        response = answer and self.response(answer, exchange.request, known, env=exchange.env)
        if grown:
            request = _fitted(request, grown)
            response = response and _fitted(response, grown)
        made: dict[str, Any] = {}
        if request is not exchange.request:
            made["request"] = request
        if response is not answer:
            made["response"] = response
            if exchange.cut_at is not None and answer and answer.body and response and response.body:
                made["cut_at"] = exchange.cut_at + response.body.size - answer.body.size
        if exchange.websocket is not None:
            made["websocket"] = self._conversation(exchange.websocket, known)
        for name in ("error", "upstream"):
            value = getattr(exchange, name)
            if value and (said := self.text(value, known)) != value:
                made[name] = said
        notes = tuple([self.text(note, known) for note in exchange.notes])
        if _lost(exchange.request.body, request.body) or (answer and response and _lost(answer.body, response.body)):
            notes += (GIVEN_UP,)
        unseen = sorted({coding for message in (exchange.request, answer) if message and (coding := _unseen(message))})
        notes += tuple(note for coding in unseen if (note := f"not looked into for secrets: {coding}") not in notes)
        if notes != exchange.notes:
            made["notes"] = notes
        return changed(exchange, **made) if made else exchange

    def _conversation(self, talk: WebSocket, known: Known) -> WebSocket:
        messages = tuple(self.message(message, known) for message in talk.messages)
        return replace(talk, messages=messages, close_reason=self.text(talk.close_reason, known))

    # -- texts and values ------------------------------------------------------------------------------------------

    def data(self, data: bytes, known: Known | None = None, *, of_answer: bool = False) -> bytes:
        """Bytes of a text that has no head."""
        if self._minter is None:
            return data
        known = known or Known()
        if not self._anywhere.patterns and texts.is_dull(data) and not known.in_text(data):
            return data
        return applied(data, self._scan(data, self._finder(known, of_answer=of_answer), known, self._anywhere, None))

    def text(self, text: str, known: Known | None = None) -> str:
        """Logs, errors, lines that are shown."""
        if self._minter is None or not text:
            return text
        raw = text.encode("utf-8", "surrogateescape")
        made = self.data(raw, known)
        return text if made == raw else made.decode("utf-8", "surrogateescape")

    def value(self, value: Any, known: Known | None = None, name: str = "") -> Any:
        """A JSON value: strings under a secret name, and secrets inside other strings."""
        if self._minter is None:
            return value
        if isinstance(value, str):
            if is_secret_name(name) and value:
                found = self._finder(known or Known(), of_answer=False)
                raw = texts.by_name(name, value.encode("utf-8", "surrogateescape"), found)
                return raw.decode("utf-8", "surrogateescape")
            dull = not (known or self.rules or "://" in value or "\\u00" in value or may_be_named(value))
            return value if dull else self.text(value, known)
        if isinstance(value, Mapping):
            return {key: self.value(one, known, str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, known, name) for one in value]
        return value

    def stretch(self, fields: Fields, known: Known | None = None, *, of_answer: bool) -> Stretch:
        """For a body too large to hold. Only what is known when it begins is looked for in it."""
        at_hand = known.copy() if known else Known()
        self._named_fields(fields, self._finder(at_hand, of_answer=of_answer), self._anywhere)
        found, shape = self._finder(at_hand, of_answer=of_answer), Shape.of(fields)

        def scan(data: bytes) -> list[Edit]:
            before = at_hand.copy()
            edits = self._scan(data, found, at_hand, self._anywhere, shape)
            if edits and edits[-1].end > len(data) - _ESCAPE:
                # It may go on behind this window, and is then found as a whole: its beginning is no secret of its own.
                at_hand.become(before)
            return edits

        return Stretch(shape, scan)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _rules(self, env: str, method: bytes, target: bytes) -> Rules:
        if not self.rules:
            return _NO_RULES
        return Rules([rule for rule in self.rules if rule.fits(env, method, target)])

    def _finder(self, known: Known, *, of_answer: bool) -> texts.Found:
        assert self._minter is not None
        mint, left, looks = self._minter.token, KEPT, _LOOKS

        def found(value: bytes, sure: bool) -> bytes:
            nonlocal left, looks
            # What is made from a known secret must get one token, whether that secret stands in it or its token.
            token = mint(known.replaced(value) if known.forms and looks else value)
            looks = max(looks - 1, 0)
            # A list of thousands would push out one by one what the episode has shown, and take minutes to.
            if left and known.learn(value, token, of_answer=of_answer, sure=sure):
                left -= 1
            return token

        return found

    def _scan(self, data: bytes, found: texts.Found, known: Known, rules: Rules, shape: Shape | None) -> list[Edit]:
        edits: list[Edit] = []
        if shape is not None and shape.special:
            if shape.form:
                edits += texts.in_pairs(data, found)
                edits += rules.in_pairs(data, 0, found)
            if shape.boundary:
                edits += texts.in_parts(data, shape.boundary, found)
            if shape.json:
                edits += rules.in_json(data, found)
        if rules.patterns:
            edits += rules.in_text(data, found)
        edits += texts.in_text(data, found, known)
        return merged(edits, data, self.token) if edits else edits

    def _body(self, body: Body | None, fields: Fields, found: texts.Found, known: Known, rules: Rules) -> Body | None:
        if body is None or not body.inline or body.size > VIEW_LIMIT:
            return body
        shape = Shape.of(fields)
        return redacted_body(body, shape, lambda data: self._scan(data, found, known, rules, shape))

    def _target(self, target: bytes, found: texts.Found, known: Known, rules: Rules) -> bytes:
        at = target.find(b"?") + 1
        if not (at or rules.patterns or b";" in target or b"://" in target or b"%" in target or b'"' in target):
            return target
        edits = list(rules.in_text(target, found)) if rules.patterns else []
        if at:
            edits += texts.in_pairs(target, found, at)
            edits += rules.in_pairs(target, at, found)
        edits += in_target(target, found)
        if b"://" in target or b"%" in target or b'"' in target:
            edits += texts.in_text(target, found, _NOTHING)
        return applied(target, merged(edits, target, self.token)) if edits else target

    def _named_fields(self, fields: Fields, found: texts.Found, rules: Rules) -> Fields:
        """The fields that hold a credential by their name."""
        if not rules.headers and not any([kind_of_header(name) for name, _ in fields]):  # noqa: C419 - a generator costs more
            return fields
        out, changed = [], False
        for name, value in fields:
            kind = kind_of_header(name)
            if not kind and rules.headers and name.lower() in rules.headers:
                kind = "whole"
            if kind:
                new = _FORMS[kind](value, found)
                changed |= new != value
                out.append((name, new))
            else:
                out.append((name, value))
        return tuple(out) if changed else fields

    def _known_fields(self, fields: Fields, found: texts.Found, known: Known, rules: Rules) -> Fields:
        """The other fields: URLs in them, and secrets that are known."""
        blob = b"\n".join([value for _, value in fields])
        url = b"://" in blob and b"@" in blob
        if not (url or rules.patterns or (b"=" in blob and may_name(blob)) or known.in_text(blob)):
            return fields

        def edited(value: bytes) -> bytes:
            edits = [*in_list(value, found), *self._scan(value, found, known, rules, None)]
            return applied(value, merged(edits, value, self.token)) if edits else value

        new = tuple((name, value if kind_of_header(name) else edited(value)) for name, value in fields)
        return fields if new == fields else new

    def _fields(self, fields: Fields, found: texts.Found, known: Known, rules: Rules) -> Fields:
        if not fields:
            return fields
        return self._known_fields(self._named_fields(fields, found, rules), found, known, rules)


def _whole(value: bytes, found: Callable[[bytes, bool], bytes]) -> bytes:
    plain = value.strip()
    return value.replace(plain, found(plain, True)) if plain else value


_FORMS: Mapping[str, Callable[[bytes, texts.Found], bytes]] = {
    "authorization": texts.authorization,
    "cookie": texts.cookies,
    "set-cookie": texts.set_cookie,
    "whole": _whole,
}


def _unseen(message: Request | Response) -> str:
    """The coding of a body that nobody here can undo."""
    if not message.body or not message.body.size:
        return ""
    shape = Shape.of(message.fields)
    return "" if shape.coded or shape.coding in (b"", b"identity") else shape.coding.decode("latin-1")[:40]


def _lost(before: Body | None, after: Body | None) -> bool:
    return before is not None and after is None


def _fitted[M: (Request, Response)](message: M, grown: Mapping[bytes, int]) -> M:
    by = grown.get(message.body.digest, 0) if message.body else 0
    return replace(message, fields=_longer(message.fields, by)) if by else message


def _resized(fields: Fields, before: Body | None, after: Body | None) -> Fields:
    """Content-Length follows the body, also of one that was cut before it had all come."""
    return fields if before is None or after is None else _longer(fields, after.size - before.size)


def _longer(fields: Fields, by: int) -> Fields:
    if not by:
        return fields
    return tuple(
        (name, b"%d" % max(int(value) + by, 0))
        if name.lower() == b"content-length" and value.isdigit()
        else (name, value)
        for name, value in fields
    )
