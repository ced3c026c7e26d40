"""What is named like a credential: the one list for what is kept out of the store and for what is never shown."""

from __future__ import annotations

import re
from functools import lru_cache

_NAMED = re.compile(
    r"(?:.*_)?(?:passwords?(?:_?(?:confirm|confirmation|again|repeat|[0-9]))?|passwd|pwd|passphrases?|passcodes?"
    r"|credentials?|secrets?(?:_?keys?)?|secret_access_keys?|(?:api|access|private)_?keys?"
    r"|(?:ssh|encryption|decryption|signing|hmac|license|licence|session|deploy)_keys?"
    r"|authorization|cookies?|csrf|xsrf|jwts?|tokens?|(?:github|gitlab)_pats?|connection_?strings?)"
    r"|(?:.*_)?(?:access|refresh|id|auth|session|bearer|xsrf|csrfmiddleware|security|api|private|personal|login"
    r"|vault|job|deploy|jwt|reset|invite|verification|user|bot|app|client|device|service|admin|github|gitlab|slack|hf"
    r"|npm|oauth|csrf|authentication|registration|subscription|signing|webhook)tokens?"
    r"|(?:ssh|encryption|license|session|signing)keys?"
    r"|(?:(?:user|db|database|smtp|ftp|mail|login|admin|root|proxy|redis|mysql|postgres|pg)_?)?pass|auth|bearer|dsn"
    r"|(?:.*_)?t?otps?(?:_?codes?)?|(?:.*_)?(?:mfa|2fa|verification|recovery|backup)_?codes?"
    r"|session_?ids?|php_?sess_?id|j_?session_?id|sid|sig|(?:(?:(?:x_)?(?:amz|goog)|request|webhook)_)?signatures?",
    re.IGNORECASE,
)
# Counts and texts of a language model, places in a listing, ids of calls, locks: of these tokens none lets anybody in.
_NO_TOKEN = re.compile(
    r"(?:.*_)?(?:page|pagination|continuation|continue|sync|next|prev|previous|cursor|resume|range|progress|cancel"
    r"|cancellation|fence|fencing|lock|lease|concurrency|idempotency|max|min|total|num|n|new|used|remaining|generated"
    r"|prompt|completion|input|output|cached?|creation|read|reasoning|thinking|audio|text|image|context|prediction"
    r"|special|added|stop|start|end|eos|bos|pad|unk|sep|cls|mask|design)_tokens?",
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
_HEADER_NEVER = frozenset({"www_authenticate", "proxy_authenticate"})


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a member, parameter, column or header is named like a credential."""
    if len(name) > 100:
        return False
    plain = name.strip().replace("-", "_").replace(".", "_").removesuffix("[]")
    return any(_NAMED.fullmatch(one) and not _NO_TOKEN.fullmatch(one) for one in _spelt(plain))


def _spelt(plain: str) -> tuple[str, ...]:
    """As it is, and with camelCase taken apart; where they differ, only the parts tell what kind of token it is."""
    apart = _CAMEL.sub("_", plain)
    return (plain, apart) if plain != apart and not _NO_TOKEN.fullmatch(apart) else (apart,)


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
    named = is_secret_name(plain) or (_HEADER.fullmatch(plain) and not _NO_TOKEN.fullmatch(plain))
    return "whole" if named else ""


def may_name(data: bytes) -> bool:
    """Whether a text may hold a name that `is_secret_name` takes. False is certain."""
    return may_be_named(data.decode("latin-1"))


def may_be_named(text: str) -> bool:
    """As `may_name`. Asked of every text that passes: written out, it costs a fifth of what a loop or pattern does."""
    low = text.lower()
    if "\0" in low:  # three or four letters stand in any large binary by chance
        return (
            "token" in low
            or "passw" in low
            or "secret" in low
            or "cookie" in low
            or "session" in low
            or "api_key" in low
            or "apikey" in low
            or "authoriz" in low
            or "credential" in low
            or "connection" in low
            or "bearer" in low
            or "github" in low
            or "gitlab" in low
        )
    return (
        "token" in low
        or "pass" in low
        or "secret" in low
        or "cookie" in low
        or "sess" in low
        or "key" in low
        or ("auth" in low and ("authoriz" in low or "auth" in low.replace("author", "")))
        or "credential" in low
        or "connection" in low
        or "bearer" in low
        or "github" in low
        or "gitlab" in low
        or "srf" in low
        or "jwt" in low
        or "sid" in low
        or "sig" in low
        or "pwd" in low
        or "dsn" in low
        or "otp" in low
        or "mfa" in low
        or "2fa" in low
        or "verif" in low
        or "recovery" in low
        or "backup" in low
    )
