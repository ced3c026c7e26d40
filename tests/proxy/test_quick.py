"""Each shorter way gives what mitmproxy's own gives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mitmproxy import hooks, http, options, optmanager
from mitmproxy.proxy import server_hooks
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import tls
from mitmproxy.utils import asyncio_utils

from replayproxy.proxy import quick

NAMES = [b"Host", b"host", b"X-A", b"x-\xff", b"set-cookie", b""]
FIELDS = st.lists(st.tuples(st.sampled_from(NAMES) | st.binary(max_size=4), st.binary(max_size=6)), max_size=6)
ASKED = st.sampled_from([*NAMES, "Host", "HOST", "x-a", "X-\udcff", "none", ""])

ORIGINALS = {
    name: http.Headers.__dict__.get(name) or getattr(http.Headers, name) for name in ("get", "get_all", "__contains__")
}
CURRENT = optmanager._Option.current
ARGS = hooks.Hook.args


@pytest.fixture(scope="module", autouse=True)
def _as_it_was() -> Iterator[None]:
    """Another test of this process may have an engine, which installs the shorter ways."""
    assert ORIGINALS["get"] is not quick._get, "the originals were gone before this module was imported"
    return


@settings(deadline=None)
@given(FIELDS, ASKED)
def test_fields_are_found_as_mitmproxy_finds_them(fields: list[tuple[bytes, bytes]], name: Any) -> None:
    headers = http.Headers(fields)
    with pytest.MonkeyPatch.context() as patch:
        for attribute, original in ORIGINALS.items():
            patch.setattr(http.Headers, attribute, original)
        there = [headers.get(name), headers.get(name, 7), headers.get_all(name), name in headers]
    assert there == [
        quick._get(headers, name),
        quick._get(headers, name, 7),
        quick._get_all(headers, name),
        quick._contains(headers, name),
    ]


def test_an_option_is_read_as_mitmproxy_reads_it() -> None:
    known = options.Options()
    known.add_option("several", typing.Sequence[str], ["as", "given"], "")
    known.update(ssl_insecure=True)
    for name, option in known._options.items():
        assert quick._current(option) == CURRENT(option), name
    several = known._options["several"]
    quick._current(several).append("changed by whoever read it")
    assert quick._current(several) == CURRENT(several) == ["as", "given"]


def test_the_arguments_of_a_hook_are_its_own() -> None:
    given = object()
    for hook in (
        http_layers.HttpRequestHook(given),
        tls.TlsStartClientHook(given),
        server_hooks.ServerConnectHook(given),
    ):
        assert quick._args(hook) == ARGS(hook), hook


async def test_a_task_says_whose_it_is() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    quick._task_info(task, name="handle_hook(request)", client=("127.0.0.1", 1))
    assert (task.get_name(), task.client) == ("handle_hook(request)", ("127.0.0.1", 1))  # type: ignore[attr-defined]
    assert "handle_hook(request)" in asyncio_utils.task_repr(task)
    await task


def test_names_of_connections_are_uuids_and_no_two_are_the_same() -> None:
    one, other = quick._numbered(), quick._numbered()
    made = [one() for _ in range(3)] + [other() for _ in range(3)]
    assert len(set(made)) == 6
    assert [str(uuid.UUID(name)) for name in made] == made


def test_a_mitmproxy_of_the_user_keeps_its_own_ways() -> None:
    """The add-on of `mitmdump -s` has no engine."""
    code = (
        "from mitmproxy import http; before = http.MessageData.__post_init__, http.Headers.get\n"
        "import replayproxy.session.standalone; from replayproxy.proxy.install import install; install()\n"
        "assert (http.MessageData.__post_init__, http.Headers.get) == before\n"
        "from replayproxy.proxy.quick import install; install()\n"
        "assert http.MessageData.__post_init__ is not before[0] and http.Headers.get is not before[1]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
