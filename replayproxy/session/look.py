"""Looking into one store or several: what an address names, and in which of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from replayproxy.core.values import UNATTRIBUTED, Run
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.storage import Reader, Resolved, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an address names, and the reader of the store that holds it."""

    reader: Reader
    resolved: Resolved


class Stores:
    """The stores that a command reads; `reader` is the first of them."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self.readers = tuple(readers)

    @property
    def reader(self) -> Reader:
        return self.readers[0]

    def find(self, text: str) -> Found:
        """Raises UnknownAddress when no store has it, WrongUsage when several have. `latest` is the latest of all."""
        found: list[Found] = []
        trouble: UnknownAddress | None = None
        for reader in self.readers:
            try:
                found.append(Found(reader=reader, resolved=reader.resolve(text)))
            except UnknownAddress as error:
                trouble = trouble or error
        if not found:
            assert trouble is not None
            raise trouble
        if len(found) == 1:
            return found[0]
        if text.partition("/")[0] == "latest":
            return max(found, key=lambda one: one.resolved.run.opened_wall)
        raise WrongUsage(f"{text} is in {len(found)} of the stores", hint="name one --store")

    def runs(self) -> Iterator[tuple[Reader, Run]]:
        """Every run of every store, each store's oldest first."""
        for reader in self.readers:
            for run in reader.runs():
                yield reader, run


@contextmanager
def looking(paths: Sequence[Path]) -> Iterator[Stores]:
    """Opens the stores for reading, and closes them."""
    with ExitStack() as stack:
        yield Stores([stack.enter_context(open_store(path)).reader() for path in paths])


def unattributed(reader: Reader, run: Run) -> int:
    """How many exchanges of a run no carrier gave an episode. Resets and probes lie there too, and are no trouble."""
    try:
        bucket = reader.episode(run, UNATTRIBUTED)
    except UnknownAddress:
        return 0
    return sum(not (exchange.is_reset or exchange.is_probe) for exchange in reader.exchanges(bucket))


def verdicts(reader: Reader, run: Run) -> dict[str, str]:
    """Episode -> verdict by the check last saved for the run; empty when there is none."""
    document = reader.check(run) or {}
    told = document.get("verdicts") or {}
    return {str(name).removeprefix(f"{run.name}/"): str(verdict) for name, verdict in told.items()}
