"""Names of runs, episodes and environments, and the addresses that people type."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from replayproxy.core.values import UNATTRIBUTED

NAME_BYTES = 200
_ENV = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_FINDING = re.compile(r"F[0-9]+\Z")
_ARCHIVE = ".replay"
_STABLE_FINDING = re.compile(
    r"(stale-read|state-bleed|dirty-reset|nondeterminism|race|lost-update|timeout-default|false-resolution"
    r"|reward-flat|reward-hack|drift|distribution)-[0-9a-f]{10,}\Z"
)


def why_not_a_name(name: str, *, of: str = "episode") -> str | None:
    """Why `name` cannot name a run or an episode; None when it can. `of` is "run" or "episode"."""
    raw = name.encode("utf-8", "surrogatepass")
    if not name:
        return f"an {of} name may not be empty" if of == "episode" else f"a {of} name may not be empty"
    if any("\ud800" <= c <= "\udfff" for c in name):
        return "it is not valid UTF-8"
    if len(raw) > NAME_BYTES:
        return f"it is {len(raw)} bytes long, at most {NAME_BYTES} are allowed"
    if name in (".", "..", UNATTRIBUTED):
        return f"{name!r} is reserved"
    if unicodedata.normalize("NFC", name) != name:
        return "it is not in Unicode normal form C"
    for char in name:
        if char in "/#":
            return f"it contains {char!r}"
        if char.isspace():
            return "it contains white space"
        if unicodedata.category(char).startswith("C"):
            return f"it contains the control character U+{ord(char):04X}"
    if name.endswith(_ARCHIVE) or (
        of == "run" and (name == "latest" or _FINDING.match(name) or _STABLE_FINDING.match(name))
    ):
        return f"{name!r} is kept for addresses"
    return None


def why_not_an_env(name: str) -> str | None:
    """Why `name` cannot name an environment; None when it can."""
    return None if _ENV.match(name) else "an environment name is [A-Za-z][A-Za-z0-9_-]*"


def suggestion(name: str) -> str:
    """A name near to `name` that is allowed."""
    text = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8", "replace"))
    text = "".join("-" if c.isspace() or c in "/#" or unicodedata.category(c).startswith("C") else c for c in text)
    while len(text.encode()) > NAME_BYTES or text.endswith(_ARCHIVE):
        text = text[:-1]
    return text if text not in ("", ".", "..", UNATTRIBUTED) else "episode-1"


def variable(env: str) -> str:
    """The variable part of an environment's name: upper case, `-` and `.` as `_`."""
    return env.upper().replace("-", "_").replace(".", "_")


def encode_name(name: str) -> str:
    """Percent-encoded for every carrier (path prefix, header, proxy user)."""
    return quote(name, safe="")


def decode_name(carried: bytes | str) -> str | None:
    """The name that a carrier held, or None when it is no valid UTF-8. Validity as a name is not checked."""
    try:
        return unquote_to_bytes(carried).decode("utf-8")
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What a user typed, taken apart. Exactly one of `run`, `finding`, `archive` is set; `text` is as typed."""

    text: str
    run: str | None = None
    episode: str | None = None
    seq: int | None = None
    snapshot: int | None = None
    finding: str | None = None
    archive: str | None = None


def archive_splits(text: str) -> list[tuple[str, str]]:
    """Where the path of an archive may end in what was typed, and the address inside it; the shortest path first.

    Empty for an address of a store: no run's or episode's name ends like an archive's.
    """
    return [
        (text[: match.end()], text[match.end() :].removeprefix("/"))
        for match in re.finditer(r"(?<=[^/])\.replay(?=/|#|\Z)", text)
    ]


def is_finding(text: str) -> bool:
    """Whether it has the form of a finding's number or of its stable id."""
    return bool(_FINDING.match(text) or _STABLE_FINDING.match(text))


def is_finding_number(text: str) -> bool:
    """Whether it is `F3`: a finding's number in the last check, not its stable id."""
    return bool(_FINDING.match(text))


def parse_address(text: str) -> Address:
    """Raises ValueError with the reason. Whether what is named exists is the store's to say."""
    if text.endswith(_ARCHIVE):
        return Address(text=text, archive=text)
    if is_finding(text):
        return Address(text=text, finding=text)
    head, hash_, number = text.partition("#")
    if hash_:
        if not number.isascii() or not number.isdigit() or int(number) < 1:
            raise ValueError(f"{text!r}: after # comes an exchange's number, counted from 1")
        parts = [*head.split("/"), number]
        if len(parts) != 3:
            raise ValueError(f"{text!r}: an exchange is RUN/EPISODE#SEQ")
    else:
        parts = text.split("/")
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"{text!r}: an address is RUN, RUN/EPISODE, RUN/EPISODE#SEQ or RUN/EPISODE/sN")
    run = parts[0]
    reason = None if run == "latest" else why_not_a_name(run, of="run")
    if reason:
        raise ValueError(f"{run!r} is no run name: {reason}")
    episode = parts[1] if len(parts) > 1 else None
    if episode is not None and episode != UNATTRIBUTED and (reason := why_not_a_name(episode)):
        raise ValueError(f"{episode!r} is no episode name: {reason}")
    if len(parts) < 3:
        return Address(text=text, run=run, episode=episode)
    last = parts[2]
    if last.isascii() and last.isdigit() and int(last) >= 1:
        return Address(text=text, run=run, episode=episode, seq=int(last))
    if last[:1] == "s" and last[1:].isascii() and last[1:].isdigit():
        return Address(text=text, run=run, episode=episode, snapshot=int(last[1:]))
    raise ValueError(f"{text!r}: {last!r} is neither an exchange's number nor a snapshot sN")
