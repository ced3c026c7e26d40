"""How large a store is: 20,000 small JSON exchanges in a store of ours, and in mitmproxy's flow file.

    python tests/bench/store_size.py [--exchanges 20000] [--episodes 1] [--seed 7]

Every line on standard output is a JSON document; the last one is the sum. `values`: bytes of keys and values.
`pages`: bytes of the pages that LMDB uses for them, branches, leaves, overflow and all, which is what the file grows
by. `ratio`: the flow file's bytes over `pages`. The traffic is made from a seed: a CRM's answers of about 600 bytes,
heads as httpx and uvicorn write them, ids, instants and texts that differ from one exchange to the next.
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
from mitmproxy import connection, http
from mitmproxy.io import FlowWriter
from mitmproxy.proxy.mode_specs import ProxyMode

from replayproxy.core.canonical import body_of
from replayproxy.core.redact import Redactor
from replayproxy.core.values import Episode, Exchange, Fields, Outcome, Request, Response, Run, Times
from replayproxy.storage.store import Store, open_store

BEGUN = 1_770_000_000_000_000_000
_WORDS = (
    "renewal pilot invoice onboarding quarterly budget legal review contract security audit follow up champion demo"
    " pricing discount procurement stakeholder migration integration rollout seats licence support escalation the a"
    " with for before after customer asked team call meeting next week month waiting on signature finance approval"
    " competitor offered lower upgrade plan annual monthly users region data residency export report needs wants"
    " blocked open issue ticket agreed sent draft terms revised confirmed cancelled moved from to between and or not"
)
_NAMES = "Ada Grace Edsger Barbara Donald Frances Alan Margaret Ken Radia Dennis Adele Tony Leslie John Karen"
_COMPANIES = "Acme Globex Initech Umbrella Hooli Stark Wayne Tyrell Cyberdyne Soylent Vandelay Wonka"
WORDS, NAMES, COMPANIES = _WORDS.split(), _NAMES.split(), _COMPANIES.split()


def _text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


def _deal(dice: random.Random, number: int) -> dict[str, object]:
    owner, company = dice.choice(NAMES), dice.choice(COMPANIES)
    return {
        "id": f"deal_{dice.getrandbits(64):016x}",
        "number": number,
        "title": f"{company} {_text(dice, 3)}",
        "stage": dice.choice(["lead", "qualified", "proposal", "negotiation", "won", "lost"]),
        "amount": round(dice.uniform(100, 90000), 2),
        "currency": dice.choice(["EUR", "USD", "GBP"]),
        "owner": {"id": dice.randrange(10**6), "name": owner, "email": f"{owner}.{number}@{company}.example".lower()},
        "tags": [dice.choice(WORDS) for _ in range(dice.randrange(4))],
        "created_at": f"2026-0{dice.randrange(1, 10)}-{dice.randrange(10, 29)}T{dice.randrange(10, 24)}:"
        f"{dice.randrange(10, 60)}:{dice.randrange(10, 60)}.{dice.randrange(10**6):06d}Z",
        "notes": _text(dice, 24),
        "version": dice.randrange(1, 40),
    }


def traffic(count: int, seed: int) -> Iterator[Exchange]:
    """Exchanges as a recorder sees them: three of four read a deal, the others change one."""
    dice, at = random.Random(seed), 5_000_000_000_000
    for number in range(count):
        at += dice.randrange(2_000_000, 9_000_000)
        deal = _deal(dice, number)
        answer = orjson.dumps(deal)
        reads = number % 4 != 3
        sent = b"" if reads else orjson.dumps({"stage": deal["stage"], "version": deal["version"]})
        yield _exchange(dice, at, f"/api/v1/deals/{deal['id']}".encode(), sent, answer)


def _exchange(dice: random.Random, at: int, target: bytes, sent: bytes, answer: bytes) -> Exchange:
    asked: list[tuple[bytes, bytes]] = [
        (b"Host", b"127.0.0.1:9000"), (b"Accept", b"application/json"), (b"Accept-Encoding", b"gzip, deflate"),
        (b"Connection", b"keep-alive"), (b"User-Agent", b"python-httpx/0.28.1"),
        (b"Authorization", b"Bearer sk-live-4f0c2a7d9b1e43c8a5f6"),
    ]  # fmt: skip
    if sent:
        asked += [(b"Content-Length", b"%d" % len(sent)), (b"Content-Type", b"application/json")]
    second = at // 10**9
    given: Fields = (
        (b"date", b"Mon, 02 Feb 2026 %02d:%02d:%02d GMT" % (second // 3600 % 24, second // 60 % 60, second % 60)),
        (b"server", b"uvicorn"), (b"content-length", b"%d" % len(answer)), (b"content-type", b"application/json"),
        (b"x-request-id", b"%032x" % dice.getrandbits(128)), (b"cache-control", b"no-store"),
    )  # fmt: skip
    steps = [at]
    for most in (200_000, 900_000, 3_000_000, 200_000, 200_000):
        steps.append(steps[-1] + dice.randrange(20_000, most))
    head, c_in, fwd, first, up_end, c_out = steps
    return Exchange(
        seq=0, order=(at, 0), env="crm", lane="main", carrier="path", outcome=Outcome.ANSWERED,
        request=Request(
            method=b"PATCH" if sent else b"GET", target=target, version=b"HTTP/1.1", fields=tuple(asked),
            body=body_of(sent), agent_host=b"127.0.0.1:40123",
        ),
        response=Response(status=200, reason=b"OK", version=b"HTTP/1.1", fields=given, body=body_of(answer)),
        times=Times(head=head, wall=BEGUN + head, c_in=c_in, fwd=fwd, first=first, up_end=up_end, c_out=c_out),
        upstream="http://127.0.0.1:9000", agent_connection="4f5c2f0a-5ad5-4d21-9f2f-7a3c1e0f6d11",
        env_connection="0c7be1cb-9f0e-4f5b-8a39-3f9a1f6f2b5e",
    )  # fmt: skip


def as_mitmdump_writes(exchange: Exchange) -> http.HTTPFlow:
    """The same exchange as `mitmdump -w` keeps it: a reverse proxy's, with both connections open."""
    t, request, answer = exchange.times, exchange.request, exchange.response
    assert answer is not None
    begun, span = t.wall / 1e9, lambda at: (t.wall + (at or 0) - t.head) / 1e9
    client = connection.Client(
        peername=("127.0.0.1", 51234), sockname=("127.0.0.1", 40123), timestamp_start=begun,
        id=exchange.agent_connection, state=connection.ConnectionState.OPEN,
    )  # fmt: skip
    client.proxy_mode = ProxyMode.parse("reverse:http://127.0.0.1:9000")
    server = connection.Server(
        address=("127.0.0.1", 9000), peername=("127.0.0.1", 9000), sockname=("127.0.0.1", 51236),
        timestamp_start=begun, timestamp_tcp_setup=begun, id=exchange.env_connection,
    )  # fmt: skip
    server.state = connection.ConnectionState.OPEN
    flow = http.HTTPFlow(client, server, live=True)
    body = request.body.inline if request.body else b""
    flow.request = http.Request(
        "127.0.0.1", 9000, request.method, b"http", b"", request.target, request.version,
        http.Headers(request.fields), body, None, begun, span(t.c_in),
    )  # fmt: skip
    flow.response = http.Response(
        answer.version, answer.status, answer.reason, http.Headers(answer.fields),
        answer.body.inline if answer.body else b"", None, span(t.first), span(t.up_end),
    )  # fmt: skip
    return flow


