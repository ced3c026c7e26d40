"""What a re-drive may touch: its environments, snapshots and resets, each checked before anything is sent.

The recorded upstream is never a target by itself: every environment of an episode needs its `--env NAME=URL`. What
the recording knows of snapshots and resets is used with the recorded address of an environment replaced by the live
one; what leads elsewhere (a file, a database, an admin port) is used only when the recorded environment is gone, so
that nobody's live state is overwritten unasked. A target that is not on this machine must be named `--disposable`,
because it is overwritten.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from replayproxy.core.schedule import why_not_sent
from replayproxy.core.values import Episode, Run, Trace
from replayproxy.drive.driver import Target
from replayproxy.drive.origin import Origin, is_loopback, origin
from replayproxy.errors import CannotJudge, WrongUsage
from replayproxy.session.config import Config
from replayproxy.session.redrive_hooks import hooks
from replayproxy.session.wiring import DYNAMIC, EnvSpec, Reset, parse_env, parse_reset
from replayproxy.state.hosts import spec_hosts
from replayproxy.state.loader import Loaded, load, parse_named
from replayproxy.state.spec import redacted

type Moved = Mapping[str, tuple[tuple[str, ...], Origin]]
"""Per environment: the URLs at which it was recorded, and where it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The words of the command as typed."""

    env: Sequence[str] = ()
    snapshot: Sequence[str] = ()
    reset: Sequence[str] = ()
    credential: Sequence[str] = ()
    disposable: Sequence[str] = ()
    config: Config = field(default_factory=Config)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where one episode goes. `resets`: asked for by flag, used in any case; `fallbacks`: of the recording or the
    config file, used where a snapshot cannot restore. `unusable`: snapshots of the recording that cannot be taken
    here, with the reason. `recorded`, `live`: every authority of the environments on either side. `hooks`: by knob,
    what sets an environment's clock or seed."""

    envs: Mapping[str, Target]
    loaded: Sequence[Loaded]
    resets: Mapping[str, Reset]
    fallbacks: Mapping[str, Reset]
    unusable: Mapping[str, str]
    reads: Mapping[str, tuple[str, ...]]
    authorities: Mapping[str, str]
    recorded: frozenset[str]
    live: frozenset[str]
    hooks: Mapping[str, Mapping[str, Reset]] = field(default_factory=dict)


def targets(trace: Trace, words: Words) -> Targets:
    """Raises WrongUsage, in one line, for whatever is missing, unknown or not allowed."""
    run = trace.run
    specs = _specs(words.env, run)
    needed = sorted({e.env for e in trace.exchanges if why_not_sent(e) is None})
    for name in needed:
        if name not in specs:
            upstream = run.envs[name].upstream if name in run.envs else "unknown"
            raise WrongUsage(
                f"{trace.address} speaks to {name}, and no target is given for it (recorded: {upstream})",
                hint=f"--env {name}=URL",
            )
    allowed = _allowed(words.disposable, run, specs)
    live: dict[str, Origin] = {name: origin(spec.upstream, ca=str(spec.ca) if spec.ca else None, insecure=spec.insecure)
            for name, spec in specs.items()}  # fmt: skip
    was = {name: recorded_origins(trace, name) for name in live}
    for name in needed:
        _refuse_remote(live[name].host, f"environment {name}", name, allowed)
    moved: Moved = {name: (was[name], live[name]) for name in live}
    loaded, unusable = _snapshots(trace, words, moved, allowed)
    resets = {name: _reset(name, rest, specs) for name, rest in map(_named, words.reset)}
    fallbacks = _fallbacks(run, words.config, moved, specs, needed)
    offered = hooks(words.config, trace.episode, {name: specs[name] for name in needed})
    for reset in (*resets.values(), *fallbacks.values(), *(one for of in offered.values() for one in of.values())):
        _refuse_remote(urlsplit(reset.url).hostname or "", f"the reset of {reset.env}", reset.env, allowed)
    return Targets(
        envs={name: Target(origin=live[name], base=_base(run, name, live[name]),
                           keep_host=specs[name].host_header == "keep") for name in needed},
        loaded=loaded,
        resets=resets,
        fallbacks=fallbacks,
        unusable=unusable,
        reads={name: words.config.reads(name) or (run.envs[name].reads if name in run.envs else ()) for name in needed},
        authorities={text: live[name].authority for name in needed for text in _names(was[name])},
        recorded=frozenset(text for name in needed for text in _names(was[name])),
        live=frozenset(text for name in needed for text in live[name].names()),
        hooks=offered,
    )  # fmt: skip


