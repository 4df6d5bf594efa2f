"""The configuration of nginx as a reverse proxy before the server.

nginx does what vLLM leaves out: it limits the rate and the streams of each address, passes a list
of paths and nothing else, ends TLS, and cuts bodies that are too large. Directives as in nginx's
own documentation of ``ngx_http_limit_req_module`` and ``ngx_http_proxy_module``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.safety.plan import is_loopback

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health")


@dataclass(frozen=True, kw_only=True)
class ProxyPlan:
    """What the proxy does. Rates hold per client address.

    ``upstream_port``: the server's port on loopback. ``burst``: requests above the rate that pass
    at once; further ones get 429. ``streams``: requests of one address at the same time.
    ``read_timeout_s``: longest pause between two pieces of a reply. ``certificate`` and
    ``private_key``: PEM files; without them the proxy may listen on loopback only.
    """

    upstream_port: int
    port: int
    host: str = "127.0.0.1"
    requests_per_minute: int = 120
    burst: int = 10
    streams: int = 16
    read_timeout_s: int = 600
    body_mb: int = 4
    paths: tuple[str, ...] = PATHS
    certificate: Path | None = None
    private_key: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what nginx would refuse, and plain HTTP on an address that others reach."""
        for name in ("upstream_port", "port", "requests_per_minute", "streams", "read_timeout_s",
                     "body_mb"):  # fmt: skip
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.burst < 0:
            raise UsageError(f"burst is {self.burst}; it must be 0 or more")
        if max(self.port, self.upstream_port) > 65535 or self.port == self.upstream_port:
            raise UsageError(
                f"ports {self.port} and {self.upstream_port}; allowed: two different ones, to 65535"
            )
        if (self.certificate is None) != (self.private_key is None):
            raise UsageError("certificate and private_key belong together")
        if not is_loopback(self.host) and self.certificate is None:
            raise UsageError(
                f"host {self.host} is reached by others; give certificate and private_key, or "
                "keep 127.0.0.1"
            )
        for path in self.paths:
            if not re.fullmatch(r"/[\w./-]+", path):
                raise UsageError(f"path {path!r}; allowed: letters, digits, '.', '-', '_' and '/'")


def nginx_config(plan: ProxyPlan) -> str:
    """A whole ``nginx.conf``. Its relative paths are below the folder given with ``nginx -p``."""
    allowed = "|".join(re.escape(path.removeprefix("/")) for path in plan.paths)
    burst = f" burst={plan.burst} nodelay" if plan.burst else ""  # nginx takes no burst=0
    tls = ""
    if plan.certificate is not None:
        tls = (
            f"\n        ssl_certificate {_quoted(plan.certificate)};"
            f"\n        ssl_certificate_key {_quoted(plan.private_key)};"
            "\n        ssl_protocols TLSv1.2 TLSv1.3;"
        )
    return f"""\
# nginx (1.19.5 or newer) before vllm serve. FOLDER holds this file.
# Check: nginx -t -e stderr -p FOLDER -c nginx.conf
# Start: nginx -e stderr -p FOLDER -c nginx.conf -g 'daemon off;'
worker_processes auto;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    # Neither bodies nor headers are logged: no prompt, no key.
    log_format lean '$remote_addr [$time_iso8601] $request_method $uri $status '
                    '$bytes_sent $request_time $upstream_response_time';
    access_log access.log lean;
    server_tokens off;
    merge_slashes off;
    client_body_temp_path temp_body;
    proxy_temp_path temp_proxy;
    fastcgi_temp_path temp_fastcgi;
    uwsgi_temp_path temp_uwsgi;
    scgi_temp_path temp_scgi;

    # Counted by address. A key would be no better: who tries keys sends a new one each time.
    # Behind another proxy, set set_real_ip_from and real_ip_header, or all clients are one.
    limit_req_zone $binary_remote_addr zone=requests:10m rate={plan.requests_per_minute}r/m;
    limit_conn_zone $binary_remote_addr zone=streams:10m;
    limit_req_status 429;
    limit_conn_status 429;

    upstream vllm {{
        server 127.0.0.1:{plan.upstream_port};
        keepalive 32;
        keepalive_timeout 3s;  # below the 5 s after which vLLM closes an idle connection
    }}

    server {{
        listen {_listen(plan)};{tls}
        client_max_body_size {plan.body_mb}m;
        client_body_buffer_size {plan.body_mb}m;  # bodies stay in memory
        error_page 429 @slower;

        location ~ ^/({allowed})$ {{
            limit_req zone=requests{burst};
            limit_conn streams {plan.streams};
            proxy_pass http://vllm;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header Authorization $http_authorization;
            proxy_set_header X-Request-Id $request_id;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_buffering off;           # each piece of a stream goes out at once
            proxy_request_buffering on;    # a slow sender does not hold the server
            proxy_connect_timeout 5s;
            proxy_read_timeout {plan.read_timeout_s}s;
            proxy_send_timeout {plan.read_timeout_s}s;
            proxy_next_upstream off;       # a prompt is never sent twice
        }}
        location @slower {{
            default_type application/json;
            add_header Retry-After 1 always;
            return 429 '{{"error": {{"message": "too many requests", "type": "rate_limit_error", \
"code": 429}}}}';
        }}
        location / {{ return 404; }}  # /metrics, /tokenize and the rest stay inside
    }}
}}
"""


def _listen(plan: ProxyPlan) -> str:
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    return f"{host}:{plan.port}{' ssl' if plan.certificate is not None else ''}"


def _quoted(path: Path | None) -> str:
    text = str(Path(path or "").expanduser().resolve())
    if any(letter in text for letter in "\"'\\$;\n"):
        raise UsageError(f"{text}: quotes, $, ; and backslashes cannot stand in nginx's file")
    return f'"{text}"'
