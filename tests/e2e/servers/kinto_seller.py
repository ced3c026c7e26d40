"""A client of Kinto that looks at a record, changes it, and looks again; with SELLER_WAITS until it sees the change."""

from __future__ import annotations

import json
import os
import time

import httpx

RECORDS = os.environ["REPLAYPROXY_URL_KINTO"] + "/v1/buckets/crm/collections/deals/records"


def main() -> None:
    amounts = []
    with httpx.Client(auth=("agent", "pass"), timeout=20) as http:

        def amount(deal: str) -> int:
            return int(http.get(f"{RECORDS}/{deal}").raise_for_status().json()["data"]["amount"])

        amounts += [amount("acme"), amount("globex")]
        http.patch(f"{RECORDS}/acme", json={"data": {"amount": 1500}}).raise_for_status()
        amounts += [amount("acme"), amount("globex")]
        until = time.monotonic() + float(os.environ.get("SELLER_WAITS", "0"))
        while amounts[-2] != 1500 and time.monotonic() < until:
            time.sleep(0.5)
            amounts[-2] = amount("acme")
        amounts += [amount("acme")]
    print(json.dumps(amounts))


main()
