"""What `record` was asked to do: flags over variables over the config file, refused before anything is done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replayproxy.core.chaos import Chaos, parse_chaos
from replayproxy.core.extractrule import extract_rules, secrets_of
from replayproxy.core.hostlist import HostList
from replayproxy.core.limits import CONNECT_SECONDS, Limits
from replayproxy.core.names import suggestion, why_not_a_name
from replayproxy.core.redact_rules import SecretRule
from replayproxy.core.rules import parse_rules
from replayproxy.errors import WrongUsage
from replayproxy.session import wiring
from replayproxy.session.camera import Plan
from replayproxy.session.config import Config
from replayproxy.session.files import replaceable
from replayproxy.session.ready_rules import rule_tables
from replayproxy.session.wiring import EnvSpec, Reset
from replayproxy.state.loader import Loaded, load, parse_named

MOST_WORKERS = 64

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """`when_text` and `mode_text` are the words as given, for the run's wiring. `token` None: none is wanted.
    `forward`: where the forward proxy listens, None: there is none."""

    store: Path
    run: str
    append: bool = False
    envs: tuple[EnvSpec, ...] = ()
    snapshots: tuple[Loaded, ...] = ()
    plan: Plan = field(default_factory=Plan)
    mode_text: str = "hold:250ms"
    resets: tuple[Reset, ...] = ()
    url_style: str = "path"
    forward: tuple[str, int] | None = None
    workers: int = 1
    forward_auth: bool = False
    passes: HostList = field(default_factory=HostList)
    episode: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    idle: float = 600.0
    undeclared: str | None = None
    listen: str | None = None
    control_host: str = "127.0.0.1"
    control_port: int = 0
    advertised: str | None = None
    advertised_urls: Mapping[str, str] = field(default_factory=dict)
    allowed: tuple[str, ...] = ()
    ready_file: Path | None = None
    log_every: float = 60.0
    limits: Limits = field(default_factory=Limits)
    chaos: Chaos | None = None
    token: str | None = None
    verdicts: bool = True
    fail_fast: bool = False
    probe: bool = False
    when_full: str = "hold"
    keep_secrets: bool = False
    secrets: tuple[SecretRule, ...] = ()
    config: Config = field(default_factory=Config)
    rules: tuple[Mapping[str, Any], ...] = ()


def parse(
    flags: Mapping[str, Any],
    config: Config,
    *,
    store: Path,
    environ: Mapping[str, str],
    wall: int,
    pick: Mapping[str, str],
    has_command: bool,
) -> RecordOptions:
    """The options from the flags (keys as in Python), the config and the environment.

    `wall` and `pick` (`run`: random letters, `token`: a random token) come in, so that this is a function of its
    arguments. Raises WrongUsage.
    """
    envs = wiring.environments(flags["env"], config.env)
    forward, passes = forward_words(flags, config)
    workers = _workers(config.value("workers", flags["workers"], 1))
    if not envs and forward is None:
        raise WrongUsage("record needs an environment", hint="--env app=http://127.0.0.1:9000, or --forward 0")
    run = _run_name(config.value("run", flags["run"]), wall, pick["run"])
    episode = config.value("episode", flags["episode"])
    if episode is not None and (why := why_not_a_name(episode)):
        raise WrongUsage(f"--episode {episode!r}: {why}", hint=f"--episode {suggestion(episode)}")
    when = wiring.parse_when(config.value("snapshot-when", flags["snapshot_when"], "start,write,end"))
    mode_text = config.value("snapshot-mode", flags["snapshot_mode"], "hold:250ms")
    mode, limit = wiring.parse_mode(mode_text)
    control_host, control_port = wiring.hostport(
        str(config.value("control", flags["control"], "0")), "--control", default="127.0.0.1"
    )
    assert control_host is not None
    ready = config.value("ready-file", flags["ready_file"])
    ready_file = None if ready is None else writable_path(Path(ready), "--ready-file")
    advertised, advertised_urls = wiring.parse_advertise(config.values("advertise", flags["advertise"]), envs)
    rules = _rules(config, flags.get("rules", ()))
    verdicts = _choice("judge", config.value("judge", flags.get("judge"), "on"), ("on", "off")) == "on"
    fail_fast = bool(config.value("fail-fast", flags.get("fail_fast"), False))
    if fail_fast and not verdicts:
        raise WrongUsage("--fail-fast needs verdicts", hint="leave --judge off away")
    return RecordOptions(
        store=store,
        run=run,
        append=bool(config.value("append", flags["append"], False)),
        envs=envs,
        snapshots=_snapshots(flags["snapshot"], config),
        plan=Plan(when=when, mode=mode, limit=limit),
        mode_text=mode_text,
        resets=_resets(flags["reset"], config, envs),
        url_style=_choice("url-style", config.value("url-style", flags["url_style"], "path"), ("path", "port")),
        forward=forward,
        workers=workers,
        forward_auth=bool(config.value("forward-auth", flags.get("forward_auth"), False)),
        passes=passes,
        episode=episode,
        meta={**config.meta, **wiring.parse_meta(flags["meta"])},
        idle=wiring.seconds(str(config.value("idle", flags["idle"], "10m")), "--idle"),
        undeclared=_choice("undeclared", config.value("undeclared", flags["undeclared"]), ("accept", "refuse", None)),
        listen=wiring.listen_host(config.value("listen", flags["listen"])),
        control_host=control_host,
        control_port=control_port,
        advertised=advertised,
        advertised_urls=advertised_urls,
        allowed=wiring.check_allowed(config.values("allow-upstream", flags["allow_upstream"])),
        ready_file=ready_file,
        log_every=wiring.seconds(str(config.value("log-every", flags["log_every"], "60s")), "--log-every"),
        limits=_limits(flags, config),
        chaos=_chaos(flags, config),
        token=_token(control_host, environ, pick["token"], ready=ready_file is not None, has_command=has_command),
        verdicts=verdicts,
        fail_fast=fail_fast,
        probe=bool(config.value("probe", flags.get("probe"), False)),
        when_full=_choice("when-full", config.value("when-full", flags.get("when_full"), "hold"), ("hold", "pass")),
        keep_secrets=bool(config.value("keep-secrets", flags.get("keep_secrets"), False)),
        secrets=(*config.secrets, *secrets_of(extract_rules(rules))),
        config=config,
        rules=rules,
    )


def forward_words(flags: Mapping[str, Any], config: Config) -> tuple[tuple[str, int] | None, HostList]:
    """(where `--forward` listens or None, the hosts of `--pass`)."""
    given = config.value("forward", flags.get("forward"))
    host, port = wiring.hostport(str(given), "--forward", default="127.0.0.1") if given is not None else (None, 0)
    try:
        passes = HostList.parse(config.values("pass", flags.get("pass") or ()))
    except ValueError as wrong:
        raise WrongUsage(f"--pass {wrong}", hint="--pass api.example.com, *.example.com or HOST:PORT") from None
    if passes and host is None:
        raise WrongUsage("--pass is for the forward proxy", hint="--forward 0")
    return (host, port) if host is not None else None, passes


def _rules(config: Config, sets: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """The config's own rules, then those of the ready sets: of two that find the same, the user's is the stronger."""
    tables = (*config.rules, *rule_tables(config.values("rules", sets)))
    parse_rules(tables)  # the run keeps them, and a replay is to understand them
    extract_rules(tables)  # two of one name
    return tables


def _workers(wanted: Any) -> int:
    if not isinstance(wanted, int) or not 1 <= wanted <= MOST_WORKERS:
        raise WrongUsage(f"--workers {wanted}: it takes a number from 1 to {MOST_WORKERS}", hint="--workers 2")
    return wanted


def _limits(flags: Mapping[str, Any], config: Config) -> Limits:
    """How long environments may take; 0 is no limit."""

    def limit(option: str, default: float) -> float | None:
        given = config.value(option, flags.get(option.replace("-", "_")))
        return (default if given is None else wiring.seconds(str(given), f"--{option}")) or None

    return Limits(
        connect=limit("upstream-connect", CONNECT_SECONDS), answer=limit("upstream-timeout", 0.0),
        idle=limit("upstream-idle", 0.0),
    )  # fmt: skip


def _chaos(flags: Mapping[str, Any], config: Config) -> Chaos | None:
    seed = config.value("chaos-seed", flags.get("chaos_seed"))
    chaos = parse_chaos(config.values("chaos", flags.get("chaos") or ()), 0 if seed is None else seed)
    if seed is not None and chaos is None:
        raise WrongUsage(f"--chaos-seed {seed} is for --chaos", hint='--chaos "status 503 20%"')
    return chaos


def _choice(option: str, value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise WrongUsage(f"--{option}: {value!r} is none of {', '.join(one for one in allowed if one)}")
    return value


def _run_name(given: str | None, wall: int, letters: str) -> str:
    name = given or f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(wall / 1e9))}-{letters}"
    if why := why_not_a_name(name, of="run"):
        near = suggestion(name)
        # `latest` and F3 are good names of episodes, and not of runs.
        raise WrongUsage(f"--run {name!r}: {why}", hint=f"--run {near if near != name else f'run-{near}'}")
    return name


def _snapshots(flags: Sequence[str], config: Config) -> tuple[Loaded, ...]:
    named = dict(config.snapshot)
    given: set[str] = set()
    for text in flags:
        name, spec = parse_named(text)
        if name in given:
            raise WrongUsage(f"--snapshot {name} is given twice")
        given.add(name)
        named[name] = spec
    return tuple(load(name, spec) for name, spec in named.items())


def _resets(flags: Sequence[str], config: Config, envs: Sequence[EnvSpec]) -> tuple[Reset, ...]:
    known = {env.name for env in envs}
    # The file serves many calls; a reset of an environment that this one does not record is none of its business.
    named = {name: rest for name, rest in config.reset.items() if name in known}
    for text in flags:
        name, rest = wiring.named(text, "--reset")
        named[name] = rest
    return tuple(wiring.parse_reset(name, rest, envs) for name, rest in named.items())


def writable_path(path: Path, option: str) -> Path:
    """A file that can be written once there is something to write."""
    try:
        replaceable(path)
    except WrongUsage as wrong:
        raise WrongUsage(f"{option} {wrong.what}", hint=wrong.hint) from None
    return path


def _token(host: str, environ: Mapping[str, str], minted: str, *, ready: bool, has_command: bool) -> str | None:
    """The control API's token: the user's, or one of ours where others than this machine may reach it."""
    given = environ.get("REPLAYPROXY_TOKEN")
    if given:
        if not given.isascii() or not given.isprintable() or " " in given:
            raise WrongUsage("REPLAYPROXY_TOKEN: a token is printable ASCII without blanks")
        return given
    if wiring.is_loopback(host):
        return None
    if not (ready or has_command):
        raise WrongUsage(
            f"--control {host}: beyond loopback it demands a token, and nobody would be told of one",
            hint="set REPLAYPROXY_TOKEN, or give --ready-file",
        )
    return minted
