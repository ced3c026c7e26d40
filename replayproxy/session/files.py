"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from replayproxy.errors import StoreTrouble, WrongUsage


def write_whole(path: Path, text: str) -> None:
    """Readers see the whole file or none; its mode is 0600, for it may hold a token."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replaced(path: Path, data: bytes) -> None:
    """A file that is there whole or as it was before; one that exists is replaced and keeps its mode."""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", dir=path.absolute().parent)
    except OSError as error:
        raise WrongUsage(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        raise StoreTrouble(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _umask() -> int:
    """The process's mask; there is no way to read it but to set it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
