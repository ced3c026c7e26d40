"""The words of `record` taken apart: environments, resets, snapshots, addresses, times.

Everything here refuses with one line (WrongUsage) before anything is done, and touches no network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from replayproxy.core.hostname import why_no_host
from replayproxy.core.names import variable, why_not_an_env
from replayproxy.core.redact_token import TOKEN
from replayproxy.errors import WrongUsage
from replayproxy.state.spec import with_secrets

DYNAMIC = "dynamic"
_VALUED = ("listen", "as", "ca", "host")
_BARE = ("tls", "insecure")
_OPTION = re.compile(rf".*,(?:({'|'.join(_VALUED)})=(.*)|({'|'.join(_BARE)}))\Z", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})\Z")

SNAPSHOT_WHEN = ("start", "write", "end")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """One `--env`. `upstream` is a URL without a trailing slash, or "dynamic". `port` 0: a free one."""

    name: str
    upstream: str
    host: str | None = None
    port: int = 0
    variable: str | None = None
    ca: Path | None = None
    insecure: bool = False
    host_header: Literal["upstream", "keep"] = "upstream"
    reads: tuple[str, ...] = ()
    eventual: Mapping[str, float] = field(default_factory=dict)
    tls: bool = False

    @property
    def path(self) -> str:
        """The upstream's path, which the agent's URL keeps."""
        return "" if self.upstream == DYNAMIC else urlsplit(self.upstream).path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """`--reset NAME="METHOD URL [BODY]"`: kept as wiring, never sent by the recorder."""

    env: str
    method: str
    url: str
    body: str

    @property
    def target(self) -> bytes:
        parts = urlsplit(self.url)
        return ((parts.path or "/") + (f"?{parts.query}" if parts.query else "")).encode()

    def filled(self, environ: Mapping[str, str]) -> Reset:
        """As it is sent, with each `env:VAR` replaced. WrongUsage where that cannot be, or a secret is not known."""
        if TOKEN.search(f"{self.url} {self.body}".encode()):
            raise WrongUsage(
                f"the recorded reset of {self.env} holds a token in the place of a secret",
                hint=f'--reset {self.env}="METHOD URL [BODY]"; env:VAR may stand in it',
            )
        return replace(self, url=with_secrets(self.url, environ), body=with_secrets(self.body, environ))


def named(text: str, option: str) -> tuple[str, str]:
    """NAME=REST."""
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise WrongUsage(f"{option} {text!r}: it takes NAME=..", hint=f"{option} crm=..")
    return name, rest


def parse_env(text: str) -> EnvSpec:
    """`NAME=URL[,listen=[HOST:]PORT][,as=VAR][,tls][,ca=PATH][,insecure][,host=upstream|keep]`, split from the
    right."""
    name, rest = named(text, "--env")
    options: dict[str, Any] = {}
    while match := _OPTION.match(rest):
        key = match[1] or match[3]
        if key in options:
            raise WrongUsage(f"--env {name}: {key} is given twice")
        options[key] = match[2] if match[1] else True
        rest = rest[: match.start(1) - 1] if match[1] else rest[: match.start(3) - 1]
    _no_other_option(name, rest)
    return env_spec(name, {"url": rest, **options})


def _no_other_option(name: str, rest: str) -> None:
    """Refuses a misspelt option. A comma is legal in a URL's path, so there only what looks like an option is one."""
    url, comma, word = rest.rpartition(",")
    key = word.partition("=")[0]
    in_path = "/" in url.partition("://")[2]
    if comma and "@" not in rest and (not in_path or get_close_matches(key, (*_VALUED, *_BARE), cutoff=0.65)):
        known = ", ".join([*(f"{one}=" for one in _VALUED), *_BARE])
        raise WrongUsage(f"--env {name}: {word!r} is no option", hint=f"one of {known}")


