"""What a scraper reads: parsed by the client library's own parser."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass, field

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from replayproxy.serve.control import ControlServer, application
from replayproxy.serve.metrics import CONTENT_TYPE, Reading, exposition
from tests.serve.test_control import FakeDesk

type Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass
class Counted:
    bounds: tuple[float, ...] = (0.01, 0.5)
    counts: list[int] = field(default_factory=lambda: [3, 0, 2])
    sum: float = 4.5


def samples(page: bytes) -> Samples:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(page.decode())
        for one in family.samples
    }


def kinds(page: bytes) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(page.decode())}


def reading() -> Reading:
    return Reading(
        exchanges={("crm", "answered"): 7, ("crm", "cut"): 1, ('od"d\n\\', "local"): 2}, unattributed=4,
        episodes={"open": 2, "sealed": 5, "incomplete": 0}, findings={("stale-read", "proven"): 3},
        snapshots=Counted(), added=Counted(counts=[0, 0, 0], sum=0.0), queue=11,
    )  # fmt: skip


def test_each_figure_has_its_name_its_labels_and_its_type() -> None:
    page = exposition(reading())
    read = samples(page)
    assert read["replayproxy_exchanges_total", (("env", "crm"), ("outcome", "answered"))] == 7
    assert read["replayproxy_exchanges_total", (("env", "crm"), ("outcome", "cut"))] == 1
    assert read["replayproxy_unattributed_total", ()] == 4
    assert read["replayproxy_episodes", (("state", "open"),)] == 2
    assert read["replayproxy_episodes", (("state", "incomplete"),)] == 0
    assert read["replayproxy_findings_total", (("grade", "proven"), ("kind", "stale-read"))] == 3
    assert read["replayproxy_queue_depth", ()] == 11
    assert kinds(page) == {
        "replayproxy_exchanges": "counter", "replayproxy_unattributed": "counter", "replayproxy_episodes": "gauge",
        "replayproxy_findings": "counter", "replayproxy_snapshot_seconds": "histogram",
        "replayproxy_added_seconds": "histogram", "replayproxy_queue_depth": "gauge",
    }  # fmt: skip


def test_the_buckets_of_a_histogram_are_cumulative_and_end_with_all() -> None:
    read = samples(exposition(reading()))
    upto = {
        float(dict(labels)["le"]): value for (name, labels), value in read.items()
        if name == "replayproxy_snapshot_seconds_bucket"
    }  # fmt: skip
    assert upto == {0.01: 3, 0.5: 3, math.inf: 5}
    assert read["replayproxy_snapshot_seconds_count", ()] == 5
    assert read["replayproxy_snapshot_seconds_sum", ()] == 4.5


def test_a_name_with_quotes_and_newlines_is_read_back_as_it_was() -> None:
    read = samples(exposition(reading()))
    assert read["replayproxy_exchanges_total", (("env", 'od"d\n\\'), ("outcome", "local"))] == 2


async def asked(token: str | None, headers: dict[str, str], *, with_figures: bool = True) -> tuple[int, str, bytes]:
    listening = socket.create_server(("127.0.0.1", 0))
    app = application(FakeDesk(), token=token, figures=reading if with_figures else None)
    server = ControlServer(app)
    await server.start(listening)
    try:
        async with aiohttp.ClientSession() as http:
            at = f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
            async with http.get(at, headers=headers) as answer:
                return answer.status, answer.headers["Content-Type"], await answer.read()
    finally:
        await server.stop()


async def test_the_control_api_gives_the_page_as_text() -> None:
    status, kind, page = await asked(None, {})
    assert (status, kind) == (200, CONTENT_TYPE)
    assert samples(page)["replayproxy_queue_depth", ()] == 11


async def test_the_page_is_guarded_as_the_rest_of_the_api() -> None:
    assert (await asked("s3cret", {}))[0] == 401
    assert (await asked("s3cret", {"Authorization": "Bearer s3cret"}))[0] == 200
    assert (await asked(None, {"Origin": "http://evil.example"}))[0] == 403


async def test_where_nothing_is_recorded_there_is_no_such_page() -> None:
    assert (await asked(None, {}, with_figures=False))[0] == 404
