"""The checklist against a real ``vllm serve``: what it answers, its process, its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.core.errors import EngineError
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.base import free_port, http_get
from turbo_lab.engines.checklist import Check, checklist, failed
from turbo_lab.engines.safety.nginx import NginxProxy, nginx_program
from turbo_lab.engines.safety.proxy import ProxyPlan
from turbo_lab.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]
KEY = "a-key-of-this-test-0123456789"
GUARDED = (("VLLM_API_KEY", KEY), ("VLLM_SERVER_DEV_MODE", "0"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    args = VllmArgs.make(model=local_model.resolve_model(), dtype="float32", env=GUARDED)
    with VllmServer(args, folder=tmp_path_factory.mktemp("guarded")) as one:
        yield one


def rows(**options) -> dict[str, Check]:
    return {one.id: one for one in checklist(**options)}


def test_a_server_with_a_key_is_asked_by_its_own_class_and_by_nobody_else(
    server: VllmServer,
) -> None:
    assert server.effective_config()["version"].startswith("0.32")
    assert http_get(server.base_url, "/v1/models")[0] == 401
    stranger = VllmServer(server.args.replace(env=(("VLLM_API_KEY", "wrong"),)))
    stranger.port = server.port
    with pytest.raises(EngineError, match="answered 401"):
        stranger.get("/v1/models")


def test_what_the_server_answers_without_a_key(server: VllmServer) -> None:
    """Asked by its address alone: flags, model and user are read from its process."""
    found = rows(url=server.base_url, log=server.log)
    assert not failed(found.values())
    for name in ("loopback_only", "encrypted", "api_key", "key_hidden", "developer_endpoints",
                 "prompts_not_logged", "log_private", "log_clean", "records_redacted",
                 "model_source", "model_checksum", "safetensors_only", "no_remote_code",
                 "risky_flags"):  # fmt: skip
        assert found[name].status == "ok", found[name]
    paths = found["unguarded_paths"]
    assert paths.status == "warn"
    for path in ("/metrics", "/tokenize", "/invocations", "/version"):
        assert path in paths.evidence
    assert KEY not in json.dumps([one.to_dict() for one in found.values()])


def test_a_proxy_closes_what_the_key_leaves_open(server: VllmServer, tmp_path: Path) -> None:
    if nginx_program() is None:
        pytest.skip("nginx is not installed (apt-get install nginx)")
    plan = ProxyPlan(upstream_port=server.port, port=free_port(), requests_per_minute=1, burst=9)
    with NginxProxy(plan, folder=tmp_path / "nginx") as proxy:
        assert http_get(proxy.base_url, "/v1/models", api_key=KEY)[0] == 200
        found = rows(url=proxy.base_url, burst=12, proxy=proxy.config)
    assert found["unguarded_paths"].status == found["rate_limit"].status == "ok"
    assert found["api_key"].status == "ok"
