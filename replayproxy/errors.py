"""What can go wrong, in the words of the person who has to act on it.

A `Problem` is one line for a user: what, where, why, and what to do. It carries the exit code of the one table
(`EXIT`); `replayproxy.cli.main` is the only place that turns it into a process's exit. Anything else that is raised
is our own fault and ends as exit code 70. Where nobody outside needs to catch ours, a built-in is raised instead.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes. Where several apply the strongest wins: 70, 4, 5, 3, 1 (`worst`)."""

    OK = 0
    DIFFERENT = 1
    USAGE = 2
    UNJUDGED = 3
    STORE = 4
    WORLD = 5
    OURS = 70
    CHILD_NOT_STARTED = 125
    CHILD_NOT_EXECUTABLE = 126
    CHILD_NOT_FOUND = 127
    INTERRUPTED_TWICE = 130


_STRENGTH = (Exit.OURS, Exit.STORE, Exit.WORLD, Exit.UNJUDGED, Exit.DIFFERENT)


def worst(*codes: int) -> int:
    """The code that a process exits with when several apply; 0 when none does."""
    for code in _STRENGTH:
        if code in codes:
            return int(code)
    return next((code for code in codes if code), 0)


class Problem(Exception):
    """One thing a user can act on. `str()` is the line that is shown; `hint` says what to do about it."""

    exit: Exit = Exit.OURS
    title: str = "internal error"

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} -> {self.hint}" if self.hint else self.what


class WrongUsage(Problem):
    """The call's words are wrong, or name something that is not there; nothing was done."""

    exit = Exit.USAGE
    title = "wrong usage"


class UnknownAddress(WrongUsage):
    """No such run, episode, exchange, snapshot or finding in this store."""

    title = "unknown address"


class CannotJudge(Problem):
    """There is not enough evidence for a verdict: nothing recorded, incomplete, restore not faithful."""

    exit = Exit.UNJUDGED
    title = "cannot be judged"


class RestoreUnfaithful(CannotJudge):
    """After the restore the state is not the recorded one; `what` names the first differing row."""

    title = "restore not faithful"


class StoreTrouble(Problem):
    """The store is damaged, full, locked, or of a newer format."""

    exit = Exit.STORE
    title = "trouble with the store"


class DamagedRecord(StoreTrouble):
    """A record's checksum or shape is wrong; `what` names the record."""

    title = "damaged record"


class WorldTrouble(Problem):
    """Something outside is not as it must be: an environment unreachable, a port taken."""

    exit = Exit.WORLD
    title = "trouble with the world"
