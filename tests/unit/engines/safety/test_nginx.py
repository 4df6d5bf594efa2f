"""nginx before a server: its configuration, and a real one that limits, streams and hides."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.base import free_port
from turbo_lab.engines.checklist import checklist
from turbo_lab.engines.mock_script import Reply, Script, event
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.engines.safety.nginx import (
    NginxMissingError,
    NginxProxy,
    check_config,
    nginx_program,
    proxy_row,
    require_nginx,
)
from turbo_lab.engines.safety.proxy import ProxyPlan, nginx_config

REFUSED, BURST = 15, 4


@pytest.fixture
def nginx() -> str:
    """The program; a skip where there is none, a failure where CI must have it."""
    if nginx_program() is None and not os.environ.get("TURBO_LAB_REQUIRE_NGINX"):
        pytest.skip("nginx is not installed (apt-get install nginx)")
    return require_nginx()


def plan(**changes) -> ProxyPlan:
    return ProxyPlan(**{"upstream_port": 8000, "port": 8080, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"host": "0.0.0.0"}, "certificate"), ({"port": 8000}, "different"),
     ({"port": 0}, "port is 0"), ({"port": 70000}, "65535"),
     ({"requests_per_minute": 0}, "requests_per_minute is 0"),
     ({"burst": -1}, "burst is -1"), ({"certificate": Path("c.pem")}, "belong together"),
     ({"paths": ("/v1/a;b",)}, "path"), ({"paths": ("v1",)}, "path")],
)  # fmt: skip
def test_what_would_be_unsafe_or_impossible_is_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        plan(**changes)


def test_the_configuration_says_what_was_asked():
    text = nginx_config(plan(requests_per_minute=7, burst=3, read_timeout_s=900, body_mb=2))
    for part in ("rate=7r/m", "burst=3 nodelay", "proxy_buffering off;", "limit_req_status 429",
                 "proxy_read_timeout 900s;", "client_max_body_size 2m;", "listen 127.0.0.1:8080;",
                 "server 127.0.0.1:8000;", "Authorization $http_authorization"):  # fmt: skip
        assert part in text
    assert "request_body" not in text and "ssl" not in text
    tls = nginx_config(plan(host="::", certificate=Path("c.pem"), private_key=Path("k.pem")))
    assert "listen [::]:8080 ssl;" in tls and 'c.pem";' in tls


def test_a_configuration_without_a_limit_fails_its_row(tmp_path):
    path = tmp_path / "nginx.conf"
    path.write_text(
        "events {}\nhttp { # limit_req zone=x;\n"
        "limit_req_zone $uri zone=x:1m rate=1r/s; access_log off; error_log stderr; }\n"
        "pid nginx.pid;"
    )
    told = proxy_row(path, exposed=False)
    assert told.status == "fail" and told.evidence == "nginx.conf has no limit_req"
    path.write_text(nginx_config(plan()).replace("proxy_buffering off", "proxy_buffering on"))
    assert proxy_row(path, exposed=False).status == "warn"
    assert proxy_row(None, exposed=True).status == "fail"


def test_without_nginx_the_row_is_unknown_and_the_error_tells_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("turbo_lab.engines.safety.nginx.nginx_program", lambda: None)
    path = tmp_path / "nginx.conf"
    path.write_text(nginx_config(plan()))
    assert proxy_row(path, exposed=False).status == "unknown"
    with pytest.raises(NginxMissingError, match="apt-get install"):
        check_config(path)


def test_what_an_included_file_says_counts(nginx, tmp_path):
    whole = nginx_config(plan(port=free_port()))
    start = whole.index("    server {\n        listen")
    path, part = tmp_path / "nginx.conf", tmp_path / "site.conf"
    path.write_text(whole[:start] + "    include site.conf;\n}\n")
    part.write_text(whole[start:].rstrip().removesuffix("}"))
    assert proxy_row(path, exposed=False).status == "ok"
    part.write_text(part.read_text().replace("limit_req ", "# limit_req "))
    assert proxy_row(path, exposed=False).status == "fail"


@pytest.mark.parametrize(
    "changes", [{}, {"requests_per_minute": 6000, "burst": 0, "streams": 1, "body_mb": 64},
                {"paths": ("/v1/embeddings", "/v1/audio.x/a-b")}],
)  # fmt: skip
def test_nginx_takes_the_configuration(changes, nginx, tmp_path):
    path = tmp_path / "nginx.conf"
    path.write_text(nginx_config(plan(port=free_port(), **changes)))
    assert check_config(path) is None
    assert proxy_row(path, exposed=True).status == "ok"
    path.write_text(path.read_text().replace("worker_processes auto", "worker_process auto"))
    assert "worker_process" in (check_config(path) or "")
    assert proxy_row(path, exposed=True).status == "fail"


def post(port: int, path: str = "/v1/completions", size: int = 0) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"model": "mock", "prompt": "x" * size, "max_tokens": 2, "stream": True})
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    return connection.getresponse()


@pytest.mark.alone
def test_requests_above_the_rate_get_429_and_never_reach_the_server(nginx, tmp_path):
    """One request a minute and four more at once: of twenty in a row five pass, on any machine."""
    with MockServer() as server:
        upstream = int(server.base_url.rpartition(":")[2])
        limits = ProxyPlan(upstream_port=upstream, port=free_port(), requests_per_minute=1,
                           burst=BURST)  # fmt: skip
        with NginxProxy(limits, folder=tmp_path / "nginx") as proxy:
            answers = [post(proxy.port, size=50) for _ in range(1 + BURST + REFUSED)]
            texts = [answer.read() for answer in answers]
            live = {row.id: row for row in checklist(url=proxy.base_url, burst=2)}
        assert Counter(a.status for a in answers) == {200: 1 + BURST, 429: REFUSED}
        assert [a.status for a in answers[: 1 + BURST]] == [200] * (1 + BURST)
        assert len(server.log) == 1 + BURST
        assert b"[DONE]" in texts[0]
        assert json.loads(texts[-1])["error"]["code"] == 429
        assert answers[-1].headers["Retry-After"] == "1"
        assert live["rate_limit"].status == "ok" and live["unguarded_paths"].status == "ok"
    assert not proxy.alive()
    assert "x" * 9 not in (tmp_path / "nginx" / "access.log").read_text()


@pytest.mark.alone
def test_a_piece_of_a_stream_arrives_while_the_reply_is_still_open(nginx, tmp_path):
    """The server sends one event and then falls silent for ever; the event must come through."""
    script = Script(replies=(Reply(steps=(event({"choices": []}),), end="hang"),))
    with MockServer(script) as server:
        upstream = int(server.base_url.rpartition(":")[2])
        limits = ProxyPlan(upstream_port=upstream, port=free_port())
        with NginxProxy(limits, folder=tmp_path / "nginx") as proxy:
            answer = post(proxy.port)
            assert answer.readline().startswith(b"data: {")
            answer.close()


@pytest.mark.alone
def test_the_key_goes_through_and_other_paths_do_not(nginx, tmp_path):
    seen: list[tuple[str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    limits = ProxyPlan(upstream_port=server.server_port, port=free_port(), burst=50, body_mb=1)
    try:
        with NginxProxy(limits, folder=tmp_path / "nginx") as proxy:

            def get(path: str) -> int:
                connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
                connection.request("GET", path, headers={"Authorization": "Bearer k"})
                return connection.getresponse().status

            assert get("/v1/models") == get("/health") == 200
            for path in ("/metrics", "/tokenize", "/invocations", "/v1/../metrics", "//v1/models",
                         "/v1/models/../../metrics", "/v1/models/", "/%2e%2e/metrics",
                         "/v1/load_lora_adapter"):  # fmt: skip
                assert get(path) in (400, 404), path
            assert post(proxy.port, size=1_100_000).status == 413
    finally:
        server.shutdown()
        server.server_close()
    assert seen == [("/v1/models", "Bearer k"), ("/health", "Bearer k")]
