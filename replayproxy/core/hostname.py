"""What may be a host at all, told before any name is looked up."""

from __future__ import annotations

import ipaddress
import re

_NAME = re.compile(r"[\w.-]+\Z")


def why_no_host(host: str) -> str | None:
    """Why this is neither a name nor an address, or None. An IPv6 address comes without its brackets.

    That a name may be looked up says nothing of whether there is such a host.
    """
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return "it is no IPv6 address"
        return None
    if not _NAME.match(host):
        wrong = next((char for char in host if not _NAME.match(char)), "")
        return f"{wrong!r} is in no host's name" if wrong else "it is empty"
    if host.rpartition(".")[2].isdecimal():
        return None if _is_ipv4(host) else "it is no IPv4 address"
    try:
        host.encode("idna")
    except UnicodeError:
        return "between its dots a name has 1 to 63 characters"
    return None


def _is_ipv4(host: str) -> bool:
    """As the system reads one: 127.1 is 127.0.0.1, for the last number fills what the others leave."""
    parts = host.split(".")
    if len(parts) > 4 or not all(part.isascii() and part.isdecimal() for part in parts):
        return False
    numbers = [int(part) for part in parts if len(part) < 20]
    most = [255] * (len(parts) - 1) + [256 ** (5 - len(parts)) - 1]
    return len(numbers) == len(parts) and all(number <= top for number, top in zip(numbers, most, strict=True))
