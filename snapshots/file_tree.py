"""`dir:PATH[,exclude=GLOB ..]`: the files under a directory, by path: mode, size and SHA-256; links by their target.

Times, owners and contents are kept aside: restored, never compared. Files that have not been touched are not read
again. Sockets, pipes and devices are no state.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from replayproxy.state import Changes, Reading, RestoreFailed, Row, RowChange, Rows, Scope, Spec, StateUnreadable
from replayproxy.state.delta import changes_between
from replayproxy.state.spec import as_path

OPTIONS = ("exclude",)
FILES, TIMES, CONTENTS = "files", "times", "contents"
LARGEST = 1 << 30
"""More contents than this are refused: a snapshot is taken after every write."""
SETTLED = 100_000_000
"""A file touched less than this many nanoseconds ago may change again without a new time."""

type _Mark = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Known:
    """A file as it was read: where its content has not changed since, `mark` is the same."""

    mark: _Mark
    digest: str


class FileTree:
    atomic = False
    can_restore = True

    def __init__(self, root: Path, exclude: tuple[str, ...], scope: Scope) -> None:
        self._root = os.fsencode(root)
        self._exclude = exclude
        self.scope: Scope = scope
        self._known: dict[bytes, Known] = {}
        self._read = 0
        self._last: tuple[Rows, Rows, frozenset[str]] | None = None  # files, times, contents given last

    def capture(self) -> Reading:
        files: dict[str, Row] = {}
        times: dict[str, Row] = {}
        contents: dict[str, bytes] = {}
        known: dict[bytes, Known] = {}
        self._read = 0
        for path, status in self._walk():
            try:
                row = self._row(path, status, known, contents)
            except FileNotFoundError:
                continue  # gone since the directory was read: as if it had gone before
            if row is not None:
                key = text_of(path) + ("/" if stat.S_ISDIR(status.st_mode) else "")
                files[key] = row
                times[key] = {"mtime": status.st_mtime_ns, "uid": status.st_uid, "gid": status.st_gid}
        self._known = known
        return self._reading({FILES: files}, {TIMES: times}, contents)

    def _reading(self, files: Rows, times: Rows, contents: dict[str, bytes]) -> Reading:
        """The whole at first, later what changed. `contents` are those read now; others are known to be kept."""
        held = frozenset(known.digest for known in self._known.values())
        last, self._last = self._last, (files, times, held)
        if last is None:
            return Reading(rows=files, aside={**times, CONTENTS: contents})
        aside = list(changes_between(last[1], times) or ())
        came = [(digest, content) for digest, content in contents.items() if digest not in last[2]]
        aside += [RowChange(table=CONTENTS, key=digest, before=None, after=content) for digest, content in came]
        aside += [RowChange(table=CONTENTS, key=digest, before=None, after=None) for digest in last[2] - held]
        return Reading(rows=Changes(rows=changes_between(last[0], files) or ()), aside=Changes(rows=aside))

    def _walk(self, folder: bytes = b"") -> Iterator[tuple[bytes, os.stat_result]]:
        """(path from the root, its status) of everything that is not excluded, a directory before what is in it."""
        try:
            with os.scandir(os.path.join(self._root, folder)) as entries:
                names = sorted(entry.name for entry in entries)
        except OSError as error:
            if folder and isinstance(error, FileNotFoundError | NotADirectoryError):
                return
            where = text_of(os.path.join(self._root, folder) if folder else self._root)
            raise StateUnreadable(f"{where}: {error.strerror}") from error
        for name in names:
            path = os.path.join(folder, name)
            if self._excluded(path):
                continue
            try:
                status = os.lstat(os.path.join(self._root, path))
            except FileNotFoundError:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(path)

    def _excluded(self, path: bytes) -> bool:
        whole, last = os.fsdecode(path), os.fsdecode(os.path.basename(path))
        return any(fnmatchcase(whole if "/" in glob else last, glob) for glob in self._exclude)

    def _row(
        self, path: bytes, status: os.stat_result, known: dict[bytes, Known], contents: dict[str, bytes]
    ) -> Row | None:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        if stat.S_ISDIR(status.st_mode):
            return {"mode": mode}
        if stat.S_ISLNK(status.st_mode):
            return {"link": text_of(os.readlink(os.path.join(self._root, path)))}
        if not stat.S_ISREG(status.st_mode):
            return None
        before = self._known.get(path)
        if before is not None and before.mark == _mark(status):
            known[path] = before
            return {"mode": mode, "size": status.st_size, "hash": before.digest}
        content, mark = self._content(path)
        digest = hashlib.sha256(content).hexdigest()
        known[path] = Known(mark, digest)
        contents[digest] = content
        self._read += len(content)
        if self._read > LARGEST:
            raise StateUnreadable(
                f"the tree holds more than {LARGEST >> 20} MiB", hint="leave out what is no state: exclude=GLOB"
            )
        return {"mode": mode, "size": len(content), "hash": digest}

    def _content(self, path: bytes) -> tuple[bytes, _Mark]:
        """What the file holds. Read again while it changes; one that never rests is taken as it was read last."""
        try:
            for _ in range(5):
                with open(os.path.join(self._root, path), "rb", opener=_no_link) as file:
                    began, before = time.time_ns(), os.fstat(file.fileno())
                    content = file.read()
                    after = os.fstat(file.fileno())
                if _mark(before) == _mark(after) and len(content) == after.st_size:
                    settled = began - max(after.st_mtime_ns, after.st_ctime_ns) > SETTLED
                    return content, _mark(after) if settled else (0, 0, 0, 0, 0)
            return content, (0, 0, 0, 0, 0)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):  # a link or a directory now
                raise FileNotFoundError from error
            raise StateUnreadable(f"{text_of(path)}: {error.strerror}") from error

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        if set(rows) - {FILES}:
            raise RestoreFailed("this is no state of files", hint=f"tables: {', '.join(sorted(rows))}")
        wanted = {path_of(key): row for key, row in rows.get(FILES, {}).items()}
        _refuse_strange_paths(wanted)
        os.makedirs(self._root, exist_ok=True)
        live = dict(self._walk())
        self._remove(wanted, live)
        for path in sorted(wanted):
            self._put(path, wanted[path], aside.get(CONTENTS, {}))
        # Deepest first: writing into a directory changes its time.
        for path in sorted(wanted, key=lambda path: path.count(b"/"), reverse=True):
            self._dress(path, wanted[path], aside.get(TIMES, {}))

    def _remove(self, wanted: dict[bytes, Any], live: dict[bytes, os.stat_result]) -> None:
        """What the state does not have, and what is of another kind than the state has."""
        for path in sorted(live, reverse=True):
            whole, kind = os.path.join(self._root, path), _kind(live[path])
            if kind is None or (path in wanted and _kind_of(wanted[path]) == kind):
                continue
            if kind != "dir":
                os.unlink(whole)
            else:
                # What is still in it is excluded; where the state has no such directory it cannot have been there.
                shutil.rmtree(whole)

    def _put(self, path: bytes, row: Any, contents: Any) -> None:
        whole = os.path.join(self._root, path)
        if "link" in row:
            target = path_of(row["link"])
            if not os.path.islink(whole) or os.readlink(whole) != target:
                if os.path.lexists(whole):
                    os.unlink(whole)
                os.symlink(target, whole)
        elif "hash" not in row:
            if not os.path.isdir(whole):
                os.mkdir(whole)
            os.chmod(whole, 0o700 | int(row["mode"], 8))
        elif not self._has(whole, row["hash"]):
            if row["hash"] not in contents:
                raise RestoreFailed(f"the snapshot does not hold the content of {text_of(path)}")
            # Renamed into place: the environment sees the old file or the new one, never a part.
            file, draft = tempfile.mkstemp(dir=os.path.dirname(whole), prefix=b".replayproxy-")
            with os.fdopen(file, "wb") as out:
                out.write(contents[row["hash"]])
            os.replace(draft, whole)

    def _has(self, whole: bytes, digest: str) -> bool:
        try:
            with open(whole, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == digest
        except OSError:
            return False

    def _dress(self, path: bytes, row: Any, times: Any) -> None:
        whole, kept = os.path.join(self._root, path), times.get(text_of(path) + ("" if _is_file(row) else "/"))
        link = "link" in row
        if kept is not None and os.geteuid() == 0:
            os.chown(whole, kept["uid"], kept["gid"], follow_symlinks=False)
        if not link:
            os.chmod(whole, int(row["mode"], 8))
        if kept is not None:
            os.utime(whole, ns=(kept["mtime"], kept["mtime"]), follow_symlinks=False)

    def close(self) -> None:
        self._known = {}


def _is_file(row: Any) -> bool:
    return "hash" in row or "link" in row


def _mark(status: os.stat_result) -> _Mark:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _no_link(path: str | bytes, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _kind(status: os.stat_result) -> str | None:
    if stat.S_ISDIR(status.st_mode):
        return "dir"
    if stat.S_ISLNK(status.st_mode):
        return "link"
    return "file" if stat.S_ISREG(status.st_mode) else None


def _kind_of(row: Any) -> str:
    return "link" if "link" in row else "file" if "hash" in row else "dir"


def _refuse_strange_paths(wanted: dict[bytes, Any]) -> None:
    """A recording may come from somebody else: nothing is written outside the directory, or through a link."""
    for path in wanted:
        parts = path.split(b"/")
        parent = os.path.dirname(path)
        if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
            raise RestoreFailed(f"{text_of(path)!r} is no path inside the directory")
        if parent and _kind_of(wanted.get(parent, {"link": ""})) != "dir":
            raise RestoreFailed(f"{text_of(path)!r} lies in no directory of the snapshot")


def text_of(path: bytes) -> str:
    """A path as text: what is not UTF-8 as \\xNN, a backslash doubled, so that no two paths give one text."""
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def path_of(text: str) -> bytes:
    """The path that `text_of` gave this text for; a directory's final slash is dropped."""

    def byte(match: re.Match[bytes]) -> bytes:
        return b"\\" if match[1] == b"\\" else bytes([int(match[1][1:], 16)])

    return re.sub(rb"\\(\\|x[0-9a-f]{2})", byte, text.removesuffix("/").encode("utf-8", "surrogatepass"))


def provider(spec: Spec) -> FileTree:
    root = Path(spec.filled(spec.target, as_path)).expanduser().absolute()
    return FileTree(root, spec.options.get("exclude", ()), spec.scope)
