"""What the control API may ask for when it opens an episode: everything else is refused, and nothing is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from replayproxy.core.identity import EpisodeBook
from replayproxy.core.names import suggestion, why_not_a_name
from replayproxy.errors import WrongUsage
from replayproxy.serve.control import OpenRequest, Refused
from replayproxy.session.wiring import DYNAMIC, EnvSpec, address_of, upstream_allowed, upstream_url
from replayproxy.state.loader import Loaded, load, parse_named


class Admission:
    """Every method gives the checked value or raises Refused. `allowed`: the entries of `--allow-upstream`."""

    def __init__(self, run: str, book: EpisodeBook, envs: Mapping[str, EnvSpec], allowed: Sequence[str]) -> None:
        self._run, self._book, self._envs, self._allowed = run, book, envs, tuple(allowed)

    def name(self, wanted: OpenRequest) -> str:
        book = self._book
        if wanted.episode is None:
            return book.mint(wanted.task, wanted.attempt)
        if why := why_not_a_name(wanted.episode):
            raise Refused(422, "refused name", why, **{"try": self._free(suggestion(wanted.episode))})
        if book.is_taken(wanted.episode):
            raise Refused(
                409, "name taken", f"episode {wanted.episode!r} is already in run {self._run}",
                **{"try": book.free_name(wanted.episode)},
            )  # fmt: skip
        return wanted.episode

    def _free(self, name: str) -> str:
        return self._book.free_name(name) if self._book.is_taken(name) else name

    def known(self, env: str, member: str) -> None:
        if env not in self._envs:
            known = ", ".join(self._envs)
            raise Refused(422, "unknown environment", f"{member}: no environment {env!r}, there is {known}")

    def upstream(self, env: str, url: str) -> str:
        self.known(env, "envs")
        if self._envs[env].upstream != DYNAMIC:
            raise Refused(
                422, "not dynamic", f"envs: {env} has an upstream already; record it with --env {env}=dynamic"
            )
        try:
            checked = upstream_url(url, f"envs.{env}")
        except WrongUsage as wrong:
            raise Refused(422, "no upstream", str(wrong)) from None
        self._allow(address_of(checked)[0], f"envs.{env}")
        return checked

    def _allow(self, host: str, member: str) -> None:
        if not upstream_allowed(host, self._allowed):
            raise Refused(403, "not allowed", f"{member}: {host} is not loopback", hint=f"--allow-upstream {host}")

    def spec(self, name: str, spec: str) -> Loaded:
        if not spec.startswith("http:"):
            raise Refused(
                422, "spec refused", f"snapshots.{name}: the API takes http: only; others on the command line"
            )
        if "env:" in spec:
            raise Refused(422, "spec refused", f"snapshots.{name}: env: is for the command line; send the value itself")
        try:
            name, spec = parse_named(f"{name}={spec}")
            loaded = load(name, spec)
        except WrongUsage as wrong:
            raise Refused(422, "spec refused", str(wrong)) from None
        target = re.split(",(?:header|restore)=", spec.removeprefix("http:"), maxsplit=1)[0]
        try:
            host = address_of(target)[0]
        except ValueError as wrong:
            raise Refused(422, "spec refused", f"snapshots.{name}: {wrong}") from None
        self._allow(host, f"snapshots.{name}")
        return loaded
