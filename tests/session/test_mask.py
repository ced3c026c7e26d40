from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replayproxy.errors import WrongUsage
from replayproxy.session.mask import Masked, mask_lines
from replayproxy.session.mask_marks import ADDED, Demands, How
from replayproxy.session.mask_verdicts import Verdicts
from replayproxy.session.rollouts import BOM
from replayproxy.session.rollouts_join import Join, pairs
from replayproxy.testing import episode, run

FINDING = {"id": "stale-read-0123456789ab", "kind": "stale-read", "grade": "proven", "episode": "bad"}
DOCUMENT = {"run": "r", "verdicts": {"bad": "poisoned", "good": "clean"}, "findings": [FINDING]}
ANY = Demands(max_masked=1, max_unmatched=1)


def judged(*names: str) -> Verdicts:
    episodes = [episode(name, task="t", seed=1) for name in names or ("bad", "good")]
    return Verdicts(run=run("r"), episodes=episodes, document=DOCUMENT, judged="")


def masked(folder: Path, content: bytes, demands: Demands = ANY, on: str = "id=episode") -> tuple[Masked, bytes | None]:
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_bytes(content)
    out.unlink(missing_ok=True)
    verdicts = judged()
    done = mask_lines(verdicts, Join(pairs([on]), verdicts.episodes), demands, source, out, reward="reward")
    return done, out.read_bytes() if out.exists() else None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mask")


# A line as anybody may have written it

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n"))
NUMBER = st.sampled_from(["0", "-0", "1e2", "1E+2", "0.10", "12345678901234567890123", "-1.5e-300", "NaN", "Infinity"])
NAME = st.sampled_from(['"id"', '"a"', '"\\u0069d2"', '"mask_samples"']) | TEXT.map(lambda t: json.dumps(t + "."))
ID = st.sampled_from(['"bad"', '"good"', '"b\\u0061d"', '"nobody"', "null", "7"])
SPACES = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def rollout(draw: st.DrawFn) -> str:
    value = st.recursive(
        NUMBER | TEXT.map(lambda t: json.dumps(t, ensure_ascii=draw(st.booleans()))) | st.just('"\\ud800"'),
        lambda inner: st.lists(inner, max_size=3).map(lambda found: f"[{' , '.join(found)}]"),
        max_leaves=4,
    )
    members = draw(st.lists(st.tuples(NAME, value), max_size=4))
    members.insert(draw(st.integers(0, len(members))), ('"id"', draw(ID)))
    gap, colon = draw(SPACES), draw(SPACES)
    inside = f"{gap},{colon}".join(f"{name}{colon}:{gap}{found}" for name, found in members)
    return f"{gap}{{{colon}{inside}{gap}}}{draw(SPACES)}"


LINES = st.lists(rollout() | SPACES, min_size=1, max_size=8)
ENDS = st.sampled_from(["\n", "\r\n"])
LAST = st.booleans()


def file_of(lines: list[str], end: str, last: bool) -> bytes:
    text = end.join(lines) + (end if last else "")
    return text.encode("utf-8", "surrogatepass")


def without_the_added(line: bytes) -> bytes:
    """The line as it was: the one place where something was put in starts at the first added name."""
    at = line.find(b'"mask_sample": ')
    if at < 0:
        return line
    rest = line[at:]
    depth, quoted, escaped = 0, False, False
    for where, char in enumerate(rest):
        if quoted:
            quoted, escaped = (char != 0x22 or escaped), char == 0x5C and not escaped
        elif char == 0x22:
            quoted = True
        elif char in b"[{":
            depth += 1
        elif char in b"]}":
            depth -= 1
            if depth < 0:
                return line[: at - 2] + rest[where:]
    raise AssertionError(line)


@settings(max_examples=200, deadline=None)
@given(LINES, ENDS, LAST)
def test_every_byte_and_the_order_stay_but_for_what_is_added(
    folder: Path, lines: list[str], end: str, last: bool
) -> None:
    content = file_of(lines, end, last)
    done, out = masked(folder, content)
    if not any(line.strip() for line in lines):
        assert (done.exit, out) == (3, None)
        return
    assert out is not None
    assert b"\n".join(map(without_the_added, out.split(b"\n"))) == content
    made = [json.loads(line) for line in out.split(b"\n") if line.strip()]
    assert all(one.keys() >= ADDED for one in made)
    for one in made:
        assert one["mask_sample"] == (one["id"] == "bad")
        assert one["replay_episode"] == (one["id"] if one["id"] in ("bad", "good") else None)


