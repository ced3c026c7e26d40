"""Whether a SQLite database is being written, asked of its locks without taking one.

A connection in rollback-journal mode writes to the file only under its EXCLUSIVE lock, a write lock on the bytes that
stand for SHARED. That is all there is to see of a transaction whose journal is in memory, or that has none.

Source: "File Locking And Concurrency In SQLite Version 3", sqlite.org/lockingv3.html; the bytes: `os.h` of SQLite.
"""

from __future__ import annotations

import fcntl
import struct

SHARED_FIRST = 0x40000000 + 2
SHARED_SIZE = 510

# Locks that belong to the open file see those of the own process too, should the environment run in it. Where there
# are none (macOS), only other processes are seen.
_OPEN_FILE: int | None = getattr(fcntl, "F_OFD_GETLK", None)


def is_being_written(file: int) -> bool:
    """Whether anybody may write to the file at this instant. False where that cannot be asked."""
    for command in (_OPEN_FILE, fcntl.F_GETLK):
        if command is not None:
            try:
                return _kind(fcntl.fcntl(file, command, _asked())) != fcntl.F_UNLCK
            except OSError:
                continue  # a file system or kernel without this kind
    return False


if _OPEN_FILE is not None:  # Linux: type, whence, start, length, process

    def _asked() -> bytes:
        return struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, SHARED_FIRST, SHARED_SIZE, 0)

    def _kind(answer: bytes) -> int:
        found: int = struct.unpack_from("h", answer)[0]
        return found

else:  # BSD: start, length, process, type, whence

    def _asked() -> bytes:
        return struct.pack("qqihhi4x", SHARED_FIRST, SHARED_SIZE, 0, fcntl.F_RDLCK, 0, 0)

    def _kind(answer: bytes) -> int:
        found: int = struct.unpack_from("qqih", answer)[3]
        return found
