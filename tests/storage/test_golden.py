"""Records of each format as they were first written: whatever is changed, they must be read as they were meant.

When bytes must change, `layout.FORMAT` grows, and these stay beside the new ones.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from replayproxy.core.canonical import digest
from replayproxy.core.values import (
    Body,
    Chunk,
    EnvWiring,
    Episode,
    EpisodeState,
    Event,
    Exchange,
    Message,
    Outcome,
    Request,
    Response,
    Run,
    Seal,
    Snapshot,
    SnapshotStatus,
    Times,
    WebSocket,
)
from replayproxy.storage import cold, layout
from replayproxy.storage.codec import decode_exchange, encode_exchange
from replayproxy.storage.dictionaries import Dictionaries
from replayproxy.storage.frame import CHECKSUM_AT, open_blob, seal_blob

VALUES: dict[str, Any] = {
    "exchange": Exchange(
        seq=3, order=(1000, 2), env="crm", lane="tool-a", outcome=Outcome.CUT, carrier="prefix",
        request=Request(
            method=b"POST", target=b"/deals?q=\xff", version=b"HTTP/1.1",
            fields=((b"Host", b"crm"), (b"X-\xff", b"\xfe"), (b"x-A", b"1"), (b"X-a", b"")),
            body=Body(size=3, digest=digest(b"\x00\xff1"), inline=b"\x00\xff1"), agent_host=b"127.0.0.1:1",
        ),
        response=Response(
            status=201, reason=b"Created", version=b"HTTP/1.1", fields=((b"Server", b"s"),), trailers=((b"T", b"t"),),
            body=Body(size=300_000, digest=b"d" * 32, inline=None, pieces=(b"p" * 32, b"q" * 32),
                      chunks=(Chunk(size=1, at=1500), Chunk(size=299_999, at=1600))),
            informational=((103, ((b"Link", b"</a>"),)),),
        ),
        times=Times(head=1000, wall=1_700_000_000_000_000_000, c_in=1100, fwd=1200, first=1300, up_end=1600),
        websocket=WebSocket(
            messages=(Message(from_agent=True, text=True, payload=b"hi", at=1400),
                      Message(from_agent=False, text=False, payload=b"\x00", at=1410)),
            close_code=1006, close_reason="gone", closed_by_agent=False,
        ),
        error="reset", cut_at=17, upstream="http://127.0.0.1:9", agent_connection="a", env_connection="e", held_ns=5,
        closed_by_agent=True, notes=("one", "two"), is_reset=True, is_probe=True,
    ),
    "packed exchange": Exchange(
        seq=1, order=(1, 0), env="app", lane="\ud800", outcome=Outcome.LOCAL, carrier="option", response=None,
        request=Request(method=b"GET", target=b"/", version=b"HTTP/1.1", fields=(), body=None),
        times=Times(head=1, wall=2), cut_at=2**70,
    ),
    "run": Run(
        key=1, name="nightly", opened_wall=5, closed_wall=6, snapshots={"crm": "sqlite:crm.db"}, meta={"step": 2**70},
        envs={"crm": EnvWiring(name="crm", upstream="http://h", listener="http://l", reads=("POST /search",),
                               reset=("POST", "http://h/reset", "{}"), options={"tls": True})},
        snapshot_when=("start",), snapshot_mode="free", url_style="port", config={"path": "x"}, origin="redrive",
        version="0.1.0", faults=("f",),
    ),
    "episode": Episode(
        key=2, run_key=1, name="crm-7-a1", task="crm-7", seed=7, attempt=1, group="g", meta={"a": [None, 1.5]},
        envs={"crm": "http://x"}, instance={"crm": "pod"}, declared=False, opened=8, opened_wall=9, ended=10,
        ended_wall=11, ended_by="idle", state=EpisodeState.SEALED, reward=0.5, outcome="won", faults=("x", "y"),
        escaping_links=3, seal=Seal(exchanges=4, snapshots=5, chain=b"\xff" * 32),
    ),
    "snapshot": Snapshot(
        n=2, name="crm.cache", env="crm", when="write", label="l", status=SnapshotStatus.TORN, reason="r", late=True,
        mode="free", atomic=True, can_restore=True, scope="episode", root=b"\xfe" * 32, aside=b"a" * 32, rows=7,
        begun=1, done=2, wall=3, after=(1000, 2), in_flight=((1, 0), (2, 1)), shared_with=("other",),
    ),
    "event": Event(at=1, wall=2, kind="mark", detail={"step": 3, "data": {"$": "x"}}),
    "document": {"run": "nightly", "findings": [{"id": "F1", "values": [None, "D-9f41"]}], "verdicts": {"e": "clean"}},
    "blob": b"a piece of a body",
}  # fmt: skip

GOLDEN: dict[str, str] = {
    "exchange": (
        "AQAAAAAAO0RgQxErIBS+/IhweeW7Vyi1L/1gkgE9DADmV0s0gDdJBzMwA7s9hhmYSwHR0dAne/cnuz9OamslEZvY4VW8LhxEaMQY"
        "7bW1jbQtCdHhYC5EST8AOwA8AFaKWhogEAbfEC4EUBCQkdtn8Q1xQNBg9hZF07uqwlWZq6rrQ90WUMRGyfecHN+OEUE4fU9Ex29c"
        "VRVzACBJAmZnVLHphYRTSPbjq/QdtyKuw7PTbTTgK22wt7aUoooqj4byW2O3z5xhb37wrXwXYFj4fnDBeJCQwewBXliWJc0Z8fKE"
        "2zilNPkPtTxdM6eVG70cYYxrBm8rIxdx74MSvoKqUo6rK3tTdbxxhrHWPMAtAXwneNCBCRRREZLWYCFglBoJNRLym6GCabNluRM+"
        "f6c4l5sFEM2zEkaOn7AsX/NEG/G9FW+9/CA0nX0POs18K+H8IiAwAiUQk3YDo8GpHD4Zv8Qti9UOVOIWiImCBnO0KkQvbIO4FEJE"
        "HjcjIuUBMK5KgUEfxJvLDW8a2NtxiIcLcesVytjWpjUga3RRd8KVBgwUYEJDaehl"
    ),
    "packed exchange": (
        "AQEAAAAArvM01FnbkdrUiCNZ8sLHOSi1L/0gu90DADKHGSGAuYUDUrbYDGavBrFYjrV1W02x7h7AYJWCkRgR4sKMxg4PglYDhppy"
        "YU+ImI7y89xzfQVWcmjNcE/ujVDY9cXoyAq6XJfMMhvmHqHCxAvdiBzRIzJ7cU9MxWzAT28aeFWXg6SUAgYAOEQgj4MZUEyOjcoY"
        "AugSBQ=="
    ),
    "run": (
        "AQEAAAAA690XTLLlGqb3VPKiGQeeLyi1L/1gyABVCQDmkTcngLfpMzADM2mD/29fiox7d0dn97dQW20TijhzQQYRvy0ClAkzVbQB"
        "LQArACwA2/wax2eZR/IMNT0WsGPMkSDPWHIsjTZ97ngIa8VY7Xl9Ujsm8hBdeKQB4HAIzLq51c8pZpNyEsBNWjyKHBOFT0AwOLgi"
        "38q6x7PVps2LHa+SJF+3ev5JGs2p9Tm+1z0GaV7Yqq7TuGfpTc1NlWO5QoN4lkntxRj47RS/1PgYRZE2tvMB0eLOFayRnOMVRAKh"
        "uMWrELS20X2+LcZa93hedXqM5TTHXBl4KM9DbT0v8DQdAFoT6SYKG6NSXkSqAUUmEDjkPaOsghSs8DZhuh+EYwMFQUCL0AgTtKOm"
        "StkKh2nIc0XwTqkFeeLWJ7HIuRRjbcAZqFg1U0wo"
    ),
    "episode": (
        "AQEAAAAAtAjHyrmcbTftX75Gm+Y8VCi1L/1g7gCNCQDG0zwrkKVJB/9/Wd/d3RW0AXVrZCNhb0mbIUSa3E3MoP9VJEqq/f9kbaH/"
        "5Pb8Ni8AMQAxAMclv3b7+EfrO17RwlJ4IPX8PspHhcERdCTIS/v4JL+rteP2uCx5bk739icDBAiEDkiZ2rWaW8X6mp3jdMnhkO69"
        "5vkHUg3hPU6LhEFBxiJW5FXfPsczz7uoQcxzz76nAVfk+7FIHcdzizT1onZMGBD5BWlkoePXMt1++pYt53mpoSgIZQHIM6YRxgGv"
        "a8dtpgHTNE0PIOB5yPG9T2o8P8CONuqYaE075T4a5HsZ1kZJFgvy/WCHMRh2nKre4+LS8ZIXAJaTgNRiIezGZmtPNL3CClZbOKQJ"
        "ciZpkK1LYo8xEdvoQkIm/Iyj8AzDoHbYsSvEBmbVbDUf1oWiBw=="
    ),
    "snapshot": (
        "AQEAAAAAQ7bnx0tFVmbCmcVPBAZHRSi1L/1gsAB1BwBG0DAkkDdpDPv1d3erNyL6TRZj94ZwybbsvSxhdyIo/ZYg9T//TWQDJQAk"
        "ACYAjUXbvpvxJhGoWaXP+Erm+S5Y+Z1MQknA0TSeDlqfAV87DgAKhU0xksFSU7Yt9bBQSsphi1IV45lgzpcNXTxXxxdrKPV7Kdvx"
        "FugbwJsGPblY4kvw1Vgk4iPA28MUqYa+xwgJ3y3XADEesANfxvQLj2VNZtkKzqx6DolUxLRvWZIzKLcglygKvsxCNYrDUt9iOARB"
        "EgXXXEUPALlWGggB4M2B4SFkLLNcMJOx1pWRqSyRqqAfKgwczEzd49Mq1TCf"
    ),
    "event": (
        "AQEAAAAAE8CL1o64kxs8eRdcJlSWdii1L/0gWn0CABIFERiQpxoDCxipfBKwzIFE96gDMm15UHL9c5HvvXMujJeNyQfjregqGou8"
        "pRXscqZ0ExpfAT3OEUCtkcgZU8I45Ks7gxASAgBJiVgKJhQ="
    ),
    "document": (
        "AQEAAAAA2eOV/jaCrx1H0uY+Y32P0Si1L/0gYMUCAMLFExqAxxkD1Nh9XqJE0M/Wqxl6JCMfmErMwUx0B629htJjXM3whTkyKar5"
        "ilaMAEiAEHyqa9VSo/lGg/GUMwK+JJtpE/k+KGNIcsd3KbPCOScBAILBhAI="
    ),
    "blob": ("ASi1L/0gEYkAAGEgcGllY2Ugb2YgYSBib2R5"),
}

# As format 2 writes them, and an exchange that needs dictionary 3, with that dictionary as it lies in `meta`.
GOLDEN_2: dict[str, str] = {
    "exchange": (
        "AgAAAAAAtn/sCcsw31eZOevhdAE6UUgE8NAotS/9YJIBPQwA5ldLNIA3SQczMAO7PYYZmEsB0dHQJ3v3J7s/TmprJRGb2OFVvC4cRG"
        "jEGO21tY20LQnR4WAuREk/ADsAPABWiloaIBAG3xAuBFAQkJHbZ/ENcUDQYPYWRdO7qsJVmauq60PdFlDERsn3nBzfjhFBOH1PRMdv"
        "XFUVcwAgSQJmZ1Sx6YWEU0j246v0HbcirsOz02004CttsLe2lKKKKo+G8ltjt8+cYW9+8K18F2BY+H5wwXiQkMHsAV5YliXNGfHyhN"
        "s4pTT5D7U8XTOnlRu9HGGMawZvKyMXce+DEr6CqlKOqyt7U3W8cYax1jzALQF8J3jQgQkUURGS1mAhYJQaCTUS8puhgmmzZbkTPn+n"
        "OJebBRDNsxJGjp+wLF/zRBvxvRVvvfwgNJ19DzrNfCvh/CIgMAIlEJN2A6PBqRw+Gb/ELYvVDlTiFoiJggZztCpEL2yDuBRCRB43Iy"
        "LlATCuSoFBH8Sbyw1vGtjbcYiHC3HrFcrY1qY1IGt0UXfClQYMFGBCQ2noZQ=="
    ),
    "packed exchange": (
        "AgEAAAAAwMm4suPUbF0oieGn1Bnr0dE6UXYotS/9ILvdAwAyhxkhgLmFA1K22AxmrwaxWI61dVtNse4ewGCVgpEYEeLCjMYOD4JWA4"
        "aacmFPiJiO8vPcc30FVnJozXBP7o1Q2PXF6MgKulyXzDIb5h6hwsQL3Ygc0SMye3FPTMVswE9vGnhVl4OklAIGADhEII+DGVBMjo3K"
        "GALoEgU="
    ),
    "run": (
        "AgEAAAAAYNYyuS8Ks6ejGhfKaDFS7MGVxw0otS/9YMgAVQkA5pE3J4C36TMwAzNpg/9vX4qMe3dHZ/e3UFttE4o4c0EGEb8tApQJM1"
        "W0AS0AKwAsANv8GsdnmUfyDDU9FrBjzJEgz1hyLI02fe54CGvFWO15fVI7JvIQXXikAeBwCMy6udXPKWaTchLATVo8ihwThU9AMDi4"
        "It/Kusez1abNix2vkiRft3r+SRrNqfU5vtc9Bmle2Kqu07hn6U3NTZVjuUKDeJZJ7cUY+O0Uv9T4GEWRNrbzAdHizhWskZzjFUQCob"
        "jFqxC0ttF9vi3GWvd4XnV6jOU0x1wZeCjPQ209L/A0HQBaE+kmChujUl5EqgFFJhA45D2jrIIUrPA2YbofhGMDBUFAi9AIE7SjpkrZ"
        "CodpyHNF8E6pBXni1iexyLkUY23AGahYNVNMKA=="
    ),
    "episode": (
        "AgEAAAAAyIob2XSrZg+G647NcCa6EJMXgOQotS/9YO4AjQkAxtM8K5ClSQf/f1nf3d0VtAF1a2QjYW9JmyFEmtxNzKD/VSRKqv3/ZG"
        "2h/+T2/DYvADEAMQDHJb92+/hH6zte0cJSeCD1/D7KR4XBEXQkyEv7+CS/q7Xj9rgseW5O9/YnAwQIhA5Imdq1mlvF+pqd43TJ4ZDu"
        "veb5B1IN4T1Oi4RBQcYiVuRV3z7HM8+7qEHMc8++pwFX5PuxSB3Hc4s09aJ2TBgQ+QVpZKHj1zLdfvqWLed5qaEoCGUByDOmEcYBr2"
        "vHbaYB0zRNDyDgecjxvU9qPD/AjjbqmGhNO+U+GuR7GdZGSRYL8v1ghzEYdpyq3uPi0vGSFwCWk4DUYiHsxmZrTzS9wgpWWzikCXIm"
        "aZCtS2KPMRHb6EJCJvyMo/AMw6B22LErxAZm1Ww1H9aFogc="
    ),
    "snapshot": (
        "AgEAAAAAskoSLAnjnL35iqTHVMSCRO060QMotS/9YLAAdQcARtAwJJA3aQz79Xd3qzci+k0WY/eGcMm27L0sYXciKP2WIPU//01kAy"
        "UAJAAmAI1F276b8SYRqFmlz/hK5vkuWPmdTEJJwNE0ng5anwFfOw4ACoVNMZLBUlO2LfWwUErKYYtSFeOZYM6XDV08V8cXayj1eynb"
        "8RboG8CbBj25WOJL8NVYJOIjwNvDFKmGvscICd8t1wAxHrADX8b0C49lTWbZCs6seg6JVMS0b1mSMyi3IJcoCr7MQjWKw1LfYjgEQR"
        "IF11xFDwC5VhoIAeDNgeEhZCyzXDCTsdaVkakskaqgHyoMHMxM3ePTKtUwnw=="
    ),
    "event": (
        "AgEAAAAA44OsFKXSBFeZmf6FgaLYLjqXl4sotS/9IFp9AgASBREYkKcaAwsYqXwSsMyBRPeoAzJteVBy/XOR771zLoyXjckH463oKh"
        "qLvKUV7HKmdBMaXwE9zhFArZHIGVPCOOSrO4MQEgIASYlYCiYU"
    ),
    "document": (
        "AgEAAAAAS8i76rQ+JV5+nEL7GsMOiHY7/ekotS/9IGDFAgDCxRMagMcZA9TYfV6iRNDP1qsZeiQjH5hKzMFMdAetvYbSY1zN8IU5Mi"
        "mq+YpWjABIgBB8qmvVUqP5RoPxlDMCviSbaRP5PihjSHLHdymzwjknAQCCwYQC"
    ),
    "exchange with a dictionary": (
        "AgAAAAADtn/sCcsw31eZOevhdAE6UZPSsp0otS/9YJIB9QsAplZHNHBJkw78//8f5hn4/z9XAqQRfbJ3W7LbEJE1JIkkxP5jF1ZKAq"
        "DQ2dTaNkJWzFJW+h/+JQE6ADcAOAAHB74nNBwgEhpwu31TaAhQGeBbwQNBAre7aareVRlXba66ro11+54V5Ps5TBBO35QI+cxVdTUJ"
        "C8sSTwKAbwZPOuD2RlebdixeoezIV+k7LkPcR7Tz2VjAX8q0O8cWQhGKaDDLd67dfvOm3Rnie/kmECt5fDsSCUbNOTEz5dk4JVX5jc"
        "U8H2dWKzeaOcIY1xDuVk7PgnsflPgM1bUUX9d2p6o486Y15ywgizRZFRYXYSMwUo6UHCn5zrDBtBuz3Amfv1WczM6DiBOthBPkL5jl"
        "c6JpJ76X4a2ZH5QmtO9ByJkvJSAwAiWQos4Do8HJHD4Zv/SWhW8HKnELhImCgDlaE6IjbIO4FISIEDdLREoDcFwVAoM2iDeXG94wsL"
        "fjEA8X4tIrhLENTWtM1nhRb0KZYKAQ7sQZQYPGkEuPpnBYZA=="
    ),
    "dictionary": (
        "AeZQ5z1m1ZEG/RgllsY3JDNHRVQgUE9TVCAvZGVhbHMgSFRUUC8xLjEgSG9zdCBjcm0gbWFpbiBhbnN3ZXJlZCBwcmVmaXhHRVQgUE"
        "9TVCAvZGVhbHMgSFRUUC8xLjEgSG9zdCBjcm0gbWFpbiBhbnN3ZXJlZCBwcmVmaXg="
    ),
}


def encoded(name: str) -> bytes:
    value = VALUES[name]
    if isinstance(value, Exchange):
        return encode_exchange(value)
    if isinstance(value, Episode):
        return cold.encode_episode(value, 77)
    if isinstance(value, dict):
        return cold.encode_document(value)
    return seal_blob(value) if isinstance(value, bytes) else cold.encode(value)


def decoded(name: str, raw: bytes) -> Any:
    value = VALUES[name]
    if isinstance(value, Exchange):
        return decode_exchange(raw, value.order, value.seq)
    if isinstance(value, Episode):
        return cold.decode_episode(raw)
    if isinstance(value, dict):
        return cold.decode_document(raw)
    return open_blob(digest(value), raw) if isinstance(value, bytes) else cold.decode(type(value), raw)


@pytest.mark.parametrize("name", VALUES)
def test_a_record_of_format_1_is_read_as_it_was_meant(name: str) -> None:
    found = decoded(name, base64.b64decode(GOLDEN[name]))
    assert found == ((VALUES[name], 77) if name == "episode" else VALUES[name])


@pytest.mark.parametrize("name", [name for name in VALUES if name != "blob"])
def test_a_record_of_format_2_is_read_as_it_was_meant(name: str) -> None:
    raw = base64.b64decode(GOLDEN_2[name])
    found = decoded(name, raw)
    assert found == ((VALUES[name], 77) if name == "episode" else VALUES[name])
    # The checksum is over what is said, not over how zstd compressed it: no other version changes it.
    assert encoded(name)[CHECKSUM_AT] == raw[CHECKSUM_AT]


def test_an_exchange_that_needs_a_dictionary_is_read_as_it_was_meant() -> None:
    kept = base64.b64decode(GOLDEN_2["dictionary"])
    shelf = Dictionaries(lambda number: kept if number == 3 else None)
    value, raw = VALUES["exchange"], base64.b64decode(GOLDEN_2["exchange with a dictionary"])
    assert decode_exchange(raw, value.order, value.seq, shelf) == value


def test_keys_of_format_1() -> None:
    assert layout.FORMAT == 2  # which has the same keys
    keys = [
        layout.u64(258), layout.episode_key(1, 2), layout.episode_name_key(1, "é"), layout.exchange_key(1, (2, 3)),
        layout.snapshot_key(1, 2), layout.event_key(1, 2, 3, 4),
    ]  # fmt: skip
    assert [key.hex() for key in keys] == [
        "0000000000000102", "00000000000000010000000000000002", "0000000000000001c3a9",
        "000000000000000100000000000000020003", "000000000000000100000002",
        "000000000000000100000000000000020000000300000004",
    ]  # fmt: skip