@settings(max_examples=100, deadline=None)
@given(LINES, ENDS, LAST)
def test_what_is_not_dropped_stays_as_it_is(folder: Path, lines: list[str], end: str, last: bool) -> None:
    content = file_of(lines, end, last)
    done, out = masked(folder, content, Demands(how=How.DROP, max_masked=1, max_unmatched=1))
    if out is None:
        assert done.exit == 3
        return
    *ended, rest = content.split(b"\n")
    kept = [*(line + b"\n" for line in ended), rest]
    assert out == b"".join(line for line in kept if not line.strip() or json.loads(line)["id"] != "bad")


@settings(max_examples=100, deadline=None)
@given(LINES, ENDS)
def test_masking_twice_is_masking_once(folder: Path, lines: list[str], end: str) -> None:
    _, once = masked(folder, file_of([*lines, '{"id": "bad"}'], end, True))
    assert once is not None
    assert masked(folder, once)[1] == once


@settings(deadline=None)
@given(st.binary(max_size=60).filter(lambda raw: raw.strip(b" \t\r\n")))
def test_bytes_that_are_no_rollouts_are_refused_and_nothing_is_written(folder: Path, raw: bytes) -> None:
    lines = raw.removeprefix(BOM).split(b"\n")
    bad = next((n for n, line in enumerate(lines, 1) if line.strip(b" \t\r\n") and not is_object(line)), None)
    if bad is None:
        return
    with pytest.raises(WrongUsage, match=f"line {bad}: "):
        masked(folder, raw)
    assert [path.name for path in folder.iterdir()] == ["in.jsonl"]


def is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode()), dict)
    except (ValueError, RecursionError):
        return False


@pytest.mark.parametrize(
    ("line", "added_before"),
    [
        (b'\xef\xbb\xbf{"id": "bad"}', b"}"),
        (b'{"id":"good","id":"bad"}', b"}"),
        (b'{"x": {"mask_sample": 1}, "id": "bad"}', b"}"),
        (b'{"id": "bad", "deep": ' + b"[" * 1100 + b"]" * 1100 + b"}", b"}"),
    ],
)
def test_odd_lines(tmp_path: Path, line: bytes, added_before: bytes) -> None:
    _, out = masked(tmp_path, line)
    assert out is not None
    assert out.startswith(line[: -len(added_before)] + b', "mask_sample": true, ')
    assert out.endswith(added_before)


def test_a_line_that_ends_in_a_bare_carriage_return_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="line 1: "):
        masked(tmp_path, b'{"id": "bad"}\r{"id": "good"}\r')


def test_a_line_without_end_is_refused_before_memory_is_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replayproxy.session.rollouts.LINE_MOST", 100)
    with pytest.raises(WrongUsage, match="line 2: it is longer"):
        masked(tmp_path, b'{"id": "bad"}\n{"id": "' + b"x" * 100 + b'"}\n')


def test_the_permissions_are_those_of_the_input_and_a_link_stays_one(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "good"}\n')
    source.chmod(0o640)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "elsewhere" / "real.jsonl")
    verdicts = judged()
    join = Join(pairs(["id=episode"]), verdicts.episodes)
    mask_lines(verdicts, join, ANY, source, tmp_path / "out.jsonl", reward="reward")
    assert (tmp_path / "out.jsonl").is_symlink()
    assert (tmp_path / "elsewhere" / "real.jsonl").stat().st_mode & 0o777 == 0o640


def test_where_files_must_have_names_a_failure_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    with pytest.raises(WrongUsage):
        masked(tmp_path, b'{"id": "bad"}\n[]\n')
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert masked(tmp_path, b'{"id": "bad"}\n')[1] is not None


