"""The live request as the recording would hold it: by the same function, with what its episode has shown so far."""

from __future__ import annotations

import asyncio

from replayproxy.core.redact import Known, Redactor
from replayproxy.core.script import Heard
from replayproxy.core.values import Body, Fields, Request, Run
from replayproxy.serve.bodies import IN_LINE, Content, read_body


def cleaned(redactor: Redactor, env: str, heard: Heard, known: Known | None = None) -> Heard:
    """The request as the recording would hold it."""
    if redactor.keeps:
        return heard
    asked = heard.request()
    clean = redactor.request(asked, known, env=env)
    return heard if clean is asked else Heard(heard.method, clean.target, clean.fields, clean.body)


def is_foreign(redactor: Redactor, run: Run) -> bool:
    """Whether the run's tokens were made with another key, so that no live credential gives one of them."""
    said = run.config.get("secrets")
    return said is not None and not said.get("kept") and not redactor.keeps and said.get("key") != redactor.key_id


class Discretion:
    """Takes the secrets out of what is asked. `known` is of one episode."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor

    async def body(self, fields: Fields, content: Content) -> Body | None:
        """A body as it comes, for rules to look at; one too large to hold without its secrets already."""
        if self.redactor.keeps:
            return await read_body(content)
        return await read_body(content, lambda: self.redactor.stretch(fields, of_answer=False))

    async def heard(self, env: str, heard: Heard, known: Known | None) -> Heard:
        """The request as the recording would hold it."""
        if heard.body is not None and heard.body.size > IN_LINE:
            return await asyncio.to_thread(cleaned, self.redactor, env, heard, known)
        return cleaned(self.redactor, env, heard, known)

    def target(self, env: str, method: bytes, target: bytes) -> bytes:
        """A target that is told of without its request."""
        bare = Request(method=method, target=target, version=b"HTTP/1.1", fields=(), body=None)
        return self.redactor.request(bare, env=env).target
