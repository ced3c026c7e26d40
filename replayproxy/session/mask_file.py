"""`mask` on a file of whichever kind: JSON lines or Parquet."""

from __future__ import annotations

from pathlib import Path

from replayproxy.errors import WrongUsage
from replayproxy.session import rollouts_parquet
from replayproxy.session.mask import Masked, Progress, mask_lines
from replayproxy.session.mask_marks import Demands
from replayproxy.session.mask_table import mask_table
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts import opened
from replayproxy.session.rollouts_join import Join
from replayproxy.session.rollouts_out import WholeFile


def beside(source: Path) -> Path:
    """`NAME.masked.jsonl` for `NAME.jsonl`."""
    return source.with_name(f"{source.stem}.masked{source.suffix}")


def ready(source: Path, out: Path | None) -> Path:
    """Where it is written: `out`, else beside the source. Raises WrongUsage where the one cannot be read or the other
    not be made, before anything is judged."""
    opened(source).close()
    out = out or beside(source)
    if rollouts_parquet.is_parquet(source):
        with rollouts_parquet.table_file(source):
            pass
        if out.suffix in (".jsonl", ".json"):
            raise WrongUsage(f"{source} is Parquet and {out} is to be JSON", hint="--out NAME.parquet")
    elif out.suffix == ".parquet":
        raise WrongUsage(f"{source} is no Parquet and {out} is to be", hint="--out NAME.jsonl")
    with WholeFile(out):
        pass
    return out


def mask_file(
    judged: Verdicts, join: Join, demands: Demands, source: Path, out: Path | None, *,
    reward: str = "reward", progress: Progress | None = None,
) -> Masked:  # fmt: skip
    """Masks a file, and writes the other, whole or not at all."""
    mask = mask_table if rollouts_parquet.is_parquet(source) else mask_lines
    return mask(judged, join, demands, source, out, reward=reward, progress=progress)
