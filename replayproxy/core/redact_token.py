"""The token that stands for a secret: keyed, stable, and the same in every place.

Its whole alphabet is safe in header values, cookies, queries, paths and JSON strings, so that a secret's bytes can be
replaced by it wherever they stand. 120 bits of a keyed hash: without the key nobody can test a guess.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from hashlib import blake2b

TOKEN = re.compile(rb"rp-secret-[a-z2-7]{24}")

_VARIABLE = re.compile(rb"env:[A-Za-z_][A-Za-z0-9_]*")
"""A reference to a secret, as it may stand in a reset or a snapshot's spec, is none."""

KEY_BYTES = 32


class Minter:
    """Makes tokens under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = blake2b(b"key id", key=key, person=b"replayproxy", digest_size=8).hexdigest()
        self.token = lru_cache(maxsize=4096)(self._token)

    def _token(self, value: bytes) -> bytes:
        """The token for a value. A token comes back as it is, and so do nothing at all and the name of a variable."""
        if not value or TOKEN.fullmatch(value) or _VARIABLE.fullmatch(value):
            return value
        made = blake2b(value, key=self._key, digest_size=15).digest()
        return b"rp-secret-" + base64.b32encode(made).lower()
