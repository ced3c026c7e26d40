"""What every import of values shares: one run, episodes by name, environments by origin, all sealed and published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from replayproxy import __version__
from replayproxy.core.canonical import VIEW_LIMIT, body_of
from replayproxy.core.known import Known
from replayproxy.core.names import suggestion, why_not_a_name, why_not_an_env
from replayproxy.core.redact import Redactor, SecretRule
from replayproxy.core.redact_body import Stretch
from replayproxy.core.values import Body, Chunk, EnvWiring, Episode, Exchange, Run
from replayproxy.errors import WrongUsage
from replayproxy.proxy.routes import env_of_authority, parse_upstream
from replayproxy.session import secrecy
from replayproxy.storage import Store
from replayproxy.storage.intake import Intake

NOT_WHOLE = "incomplete where it was recorded"
"""The fault of an episode that was not sealed when it was exported: it is not whole here either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the call says. `envs`: name -> URL, for files that know only addresses."""

    path: Path
    run: str | None = None
    append: bool = False
    envs: Mapping[str, str] = field(default_factory=dict)
    keep_secrets: bool = False
    secrets: tuple[SecretRule, ...] = ()


@dataclass(slots=True, kw_only=True)
class Imported:
    """What came in. `notes`: what was changed on the way, `left`: what was not taken; words -> how often."""

    form: str
    runs: list[str] = field(default_factory=list)
    episodes: int = 0
    exchanges: int = 0
    snapshots: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.form,
            "runs": self.runs,
            "episodes": self.episodes,
            "exchanges": self.exchanges,
            "snapshots": self.snapshots,
            "notes": _counted(self.notes),
            "not_imported": _counted(self.left),
        }


def _counted(words: Counter[str]) -> list[dict[str, Any]]:
    return [{"what": what, "count": count} for what, count in sorted(words.items())]


def parse_envs(given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=URL` of `--env`. Raises WrongUsage."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, url = text.partition("=")
        if not equals or (reason := why_not_an_env(name)):
            raise WrongUsage(f"--env {text!r}: {reason if equals else 'it has no ='}", hint="--env NAME=URL")
        found[name] = parse_upstream(url).origin
    return found


@dataclass(slots=True)
class _Taken:
    """An episode that is coming in."""

    episode: Episode
    orders: set[tuple[int, int]] = field(default_factory=set)
    first: int | None = None
    last: int = 0
    first_wall: int = 0
    known: Known = field(default_factory=Known)


class Taker:
    """Takes exchanges into one run of a store, redacted like a recording; nothing is seen before `done`.

    `key` names the key of the tokens that the file holds already, None: it is not one of ours that was redacted.
    """

    def __init__(self, store: Store, asked: Asked, name: str, told: Imported, *, key: str | None = None) -> None:
        self.told = told
        self._intake = Intake(store)
        self._redactor = secrecy.for_recording(store.path, keep=asked.keep_secrets, rules=asked.secrets)
        wired = secrecy.wired(self._redactor)
        if key and not asked.keep_secrets:
            # The tokens stay those of the store they come from: replay then knows that no live secret gives them.
            wired["key"] = key
        config = {"imported": {"format": told.form}, "secrets": wired}
        wanted = Run(key=0, name=name, opened_wall=0, origin="import", version=__version__, config=config)
        self._run = self._intake.run(wanted, append=asked.append)
        if self._run.config.get("secrets") != wired:
            secrecy.must_agree(self._run, self._redactor)
        self._origins = {wiring.upstream: env for env, wiring in self._run.envs.items()}
        self._origins |= {url: env for env, url in asked.envs.items()}
        self._envs: dict[str, str] = {}
        self._episodes: dict[str, _Taken] = {}

    def env_of(self, origin: str) -> str:
        """The environment of an origin: as it was named, else after its authority."""
        name = self._origins.get(origin)
        if name is None:
            base = name = env_of_authority(urlsplit(origin).netloc)
            number = 2
            while name in self._origins.values():
                name, number = f"{base}-{number}", number + 1
            self._origins[origin] = name
        self._envs[name] = origin
        return name

    def knows(self, origin: str, env: str) -> None:
        """An environment that the file names itself; a name given on the command line is stronger."""
        if not why_not_an_env(env) and env not in self._origins.values():
            self._origins.setdefault(origin, env)

    def episode(self, episode: Episode) -> str:
        """Opens it, and gives the name that it has here: names that may not be one are made fit."""
        name = episode.name if not why_not_a_name(episode.name) else suggestion(episode.name)
        if name not in self._episodes:
            meta = self._redactor.value(dict(episode.meta))
            made = self._intake.episode(self._run, replace(episode, name=name, meta=meta))
            self._episodes[name] = _Taken(made)
        return name

    def exchange(self, name: str, exchange: Exchange) -> None:
        """Of an episode that is open. Two that arrived at one instant keep their order."""
        taken = self._episodes[name]
        exchange = _redacted(exchange, self._redactor, taken.known)
        order = exchange.order
        while order in taken.orders:
            order = order[0] + 1, order[1]
        taken.orders.add(order)
        times = exchange.times
        if taken.first is None or times.head < taken.first:
            taken.first, taken.first_wall = times.head, times.wall
        taken.last = max(taken.last, times.c_out or times.head)
        self._envs.setdefault(exchange.env, exchange.upstream or self._upstream_of(exchange.env))
        self._intake.exchange(taken.episode, replace(exchange, order=order))
        self.told.exchanges += 1

    def _upstream_of(self, env: str) -> str:
        return next((origin for origin, name in self._origins.items() if name == env), f"http://{env}.invalid")

    def done(self) -> None:
        """Seals and publishes. Episodes without an exchange stay what they are: empty."""
        for taken in self._episodes.values():
            first, wall = taken.first or 0, taken.first_wall
            times: dict[str, Any] = {
                "opened": taken.episode.opened or first,
                "opened_wall": taken.episode.opened_wall or wall,
                "ended": taken.episode.ended or taken.last,
                "ended_wall": taken.episode.ended_wall or wall + taken.last - first,
                "ended_by": taken.episode.ended_by or "end",
            }
            self._intake.seal(replace(taken.episode, **times))
        known = {env: EnvWiring(name=env, upstream=origin) for env, origin in self._envs.items()}
        opened = self._run.opened_wall or min((t.first_wall for t in self._episodes.values()), default=0)
        self._intake.update_run(replace(self._run, envs=known | dict(self._run.envs), opened_wall=opened))
        self._intake.publish()
        self.told.runs.append(self._run.name)
        self.told.episodes = len(self._episodes)


def _redacted(exchange: Exchange, redactor: Redactor, known: Known) -> Exchange:
    """As a recording is: bodies that are too large to be looked at whole go through a window."""
    if redactor.keeps:
        return exchange
    request, response, grown = exchange.request, exchange.response, dict[bytes, int]()
    request = replace(request, body=_stretched(request.body, redactor.stretch(request.fields, known, of_answer=False),
                                               grown))  # fmt: skip
    if response is not None:
        stretch = redactor.stretch(response.fields, known, of_answer=True)
        response = replace(response, body=_stretched(response.body, stretch, grown))
    return redactor.exchange(replace(exchange, request=request, response=response), known, grown)


def _stretched(body: Body | None, stretch: Stretch, grown: dict[bytes, int]) -> Body | None:
    if body is None or body.inline is None or body.size <= VIEW_LIMIT:
        return body
    pieces, at = [], 0
    for chunk in body.chunks or (None,):
        size = body.size if chunk is None else chunk.size
        pieces += stretch.feed(body.inline[at : at + size], None if chunk is None else chunk.at)
        at += size
    pieces += stretch.end()
    if stretch.given_up:
        return None
    made = body_of(b"".join(data for data, _ in pieces))
    if made.size != body.size:
        grown[made.digest] = made.size - body.size
    return replace(made, chunks=tuple(Chunk(size=len(data), at=at) for data, at in pieces if at is not None))


def run_name(asked: Asked, own: str | None, path: Path) -> str:
    """`--run`, else what the file says, else the file's own name, made fit."""
    if asked.run is not None:
        return asked.run
    name = own or path.name.removesuffix(path.suffix) or "import"
    fit = suggestion(name)
    return fit if not why_not_a_name(fit, of="run") else f"import-{fit}"


def key_of(secrets: Any) -> str | None:
    """The id of the key whose tokens a file of ours holds, by what its run keeps; None: secrets are as they were."""
    if not isinstance(secrets, Mapping) or secrets.get("kept") is not False:
        return None
    key = secrets.get("key")
    return key if isinstance(key, str) else None