KILLED = """
    import sys, time
    from pathlib import Path
    from replayproxy.session import mask, rollouts
    from tests.session.test_mask import ANY, judged
    from replayproxy.session.rollouts_join import Join, pairs
    seen = mask.lines
    def slow(file, name):
        for line in seen(file, name):
            if line.number == 3:
                print("midway", flush=True)
                time.sleep(60)
            yield line
    mask.lines = slow
    folder = Path(sys.argv[1])
    verdicts = judged()
    join = Join(pairs(["id=episode"]), verdicts.episodes)
    mask.mask_lines(verdicts, join, ANY, folder / "in.jsonl", folder / sys.argv[2], reward="reward")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("out", ["out.jsonl", "in.jsonl"])
def test_a_kill_in_the_middle_leaves_what_was_there(tmp_path: Path, how: signal.Signals, out: str) -> None:
    before = b'{"id": "good"}\n' * 5
    (tmp_path / "in.jsonl").write_bytes(before)
    (tmp_path / out).write_bytes(before)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), out], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, cwd=root,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"midway\n"
        process.send_signal(how)
        assert process.wait(30) != 0
    assert {path.name for path in tmp_path.iterdir()} <= {"in.jsonl", out}
    assert (tmp_path / "in.jsonl").read_bytes() == (tmp_path / out).read_bytes() == before


def lost(done: Masked) -> list[dict[str, Any]]:
    return [group.to_json() for group in done.report.groups.losing()]


def test_groups_that_lose_siblings_are_named_with_those_that_are_left_alone_or_alike(tmp_path: Path) -> None:
    def group(name: str, *rollouts: tuple[str, float]) -> list[Any]:
        return [(episode(f"{name}{n}", group=name), word, reward) for n, (word, reward) in enumerate(rollouts)]

    bad, ok = "poisoned", "clean"
    told = [
        *group("kept", (ok, 0), (ok, 1)),
        *group("alone", (bad, 0), (ok, 1)),
        *group("flat", (bad, 0), (ok, 1), (ok, 1)),
        *group("was-flat", (bad, 1), (ok, 1), (ok, 1)),
        *group("fine", (bad, 1), (ok, 1), (ok, 0)),
        *group("gone", (bad, 0), (bad, 1)),
    ]
    document = {"run": "r", "verdicts": {e.name: word for e, word, _ in told}, "findings": []}
    verdicts = Verdicts(run=run("r"), episodes=[e for e, _, _ in told], document=document, judged="")
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": e.name, "reward": reward}) + "\n" for e, _, reward in told))
    join = Join(pairs(["id=episode"]), verdicts.episodes)
    done = mask_lines(verdicts, join, ANY, source, None, reward="reward")
    assert [(g["group"], g["rollouts"], g["left"], g["alone"], g["no_variance"]) for g in lost(done)] == [
        ("gone", 2, 0, True, False), ("alone", 2, 1, True, False), ("flat", 3, 2, False, True),
        ("fine", 3, 2, False, False), ("was-flat", 3, 2, False, False),
    ]  # fmt: skip
    assert len(done.report.groups) == 6


def test_a_million_lines_need_the_memory_of_a_hundred(tmp_path: Path) -> None:
    """Not a million here: the same code over 2,000 and over 40,000 lines, and the peak may not grow with them."""
    program = """
        import resource, sys
        from pathlib import Path
        from replayproxy.session import mask
        from tests.session.test_mask import ANY, judged
        from replayproxy.session.rollouts_join import Join, pairs
        folder, count = Path(sys.argv[1]), int(sys.argv[2])
        with (folder / "in.jsonl").open("w") as out:
            for n in range(count):
                out.write('{"id": "%s", "text": "%s"}\\n' % ("bad" if n % 10 == 0 else "good", "x" * 400))
        verdicts = judged()
        join = Join(pairs(["id=episode"]), verdicts.episodes)
        mask.mask_lines(verdicts, join, ANY, folder / "in.jsonl", folder / "out.jsonl", reward="reward")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", textwrap.dedent(program), str(tmp_path), str(count)], capture_output=True,
                check=True, cwd=Path(__file__).parents[2],
            ).stdout
        )
        for count in (2_000, 40_000)
    ]  # fmt: skip
    assert peaks[1] - peaks[0] < 8_000, "kilobytes; the larger file has 16,000 of them"