def flow_file(count: int, seed: int) -> int:
    out = io.BytesIO()
    writer = FlowWriter(out)  # type: ignore[no-untyped-call]
    for exchange in traffic(count, seed):
        writer.add(as_mitmdump_writes(exchange))
    return out.tell()


def record(store: Store, count: int, episodes: int, seed: int) -> float:
    """Puts them into a store, as a recorder does; the seconds that it took."""
    writer = store.writer(redactor=Redactor(b"k" * 32))
    run = writer.open_run(Run(key=0, name="r", opened_wall=BEGUN, envs={}))
    made = [
        writer.open_episode(Episode(key=0, run_key=run.key, name=f"e{n}", opened=0, opened_wall=BEGUN))
        for n in range(episodes)
    ]
    listed = list(traffic(count, seed))
    begun = time.perf_counter()
    for number, exchange in enumerate(listed):
        writer.put_exchange(made[number % episodes].key, exchange)
        if number % 100 == 99:  # at once they would be one commit, and no recorder gets them so
            writer.flush().result()
    for episode in made:
        writer.seal(episode)
    writer.close()
    return time.perf_counter() - begun


def used(store: Store) -> tuple[int, int]:
    """Bytes of keys and values, and of the pages they lie on, of all that a recording wrote."""
    values = pages = 0
    with store.env.reading(buffers=True) as txn:
        for db in store.env.dbs.values():
            said = txn.stat(db)
            pages += said["psize"] * (said["branch_pages"] + said["leaf_pages"] + said["overflow_pages"])
            with txn.cursor(db) as cursor:
                values += sum(len(key) + len(value) for key, value in cursor)
    return values, pages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    count = given.exchanges
    flows = flow_file(count, given.seed)
    print(orjson.dumps({"what": "flow file", "bytes": flows, "per_exchange": round(flows / count, 1)}).decode())
    with tempfile.TemporaryDirectory() as folder:
        with open_store(Path(folder) / "store", create=True) as store:
            seconds = record(store, count, given.episodes, given.seed)
            values, pages = used(store)
        file = (Path(folder) / "store" / "data.mdb").stat().st_size
    said = {
        "what": "store", "exchanges": count, "episodes": given.episodes, "values": round(values / count, 1),
        "pages": round(pages / count, 1), "file": round(file / count, 1), "seconds": round(seconds, 2),
        "ratio": round(flows / pages, 2),
    }  # fmt: skip
    print(orjson.dumps(said).decode())
    if flows < 8 * pages:
        print("larger than an eighth of the flow file", file=sys.stderr)


if __name__ == "__main__":
    main()
