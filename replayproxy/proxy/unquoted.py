"""What parsers say of bytes that they cannot read, without these bytes.

Their messages quote the line or value that is wrong. A secret may stand in it, where no rule of redaction can know it:
there is no field that names it.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"(?<!\w)(?:b(?=[\"']))?[\"'].*[\"']", re.DOTALL)
"""From the first quote to the last: how a quoted value is escaped is not believed. An apostrophe is no quote."""


def unquoted(message: str) -> str:
    """The message, and how much of it was taken out. Of a message that quotes nothing, the message."""
    return _QUOTED.sub(lambda found: f"({len(found[0])} characters, not kept)", message)
