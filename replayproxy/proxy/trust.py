"""What the recorder's own connections to https environments trust, for checks before it runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi


def upstream_trust(ca: Path | None, *, insecure: bool) -> ssl.SSLContext:
    """Trusts `ca`, else certifi's authorities and not the system's, as mitmproxy does. Raises SSLError for a `ca` that
    holds no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cafile=str(ca or certifi.where()))
    return context
