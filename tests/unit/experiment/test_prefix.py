"""What is sent, what the engine's counters say of it, and what the simulation predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.estimate.prefix import PrefixCache, tenants_that_fit
from turbo_lab.experiment import prefix
from turbo_lab.experiment.prefix import COUNTERS, Tenants, ask_in_turn, prefix_cases, read_hits
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.workload.request import Request

BLOCK, VOCAB, BLOCKS = 16, 1000, 24
TENANTS = Tenants(count=3, prefix_tokens=4 * BLOCK, suffix_tokens=8, vocab_size=VOCAB)


class FakeServer:
    """Counts as vLLM does, with our own simulation behind it."""

    base_url, model_name = "http://127.0.0.1:1", "lab"

    def __init__(self, *, caching: bool = True, strangers: int = 0) -> None:
        self.cache = PrefixCache(BLOCKS, block_tokens=BLOCK)
        self.caching, self.strangers = caching, strangers
        self.counts = dict.fromkeys(COUNTERS.values(), 0.0)
        self.sent: list[Request] = []

    def metrics(self) -> dict[str, float]:
        return {f'{name}{{engine="0"}}': value for name, value in self.counts.items()}

    def serve(self, requests: Sequence[Request], **_: Any) -> list[Timeline]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Timeline:
        self.sent.append(request)
        prompt: Any = request.prompt
        found = 0
        if self.caching:
            use = self.cache.serve(
                prompt, output_tokens=request.max_tokens or 1, salt=request.extra.get("cache_salt")
            )
            found = use.hit_tokens
            self.counts[COUNTERS["queried_tokens"]] += len(prompt)
            self.counts[COUNTERS["hit_tokens"]] += found
        self.counts[COUNTERS["finished"]] += 1 + self.strangers
        usage = {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": found}}
        return Timeline.from_dict(
            {"request_id": "r", "scheduled_s": None, "sent_s": 0.0, "connected_s": 0.01,
             "status_code": 200, "chunks": [[0.2, 1, "content"], [0.2, None, "done"]],
             "finish_reason": "length", "saw_done": True, "usage": usage, "closed_s": 0.3,
             "error": None, "text": "x"}
        )  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    return install(monkeypatch, FakeServer())


def install(monkeypatch: pytest.MonkeyPatch, server: FakeServer) -> FakeServer:
    monkeypatch.setattr(prefix, "run_closed_loop", server.serve)
    monkeypatch.setattr(prefix, "PATIENCE_S", 0.05)
    return server


CASES = prefix_cases(block_tokens=BLOCK, vocab_size=VOCAB, seed=3)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_case_is_what_its_name_says(server: FakeServer, case: prefix.PrefixCase) -> None:
    common = 0
    while common < min(len(case.first), len(case.second)) and (
        case.first[common] == case.second[common]
    ):
        common += 1
    if not case.salt:
        assert common == case.shared_tokens
    told = case.play(server)
    assert told.hits.hit_tokens == case.predicted(block_tokens=BLOCK) == told.cached_tokens[0]
    assert told.hits.queried_tokens == len(case.second)
    assert told.ttft_s == (pytest.approx(0.19),) and told.texts == ("x",)


def test_the_cases_find_something_and_nothing() -> None:
    found = {c.name: c.predicted(block_tokens=BLOCK) for c in CASES}
    assert found == {
        "whole_blocks": 64, "inside_a_block": 48, "again_whole_blocks": 64, "again_one_more": 80,
        "first_token_changed": 0, "nothing_shared": 0, "other_salt": 0, "below_one_block": 0,
    }  # fmt: skip
    for case in CASES:
        assert all(0 <= t < VOCAB for t in (*case.first, *case.second))


def test_without_caching_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = install(monkeypatch, FakeServer(caching=False))
    told = CASES[0].play(plain)
    assert told.hits.hit_tokens == told.hits.queried_tokens == 0


def test_strangers_on_the_server_make_it_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = install(monkeypatch, FakeServer(strangers=1))
    with pytest.raises(UnmeasuredError, match="1 requests were sent, the server counted 2"):
        CASES[0].play(busy)


def test_a_server_without_counters_is_unmeasured(server: FakeServer) -> None:
    server.counts = {}
    with pytest.raises(UnmeasuredError, match=r"no vllm:request_success_total"):
        read_hits(server)


@pytest.mark.parametrize("more", [0, 1, 2])
def test_the_engine_finds_what_the_simulation_says(server: FakeServer, more: int) -> None:
    fit = tenants_that_fit(
        pool_blocks=BLOCKS, prefix_tokens=4 * BLOCK, prompt_tokens=4 * BLOCK + 8,
        block_tokens=BLOCK,
    )  # fmt: skip
    tenants = prefix.with_count(TENANTS, fit + more)
    told = [sum(u.hit_tokens for u in one)
            for one in tenants.predict(pool_blocks=BLOCKS, block_tokens=BLOCK)]  # fmt: skip
    found = [asked.hits.hit_tokens for asked in tenants.play(server)]
    assert found == told
    assert (found[1] == tenants.count * 4 * BLOCK) is (more == 0)


def test_offloading_is_asked_for_by_the_request(server: FakeServer) -> None:
    TENANTS.play(server, offload=True)
    assert all(r.extra["kv_transfer_params"] == {"offload": True} for r in server.sent)
    server.sent.clear()
    TENANTS.play(server)
    assert not any("kv_transfer_params" in r.extra for r in server.sent)


def test_tenants_ask_in_turn_with_their_own_prefix() -> None:
    first, second = TENANTS.prompts()
    assert len({tuple(p[: 4 * BLOCK]) for p in first}) == 3
    for one, other in zip(first, second, strict=True):
        assert one[: 4 * BLOCK] == other[: 4 * BLOCK] and one != other


def test_another_count_means_other_prompts() -> None:
    assert prefix.with_count(TENANTS, 4).prompts()[0][0] != TENANTS.prompts()[0][0]
    assert prefix.tenant_counts(fitting=5) == (3, 5, 6, 7, 9)


def test_all_of_it_is_plain_data(server: FakeServer) -> None:
    told = ask_in_turn(server, [prefix.prompt_request([1] * 20, model="lab")]).to_dict()
    assert told["finished"] == 1 and told["cached_tokens"] == [0]