def env_spec(name: str, words: Mapping[str, Any]) -> EnvSpec:
    """An environment from its words, as `--env` or `[env.NAME]` of the config gave them."""
    if why := why_not_an_env(name):
        raise WrongUsage(f"--env {name!r}: {why}", hint="--env crm=http://127.0.0.1:9000")
    host, port = hostport(str(words["listen"]), f"--env {name}: listen") if "listen" in words else (None, 0)
    header = words.get("host", "upstream")
    if header not in ("upstream", "keep"):
        raise WrongUsage(f"--env {name}: host is upstream or keep, not {header!r}")
    as_variable = words.get("as")
    if as_variable is not None and not _VARIABLE.match(as_variable):
        raise WrongUsage(f"--env {name}: as={as_variable} is no name of a variable")
    ca = Path(words["ca"]) if words.get("ca") else None
    if ca is not None and not ca.is_file():
        raise WrongUsage(f"--env {name}: ca={ca} is not there")
    reads = words.get("reads", ())
    upstream = str(words.get("url", ""))
    return EnvSpec(
        name=name,
        upstream=DYNAMIC if upstream == DYNAMIC else upstream_url(upstream, f"--env {name}"),
        host=host,
        port=port,
        variable=as_variable,
        ca=ca,
        insecure=bool(words.get("insecure", False)),
        host_header="keep" if header == "keep" else "upstream",
        reads=(reads,) if isinstance(reads, str) else tuple(reads),
        eventual=eventual_times(name, words),
        tls=bool(words.get("tls", False)),
    )


def eventual_times(name: str, words: Mapping[str, Any]) -> dict[str, float]:
    """`eventual` of `[env.NAME]`, in seconds. WrongUsage for what is no time."""
    where = f"[env.{name}] eventual"
    return {line: seconds(text, f"{where} {line!r}") for line, text in words.get("eventual", {}).items()}


def environments(flags: Sequence[str], config: Mapping[str, Mapping[str, Any]]) -> tuple[EnvSpec, ...]:
    """Those of the flags, then those of the config that have a `url` and no flag; `reads` and `eventual`
    always from the config."""
    specs: dict[str, EnvSpec] = {}
    for text in flags:
        name, _ = named(text, "--env")
        if name in specs:
            raise WrongUsage(f"--env {name} is given twice")
        spec = parse_env(text)
        words = config.get(name, {})
        reads = words.get("reads", ())
        specs[name] = replace(
            spec, reads=(reads,) if isinstance(reads, str) else tuple(reads), eventual=eventual_times(name, words)
        )
    for name, words in config.items():
        if name not in specs and "url" in words:
            specs[name] = env_spec(name, words)
    _distinct_variables(specs.values())
    return tuple(specs.values())


def _distinct_variables(specs: Iterable[EnvSpec]) -> None:
    seen: dict[str, str] = {}
    for spec in specs:
        for name in (f"REPLAYPROXY_URL_{variable(spec.name)}", spec.variable):
            if name is None:
                continue
            if name in seen and seen[name] != spec.name:
                raise WrongUsage(f"--env {seen[name]} and --env {spec.name} both give the variable {name}")
            seen[name] = spec.name


def upstream_url(text: str, where: str) -> str:
    """A checked http(s) URL without a trailing slash."""
    example = "http://127.0.0.1:9000"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as wrong:
        raise WrongUsage(f"{where}: {text!r} is no URL: {wrong}", hint=example) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise WrongUsage(f"{where}: {text!r} is no http:// or https:// URL", hint=example)
    if any(char.isspace() or ord(char) < 32 for char in text):
        raise WrongUsage(f"{where}: {text!r} contains white space")
    if why := why_no_host(parts.hostname):
        raise WrongUsage(f"{where}: {parts.hostname!r} is no host: {why}", hint=example)
    if parts.username is not None or parts.password is not None:
        raise WrongUsage(f"{where}: credentials in the URL would be kept with the run", hint="send them as a header")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise WrongUsage(f"{where}: {text!r} may have a path, but no query or fragment")
    return text.rstrip("/")


def address_of(url: str) -> tuple[str, int]:
    """(host, port) that a URL leads to."""
    parts: SplitResult = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def hostport(text: str, where: str, default: str | None = None) -> tuple[str | None, int]:
    """`[HOST:]PORT`; an IPv6 host in brackets. Without a host: `default`."""
    host, colon, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535) or (colon and not host):
        raise WrongUsage(f"{where}: {text!r} is no [HOST:]PORT", hint="8101 or 127.0.0.2:8101")
    host = host.removeprefix("[").removesuffix("]")
    if host and (why := why_no_host(host)):
        raise WrongUsage(f"{where}: {host!r} is no host: {why}", hint="8101 or 127.0.0.2:8101")
    return (host or default), int(port)


def listen_host(text: str | None) -> str | None:
    """The host of `--listen`: a name or an address, an IPv6 one in brackets or not, and no port."""
    host = (text or "").removeprefix("[").removesuffix("]")
    # The system takes a bare number for an IPv4 address: 8101 is 0.0.31.165, and 1.5 is 1.0.0.5.
    number = host.rpartition(".")[2].isdecimal() and host.count(".") != 3
    if host and (number or why_no_host(host)):
        raise WrongUsage(
            f"--listen {text!r} is no host", hint="--listen HOST; a port goes into --env NAME=URL,listen=[HOST:]PORT"
        )
    return host or None


