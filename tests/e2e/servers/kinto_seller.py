"""A client of Kinto that looks at a record, changes it, and looks again."""

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
        time.sleep(float(os.environ.get("SELLER_WAITS", "0")))
        amounts += [amount("acme")]
    print(json.dumps(amounts))


main()
