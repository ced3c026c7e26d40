"""What `replay` was asked to do, checked: flags over variables over the config file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replayproxy.core.hostlist import HostList
from replayproxy.core.replayer import Order
from replayproxy.core.rules import Rule, parse_rules
from replayproxy.core.values import Run
from replayproxy.errors import WrongUsage
from replayproxy.serve.sending import Pace, parse_pace
from replayproxy.session import wiring
from replayproxy.session.config import Config
from replayproxy.session.record_options import forward_words, writable_path
from replayproxy.session.wiring import DYNAMIC, EnvSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`envs`: what was said of single environments; `specs` puts it together with the recording's own wiring."""

    pace: Pace = field(default_factory=Pace)
    order: Order = Order.LANE
    stop_on_miss: bool = False
    envs: Mapping[str, EnvSpec] = field(default_factory=dict)
    listen: str | None = None
    control_host: str = "127.0.0.1"
    control_port: int = 0
    token: str | None = None
    advertise: tuple[str, ...] = ()
    forward: tuple[str, int] | None = None
    forward_auth: bool = False
    passes: HostList = field(default_factory=HostList)
    ready_file: Path | None = None
    summary: Path | None = None
    rules: tuple[Rule, ...] = ()

    def goes_past(self, run: Run) -> bool:
        """Whether an environment was recorded through the forward proxy, and this replay has no way in for it."""
        forward = [name for name, wired in run.envs.items() if wired.options.get("forward")]
        return self.forward is None and any(name not in self.envs for name in forward)


def parse(flags: Mapping[str, Any], config: Config, *, environ: Mapping[str, str]) -> ReplayOptions:
    """The options from the flags (keys as in Python), the config and the environment. Raises WrongUsage."""
    order = str(config.value("order", flags["order"], "lane"))
    on_miss = str(config.value("on-miss", flags["on_miss"], "answer"))
    if order not in tuple(Order):
        raise WrongUsage(f"--order {order!r} is neither lane nor strict")
    if on_miss not in ("answer", "stop"):
        raise WrongUsage(f"--on-miss {on_miss!r} is neither answer nor stop")
    host, port = wiring.hostport(str(config.value("control", flags["control"], "0")), "--control", default="127.0.0.1")
    assert host is not None
    token = environ.get("REPLAYPROXY_TOKEN") or None
    if not wiring.is_loopback(host) and token is None:
        raise WrongUsage(
            f"--control {host}: beyond loopback it demands a token, and there is none", hint="set REPLAYPROXY_TOKEN"
        )
    forward, passes = forward_words(flags, config)
    ready, summary = config.value("ready-file", flags["ready_file"]), config.value("summary", flags["summary"])
    return ReplayOptions(
        pace=parse_pace(str(config.value("pace", flags["pace"], "instant"))),
        order=Order(order),
        stop_on_miss=on_miss == "stop",
        envs=_envs(flags["env"]),
        listen=wiring.listen_host(config.value("listen", flags["listen"])),
        control_host=host,
        control_port=port,
        token=token,
        advertise=config.values("advertise", flags["advertise"]),
        forward=forward,
        forward_auth=bool(config.value("forward-auth", flags.get("forward_auth"), False)),
        passes=passes,
        ready_file=None if ready is None else writable_path(Path(ready), "--ready-file"),
        summary=None if summary is None else writable_path(Path(summary), "--summary"),
        rules=parse_rules(config.rules),
    )


def _envs(texts: Sequence[str]) -> dict[str, EnvSpec]:
    """`--env NAME[=URL][,listen=..][,as=..]`: a URL may stand there as in `record`, and is not used."""
    specs: dict[str, EnvSpec] = {}
    for text in texts:
        name, comma, rest = text.partition(",")
        spec = wiring.parse_env(text if "=" in name else f"{name}={DYNAMIC}{comma}{rest}")
        if spec.name in specs:
            raise WrongUsage(f"--env {spec.name} is given twice")
        specs[spec.name] = spec
    return specs


def specs(run: Run, options: ReplayOptions) -> tuple[EnvSpec, ...]:
    """The run's environments as they are listened for. Raises WrongUsage for one that the run does not have."""
    for name in options.envs:
        if name not in run.envs:
            known = ", ".join(run.envs) or "none"
            raise WrongUsage(f"--env {name}: run {run.name} has no such environment", hint=f"it has {known}")
    found = []
    for name, wired in run.envs.items():
        if wired.options.get("forward") and name not in options.envs:
            continue  # nobody named it, so nobody was given an address for it
        variable = wired.options.get("as")
        spec = EnvSpec(
            name=name, upstream=wired.upstream, variable=str(variable) if variable else None, reads=wired.reads,
            host_header="keep" if wired.options.get("host") == "keep" else "upstream",
            tls=bool(wired.options.get("tls")),
        )  # fmt: skip
        said = options.envs.get(name)
        if said is not None:
            spec = replace(
                spec, host=said.host, port=said.port, variable=said.variable or spec.variable, tls=said.tls or spec.tls
            )
        found.append(spec)
    return tuple(found)