def parse_reset(name: str, rest: str, envs: Sequence[EnvSpec]) -> Reset:
    """`NAME="METHOD URL [BODY]"`."""
    if name not in {env.name for env in envs}:
        raise WrongUsage(f"--reset {name}: no environment of that name", hint=f"--env {name}=URL")
    method, _, tail = rest.strip().partition(" ")
    url, _, body = tail.strip().partition(" ")
    try:
        parts = urlsplit(url)
        leads = parts.scheme in ("http", "https") and parts.port != 0 and why_no_host(parts.hostname or "") is None
    except ValueError:  # of brackets, or of the port
        leads = False
    if not (method.isascii() and method.isalpha() and method.isupper() and leads):
        raise WrongUsage(
            f"--reset {name}: {rest!r} is no METHOD URL [BODY]",
            hint=f'--reset {name}="POST http://127.0.0.1:9000/reset"',
        )
    return Reset(env=name, method=method, url=url, body=body.strip())


def parse_when(text: str) -> tuple[str, ...]:
    """`start,write,end` or a part of it, or `never` (an empty tuple)."""
    words = [word.strip() for word in text.split(",")]
    if words == ["never"]:
        return ()
    if wrong := [word for word in words if word not in SNAPSHOT_WHEN]:
        raise WrongUsage(f"--snapshot-when: {wrong[0]!r} is none of start, write, end, never")
    return tuple(word for word in SNAPSHOT_WHEN if word in words)


def parse_mode(text: str) -> tuple[str, float]:
    """(`hold` or `free`, hold's limit in seconds)."""
    mode, colon, limit = text.partition(":")
    if mode == "free" and not colon:
        return "free", 0.0
    if mode != "hold":
        raise WrongUsage(f"--snapshot-mode: {text!r} is neither hold[:250ms] nor free")
    return "hold", seconds(limit, "--snapshot-mode") if colon else 0.25


def seconds(text: str, where: str) -> float:
    """`250ms`, `60s`, `10m`, `1h`; a bare number is seconds."""
    match = _DURATION.match(text)
    if not match:
        raise WrongUsage(f"{where}: {text!r} is no time", hint="250ms, 60s, 10m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def parse_meta(texts: Iterable[str]) -> dict[str, Any]:
    """`K=V` ..; a V that is a plain integer is one, anything else stays text."""
    meta: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise WrongUsage(f"--meta {text!r}: it takes K=V", hint="--meta step=400")
        meta[key] = int(value) if _INTEGER.match(value) else value
    return meta


def is_loopback(host: str) -> bool:
    """By what the host says; no name is looked up. `localhost` is loopback."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def check_allowed(entries: Sequence[str]) -> tuple[str, ...]:
    """`--allow-upstream HOST|CIDR`, refused where it is neither."""
    for entry in entries:
        if "/" in entry:
            try:
                ipaddress.ip_network(entry, strict=False)
            except ValueError as wrong:
                raise WrongUsage(f"--allow-upstream {entry}: {wrong}", hint="10.0.0.0/8, or a host") from None
        elif not entry or any(char.isspace() for char in entry):
            raise WrongUsage(f"--allow-upstream {entry!r} is neither a host nor a CIDR")
    return tuple(entries)


def upstream_allowed(host: str, allowed: Sequence[str]) -> bool:
    """Whether the control API may name this host: loopback, or what `--allow-upstream` lists."""
    if is_loopback(host):
        return True
    for entry in allowed:
        if entry.lower() == host.lower():
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue  # one of the two is a name, and a name is allowed only as it is written
    return False


def parse_advertise(texts: Sequence[str], envs: Sequence[EnvSpec]) -> tuple[str | None, dict[str, str]]:
    """(host for all, URL by environment) of `--advertise HOST|NAME=URL`."""
    host: str | None = None
    urls: dict[str, str] = {}
    names = {env.name for env in envs}
    for text in texts:
        name, equals, url = text.partition("=")
        if equals:
            if name not in names:
                raise WrongUsage(f"--advertise {text}: no environment {name!r}")
            urls[name] = upstream_url(url, f"--advertise {name}")
        elif host is not None or not text or "/" in text or any(char.isspace() for char in text):
            raise WrongUsage(f"--advertise {text!r}: it takes one HOST, and NAME=URL", hint="--advertise host.example")
        else:
            host = text
    return host, urls
