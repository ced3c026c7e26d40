"""Each body of an episode is parsed once, whoever looks at it."""

from __future__ import annotations

from replayproxy.core.canonical import View, view
from replayproxy.core.values import Body, Fields


class Views:
    """The views of one trace's bodies; lives as long as the trace is looked at."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Body, View]] = {}

    def of(self, fields: Fields, body: Body | None) -> View:
        """The same as `canonical.view`."""
        if body is None:
            return view(fields, body)
        known = self._seen.get(id(body))
        if known is None:
            # The body is kept beside its view so that its id stays its own.
            known = self._seen[id(body)] = body, view(fields, body)
        return known[1]
