"""`http:URL[,header=K:V ..][,restore="PUT URL"|none]`: a state that the environment itself gives out as JSON.

GET captures. A restore sends the captured document back, byte for byte, as `application/json`.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from replayproxy.errors import WrongUsage
from replayproxy.state import CannotRestore, Changes, Reading, RestoreFailed, Rows, Scope, Spec, StateUnreadable
from replayproxy.state.delta import changes_between
from replayproxy.state.document import document_of, read_document, rows_of, write_document

OPTIONS = ("header", "restore")
TIMEOUT = 30.0
NO_SUCH_ROUTE = (404, 405, 501)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A state is where the spec says; credentials, and a restore, must not follow a redirect to somewhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


@cache
def _opener() -> urllib.request.OpenerDirector:
    """One for all: making one reads the system's certificates, which costs 25 ms.

    Proxies from the environment's variables are left out; they would see, or be, the traffic under test.
    """
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())


class HttpEndpoint:
    """`restore_with`: method and URL, or None when it is turned off."""

    atomic = False  # how an environment puts its answer together is not known
    aside_is_the_rows = True  # the document as it came, which a restore gives back
    aside_table, aside_key = "document", "body"

    def __init__(
        self, url: str, headers: Mapping[str, str], restore_with: tuple[str, str] | None, scope: Scope
    ) -> None:
        self._url = url
        self._headers = headers
        self._restore_with = restore_with
        self.scope: Scope = scope
        self._known: Rows | None = None

    @property
    def can_restore(self) -> bool:
        return self._restore_with is not None

    def capture(self) -> Reading:
        status, body = self._send("GET", self._url, None, StateUnreadable)
        if not 200 <= status < 300:
            raise StateUnreadable(f"GET {shown(self._url)} answered {status}")
        try:
            rows = rows_of(read_document(body))
        except StateUnreadable as wrong:
            raise StateUnreadable(f"GET {shown(self._url)}: {wrong.what}") from wrong
        aside = {self.aside_table: {self.aside_key: body}}
        known, self._known = self._known, rows
        changes = changes_between(known, rows) if known is not None else None
        return Reading(rows=rows if changes is None else Changes(rows=changes), aside=aside)

    def restore(self, rows: Rows) -> None:
        self.restore_whole(rows, {})

    def restore_whole(self, rows: Rows, aside: Rows) -> None:
        if self._restore_with is None:
            raise CannotRestore("restore=none")
        method, url = self._restore_with
        # As it came: members and rows keep their order, which an environment may show in its lists.
        body = aside.get(self.aside_table, {}).get(self.aside_key)
        if body is None or rows_of(read_document(body)) != rows:
            body = write_document(document_of(rows))
        status, _ = self._send(method, url, body, RestoreFailed)
        if status in NO_SUCH_ROUTE:
            raise CannotRestore(f"{method} {shown(url)} answered {status}", hint='give restore="PUT URL", or --reset')
        if not 200 <= status < 300:
            raise RestoreFailed(f"{method} {shown(url)} answered {status}")

    def close(self) -> None:
        """Nothing is held open between readings."""

    def _send(
        self, method: str, url: str, body: bytes | None, failure: type[StateUnreadable] | type[RestoreFailed]
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "User-Agent": "replayproxy-snapshot", **self._headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        try:
            with _opener().open(request, timeout=TIMEOUT) as answer:
                content: bytes = answer.read()
                if answer.headers.get("Content-Encoding", "").lower() == "gzip":
                    content = gzip.decompress(content)
                return int(answer.status), content
        except urllib.error.HTTPError as answered:
            with answered:
                return answered.code, b""
        except urllib.error.URLError as error:
            raise failure(f"{method} {shown(url)}: {error.reason}") from error
        except (OSError, http.client.HTTPException, EOFError) as error:
            raise failure(f"{method} {shown(url)}: {type(error).__name__} {error}".rstrip()) from error


def shown(url: str) -> str:
    """The URL for a message: no user, no query (either may hold a secret)."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def provider(spec: Spec) -> HttpEndpoint:
    def encoded(value: str) -> str:
        return quote(value, safe="")

    url, headers = with_user(spec.filled(spec.target, encoded))
    for given in spec.options.get("header", ()):
        name, colon, value = spec.filled(given, no_line_end).partition(":")
        if not colon or not name.strip():
            raise WrongUsage("a header is header=NAME:VALUE")
        headers[name.strip()] = value.strip()
    return HttpEndpoint(url, headers, restoring(spec.filled(spec.option("restore"), encoded), url, headers), spec.scope)


def restoring(given: str, url: str, headers: dict[str, str]) -> tuple[str, str] | None:
    if given == "none":
        return None
    if not given:
        return "PUT", url
    method, space, target = given.partition(" ")
    if not space or not method.isalpha() or not method.isupper():
        raise WrongUsage(f'restore={given!r}: it is "METHOD URL" or none', hint='for instance restore="PUT http://..."')
    target, more = with_user(target)
    for name, value in more.items():
        headers.setdefault(name, value)
    return method, target


def with_user(url: str) -> tuple[str, dict[str, str]]:
    """The URL without its user, and the header that says the same. Raises WrongUsage for what is no HTTP URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(c.isspace() for c in url):
        raise WrongUsage(
            f"{shown(url) if '@' not in url else 'it'} is no http:// or https:// URL", hint="http:http://HOST/PATH"
        )
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    name, _, password = user.partition(":")
    token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode("ascii")
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}


def no_line_end(value: str) -> str:
    """A value in a header must not begin another."""
    if any(ord(c) < 32 for c in value):
        raise StateUnreadable("a value with a control character cannot stand in a header")
    return value
