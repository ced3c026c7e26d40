"""URL templates: `/deals/42?open=1` is `/deals/{id}`, so that differences of one kind fold into one line.

Light on purpose: a segment is a parameter when its form says so (a number, uuid, ulid, long hex, date, e-mail, long
base64). Two words in one place stay two templates.
"""

from __future__ import annotations

import re
from functools import lru_cache

from replayproxy.core.canonical import split_target
from replayproxy.core.values import Request

_ID = re.compile(
    r"""(?: \d+                                                        # a number
    | [0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}           # uuid, dashes or none
    | [0-7][0-9A-HJKMNP-TV-Z]{25}                                      # ulid
    | (?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}                               # hex, with a digit: "defaced" is a word
    | \d{4}-\d{2}-\d{2}(?:T[0-9:.]+(?:Z|[+-]\d{2}:?\d{2})?)?           # date or time
    | [^/@\s]+(?:@|%40)[^/@\s]+\.[a-zA-Z]{2,}                          # e-mail
    | (?=[A-Za-z0-9_=-]*\d)(?=[A-Za-z0-9_=-]*[A-Za-z])[A-Za-z0-9_=-]{20,}   # base64url and the like
    | (?=[^-_.]*[-_.]?[0-9a-f]*\d)[A-Za-z]{1,12}[-_][0-9a-fA-F]{2,}    # D-9f41, crm_00017
    | [A-Za-z]{1,12}(?:[-_]\d+){1,3}                                   # D-8, S-1-9
    )\Z""",
    re.VERBOSE,
)


@lru_cache(maxsize=16384)
def is_parameter(segment: str) -> bool:
    """Whether a path segment's form says that it names one of many."""
    return bool(_ID.match(segment))


@lru_cache(maxsize=16384)
def template_of(target: bytes) -> str:
    """The path with each parameter as `{id}`; the query is left out."""
    path, _ = split_target(target)
    text = path.decode("utf-8", "backslashreplace")
    return "/".join("{id}" if is_parameter(segment) else segment for segment in text.split("/"))


def request_template(request: Request) -> str:
    """`GET /deals/{id}`."""
    return f"{request.method.decode('ascii', 'backslashreplace')} {template_of(request.target)}"
