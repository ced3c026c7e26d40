"""Radicale behind a small wrapper in which a summary is rewritten: an environment whose behaviour changed."""

from __future__ import annotations

import io
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server

from radicale import config
from radicale.app import Application

inner = Application(config.load([(sys.argv[1], False)]))


def wrapped(environ, start_response):
    if environ["REQUEST_METHOD"] == "PUT":
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = body.replace(b"SUMMARY:Review", b"SUMMARY:REVIEW")
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
    return inner(environ, start_response)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_args):
        pass


make_server("127.0.0.1", int(sys.argv[2]), wrapped, handler_class=Quiet).serve_forever()
