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

KEY_BYTES = 32


class Minter:
    """Makes tokens under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = blake2b(b"key id", key=key, person=b"replayproxy", digest_size=8).hexdigest()
        self.token = lru_cache(maxsize=4096)(self._token)

    def _token(self, value: bytes) -> bytes:
        """The token for a value; a token, and nothing at all, come back as they are."""
        if not value or TOKEN.fullmatch(value):
            return value
        made = blake2b(value, key=self._key, digest_size=15).digest()
        return b"rp-secret-" + base64.b32encode(made).lower()
