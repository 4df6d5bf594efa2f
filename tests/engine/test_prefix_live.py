"""Paging and prefix reuse on live engines: each witness holds when on and fails when off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_lab.course.held import held_blocks
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.kv_watch import KvWatch, folder_bytes, reset_prefix_cache
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.prefix import PrefixCache, offload_hit_tokens
from turbo_lab.experiment.crowds import Tenants, play_crowds, with_count
from turbo_lab.experiment.offload import ask_for_native_offload
from turbo_lab.experiment.prefix import (
    Asked,
    PrefixCase,
    ask_in_turn,
    prefix_cases,
    prompt_request,
)
from turbo_lab.models.spec import from_hf_config
from turbo_lab.workload.prompts import token_id_prompts

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]
BLOCK, BLOCKS, PREFIX_BLOCKS, REST = 128, 24, 4, 64
REPLY = 40


@pytest.fixture(scope="module")
def args() -> VllmArgs:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return VllmArgs.make(model=local_model.resolve_model(), dtype="float32")


@pytest.fixture(scope="module")
def vocab(args: VllmArgs) -> int:
    return from_hf_config(json.loads((Path(args.model) / "config.json").read_text())).vocab


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KvWatch]:
    watch = KvWatch.at(tmp_path_factory.mktemp("kv")).make()
    yield watch
    watch.remove()


@pytest.fixture(scope="module")
def on(args: VllmArgs, watch: KvWatch) -> Iterator[VllmServer]:
    with VllmServer(watch.args(args, pool_blocks=BLOCKS, block_tokens=BLOCK)) as server:
        yield server


@pytest.fixture(scope="module")
def off(args: VllmArgs) -> Iterator[VllmServer]:
    with VllmServer(args) as server:
        yield server


@pytest.fixture(scope="module")
def cases(vocab: int) -> tuple[PrefixCase, ...]:
    return prefix_cases(block_tokens=BLOCK, vocab_size=vocab, seed=21)


def play(cases: tuple[PrefixCase, ...], server: VllmServer) -> list[Asked]:
    return [case.play(server, output_tokens=6) for case in cases]


def assert_hits(cases: tuple[PrefixCase, ...], told: list[Asked]) -> None:
    """The witness that a prefix cache is on: every pair finds what the rule says."""
    for case, asked in zip(cases, told, strict=True):
        assert asked.hits.hit_tokens == case.predicted(block_tokens=BLOCK), case.name
        assert asked.hits.queried_tokens == len(case.second)


def test_hits_are_the_rule_with_the_cache_and_not_without(
    cases: tuple[PrefixCase, ...], on: VllmServer, off: VllmServer
) -> None:
    reset_prefix_cache(on.base_url)  # a second try finds nothing of the first
    with_cache, without = play(cases, on), play(cases, off)
    assert_hits(cases, with_cache)
    assert [a.cached_tokens[0] for a in with_cache] == [
        case.predicted(block_tokens=BLOCK) for case in cases
    ]
    with pytest.raises(AssertionError, match="whole_blocks"):
        assert_hits(cases, without)
    assert sum(a.hits.hit_tokens for a in without) == 0
    assert [a.texts for a in without] == [a.texts for a in with_cache]


def test_shared_blocks_are_one_block_in_the_engines_own_tables(
    vocab: int, on: VllmServer, watch: KvWatch
) -> None:
    base, a, b, other = token_id_prompts(
        4, tokens=4 * BLOCK, vocab_size=vocab, seed=8, avoid=range(10)
    )
    prompts = {
        "one": [*base[: 2 * BLOCK], *a[:5]],
        "two": [*base[: 2 * BLOCK], *b[: BLOCK + 5]],
        "three": other[: BLOCK + 5],
    }
    cache = PrefixCache(BLOCKS, block_tokens=BLOCK)
    cache.serve([*base[: 2 * BLOCK], 10])
    for name, prompt in prompts.items():
        cache.start(name, prompt)
        cache.grow(name, len(prompt) + REPLY - 1)
    ask_in_turn(on, [prompt_request([*base[: 2 * BLOCK], 10], model=on.model_name)])
    held = held_blocks(
        on,
        [
            prompt_request(p, model=on.model_name, output_tokens=REPLY, request_id=f"draw-{name}")
            for name, p in prompts.items()
        ],
    )
    tables = watch.tables([f"draw-{name}" for name in prompts])
    assert {n: len(t) for n, t in tables.items()} == {
        f"draw-{n}": len(t) for n, t in cache.tables.items()
    }
    assert tables["draw-one"][:2] == tables["draw-two"][:2]
    different = {block for table in tables.values() for block in table}
    assert len(different) == held["value"] == cache.held_blocks
    assert max(different) <= BLOCKS and held["usable_blocks"] == BLOCKS


def crowd(vocab: int, more: int) -> Tenants:
    some = Tenants(
        count=1, prefix_tokens=PREFIX_BLOCKS * BLOCK, suffix_tokens=REST, vocab_size=vocab, seed=5
    )
    return with_count(some, some.fitting(pool_blocks=BLOCKS, block_tokens=BLOCK) + more)


@pytest.mark.parametrize("more", [0, 1, 2])
def test_the_pool_forgets_what_the_simulation_forgets(
    vocab: int, on: VllmServer, watch: KvWatch, more: int
) -> None:
    tenants = crowd(vocab, more)
    told = tenants.predict(pool_blocks=BLOCKS, block_tokens=BLOCK)
    played = play_crowds(on, {tenants.count: tenants}, watch=watch)[str(tenants.count)]
    found = [one["hit_tokens"] for one in played["rounds"]]
    assert found == [sum(use.hit_tokens for use in one) for one in told]
    assert played["removed"] == sum(use.evicted for one in told for use in one)
    everything = tenants.count * PREFIX_BLOCKS * BLOCK
    assert (found[1] == everything) is (more == 0)


def test_forgotten_blocks_come_from_the_host_only_where_asked_for(
    vocab: int, on: VllmServer, watch: KvWatch
) -> None:
    tenants = crowd(vocab, 2)
    each = offload_hit_tokens(prompt_tokens=tenants.prompt_tokens, block_tokens=BLOCK)
    wanted = tenants.count * each
    found, texts = {}, {}
    for offload in (False, True):
        played = play_crowds(on, {tenants.count: tenants}, watch=watch, offload=offload)
        first, second = played[str(tenants.count)]["rounds"]
        assert first["external_tokens"] == 0
        found[offload], texts[offload] = second["external_tokens"], second["texts"]
    assert found == {False: 0, True: wanted}
    assert texts[True] == texts[False]
    assert folder_bytes(watch.tier) == 0


def test_the_engines_own_offloading_refuses_a_cpu(args: VllmArgs) -> None:
    told = ask_for_native_offload(args)
    assert not told["works"]
    assert "offload" in told["said"].lower() and "cuda" in told["said"].lower()
