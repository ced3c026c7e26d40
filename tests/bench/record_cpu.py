"""CPU per request: a bare proxy, and the recorder, in turns.    python -m tests.bench.record_cpu [--rounds N]

Both are mitmproxy's Master as a reverse proxy in front of the same environment, under the same load; one of them
records (`replayproxy record`, the process of the recorder with all its threads). Rows are printed as they are measured,
one JSON document a line, the last ones are the medians. `cpu_s_per_1000`: user and system seconds of the process for a
thousand requests; `ratio`: recorder over bare proxy, round by round. With `credential` each request has an
Authorization field, which redaction has to replace.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.bench import contenders
from tests.bench.load import wrk
from tests.bench.machine import describe
from tests.bench.rounds import Row, median, ratio, turns
from tests.bench.upstream import upstream

KINDS = {"plain": {}, "credential": {"Authorization": "Bearer sk-live-4f0c2a7d9b1e43c8a5f6"}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--kind", choices=tuple(KINDS), action="append")
    given = parser.parse_args()
    print(json.dumps({"group": "machine", "name": "machine", **describe()}), flush=True)
    for kind in given.kind or KINDS:
        group, rows = f"cpu {kind}", list[Row]()
        with tempfile.TemporaryDirectory(prefix="replayproxy-bench-") as folder:
            with upstream(Path(folder) / "environment") as up:
                programs = {"bare": (contenders.bare, up.plain), "replayproxy": (contenders.recorder(), up.plain)}
                load = lambda _, one, kind=kind: wrk(one.url + "/deals/1", seconds=given.seconds, headers=KINDS[kind])  # noqa: E731
                for row in turns(group, programs, load, Path(folder), given.rounds):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
        found = ratio(rows, group, "replayproxy", "bare", "cpu_s_per_1000")
        medians = {name: median(rows, group, name, "cpu_s_per_1000") for name in programs}
        told = {}
        if found is not None:
            told = {"ratio": round(found.median, 3), "low": round(found.low, 3), "high": round(found.high, 3)}
        print(json.dumps({"group": group, "name": "median", **medians, **told}), flush=True)


if __name__ == "__main__":
    main()
