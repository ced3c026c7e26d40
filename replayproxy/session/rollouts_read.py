"""The rollouts of a file of either kind, one after the other: JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from replayproxy.session import rollouts_parquet
from replayproxy.session.rollouts import Document, lines, opened, outermost


def rollouts_of(source: Path, fields: Sequence[str] = ()) -> Iterator[tuple[int, Document]]:
    """Each with the number of its line or row. `fields`: of a table only these are read; none: all."""
    if rollouts_parquet.is_parquet(source):
        yield from _rows(source, [one for name in fields for one in outermost(name)])
        return
    with opened(source) as file:
        for line in lines(file, str(source)):
            if line.document is not None:
                yield line.number, line.document


def unit_of(source: Path) -> str:
    """What a rollout is in the file."""
    return "row" if rollouts_parquet.is_parquet(source) else "line"


def _rows(source: Path, names: Sequence[str]) -> Iterator[tuple[int, Document]]:
    with rollouts_parquet.table_file(source) as file:
        columns = [name for name in names if name in file.schema_arrow.names] if names else None
        number = 0
        for batch in file.iter_batches(batch_size=rollouts_parquet.ROWS if names else 64, columns=columns):
            for document in rollouts_parquet.documents(batch, list(dict.fromkeys(columns or batch.schema.names))):
                number += 1
                yield number, document
