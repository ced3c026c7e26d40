"""What a child finds in its environment when it is to go through the forward proxy, or to trust our certificates."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from replayproxy.core.names import encode_name

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
FORWARD_VARIABLE = "REPLAYPROXY_FORWARD"
"""Names the forward proxy, so that `replayproxy episode` knows which proxy of its environment is the recorder's."""

KEY_HASH_VARIABLE = "REPLAYPROXY_CA_KEY_HASH"
"""What Chromium's `--ignore-certificate-errors-spki-list` takes: a child is started before anyone could copy it."""

_LOOPBACK = ("localhost", "::1", "[::1]", "*")


def proxy_variables(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What sends a child's clients through the proxy: in both cases, because curl reads only `http_proxy`, and with the
    loopback taken out of an inherited `NO_PROXY`, because many clients would go past it silently."""
    found = {FORWARD_VARIABLE: url, "NODE_USE_ENV_PROXY": "1"}
    for name in PROXY_VARIABLES:
        found[name] = found[name.upper()] = url
    for name in ("no_proxy", "NO_PROXY"):
        if name in environ:
            kept = [one.strip() for one in environ[name].split(",")]
            found[name] = ",".join(one for one in kept if one and not _is_loopback(one))
    return found


def _is_loopback(entry: str) -> bool:
    host = entry.lower().lstrip(".")
    host = host.rpartition(":")[0] if host.count(":") == 1 else host
    return host in _LOOPBACK or host.startswith("127.") or host.endswith(".localhost")


def ca_variables(bundle: str, key_hash: str = "") -> dict[str, str]:
    """`key_hash`: for clients that read none of these and take the hash of a key as a flag."""
    return dict.fromkeys(CA_VARIABLES, bundle) | ({KEY_HASH_VARIABLE: key_hash} if key_hash else {})


def episode_proxy(url: str, episode: str) -> str:
    """The proxy's URL whose user is the episode. Clients decode the user of a URL, and the proxy decodes it again, so
    a name is encoded twice; most names look the same after it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{quote(encode_name(episode), safe='')}:x@{parts.netloc}"
