from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.test_mask import ON, shop
from tests.needs import module

__all__ = ["shop"]


def rows() -> list[dict[str, Any]]:
    """Twelve rollouts of the five episodes, with columns of many kinds."""
    return [
        {"rollout": f"e{n % 5}", "n": n, "reward": n / 4, "text": None if n % 3 else "ü",
         "messages": [{"role": "a"}] * n, "info": {"id": f"e{n % 5}", "raw": bytes([n])}, "tokens": [n, 2**40]}
        for n in range(12)
    ]  # fmt: skip


def written(path: Path, found: list[dict[str, Any]], **given: Any) -> Any:
    arrow, parquet = module("pyarrow"), module("pyarrow.parquet")
    table = arrow.Table.from_pylist(found).replace_schema_metadata({b"huggingface": b"{}", b"mine": b"yes"})
    parquet.write_table(table, path, **{"row_group_size": 5, "compression": "zstd", **given})
    return table


def read(path: Path) -> Any:
    return module("pyarrow.parquet").read_table(path)


def test_a_parquet_file_gets_the_mask_as_columns_and_keeps_everything_else(call: Call, shop: Path) -> None:
    before = written(shop / "r.parquet", rows())
    told = call("mask", "mixed", "r.parquet", *ON)
    assert told.code == 0
    assert told.text.startswith("mixed: 2 of 12 rows masked (16.7%, limit 20%)   written to r.masked.parquet\n")
    after = read(shop / "r.masked.parquet")
    assert after.select(before.column_names).equals(before)
    assert after.column_names == [
        *before.column_names,
        "mask_sample",
        "mask_reasons",
        "replay_episode",
        "replay_verdict",
    ]
    assert after["mask_sample"].to_pylist() == [n % 5 == 4 for n in range(12)]
    assert after["replay_episode"].to_pylist() == [f"e{n % 5}" for n in range(12)]
    assert [len(one) for one in after["mask_reasons"].to_pylist()] == [int(n % 5 == 4) for n in range(12)]
    assert after["mask_reasons"].to_pylist()[4][0]["kind"] == "stale-read"
    assert after.schema.metadata[b"mine"] == b"yes"
    meta = module("pyarrow.parquet").ParquetFile(shop / "r.masked.parquet").metadata
    assert [meta.row_group(n).num_rows for n in range(meta.num_row_groups)] == [5, 5, 2]
    assert meta.row_group(0).column(0).compression == "ZSTD"


def test_a_column_inside_a_struct_joins_too(call: Call, shop: Path) -> None:
    written(shop / "r.parquet", rows())
    for on in ("info.id=episode", "/info/id=episode"):
        assert call("mask", "mixed", "r.parquet", "--on", on, "--json").json["matched"] == 12


def test_drop_leaves_the_other_rows_and_adds_no_column(call: Call, shop: Path) -> None:
    before = written(shop / "r.parquet", rows())
    assert call("mask", "mixed", "r.parquet", *ON, "--how", "drop", "--out", "kept.parquet").code == 0
    after = read(shop / "kept.parquet")
    assert after.to_pylist() == [row for row in before.to_pylist() if row["rollout"] != "e4"]
    assert after.schema.equals(read(shop / "r.parquet").schema, check_metadata=True)


def test_masking_again_changes_nothing_and_what_was_masked_by_others_stays(call: Call, shop: Path) -> None:
    written(shop / "r.parquet", [{**row, "mask_sample": row["n"] == 0} for row in rows()])
    call("mask", "mixed", "r.parquet", *ON)
    once = read(shop / "r.masked.parquet")
    assert once["mask_sample"].to_pylist() == [n in (0, 4, 9) for n in range(12)]
    assert once["mask_reasons"].to_pylist()[0] == [{"kind": "given", "grade": None, "finding": None, "from": None}]
    call("mask", "mixed", "r.masked.parquet", *ON, "--out", "r.masked.parquet")
    assert read(shop / "r.masked.parquet").equals(once)


