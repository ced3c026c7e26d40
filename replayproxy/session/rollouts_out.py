"""An output file that is there whole or not at all, whatever ends the process.

Until it is whole it has no name: where the system has unnamed files nothing is left of one that was not finished, else
a hidden one whose name ends in `.part`. The file takes the name in one step, over whatever had it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from replayproxy.errors import WorldTrouble, WrongUsage
from replayproxy.session.files import replaceable

STDOUT = Path("-")
_BLOCK = 1 << 20


class WholeFile:
    """`write` what is to be in it, then `keep`; left without `keep`, nothing has happened.

    `like`: the file whose permissions it gets. A path that is a pipe or a device (and `-`, stdout) gets everything at
    `keep`. Raises WrongUsage where no file can be made, WorldTrouble for a full disk.
    """

    def __init__(self, path: Path, *, like: Path | None = None) -> None:
        self.path = path
        self._target = Path(os.path.realpath(path))  # a link stays one, and leads to the new file
        self._part: Path | None = None
        if path != STDOUT:
            replaceable(path)
        try:
            self._special = path == STDOUT or (path.exists() and not path.is_file())
            self._file = self._made()
            if like is not None and not self._special:
                os.fchmod(self._file.fileno(), like.stat().st_mode & 0o777)
        except OSError as error:
            raise WrongUsage(f"{path} cannot be written: {error.strerror}", hint="--out FILE") from None

    def _made(self) -> BinaryIO:
        if self._special:
            return cast("BinaryIO", tempfile.TemporaryFile(buffering=_BLOCK))
        unnamed = _unnamed(self._target.parent)
        if unnamed is not None:
            return os.fdopen(unnamed, "w+b", buffering=_BLOCK)
        return self._named()

    def _named(self) -> BinaryIO:
        handle, name = tempfile.mkstemp(prefix=f".{self._target.name[:50]}.", suffix=".part", dir=self._target.parent)
        self._part = Path(name)
        os.fchmod(handle, 0o666 & ~_umask())
        return os.fdopen(handle, "w+b", buffering=_BLOCK)

    @property
    def file(self) -> BinaryIO:
        """For libraries that write by themselves."""
        return self._file

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self.trouble(error) from None

    def keep(self) -> None:
        """Everything is on disk under its name when it returns."""
        try:
            self._file.flush()
            if self._special:
                self._pour()
                return
            os.fsync(self._file.fileno())
            part = self._part or self._linked()
            part.replace(self._target)
            self._part = None
            _sync(self._target.parent)
        except OSError as error:
            raise self.trouble(error) from None

    def _linked(self) -> Path:
        """Gives the unnamed file a hidden name, from which it is renamed: a link never replaces a file."""
        part = self._target.with_name(f".{self._target.name[:50]}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        self._part = part
        folder = os.open(self._target.parent, os.O_RDONLY)
        try:
            # With a directory given, Python follows /proc's link to the file; without one it would link the link.
            os.link(f"/proc/self/fd/{self._file.fileno()}", part.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            os.close(folder)
        return part

    def _pour(self) -> None:
        self._file.seek(0)
        if self.path == STDOUT:
            shutil.copyfileobj(self._file, sys.stdout.buffer, _BLOCK)
            sys.stdout.buffer.flush()
            return
        with self.path.open("wb") as out:
            shutil.copyfileobj(self._file, out, _BLOCK)

    def trouble(self, error: OSError) -> Exception:
        """What an error of writing is for the user."""
        if isinstance(error, BrokenPipeError):
            return error
        return WorldTrouble(f"{self.path} cannot be written: {error.strerror}", hint="nothing was left of it")

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # what could not be flushed is given up with the rest
        if self._part is not None:
            self._part.unlink(missing_ok=True)


def _unnamed(folder: Path) -> int | None:
    """A file without a name in the folder; None where the system, or the file system, has no such thing."""
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(folder, flag | os.O_RDWR, 0o666)
    except (IsADirectoryError, OSError):
        return None  # the named way says what is wrong, if it is not just that


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
