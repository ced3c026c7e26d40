"""Inputs that are no good HTTP/1.1 requests, each as raw bytes."""

from __future__ import annotations

GOOD = b"GET /good HTTP/1.1\r\nHost: x\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\n"


def lines(count: int, size: int) -> bytes:
    return b"".join(b"X-%d: %s\r\n" % (n, b"v" * size) for n in range(count))


NO_REQUESTS = {
    "garbage": b"hello there\r\n\r\n",
    "NUL bytes": b"\x00" * 64 + b"\r\n\r\n",
    "a NUL in a field's name": b"GET / HTTP/1.1\r\nHost: x\r\nX\x00: y\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: x\r\n\r\n",
    "four words": b"GET / a HTTP/1.1\r\nHost: x\r\n\r\n",
    "no version": b"GET /\r\nHost: x\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/3.0 in letters": b"GET / HTTP/three\r\nHost: x\r\n\r\n",
    "HTTP/11.1": b"GET / HTTP/11.1\r\nHost: x\r\n\r\n",
    "another protocol": b"GET / FTP/1.1\r\nHost: x\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n",
    "a header without a name": b"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
    "a space in a name": b"GET / HTTP/1.1\r\nHost: x\r\nX Y: z\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "a name of other bytes": b"GET / HTTP/1.1\r\nHost: x\r\nX\xff: y\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length with a point": POST + b"Content-Length: 3.0\r\n\r\nabc",
    "an underscored length": POST + b"Content-Length: 1_0\r\n\r\nabcdefghij",
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and something": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a coding with a tab": POST + b"Transfer-Encoding:\x0bchunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "coding without chunks": POST + b"Transfer-Encoding: gzip\r\n\r\nabc" + SMUGGLED,
    "a chunk of 2**64": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk of 100 digits": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 100 + b"\r\nabc\r\n0\r\n\r\n",
    "a negative chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk of no number": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk of nothing": POST + b"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk that is longer": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n" + SMUGGLED,
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x42" * 190,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "CONNECT": b"CONNECT example.test:443 HTTP/1.1\r\nHost: example.test:443\r\n\r\n",
    "CONNECT without a port": b"CONNECT example.test HTTP/1.1\r\nHost: example.test\r\n\r\n",
    "a bad absolute target": b"GET http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad port": b"GET http://h:99999/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a target without a slash": b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a megabyte of fields": b"GET / HTTP/1.1\r\nHost: x\r\n" + lines(1200, 1000) + b"\r\n",
    "two megabytes in a field": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n",
    "a target of two megabytes": b"GET /" + b"y" * 2_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}
"""What is answered with an error, or by a close. Nothing of it reaches an environment."""

CUT_SHORT = {
    "nothing": b"",
    "half a line": b"GET /cut HT",
    "a head without its end": b"GET /cut HTTP/1.1\r\nHost: x\r\n",
    "half a body": POST + b"Content-Length: 10\r\n\r\nabc",
    "half a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    "no last chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    "half a trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: y",
}
"""What ends before it is whole: the agent is gone, or shuts its side."""

ODD_BUT_WHOLE = {
    "line feeds alone": b"GET /odd HTTP/1.1\nHost: x\n\n",
    "no Host": b"GET /odd HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /odd HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "HTTP/1.0": b"GET /odd HTTP/1.0\r\n\r\n",
    "another host's target": b"GET http://elsewhere.test/odd HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n",
    "TRACE": b"TRACE /odd HTTP/1.1\r\nHost: x\r\n\r\n",
    "a thousand fields": b"GET /odd HTTP/1.1\r\nHost: x\r\n" + lines(1000, 10) + b"\r\n",
    "a long field": b"GET /odd HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    "a NUL in the method": b"G\x00T /odd HTTP/1.1\r\nHost: x\r\n\r\n",
    "a NUL in a target": b"GET /odd\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a chunk's odd extension": (
        b"POST /odd HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;\x01a=\xff\r\nx\r\n0\r\n\r\n"
    ),
}
"""What can be carried: it reaches the environment as one request, is kept, and is answered in a replay."""
