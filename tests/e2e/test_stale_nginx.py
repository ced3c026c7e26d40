"""nginx with a cache in front of Kinto: a read that the cache answered is found, and none where it is gone past."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import SERVERS, Lab, free_port, server_python
from tests.needs import program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

KINTO = """
[app:main]
use = egg:kinto
kinto.storage_backend = kinto.core.storage.memory
kinto.permission_backend = kinto.core.permission.memory
kinto.cache_backend = kinto.core.cache.memory
kinto.userid_hmac_secret = not-a-secret
kinto.bucket_create_principals = system.Authenticated
multiauth.policies = basicauth
multiauth.policy.basicauth.use = kinto.core.authentication.BasicAuthAuthenticationPolicy
[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = %(http_port)s
[loggers]
keys = root
[handlers]
keys =
[formatters]
keys =
[logger_root]
level = WARNING
handlers =
"""
# Kinto forbids caches; this one does not listen, as caches that somebody puts in front to save load do not.
NGINX = """
daemon off;
user {user};
pid {path}/nginx.pid;
error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {path}/body;
  proxy_temp_path {path}/proxy;
  fastcgi_temp_path {path}/fastcgi;
  uwsgi_temp_path {path}/uwsgi;
  scgi_temp_path {path}/scgi;
  proxy_cache_path {path}/cache keys_zone=kinto:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {upstream};
      proxy_set_header Host 127.0.0.1;
      proxy_cache kinto;
      proxy_cache_valid 200 {ttl};
      proxy_ignore_headers Cache-Control Expires Set-Cookie Vary;
      {more}
    }}
  }}
}}
"""
HONEST = "proxy_cache_bypass 1; proxy_no_cache 1;"


def start_kinto(lab: Lab) -> str:
    python = Path(server_python("kinto"))
    ini = lab.path / "kinto.ini"
    ini.write_text(KINTO)
    port = free_port()
    words = [str(python.parent / "kinto"), "start", "--ini", str(ini), "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    lab.serve(words, f"{url}/v1/")
    with httpx.Client(base_url=f"{url}/v1", auth=("agent", "pass"), timeout=20) as http:
        http.put("/buckets/crm").raise_for_status()
        http.put("/buckets/crm/collections/deals").raise_for_status()
        for deal, amount in (("acme", 1200), ("globex", 800)):
            path = f"/buckets/crm/collections/deals/records/{deal}"
            http.put(path, json={"data": {"amount": amount}}).raise_for_status()
    return url


def start_nginx(lab: Lab, upstream: str, *, ttl: str, more: str = "") -> str:
    nginx = program("nginx", "/usr/sbin/nginx")
    port = free_port()
    config = lab.path / "nginx.conf"
    user = getpass.getuser()
    config.write_text(NGINX.format(user=user, path=lab.path, port=port, upstream=upstream, ttl=ttl, more=more))
    url = f"http://127.0.0.1:{port}"
    lab.serve([nginx, "-e", "stderr", "-c", str(config)], f"{url}/v1/__heartbeat__")
    return url


def checked(lab: Lab, front: str, kinto: str, waits: float = 0) -> tuple[list[int], Any]:
    """What the seller saw, and the check of its recording."""
    records = f"{kinto}/v1/buckets/crm/collections/deals/records"
    ran = lab.run(
        "record", "--env", f"kinto={front}", "--run", "nightly", "--episode", "e1", "--json",
        "--snapshot", f"kinto=http:{records},header=Authorization:Basic YWdlbnQ6cGFzcw==",
        "--", sys.executable, str(SERVERS / "kinto_seller.py"), env={"SELLER_WAITS": str(waits)},
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    seen = next(line for line in ran.err.splitlines() if line.startswith("["))
    return [int(word) for word in seen.strip("[]").split(",")], lab.run("check", "nightly", "--json").json


def test_a_read_that_the_cache_answered_after_the_write_is_found_with_its_exchanges_and_cell(lab: Lab) -> None:
    kinto = start_kinto(lab)
    seen, report = checked(lab, start_nginx(lab, kinto, ttl="5s"), kinto, waits=40)
    assert seen == [1200, 800, 1500, 800, 1500], "the cache held the old amount for a while, and then no longer"
    (finding,) = report["findings"]
    assert finding["count"] > 1, "all reads of the old amount are one finding"
    assert (finding["kind"], finding["sub"], finding["grade"]) == ("stale-read", "RYW", "proven")
    assert (finding["pointer"], finding["values"]) == ("/data/amount", [1500, 1200])
    assert [(w["role"], w["address"]) for w in finding["exchanges"][:2]] == [
        ("write", "nightly/e1#3"), ("read", "nightly/e1#4"),
    ]  # fmt: skip
    assert report["verdicts"] == {"e1": "poisoned"}
    assert finding["blame"] == "environment"


def test_the_same_server_is_clean_where_the_cache_is_gone_past(lab: Lab) -> None:
    kinto = start_kinto(lab)
    seen, report = checked(lab, start_nginx(lab, kinto, ttl="60s", more=HONEST), kinto)
    assert seen == [1200, 800, 1500, 800, 1500]
    assert report["findings"] == []
    assert report["verdicts"] == {"e1": "clean"}
    assert "stale-read" in report["coverage"]["e1"]["checked"]


def test_without_nginx_the_same_agent_is_clean(lab: Lab) -> None:
    kinto = start_kinto(lab)
    seen, report = checked(lab, kinto, kinto)
    assert seen == [1200, 800, 1500, 800, 1500]
    assert report["findings"] == []
