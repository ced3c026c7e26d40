"""How long and how slow the head of a message may be, at the recorder and at a replay."""

from __future__ import annotations

HEAD_LIMIT = 1024 * 1024
"""Bytes of a head, all of it; also of a chunk's first line, and of trailers."""

HEAD_SECONDS = 60.0
"""Seconds from the first byte of a request's head to its last."""
