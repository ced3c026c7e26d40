"""What parsers say of bytes that they cannot read, without these bytes.

Their messages quote the line or value that is wrong. A secret may stand in it, where no rule of redaction can know it:
there is no field that names it.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"(?<!\w)(?:b(?=[\"']))?[\"'].*[\"']", re.DOTALL)
"""From the first quote to the last: how a quoted value is escaped is not believed. An apostrophe is no quote."""


_NOT_REACHED = re.compile(r"Connect call failed \('([0-9A-Fa-f.:]{2,45}(?:%\w{1,15})?)', (\d{1,5})(?:, \d+, \d+)?\)")
"""asyncio's own words on an address that it could not reach (`%eth0`: its zone): it is quoted, and nobody's secret."""


def unquoted(message: str) -> str:
    """The message, and how much of it was taken out. Of a message that quotes nothing, the message."""
    message = _NOT_REACHED.sub(lambda found: f"no connection to {found[1]} port {found[2]}", message)
    return _QUOTED.sub(lambda found: f"({len(found[0])} characters, not kept)", message)