def _named(text: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise WrongUsage(f'--reset {text!r}: it takes NAME="METHOD URL [BODY]"')
    return name, rest


def _specs(flags: Sequence[str], run: Run) -> dict[str, EnvSpec]:
    specs: dict[str, EnvSpec] = {}
    for text in flags:
        spec = parse_env(text)
        if spec.name in specs:
            raise WrongUsage(f"--env {spec.name} is given twice")
        if spec.upstream == DYNAMIC:
            raise WrongUsage(f"--env {spec.name}=dynamic: a re-drive needs one address", hint=f"--env {spec.name}=URL")
        if run.envs and spec.name not in run.envs:
            raise WrongUsage(f"run {run.name} has no environment {spec.name!r}", hint=f"it has {', '.join(run.envs)}")
        specs[spec.name] = spec
    return specs


def _reset(name: str, rest: str, specs: Mapping[str, EnvSpec]) -> Reset:
    return parse_reset(name, rest, tuple(specs.values()))


# -- what may be overwritten -----------------------------------------------------------------------------------------


def _allowed(disposable: Sequence[str], run: Run, specs: Mapping[str, EnvSpec]) -> frozenset[str]:
    known = {*specs, *run.envs, *run.snapshots}
    if unknown := next((name for name in disposable if name not in known), None):
        raise WrongUsage(f"--disposable {unknown}: there is no environment of that name", hint=", ".join(sorted(known)))
    return frozenset(disposable)


def _refuse_remote(host: str, what: str, name: str, allowed: frozenset[str]) -> None:
    if host and not is_loopback(host) and name not in allowed and name.partition(".")[0] not in allowed:
        raise WrongUsage(
            f"{what} is at {host}, not on this machine, and a re-drive overwrites its state",
            hint=f"--disposable {name.partition('.')[0]} if nobody needs it",
        )


# -- the recorded wiring, aimed at the live environment ----------------------------------------------------------------


def recorded_origins(trace: Trace, env: str) -> tuple[str, ...]:
    """The URLs under which an environment was recorded, without a path."""
    wiring = trace.run.envs.get(env)
    named = [wiring.upstream] if wiring else []
    named += [trace.episode.envs[env]] if env in trace.episode.envs else []
    named += [e.upstream for e in trace.exchanges if e.env == env]
    found = []
    for url in dict.fromkeys(named):
        try:
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname:
                found.append(origin(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", insecure=True).url)
        except ValueError:
            continue  # "dynamic", or what an import left: it names no address
    return tuple(dict.fromkeys(found))


def _names(urls: Iterable[str]) -> set[str]:
    return {name.lower() for url in urls for name in origin(url, insecure=True).names()}


def _base(run: Run, env: str, live: Origin) -> tuple[str, str] | None:
    """(recorded path, live path) where the URL given names a path of its own that is another one."""
    recorded = urlsplit(run.envs[env].upstream).path.rstrip("/") if env in run.envs else ""
    return (recorded, live.path) if live.path and live.path != recorded else None


def aimed(text: str, moved: Moved) -> str:
    """A recorded text with every recorded address of an environment replaced by the live one."""
    table = {url: live.url for urls, live in moved.values() for url in urls}
    if not table:
        return text
    longest = sorted(table, key=len, reverse=True)
    pattern = re.compile("(?:" + "|".join(map(re.escape, longest)) + r")(?![0-9A-Za-z.:\]-])")
    return pattern.sub(lambda match: table[match[0]], text)


def _fallbacks(
    run: Run, config: Config, moved: Moved, specs: Mapping[str, EnvSpec], needed: Sequence[str]
) -> dict[str, Reset]:
    found = {}
    for name in needed:
        wiring = run.envs.get(name)
        if name in config.reset:
            reset = _reset(name, aimed(config.reset[name], moved), specs)
        elif wiring is not None and wiring.reset is not None:
            method, url, body = wiring.reset
            reset = Reset(env=name, method=method, url=aimed(url, moved), body=body)
        else:
            continue
        if not elsewhere([reset.url], name, moved):
            found[name] = reset
    return found


def elsewhere(urls: Sequence[str], env: str, moved: Moved) -> str:
    """Why what was recorded may not be overwritten: it leads past the live environment, to where the recorded one
    still is. Empty when it may. Asked without contact: whether the recorded port can be taken."""
    concerned = [moved[env]] if env in moved else list(moved.values())
    lives = {live.url for _, live in concerned}
    if urls and all(any(url == live or url.startswith((live + "/", live + "?")) for live in lives) for url in urls):
        return ""
    for recorded, live in concerned:
        for url in recorded:
            if not any(_same_place(live, one) for one in recorded) and _is_taken(url):
                return f"it belongs to the recorded environment, which is still at {url}"
    return ""


def _same_place(live: Origin, url: str) -> bool:
    other = origin(url, insecure=True)
    return live.port == other.port and (live.host == other.host or (live.is_loopback() and other.is_loopback()))


def _is_taken(url: str) -> bool:
    parts = origin(url, insecure=True)
    if not parts.is_loopback():
        return False
    host = "127.0.0.1" if parts.host.endswith("localhost") else parts.host
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what only lingers there is nobody
        try:
            trial.bind((host, parts.port))
        except OSError as refused:
            return refused.errno == errno.EADDRINUSE
    return False


def _snapshots(
    trace: Trace, words: Words, moved: Moved, allowed: frozenset[str]
) -> tuple[list[Loaded], dict[str, str]]:
    """The snapshots to take: as given, else as in the config file, else as recorded. Only those of this episode."""
    given = dict(map(parse_named, words.snapshot))
    wanted = list(dict.fromkeys(s.name for s in trace.snapshots if s.when in ("start", "write", "end")))
    loaded, unusable = [], {}
    for name in dict.fromkeys((*wanted, *given)):
        env = name.partition(".")[0]
        if env in trace.run.envs and env not in moved and name not in given:
            continue  # of an environment that this episode never spoke to
        try:
            spec = given[name] if name in given else _recorded_spec(name, trace.run, words.config, moved)
            for host in spec_hosts(spec, os.environ):
                _refuse_remote(host, f"snapshot {name} ({redacted(spec)})", name, allowed)
            loaded.append(load(name, spec, context=context_of(trace.episode)))
        except CannotJudge as reason:
            unusable[name] = reason.what
        except WrongUsage as wrong:
            if name in given:
                raise
            unusable[name] = str(wrong)
    return loaded, unusable


def _recorded_spec(name: str, run: Run, config: Config, moved: Moved) -> str:
    """Raises CannotJudge when it cannot, or may not, be used here."""
    spec = aimed(config.snapshot.get(name) or run.snapshots.get(name, ""), moved)
    if not spec:
        raise CannotJudge(f"its spec came by the API and is not kept with the run: --snapshot {name}=SPEC")
    if "***" in spec:
        raise CannotJudge("its spec needs a secret")
    urls = re.findall(r"https?://[^\s,\"]+", spec) if spec.startswith("http:") else []
    if reason := elsewhere(urls, name.partition(".")[0], moved):
        raise CannotJudge(reason)
    return spec


def context_of(episode: Episode) -> dict[str, str]:
    """What may stand in braces in a spec."""
    context = {"episode": episode.name, **{f"meta.{key}": str(value) for key, value in episode.meta.items()}}
    if episode.task is not None:
        context["task"] = episode.task
    if episode.seed is not None:
        context["seed"] = str(episode.seed)
    return context
