"""A CalDAV client of Radicale: MKCALENDAR, PUT, PROPFIND, REPORT, conditional requests and one error."""

from __future__ import annotations

import json
import os

import httpx

URL = os.environ["REPLAYPROXY_URL_CAL"]
XML = {"Content-Type": "application/xml; charset=utf-8"}
PROPS = '<propfind xmlns="DAV:"><prop><displayname/><getetag/><resourcetype/></prop></propfind>'
QUERY = (
    '<C:calendar-query xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><prop><getetag/><C:calendar-data/></prop>'
    '<C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT"/></C:comp-filter></C:filter>'
    "</C:calendar-query>"
)
CALENDAR = (
    '<C:mkcalendar xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><set><prop>'
    "<displayname>Work</displayname></prop></set></C:mkcalendar>"
)


def event(uid: str, summary: str, hour: int) -> str:
    lines = [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//agent//EN", "BEGIN:VEVENT", f"UID:{uid}",
        "DTSTAMP:20260105T090000Z", f"DTSTART:20260106T{hour:02d}0000Z", f"DTEND:20260106T{hour + 1:02d}0000Z",
        f"SUMMARY:{summary}", "END:VEVENT", "END:VCALENDAR", "",
    ]  # fmt: skip
    return "\r\n".join(lines)


def main() -> None:
    seen = []
    with httpx.Client(auth=("agent", ""), timeout=20) as http:

        def call(method: str, path: str, **more: object) -> httpx.Response:
            answer = http.request(method, URL + path, **more)
            seen.append([method, answer.status_code])
            return answer

        ics = {"Content-Type": "text/calendar; charset=utf-8"}
        call("PROPFIND", "/agent/", content=PROPS, headers=XML | {"Depth": "0"})
        call("MKCALENDAR", "/agent/work/", content=CALENDAR, headers=XML)
        call("MKCALENDAR", "/agent/work/", content=CALENDAR, headers=XML)
        for uid, summary, hour in (("e1", "Standup", 9), ("e2", "Review", 11), ("e3", "Lunch", 12)):
            call("PUT", f"/agent/work/{uid}.ics", content=event(uid, summary, hour), headers=ics)
        call("PROPFIND", "/agent/work/", content=PROPS, headers=XML | {"Depth": "1"})
        first = call("GET", "/agent/work/e1.ics")
        call("GET", "/agent/work/e1.ics", headers={"If-None-Match": first.headers["etag"]})
        moved = call(
            "PUT", "/agent/work/e1.ics", content=event("e1", "Standup, later", 10),
            headers=ics | {"If-Match": first.headers["etag"]},
        )  # fmt: skip
        call(
            "PUT", "/agent/work/e1.ics", content=event("e1", "Too late", 15),
            headers=ics | {"If-Match": first.headers["etag"]},
        )  # fmt: skip
        call("REPORT", "/agent/work/", content=QUERY, headers=XML | {"Depth": "1"})
        call("DELETE", "/agent/work/e3.ics")
        call("GET", "/agent/work/e3.ics")
        call("GET", "/agent/work/e1.ics", headers={"If-None-Match": moved.headers.get("etag", "none")})
        call("PROPFIND", "/agent/work/", content=PROPS, headers=XML | {"Depth": "1"})
        call("REPORT", "/agent/work/", content=QUERY, headers=XML | {"Depth": "1"})
    print(json.dumps(seen))


main()
