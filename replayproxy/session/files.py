"""Files that are there whole or not at all.

A link stays one: the file that it leads to is replaced. What is no file (a pipe, a device) is written into, for a name
that is taken from it cannot be given back.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from replayproxy.errors import Problem, StoreTrouble, WrongUsage


def write_whole(path: Path, text: str) -> None:
    """Readers see the whole file or none; its mode is 0600, for it may hold a token."""
    data = text.encode()
    if is_special(path):
        path.write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replaced(path: Path, data: bytes) -> None:
    """A file that is there whole or as it was before; one that exists is replaced and keeps its mode.

    Raises WrongUsage where none can be made, StoreTrouble where it cannot be written to the end.
    """
    replaceable(path)
    target = Path(os.path.realpath(path))
    try:
        if is_special(path):
            path.write_bytes(data)
            return
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(path, error, StoreTrouble if is_special(path) else WrongUsage) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except OSError as error:
        raise _unwritable(path, error, StoreTrouble) from error
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def replaceable(path: Path) -> None:
    """Raises WrongUsage where `replaced` could make no file: known before there is anything to write."""
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        raise _unwritable(path, error, WrongUsage) from error
    if path.name == "" or path.is_dir():
        raise WrongUsage(f"{path} cannot be written: it is a directory", hint="name a file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise WrongUsage(f"{path} cannot be written: there is no directory {folder}", hint="make it first")
    if not is_special(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise WrongUsage(f"{path} cannot be written: {folder} cannot be written to", hint="name another place")


def is_special(path: Path) -> bool:
    """Whether something that is neither file nor directory has the name: a pipe, a device, a socket."""
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:
        return False


def _unwritable(path: Path, error: OSError | ValueError, kind: type[Problem]) -> Problem:
    return kind(f"{path} cannot be written: {(getattr(error, 'strerror', None) or str(error)).lower()}")


def _umask() -> int:
    """The process's mask; there is no way to read it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
