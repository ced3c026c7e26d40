"""Writes a recorded state back, and reads what is there afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from replayproxy.core import prolly
from replayproxy.errors import CannotJudge
from replayproxy.state.growing import GrowingState
from replayproxy.state.loader import Loaded
from replayproxy.state.provider import CannotRestore, KeepsAside, Provider, RestoreFailed, StateUnreadable, reason_of
from replayproxy.state.reading import Save, in_thread

LIMIT = 300.0


async def restore(
    loaded: Loaded,
    root: bytes,
    load_node: prolly.Load,
    *,
    save: Save,
    aside: bytes | None = None,
    limit: float = LIMIT,
) -> bytes:
    """Makes the recorded state the live one and gives the root read back; the caller compares.

    Raises RestoreFailed (CannotRestore: there is no way to write it), StateUnreadable. The nodes of what was read
    back are saved, so that a difference can be named.
    """

    def work() -> bytes:
        write(loaded, root, load_node, aside=aside)
        return read(loaded, save=save)

    try:
        return await in_thread(work, limit)
    except TimeoutError:
        raise RestoreFailed(f"snapshot {loaded.name}: the restore did not end in {limit:g} s") from None


async def read_root(loaded: Loaded, *, save: Save, limit: float = LIMIT) -> bytes:
    """The root of the live state, its nodes saved. Raises StateUnreadable."""
    try:
        return await in_thread(lambda: read(loaded, save=save), limit)
    except TimeoutError:
        raise StateUnreadable(f"snapshot {loaded.name}: no answer in {limit:g} s") from None


def write(loaded: Loaded, root: bytes, load_node: prolly.Load, *, aside: bytes | None = None) -> None:
    """The writing half of `restore`; blocking."""
    with _fresh(loaded, RestoreFailed) as provider:
        if not provider.can_restore:
            raise CannotRestore("this provider cannot restore", hint="give --reset, or another provider")
        rows = prolly.exact(root, load_node)
        if isinstance(provider, KeepsAside):
            provider.restore_whole(rows, prolly.exact(aside, load_node) if aside is not None else {})
        else:
            provider.restore(rows)


def read(loaded: Loaded, *, save: Save) -> bytes:
    """The reading half of `restore`; blocking."""
    with _fresh(loaded, StateUnreadable) as provider:
        grown = GrowingState().take(provider.capture())
    save(grown.nodes)
    return grown.root


@contextmanager
def _fresh(loaded: Loaded, failure: type[CannotJudge]) -> Iterator[Provider]:
    """A provider for one task, closed after it; what it raises becomes one line that names the snapshot."""
    provider: Provider | None = None
    try:
        provider = loaded.make(loaded.context)
        yield provider
    except (RestoreFailed, StateUnreadable) as failed:
        raise type(failed)(f"snapshot {loaded.name}: {failed.what}", hint=failed.hint) from failed
    except Exception as error:
        raise failure(f"snapshot {loaded.name}: {reason_of(error)}") from error
    finally:
        if provider is not None:
            provider.close()
