"""What commands share: their options, how a document is printed, and how text reaches a terminal.

Nothing that was recorded reaches a terminal as it is: `safe` shows control characters, and bytes that are no text, as
escapes.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from replayproxy.core.jsonvalue import number_text
from replayproxy.errors import WrongUsage
from replayproxy.session.look import Stores, looking
from replayproxy.storage import default_path

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

store_option: Decorator = click.option(
    "--store", "stores", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="The store; repeatable for reading. Default: REPLAYPROXY_STORE, else ./.replayproxy.",
)  # fmt: skip
"""Gives the parameter `stores`: a tuple of paths, empty when nobody said."""

json_option: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout; everything else on stderr."
)
"""Gives the parameter `as_json`."""

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
    with looking(store_paths(stores)) as opened:
        yield opened


def echo_json(document: Any) -> None:
    """The one JSON document of a command, on one line of stdout, numbers exact."""
    sys.stdout.buffer.write(json_bytes(document) + b"\n")
    sys.stdout.buffer.flush()


def json_bytes(document: Any) -> bytes:
    """JSON of a document, with exact decimals and integers of any size; a lone surrogate becomes an escape."""
    import orjson

    try:
        return orjson.dumps(document, default=_beyond_json)
    except TypeError:
        return orjson.dumps(_prepared(document), default=_beyond_json)


def _beyond_json(value: Any) -> Any:
    import orjson

    if isinstance(value, Decimal):
        return orjson.Fragment(number_text(value)) if value.is_finite() else str(value)
    if isinstance(value, bytes):
        return safe(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")


def _prepared(value: Any) -> Any:
    """The slow way, for what orjson refuses: integers beyond 64 bits, lone surrogates."""
    import json

    import orjson

    if isinstance(value, dict):
        return {safe(str(name)): _prepared(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_prepared(item) for item in value]
    if isinstance(value, str):
        return orjson.Fragment(json.dumps(value))
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return orjson.Fragment(str(Decimal(value)))
    return value


def safe(text: str | bytes, *, lines: bool = False) -> str:
    """Text that changes nothing but what it says: control, format and unprintable characters become escapes.

    `lines`: line feeds and tabs may stay.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if lines and char in "\n\t" else _shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 0x7F else f"\\x{ord(char):02x}"


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), gap: str = "  ") -> list[str]:
    """Lines in which every column is as wide as its widest cell; those whose index is in `right` end flush."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        pairs = enumerate(zip(row, widths, strict=True))
        return gap.join(cell.rjust(w) if at in right else cell.ljust(w) for at, (cell, w) in pairs).rstrip()

    return [line(row) for row in rows]


def count(number: int, what: str) -> str:
    """`1 episode`, `2,003 episodes`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