def test_a_large_row_group_is_read_in_parts(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from replayproxy.session import rollouts_parquet

    monkeypatch.setattr(rollouts_parquet, "GROUP_MOST", 1)
    monkeypatch.setattr(rollouts_parquet, "ROWS", 4)
    before = written(shop / "r.parquet", rows(), row_group_size=100)
    assert call("mask", "mixed", "r.parquet", *ON).code == 0
    assert read(shop / "r.masked.parquet").select(before.column_names).equals(before)


def test_over_a_limit_nothing_is_written(call: Call, shop: Path) -> None:
    written(shop / "r.parquet", [{"rollout": "e4"}, {"rollout": "e0"}])
    told = call("mask", "mixed", "r.parquet", *ON)
    assert told.code == 1
    assert "because 1 of 2 rows would be masked (50.0%), more than --max-masked 0.2" in told.text.splitlines()
    written(shop / "r.parquet", [{"rollout": "e0"}, {"rollout": None}])
    assert call("mask", "mixed", "r.parquet", *ON).code == 3
    assert call("mask", "mixed", "r.parquet", "--on", "nope=episode").code == 3
    assert sorted(path.name for path in shop.iterdir()) == ["r.parquet", "store"]


def test_the_way_to_join_is_found_in_columns_too(call: Call, shop: Path) -> None:
    written(shop / "r.parquet", [{"episode_id": f"e{n}", "reward": None} for n in range(5)])
    told = call("mask", "mixed", "r.parquet")
    assert told.code == 0
    assert told.err.splitlines()[0] == "replayproxy: joined by --on episode_id=episode: r.parquet looks like OpenEnv"


def test_what_is_no_parquet_or_is_to_be_another_kind_is_2(call: Call, shop: Path) -> None:
    (shop / "bad.parquet").write_bytes(b"PAR1 and nothing more")
    (shop / "lines.jsonl").write_text('{"rollout": "e0"}\n')
    written(shop / "r.parquet", rows())
    for words in (("bad.parquet",), ("r.parquet", "--out", "x.jsonl"), ("lines.jsonl", "--out", "x.parquet")):
        told = call("mask", "mixed", *words, *ON)
        assert (told.code, len(told.err.splitlines()), told.out) == (2, 1, b""), words


def test_without_pyarrow_it_is_said_what_to_install(call: Call, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop / "r.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = call("mask", "mixed", "r.parquet", *ON)
    assert told.code == 2
    assert told.err == "replayproxy: Parquet needs pyarrow -> pip install 'replayproxy[parquet]'\n"


def test_a_column_that_python_has_no_value_for_is_no_key_and_stays(call: Call, shop: Path) -> None:
    arrow = module("pyarrow")
    at = arrow.array([2**62 + 1] * 5, type=arrow.timestamp("ns"))
    table = arrow.table({"rollout": [f"e{n}" for n in range(5)], "at": at})
    module("pyarrow.parquet").write_table(table, shop / "r.parquet")
    assert call("mask", "mixed", "r.parquet", *ON).code == 0
    assert read(shop / "r.masked.parquet")["at"].equals(table["at"])
    told = call("mask", "mixed", "r.parquet", "--on", "at=episode")
    assert (told.code, "5 of 5 rows are not of one episode" in told.text) == (3, True)
    assert call("annotate", "mixed", "r.parquet", *ON, "--set", "meta.at=at").code == 3


@pytest.mark.parametrize("name", ["rollout", "mask_sample"])
def test_two_columns_of_one_name_are_refused(call: Call, shop: Path, name: str) -> None:
    arrow = module("pyarrow")
    column = arrow.array([f"e{n}" for n in range(5)])
    table = arrow.Table.from_arrays([column, column, column], names=["rollout", name, name])
    module("pyarrow.parquet").write_table(table, shop / "r.parquet")
    told = call("mask", "mixed", "r.parquet", *ON)
    assert told.code == 2
    assert f"replayproxy: two columns are named {name} " in told.err
    assert not (shop / "r.masked.parquet").exists()


def test_a_table_that_cannot_be_written_to_the_end_is_trouble_with_the_world(call: Call, shop: Path) -> None:
    call("check", "mixed")
    written(
        shop / "r.parquet", [{"rollout": f"e{n % 5}", "x": os.urandom(4000)} for n in range(500)], row_group_size=50
    )
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limit[1]))
    try:
        told = call("mask", "mixed", "r.parquet", *ON)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert told.code == 5
    assert "r.masked.parquet cannot be written" in told.err
    assert not [path for path in shop.iterdir() if "masked" in path.name or path.suffix == ".part"]
