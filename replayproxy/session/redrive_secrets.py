"""Secrets in a re-drive: live credentials go out and come in, and nothing of them is kept, compared or shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from replayproxy.core.bindings import Bindings, Substitution, Violation
from replayproxy.core.credentials import Credentials, Lack, variable_of
from replayproxy.core.redact import TOKEN, Known, Redactor
from replayproxy.core.values import Exchange, Request, Response
from replayproxy.errors import WrongUsage
from replayproxy.state.spec import with_secrets

HIDDEN = "(a live credential)"


def given(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`--credential NAME=VALUE`; VALUE may be `env:VAR`."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.strip() or not value:
            raise WrongUsage("--credential takes NAME=VALUE", hint="--credential Authorization=env:MY_TOKEN")
        found[name.strip()] = with_secrets(value, environ) if value.startswith("env:") else value
    return found


def credentials(
    exchanges: Sequence[Exchange], words: Sequence[str], redactor: Redactor, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """Those for the requests that are to be sent, in order. WrongUsage, which names what is lacking."""
    made = Credentials(given(words, environ), redactor)
    lacks = made.prepare(exchanges, lambda name: environ.get(variable_of(name)) or None)
    if lacks:
        spare = "".join(f"; --credential {name} is the name of none" for name in made.unused())
        raise WrongUsage(f"the recording has tokens in the place of {_listed(lacks)}{spare}", hint=_advice(lacks))
    return made


def _listed(lacks: Sequence[Lack]) -> str:
    words = {"header": "header", "cookie": "cookie", "member": "parameter or member"}
    shown = [f"{words[one.kind]} {one.name or '(without a name)'} (#{one.exchange})" for one in lacks[:5]]
    return ", ".join(shown) + (f" and {len(lacks) - 5} more" if len(lacks) > 5 else "")


def _advice(lacks: Sequence[Lack]) -> str:
    named = next((one for one in lacks if one.name), None)
    if named is None:
        return "record it with --keep-secrets: where the token stands has no name"
    return f"--credential {named.name}=VALUE (or env:VAR), or set {variable_of(named.name)}"


class SecretBindings(Bindings):
    """The bindings of one repetition, with credentials filled in last, after every other name."""

    def __init__(
        self, authorities: Mapping[str, str], writes: Callable[[Request], bool], held: Credentials, redactor: Redactor
    ) -> None:
        super().__init__(authorities, writes)
        self._held, self._redactor = held, redactor
        self.known = Known()
        self._sent: dict[int, tuple[Request, Request]] = {}  # without credentials, and with them

    def apply(self, exchange: Exchange) -> Request:
        plain = super().apply(exchange)
        filled = self._held.fill(plain)
        self._sent[exchange.seq] = plain, filled
        return filled

    def learn(self, recorded: Exchange, sent: Request, live: Response | None) -> None:
        super().learn(recorded, sent, live)
        self._held.learn(recorded.response, live, recorded.request)

    def values(self) -> dict[str, str]:
        """As the live exchanges are compared: without their secrets."""
        clean = self._redactor.token
        plain = {
            recorded: clean(live.encode()).decode() if _is_token(recorded) else live
            for recorded, live in super().values().items()
        }
        return {**plain, **self._held.values()}

    def clean(self, live: Exchange) -> Exchange:
        """A live exchange as it is compared, kept and shown."""
        clean = self._redactor.exchange(live, self.known)
        plain, filled = self._sent.get(live.seq, (None, None))
        if plain is None or filled is None or filled.target != live.request.target:
            return clean
        # A live value may be too short to be found by itself: its place is known.
        told = self._held.stand_for(plain)
        return replace(clean, request=replace(clean.request, target=told.target))

    def discreet(self) -> None:
        """What is listed afterwards holds no live credential."""
        self.substitutions[:] = [_hidden(one) for one in self.substitutions]
        self.violations[:] = [_hidden(one) for one in self.violations]


def _hidden[S: (Substitution, Violation)](one: S) -> S:
    return replace(one, live=HIDDEN) if _is_token(one.recorded) and not _is_token(one.live) else one


def _is_token(text: str) -> bool:
    return TOKEN.search(text.encode("utf-8", "replace")) is not None
