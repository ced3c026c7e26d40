"""Whether an environment is there and, where it is https, whether its certificate is trusted as a recorder would."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from replayproxy.errors import Problem, WorldTrouble, WrongUsage
from replayproxy.proxy.trust import upstream_trust
from replayproxy.session.addresses import plainly
from replayproxy.session.wiring import DYNAMIC, EnvSpec, address_of

REACH_SECONDS = 5.0


async def reachable(envs: Sequence[EnvSpec]) -> None:
    """WorldTrouble, naming the first environment that does not accept a connection, or whose certificate is not
    trusted by its `ca=` and `insecure`. A dynamic one is not tried: its upstreams come with the episodes."""
    results = await asyncio.gather(*(_reach(env) for env in envs if env.upstream != DYNAMIC), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _reach(spec: EnvSpec) -> None:
    host, port = address_of(spec.upstream)
    context = trust(spec) if spec.upstream.startswith("https:") else None
    name = host if context else None
    try:
        _, stream = await asyncio.wait_for(
            asyncio.open_connection(host, port, ssl=context, server_hostname=name), REACH_SECONDS
        )
    except ssl.SSLError as error:
        raise no_tls(spec, error) from None
    except (OSError, TimeoutError) as error:
        reason = plainly(error)
        raise WorldTrouble(
            f"environment {spec.name} at {spec.upstream} cannot be reached: {reason}", hint="start it first"
        ) from None
    if stream.transport is not None:
        stream.transport.abort()  # a goodbye by TLS would be waited for


def trust(spec: EnvSpec) -> ssl.SSLContext:
    """By its `ca=` and `insecure`. WrongUsage for a `ca=` that holds no certificate."""
    try:
        return upstream_trust(spec.ca, insecure=spec.insecure)
    except ssl.SSLError as wrong:
        raise WrongUsage(f"--env {spec.name}: ca={spec.ca}: {wrong.reason or wrong}") from None


def no_tls(spec: EnvSpec, error: ssl.SSLError) -> Problem:
    """What the handshake failed by, in a line."""
    host, port = address_of(spec.upstream)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message or error.reason or "it cannot be verified"
        return WorldTrouble(
            f"environment {spec.name}: certificate of {where} is not trusted ({reason})", hint="ca=PATH, or insecure"
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return WorldTrouble(
        f"environment {spec.name}: no TLS with {where} ({reason})", hint="http:// in its URL, if it speaks no TLS"
    )
