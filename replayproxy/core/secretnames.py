"""What is named like a credential: the one list for what is kept out of the store and for what is never shown."""

from __future__ import annotations

import re
from functools import lru_cache

_NAMED = re.compile(
    r"(?:.*_)?(?:password(?:_?(?:confirm|confirmation|again|repeat|[0-9]))?|passwd|pwd|passphrase|credentials?|secret(?:_?key)?|secret_access_key|api_?key|access_?key|private_?key"
    r"|authorization|cookie|csrf|xsrf|jwt)"
    r"|(?:.*_)?(?:access|refresh|id|auth|session|bearer|xsrf|csrfmiddleware|security|api|private|personal|login"
    r"|vault|job|deploy|jwt|reset|invite|verification|user|bot|app|client|device|service|admin|github|gitlab|slack|hf"
    r"|npm|oauth|csrf|authentication|registration|subscription|signing|webhook)_?token"
    r"|token|session_?id|php_?sess_?id|j_?session_?id|sid|sig|(?:(?:amz|goog|request|webhook)_)?signature",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

HEADERS = {
    b"authorization": "authorization",
    b"proxy-authorization": "authorization",
    b"cookie": "cookie",
    b"cookie2": "cookie",
    b"set-cookie": "set-cookie",
    b"set-cookie2": "set-cookie",
    b"mcp-session-id": "whole",
}
"""Header fields whose value has a form of its own, or is an identity that is worth as much as a credential."""

# Of header fields that end so, few are none; of members of a body, many are: next_page_token, primary_key.
_HEADER = re.compile(
    r".*_?(?:token|signature|signature_(?:256|sha256|ed25519)|(?:auth|subscription|functions|api|rapidapi|master|admin"
    r"|account|license|app|application|client)_key|jwt_assertion|credential|authorization_token)|auth|dpop|authentication"
)
_HEADER_NO = re.compile(r".*(?:page|continuation|continue|sync|next|range|cancel|fence|fencing|concurrency)_token")
_HEADER_NEVER = frozenset({"www_authenticate", "proxy_authenticate"})


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a member, parameter, column or header is named like a credential."""
    if len(name) > 100:
        return False
    plain = name.strip().replace("-", "_").replace(".", "_").removesuffix("[]")
    return bool(_NAMED.fullmatch(plain) or _NAMED.fullmatch(_CAMEL.sub("_", plain)))


@lru_cache(maxsize=4096)
def kind_of_header(name: bytes) -> str:
    """authorization, cookie, set-cookie, whole (all of the value is the secret), or "" for any other header."""
    lower = name.lower()
    found = HEADERS.get(lower)
    if found is not None:
        return found
    text = lower.decode("latin-1").replace("-", "_")
    if text in _HEADER_NEVER:
        return ""
    plain = text.removeprefix("x_")
    named = is_secret_name(plain) or (_HEADER.fullmatch(plain) and not _HEADER_NO.fullmatch(plain))
    return "whole" if named else ""


def may_name(data: bytes) -> bool:
    """Whether a text may hold a name that `is_secret_name` takes. False is certain."""
    return may_be_named(data.decode("latin-1"))


def may_be_named(text: str) -> bool:
    """As `may_name`. Asked of every text that passes: written out, it costs a fifth of what a loop or pattern does."""
    low = text.lower()
    if (
        "token" in low
        or "passw" in low
        or "secret" in low
        or "cookie" in low
        or "session" in low
        or "api_key" in low
        or "apikey" in low
        or "authoriz" in low
        or "credential" in low
    ):
        return True
    # Three or four letters stand in any large binary by chance.
    return "\0" not in low and (
        "pass" in low
        or "key" in low
        or "sess" in low
        or "srf" in low
        or "jwt" in low
        or "sid" in low
        or "sig" in low
        or "pwd" in low
    )
