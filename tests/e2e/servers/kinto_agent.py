"""A client of Kinto: buckets, collections, records, conditional reads and writes, and one error."""

from __future__ import annotations

import json
import os

import httpx

URL = os.environ["REPLAYPROXY_URL_KINTO"] + "/v1"


def main() -> None:
    seen = []
    with httpx.Client(auth=("agent", "pass"), timeout=20) as http:

        def call(method: str, path: str, **more: object) -> httpx.Response:
            answer = http.request(method, URL + path, **more)
            seen.append([method, path.split("?")[0].count("/"), answer.status_code])
            return answer

        call("GET", "/")
        call("PUT", "/buckets/crm")
        call("PUT", "/buckets/crm/collections/deals")
        records = "/buckets/crm/collections/deals/records"
        made = [
            call("POST", records, json={"data": {"name": name, "amount": amount}}).json()["data"]["id"]
            for name, amount in (("Acme", 1200), ("Globex", 800), ("Initech", 50))
        ]
        first = f"{records}/{made[0]}"
        deal = call("GET", first)
        call("GET", first, headers={"If-None-Match": deal.headers["etag"]})
        call("PATCH", first, json={"data": {"amount": 1500}}, headers={"If-Match": deal.headers["etag"]})
        call("PATCH", first, json={"data": {"amount": 1}}, headers={"If-Match": deal.headers["etag"]})
        call("GET", first)
        call("GET", records + "?_sort=amount&min_amount=100")
        call("DELETE", f"{records}/{made[2]}")
        call("GET", f"{records}/{made[2]}")
        call("PUT", f"{records}/{made[1]}", json={"data": {"name": "Globex", "amount": 900, "won": True}})
        call("GET", records + "?_sort=name")
        call("DELETE", f"{records}/00000000-0000-4000-8000-000000000000")
    print(json.dumps(seen))


main()
