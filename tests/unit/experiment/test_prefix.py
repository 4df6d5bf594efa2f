"""What is sent, what the engine's counters say of it, and what the simulation predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.estimate.prefix import PrefixCache
from turbo_lab.experiment import crowds, prefix
from turbo_lab.experiment.crowds import Tenants, play_crowds, tenant_counts, with_count
from turbo_lab.experiment.prefix import COUNTERS, ask_in_turn, prefix_cases, read_hits
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
    fit = TENANTS.fitting(pool_blocks=BLOCKS, block_tokens=BLOCK)
    assert fit == 5 and TENANTS.shared_tokens == 3 * 4 * BLOCK
    tenants = with_count(TENANTS, fit + more)
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
    assert with_count(TENANTS, 4).prompts()[0][0] != TENANTS.prompts()[0][0]
    assert tenant_counts(fitting=5) == (3, 5, 6, 7, 9)
    assert tenant_counts(fitting=5, effort="smoke") == (5, 7)
    assert tenant_counts(fitting=5, effort="full") == tuple(range(1, 13))


def test_equal_replies_are_counted_pair_by_pair() -> None:
    assert prefix.same_share([["a"], ["b"], ["c"]], [["a"], ["x"], ["c"]]) == pytest.approx(2 / 3)
    with pytest.raises(UsageError, match="2 and 1 items"):
        prefix.same_share(["a", "b"], ["a"])


def test_all_of_it_is_plain_data(server: FakeServer) -> None:
    told = ask_in_turn(server, [prefix.prompt_request([1] * 20, model="lab")]).to_dict()
    assert told["finished"] == 1 and told["cached_tokens"] == [0]


def test_times_of_unlike_prompts_by_length(server: FakeServer) -> None:
    facts = {"passes": 2, "vocab_size": VOCAB, "seed": 9}
    told = prefix.time_prompts(server, lengths=[BLOCK, 3 * BLOCK], **facts)
    assert told == {"ttft_s": [[pytest.approx(0.19)] * 2] * 2, "hit_tokens": 0}
    sizes = [len(request.prompt) for request in server.sent]
    assert sizes == [BLOCK, 3 * BLOCK] * 3  # a pass to warm up, and two that count


def test_times_of_prompts_that_begin_alike(server: FakeServer) -> None:
    facts = {"prompt_tokens": 6 * BLOCK, "passes": 3, "vocab_size": VOCAB, "seed": 4}
    for shared in (0, 2 * BLOCK, 5 * BLOCK):
        told = prefix.time_shared(server, shared_tokens=shared, **facts)
        assert told["hit_tokens"] == 3 * shared and len(told["samples"]) == 3


def test_times_of_what_was_not_found_are_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = install(monkeypatch, FakeServer(caching=False))
    with pytest.raises(UnmeasuredError, match="0 tokens were found in 2 prompts, not 32 in each"):
        prefix.time_shared(plain, prompt_tokens=96, shared_tokens=32, passes=2, vocab_size=VOCAB,
                           seed=1)  # fmt: skip


class FakeWatch:
    """Counts how often the tier is emptied; its events are what the simulation evicted."""

    def __init__(self, server: FakeServer) -> None:
        self.server, self.cleared = server, 0

    def clear_tier(self) -> int:
        self.cleared += 1
        return 0

    def events(self, *, since: int = 0) -> list[dict[str, Any]]:
        removed = {"type": "BlockRemoved", "block_hashes": [1] * 5}
        return [{"number": 0, "events": []}, {"number": 1, "events": [removed]}][since:][:2]


def test_crowds_start_from_an_empty_cache_and_leave_an_empty_tier(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resets: list[str] = []

    def reset(url: str) -> None:
        resets.append(url)
        server.cache = PrefixCache(BLOCKS, block_tokens=BLOCK)

    monkeypatch.setattr(crowds, "reset_prefix_cache", reset)
    watch: Any = FakeWatch(server)
    told = play_crowds(server, {n: with_count(TENANTS, n) for n in (2, 3)}, watch=watch)
    assert [*told] == ["2", "3"] and len(resets) == 2 and watch.cleared == 4
    assert [one["hit_tokens"] for one in told["3"]["rounds"]] == [0, 3 * 4 * BLOCK]
    assert told["3"]["removed"] == 0  # the events before the crowd do not count


def test_the_tier_is_emptied_after_a_failure_too(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowds, "reset_prefix_cache", lambda url: None)
    server.strangers = 1
    watch: Any = FakeWatch(server)
    with pytest.raises(UnmeasuredError):
        play_crowds(server, {3: TENANTS}, watch=watch)
    assert watch.cleared == 2
