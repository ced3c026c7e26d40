"""The record add-on in a user's own mitmdump or mitmweb: it follows their modes, and identity comes by carriers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import ctx, exceptions, http
from mitmproxy.addonmanager import Loader
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_specs import RegularMode, ReverseMode

from replayproxy.core.names import why_not_an_env
from replayproxy.proxy.forward import take_credentials
from replayproxy.proxy.listeners import authority
from replayproxy.proxy.live import Clock
from replayproxy.proxy.record_addon import RecordAddon
from replayproxy.proxy.routes import Route, Upstream, env_of_authority, parse_upstream
from replayproxy.proxy.scribe import Scribe

OPTION = "replay_env"


class ModeRoutes:
    """Names environments by their origin: those that the option `replay_env` names, and the others by authority.

    In reverse modes links are put right and the environment's Host is written, as `replayproxy record` does; in the
    others a request goes where the agent sent it, and only identity marks are taken off.
    """

    name = "replayproxy-routes"

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._keep_host = False
        self._users: WeakKeyDictionary[Client, str] = WeakKeyDictionary()

    def load(self, loader: Loader) -> None:
        loader.add_option(
            OPTION, Sequence[str], [], "NAME=URL: the name under which an environment's traffic is recorded."
        )

    def configure(self, updated: set[str]) -> None:
        if OPTION in updated:
            try:
                self._names = dict(_named(text) for text in getattr(ctx.options, OPTION))
            except ValueError as error:
                raise exceptions.OptionsError(str(error)) from None  # type: ignore[no-untyped-call]

    def running(self) -> None:
        self._keep_host = bool(ctx.options.keep_host_header)
        ctx.options.update(  # type: ignore[no-untyped-call]
            keep_host_header=True,  # mitmproxy overwrites the agent's Host before any hook could record it
            connection_strategy="lazy",  # an eager one to a dead environment leaves no exchange to record
        )

    def http_connect(self, flow: http.HTTPFlow) -> None:
        if isinstance(flow.client_conn.proxy_mode, RegularMode) and (user := _take_user(flow)) is not None:
            self._users[flow.client_conn] = user

    def route(self, flow: http.HTTPFlow) -> Route:
        request = flow.request
        regular = isinstance(flow.client_conn.proxy_mode, RegularMode)
        user = (_take_user(flow) or self._users.get(flow.client_conn)) if regular else None
        upstream = Upstream(
            scheme="https" if request.scheme == "https" else "http", host=request.host.lower(), port=request.port
        )
        reverse = isinstance(flow.client_conn.proxy_mode, ReverseMode)
        host, port = flow.client_conn.sockname[:2]
        origin = f"{'https' if flow.client_conn.tls else 'http'}://{authority(host, port)}"
        return Route(
            env=self._names.get(upstream.origin) or env_of_authority(upstream.authority),
            listener=origin,
            fixed=upstream,
            origin=origin if reverse else "",
            port=port,
            keep_host=self._keep_host or not reverse,
            reroute=False,
            proxy_user=user,
        )


def _take_user(flow: http.HTTPFlow) -> str | None:
    """The user of the proxy credentials, which go no further."""
    fields, user = take_credentials(flow.request.data.headers.fields)
    flow.request.data.headers = http.Headers(fields)
    return user


def _named(text: str) -> tuple[str, str]:
    """(origin, name) of one NAME=URL."""
    name, equals, url = text.partition("=")
    if not equals:
        raise ValueError(f"{OPTION} takes NAME=URL, not {text!r}")
    if why := why_not_an_env(name):
        raise ValueError(f"{OPTION}: {name!r} is no environment's name: {why}")
    try:
        return parse_upstream(url).origin, name
    except ValueError as error:
        raise ValueError(f"{OPTION}: {url!r} is no environment's URL: {error}") from None


def standalone_addon(scribe: Scribe, *, now: Callable[[], int], wall: Callable[[], int]) -> Any:
    """The add-on to put into a script's `addons`. Other add-ons see WebSocket messages as ever."""
    routes = ModeRoutes()
    addon = RecordAddon(scribe, Clock(now=now, wall=wall), routes, keep_messages=True)
    addon.addons.append(routes)
    return addon
