"""Rollouts in Parquet: the mask as columns. Rows keep their order; columns, schema, codec and row groups stay.

Needs pyarrow (`replayproxy[parquet]`). Memory holds one row group, or of a large one `ROWS` rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from replayproxy.core.shown import safe
from replayproxy.errors import WrongUsage
from replayproxy.session.rollouts import Document

MAGIC = b"PAR1"
GROUP_MOST = 256 * 1024 * 1024
"""Bytes, unpacked, of a row group that is read and written whole."""

ROWS = 8192


def is_parquet(path: Path) -> bool:
    """Whether a file is meant as Parquet: by how it begins, or, where it cannot be looked into, by its name."""
    try:
        if not path.is_file():
            return path.suffix == ".parquet"
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC or path.suffix == ".parquet"
    except OSError:
        return path.suffix == ".parquet"


def library() -> tuple[Any, Any]:
    """pyarrow and its Parquet part. Raises WrongUsage where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise WrongUsage("Parquet needs pyarrow", hint="pip install 'replayproxy[parquet]'") from None
    return pyarrow, pyarrow.parquet


@contextmanager
def table_file(path: Path) -> Iterator[Any]:
    """The file for reading, as pyarrow has it. Raises WrongUsage for what is no Parquet, early or late."""
    arrow, parquet = library()
    try:
        with parquet.ParquetFile(path, memory_map=False) as file:
            yield file
    except arrow.ArrowException as error:
        told = " ".join(str(error).split())
        raise WrongUsage(f"{safe(str(path))} is no Parquet that can be read: {safe(told)}") from None
    except OSError as error:
        raise WrongUsage(f"{safe(str(path))} cannot be read: {error.strerror or error}") from None


def tables(file: Any) -> Iterator[Any]:
    """Every row in order, in tables of a row group, or of `ROWS` rows where that is large."""
    arrow, _ = library()
    for number in range(file.num_row_groups):
        if file.metadata.row_group(number).total_byte_size <= GROUP_MOST:
            yield file.read_row_group(number)
        else:
            for batch in file.iter_batches(batch_size=ROWS, row_groups=[number]):
                yield arrow.Table.from_batches([batch])


def documents(table: Any, names: Sequence[str]) -> list[Document]:
    """The rows as objects of those columns that are there. Raises WrongUsage where two have one of the names."""
    found: list[Document] = [{} for _ in range(table.num_rows)]
    for name in names:
        at = table.schema.get_all_field_indices(name)
        if len(at) > 1:
            raise WrongUsage(f"two columns are named {safe(name)}", hint="name the one that is meant otherwise")
        for document, value in zip(found, _values(table.column(at[0])) if at else (), strict=False):
            document[name] = value
    return found


def _values(column: Any) -> list[Any]:
    """What Python has no value for (an instant to the nanosecond, a day before the year 1) is nothing."""
    arrow, _ = library()
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, arrow.ArrowException):
        return [None] * len(column)
    return found


class TableOut:
    """Writes tables of a file with columns added, in the place of those of the same name, or last. What the schema says
    beside the columns (its metadata) stays. `trouble`: the error that one of writing becomes."""

    def __init__(
        self, out: Any, source: Any, columns: dict[str, Any], trouble: Callable[[OSError], Exception]
    ) -> None:  # fmt: skip
        self._arrow, parquet = library()
        self._columns, self._trouble = columns, trouble
        self.schema = source.schema_arrow
        for name, kind in columns.items():
            added = self._arrow.field(name, kind)
            at = self.schema.get_field_index(name)
            self.schema = self.schema.set(at, added) if at >= 0 else self.schema.append(added)
        self._writer = parquet.ParquetWriter(out, self.schema, compression=_codec(source.metadata))

    def write(self, table: Any, values: dict[str, list[Any]]) -> None:
        """`values`: of the added columns, row by row."""
        for name, kind in self._columns.items():
            column = self._arrow.array(values[name], type=kind)
            at = table.schema.get_field_index(name)
            added = self._arrow.field(name, kind)
            table = table.set_column(at, added, column) if at >= 0 else table.append_column(added, column)
        self._put(table)

    def keep(self, table: Any, kept: list[bool]) -> None:
        """Only the rows that are kept."""
        self._put(table.filter(self._arrow.array(kept, type=self._arrow.bool_())))

    def _put(self, table: Any) -> None:
        if table.num_rows:
            with self._told():
                self._writer.write_table(table.cast(self.schema), row_group_size=table.num_rows)

    def close(self) -> None:
        """The file is whole when it returns."""
        with self._told():
            self._writer.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._trouble(error) from None

    def __enter__(self) -> TableOut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with suppress(Exception):
            self._writer.close()  # else it would write its last bytes when it is collected, into a file that is closed


def mask_columns(mask: str, reasons: str, episode: str, verdict: str) -> dict[str, Any]:
    """The columns of a mask, by name, with their types."""
    arrow, _ = library()
    text = arrow.string()
    reason = arrow.struct([("kind", text), ("grade", text), ("finding", text), ("from", text)])
    return {mask: arrow.bool_(), reasons: arrow.list_(reason), episode: text, verdict: text}


def _codec(metadata: Any) -> str:
    if not metadata.num_row_groups or not metadata.num_columns:
        return "snappy"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return {"uncompressed": "none", "lz4_raw": "lz4"}.get(codec, codec)
