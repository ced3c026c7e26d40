"""Keeps a damaged store from ending a command by a signal.

LMDB maps the file: reading a page that was cut away meanwhile is SIGBUS, a page that makes no sense may be an assertion
(SIGABRT) or SIGSEGV. No exception can come of that, but the process can say what it was reading before it ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

SIGNALS = (signal.SIGBUS, signal.SIGABRT, signal.SIGSEGV)

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_kept: list[object] = []


def install(tell: Callable[[Path, str], int]) -> None:
    """From now on such a signal, while a store is open, ends the process with the code that `tell` gives; it gets the
    store and the signal's name. While none is open the signal does what it always does.

    A handler of Python's own would never run: it waits for the instruction to end, which begins again for ever.
    """
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p

    def came(number: int) -> None:
        libc.signal(number, None)  # whatever goes wrong in here ends the process as before
        # Not imported: whoever has no store open shall not pay for it.
        environment = sys.modules.get("replayproxy.storage.environment")
        paths: list[Path] = [] if environment is None else environment.open_paths()
        if not paths:
            os.kill(os.getpid(), number)  # held back until this returns
            return
        os._exit(tell(paths[0], signal.Signals(number).name))

    handler = _HANDLER(came)
    _kept.append(handler)  # ctypes frees a callback that nobody holds
    for number in SIGNALS:
        libc.signal(number, ctypes.cast(handler, ctypes.c_void_p))
