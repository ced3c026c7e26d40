"""Looking into stores and archives: what an address names, and in which of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from replayproxy.core.names import archive_splits, is_finding
from replayproxy.core.values import UNATTRIBUTED, Run
from replayproxy.errors import UnknownAddress, WrongUsage
from replayproxy.storage import Reader, Resolved, open_store
from replayproxy.storage.archive import open_archive

SKEW_NS = 1_000_000_000
"""By how much the wall clocks of two machines are believed to differ at most, where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an address names, and the reader of the store that holds it. `archive`: the file, where it is one."""

    reader: Reader
    resolved: Resolved
    archive: str = ""

    def address(self, inside: str) -> str:
        """An address of the same store as it can be typed: inside its archive, if it is one."""
        return f"{self.archive}/{inside}" if self.archive else inside


class Stores:
    """The stores that a command reads, opened when first asked for: an archive is read without any.

    `reader` is the first of them. `skew_ns`: by how much the wall clocks of two machines may differ.
    """

    def __init__(self, readers: Sequence[Reader] = (), *, paths: Sequence[Path] = (), skew_ns: int = SKEW_NS) -> None:
        self._readers, self._paths = tuple(readers), tuple(paths)
        self._skew_ns = skew_ns
        self._named: dict[int, Path] = {}
        self._archives: dict[str, Reader] = {}
        self._opened = ExitStack()

    @property
    def readers(self) -> tuple[Reader, ...]:
        if not self._readers:
            opened = [(path, self._opened.enter_context(open_store(path))) for path in self._paths]
            # Two names of one directory are one store.
            made: dict[int, tuple[Path, Reader]] = {}
            for path, store in opened:
                made.setdefault(id(store.env), (path, store.reader()))
            self._readers = tuple(reader for _, reader in made.values())
            self._named = {id(reader): path for path, reader in made.values()}
        return self._readers

    @property
    def reader(self) -> Reader:
        return self.readers[0]

    def place(self, reader: Reader) -> str:
        """The store of a reader as it was named; empty for an archive's."""
        return str(self._named.get(id(reader), ""))

    def close(self) -> None:
        self._opened.close()

    def find(self, text: str) -> Found:
        """Raises UnknownAddress when no store has it, WrongUsage when several have. `latest` is the latest of all."""
        if (inside := self.archive(text)) is not None:
            return self._find_inside(*inside, text)
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
            return self._latest(text, found)
        raise WrongUsage(f"{text} is in {len(found)} of the stores", hint="name one --store")

    def _latest(self, text: str, found: Sequence[Found]) -> Found:
        *earlier, last = sorted(found, key=lambda one: one.resolved.run.opened_wall)
        for other in reversed(earlier):
            apart = last.resolved.run.opened_wall - other.resolved.run.opened_wall
            if apart <= self._skew_ns and not _one_machine(last, other):
                raise WrongUsage(
                    f"{text} is {last.resolved.run.name} or {other.resolved.run.name}: they were begun on two machines,"
                    f" {apart / 1e9:.3f} s apart, and clocks may differ by {self._skew_ns / 1e9:g} s",
                    hint="name the run, or a smaller --skew",
                )
        return last

    def archive(self, text: str) -> tuple[Reader, str] | None:
        """An archive that an address names, open, and the address inside it; None when it names none."""
        splits = archive_splits(text)
        if not splits:
            return None
        path, rest = next(((path, rest) for path, rest in splits if Path(path).is_file()), splits[0])
        if path not in self._archives:
            self._archives[path] = Reader(self._opened.enter_context(open_archive(Path(path))))
        return self._archives[path], rest

    def _find_inside(self, reader: Reader, rest: str, text: str) -> Found:
        """FILE, FILE/F1, FILE/RUN.., and where one run is in it, FILE/EPISODE.. too; a run's name goes before an
        episode's."""
        runs = [run.name for run in reader.runs()]
        path = text[: len(text) - len(rest)].rstrip("/")
        if is_finding(rest) and rest not in runs:
            return Found(reader=reader, resolved=replace(reader.resolve(rest), text=text), archive=path)
        if re.split("[/#]", rest)[0] not in (*runs, "latest"):
            if len(runs) != 1:
                named = ", ".join(runs[:5]) + (", .." if len(runs) > 5 else "")
                raise UnknownAddress(
                    f"{text}: the archive holds {len(runs)} runs{f' ({named})' if runs else ''}", hint="FILE.replay/RUN"
                )
            rest = f"{runs[0]}/{rest}" if rest else runs[0]
        return Found(reader=reader, resolved=replace(reader.resolve(rest), text=text), archive=path)

    def runs(self) -> Iterator[tuple[Reader, Run]]:
        """Every run of every store, the oldest first."""
        found = ((reader, run) for reader in self.readers for run in reader.runs())
        yield from sorted(found, key=lambda one: one[1].opened_wall)


def _one_machine(one: Found, other: Found) -> bool:
    a, b = one.reader.machine(one.resolved.run), other.reader.machine(other.resolved.run)
    return a is not None and b is not None and a.name == b.name


@contextmanager
def looking(paths: Sequence[Path], *, skew_ns: int = SKEW_NS) -> Iterator[Stores]:
    """The stores for reading; closed at the end."""
    stores = Stores(paths=paths, skew_ns=skew_ns)
    try:
        yield stores
    finally:
        stores.close()


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
