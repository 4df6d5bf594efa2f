"""A real vllm-router over mock workers: who gets what, counted, and nothing stays behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core import host
from turbo_lab.core.errors import EngineError, MissingDependencyError, UsageError
from turbo_lab.core.processes import process_token
from turbo_lab.engines import vllm_router
from turbo_lab.engines.mock_process import MockProcess
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.vllm_router import POLICIES, RouterProcess, RoutingRule
from turbo_lab.experiment.prefix import prompt_request
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.prompts import token_id_prompts
from turbo_lab.workload.request import Request

installed = pytest.mark.skipif(
    host.package_version("vllm-router") is None, reason="needs the cpu environment"
)
WORKER = "http://127.0.0.1:8000"


@pytest.fixture
def workers() -> Iterator[list[MockProcess]]:
    with MockProcess() as one, MockProcess() as two:
        yield [one, two]


def asked(prompt: list[int], name: str) -> Request:
    return prompt_request(prompt, model="mock", request_id=name)


def answered(runs: list[Timeline]) -> None:
    assert not [run.error for run in runs if run.error]


def received(workers: list[MockProcess]) -> list[int]:
    return [len(worker.log()) for worker in workers]


@installed
def test_round_robin_gives_each_its_turn_and_the_router_leaves_no_process(workers, tmp_path):
    with RouterProcess(
        [w.base_url for w in workers], rule=RoutingRule(policy="round_robin"), folder=tmp_path
    ) as router:
        prompts = token_id_prompts(6, tokens=40, vocab_size=900, seed=1)
        requests = [asked(prompt, f"r{i}") for i, prompt in enumerate(prompts)]
        answered(run_closed_loop(requests, base_url=router.base_url, concurrency=1))
        assert received(workers) == [3, 3]
        assert list(router.sent().values()) == [3, 3]
        assert router.effective_config()["policy"] == "round_robin"
        assert any(name.startswith("vllm_router_") for name in router.metrics())
        guard = router.process.guard_token
    assert guard and process_token(int(guard.split("-")[0])) != guard
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", router.port))
    assert "vllm_router" in router.log.read_text()


@installed
def test_a_prompt_goes_where_its_beginning_went_and_a_new_one_where_nothing_waits(tmp_path):
    fast = Reply(speech=Speech())
    slow = Script(replies=(Reply(speech=Speech(ttft_s=2.0)), fast, fast, fast))  # first one waits
    one, two, *rest = token_id_prompts(8, tokens=60, vocab_size=900, seed=2)
    first = [asked(one, "one"), asked(two, "two")]
    later = [asked([*(one, two)[i % 2], *own[:5]], f"{i % 2}-{i}") for i, own in enumerate(rest)]
    with MockProcess(slow) as left, MockProcess(slow) as right:
        with RouterProcess([left.base_url, right.base_url], folder=tmp_path) as router:
            answered(run_closed_loop(first, base_url=router.base_url, concurrency=2))
            answered(run_closed_loop(later, base_url=router.base_url, concurrency=1))
            assert sorted(router.sent().values()) == [4, 4]
        found = [sorted(worker.log()) for worker in (left, right)]
    assert sorted(found) == [["0-0", "0-2", "0-4", "one"], ["1-1", "1-3", "1-5", "two"]]


@installed
def test_a_worker_that_is_not_there_is_told_with_the_log(monkeypatch, tmp_path):
    monkeypatch.setattr(vllm_router, "WORKER_PATIENCE_S", 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    router = RouterProcess([nobody], folder=tmp_path)
    router.start()
    with pytest.raises(EngineError, match="vllm-router") as told:
        router.wait_ready(timeout_s=8.0)
    assert "Last lines" in str(told.value) and not router.alive()


@installed
def test_the_policies_are_those_of_the_installed_router():
    import argparse

    from vllm_router.router_args import RouterArgs

    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    choices = next(a.choices for a in parser._actions if a.dest == "policy")
    assert sorted(choices) == sorted(POLICIES)
    rule = RoutingRule()
    assert (rule.policy, rule.cache_threshold, rule.balance_abs_threshold) == (
        RouterArgs.policy, RouterArgs.cache_threshold, RouterArgs.balance_abs_threshold,
    )  # fmt: skip
    assert rule.balance_rel_threshold == RouterArgs.balance_rel_threshold


@pytest.mark.parametrize(("wrong", "named"), [
    ({"policy": "cache-aware"}, "cache_aware"),
    ({"cache_threshold": 1.5}, "0 to 1"),
    ({"balance_abs_threshold": -1}, "0 or more"),
    ({"balance_rel_threshold": 0.5}, "1 or more"),
])  # fmt: skip
def test_wrong_rules_are_refused_with_what_is_allowed(wrong, named):
    with pytest.raises(UsageError, match=named):
        RoutingRule(**wrong)


@installed
@pytest.mark.parametrize("workers", [[], ["127.0.0.1:8000"], [WORKER, WORKER + "/"]])
def test_wrong_workers_are_refused(workers):
    with pytest.raises(UsageError, match="worker"):
        RouterProcess(workers)


def test_without_the_package_the_install_line_is_told(monkeypatch):
    monkeypatch.setattr(host, "package_version", lambda *names: None)
    with pytest.raises(MissingDependencyError, match=r"scripts/install\.py"):
        RouterProcess([WORKER])
