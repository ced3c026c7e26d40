"""What commands share: their options, how a document is printed, and how text reaches a terminal.

Nothing that was recorded reaches a terminal as it is: it goes through `safe`.
"""

from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from replayproxy.core.shown import count, json_bytes, safe
from replayproxy.errors import WrongUsage
from replayproxy.session.look import SKEW_NS, Stores, looking
from replayproxy.storage import default_path

__all__ = [
    "beside", "columns", "config_option", "count", "echo_json", "json_bytes", "json_option", "one_store", "open_reader",
    "safe", "settle", "share", "store_option", "store_paths", "stores_option",
]  # fmt: skip

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

store_option: Decorator = click.option(
    "--store", "stores", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="The store; repeatable for reading. Default: REPLAYPROXY_STORE, else ./.replayproxy.",
)  # fmt: skip
"""Gives the parameter `stores`: a tuple of paths, empty when nobody said."""

_SKEW = "replayproxy.skew"


def _keep_skew(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        from replayproxy.session.wiring import seconds  # heavy, and seldom needed

        ctx.meta[_SKEW] = round(seconds(value, "--skew") * 1e9)


_skew_option: Decorator = click.option(
    "--skew", metavar="TIME", expose_value=False, callback=_keep_skew,
    help="By how much the clocks of the machines of several stores may differ. Default: 1s.",
)  # fmt: skip


def stores_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`store_option` for a command that reads several of them by `open_reader`, which obeys the `--skew` beside it."""
    decorated: Callable[..., Any] = store_option(_skew_option(command))
    return decorated


json_option: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout; everything else on stderr."
)
"""Gives the parameter `as_json`."""


def share(text: str) -> float:
    """The type of an option that takes a share of all, from 0 to 1."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise click.BadParameter(f"{text!r} is no share from 0 to 1, such as 0.2 for 20 %.")
    return found


config_option: Decorator = click.option(
    "--config", "config", type=click.Path(path_type=Path), metavar="FILE",
    help="Default: REPLAYPROXY_CONFIG, else ./replayproxy.toml, else [tool.replayproxy] of ./pyproject.toml.",
)  # fmt: skip
"""Gives the parameter `config`: a path or None, for `session.config.discover`."""


def store_paths(stores: Sequence[Path]) -> tuple[Path, ...]:
    """The stores a command reads: those named, else the default one."""
    return tuple(stores) or (default_path(),)


def one_store(stores: Sequence[Path]) -> Path:
    """The one store that a command writes to."""
    if len(stores) > 1:
        raise WrongUsage("only one --store can be written to", hint="name one")
    return store_paths(stores)[0]


@contextmanager
def open_reader(stores: Sequence[Path]) -> Iterator[Stores]:
    """The stores of `--store`, open for reading: `.find(address)`, `.runs()`, `.reader` (the first)."""
    current = click.get_current_context(silent=True)
    skew = SKEW_NS if current is None else int(current.meta.get(_SKEW, SKEW_NS))
    with looking(store_paths(stores), skew_ns=skew) as opened:
        yield opened


def echo_json(document: Any) -> None:
    """The one JSON document of a command, on one line of stdout, numbers exact."""
    sys.stdout.buffer.write(json_bytes(document) + b"\n")
    sys.stdout.buffer.flush()


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), gap: str = "  ") -> list[str]:
    """Lines in which every column is as wide as its widest cell; those whose index is in `right` end flush."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        pairs = enumerate(zip(row, widths, strict=True))
        return gap.join(cell.rjust(w) if at in right else cell.ljust(w) for at, (cell, w) in pairs).rstrip()

    return [line(row) for row in rows]


def beside(left: Sequence[str], texts: Sequence[str], width: int = 100) -> list[str]:
    """A last column that is wrapped, so that no line is wider than `width`, or than 30 columns beside the others."""
    wide = max(map(len, left))
    room = max(width - wide - 2, 30)
    lines: list[str] = []
    for line, text in zip(left, texts, strict=True):
        first, *more = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        lines.append(f"{line:<{wide}}  {first}".rstrip())
        lines += [f"{'':<{wide}}  {part}" for part in more]
    return lines


def settle() -> None:
    """For a command that serves for hours: what was loaded so far is never looked through again for cycles.

    mitmproxy's connections are cycles, so the collector is needed; but a full turn over all that was imported took
    90 ms, once in a thousand requests, and the traffic stood still for it.
    """
    gc.freeze()
    gc.set_threshold(3_000, 10, 10)
