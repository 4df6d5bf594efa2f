"""The simulated network against closed forms and against the merge itself."""

from __future__ import annotations

import numpy as np
import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo.fabric import LeafSpine, simulate
from turbo_lab.turbo.packet import frame_bytes
from turbo_lab.turbo.pays import MergeWork, break_even_tokens, merge_s, spread_s
from turbo_lab.turbo.strategies import STRATEGIES, busiest_load, links_per_hop
from turbo_lab.turbo.work import Job

SIZE = {"layers": 2, "heads": 12, "dim": 32}
STAR = {"leaves": 1, "spines": 0, "rate_bytes_s": 1e6, "delay_s": 1e-4}


def job(strategy: str, hosts: int, **more) -> Job:
    return Job(**{"strategy": strategy, "hosts": hosts, **SIZE, **more})


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_a_star_carries_the_formula_and_takes_its_time(strategy: str, hosts: int) -> None:
    found = simulate(job(strategy, hosts), LeafSpine(hosts=hosts, **STAR))
    vectors = SIZE["layers"] * SIZE["heads"]
    wanted = busiest_load(strategy, hosts=hosts) * vectors * frame_bytes(SIZE["dim"])
    assert found.host_bytes(hosts) == wanted
    assert not found.core_bytes(hosts)
    work = MergeWork(layers=SIZE["layers"], vectors=SIZE["heads"], dim=SIZE["dim"])
    links = links_per_hop(strategy)
    low = wanted / STAR["rate_bytes_s"]
    delay_s = links * STAR["delay_s"] + (links - 1) * frame_bytes(32) / 1e6
    high = merge_s(work, strategy=strategy, hosts=hosts, rate_bytes_s=1e6, delay_s=delay_s)
    assert low <= found.seconds
    assert found.seconds == pytest.approx(high, rel=0.25)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_leaf_and_spine_give_the_right_result_on_every_host(strategy: str) -> None:
    one = job(strategy, 16, heads=4)
    found = simulate(one, LeafSpine())
    streams = [s for layer in range(one.layers) for s in one.layer_streams(layer)]
    exact = one.exact(step=0)
    for place, stream in enumerate(streams):
        got = {found.results[host][stream] for host in range(16)}
        assert len(got) == 1
        values = np.frombuffer(got.pop()[0], dtype=np.int8)
        assert np.abs(values - exact[place]).max() < 20  # fifteen merges in fixed point
    if strategy == "ring":
        values = [np.frombuffer(found.results[3][s][0], dtype=np.int8) for s in streams]
        np.testing.assert_array_equal(np.stack(values), one.in_order(step=0))


def test_merging_in_leaves_spares_the_links_between_switches() -> None:
    network = LeafSpine()
    core = {s: simulate(job(s, 16), network).core_bytes(16) for s in STRATEGIES}
    vectors, frame = SIZE["layers"] * SIZE["heads"], frame_bytes(32)
    assert core["in-network"] == 2 * 4 * vectors * frame  # up and down, once per leaf
    assert core["gather"] == 2 * 2 * 12 * vectors * frame  # twelve hosts, two links each way
    assert core["in-network"] < min(v for s, v in core.items() if s != "in-network")


def test_every_path_leads_over_links_that_exist() -> None:
    network = LeafSpine()
    stream = (0, 0, 1)
    assert network.path(0, 3, stream) == (16, 3)  # under one leaf
    assert network.path(0, 5, stream) == (16, 21, 17, 5)
    assert network.path(0, 16, stream) == (16,)
    assert network.path(16, 21, stream) == (21,)
    assert network.path(21, 17, stream) == (17,)
    with pytest.raises(UsageError, match="do not divide"):
        LeafSpine(hosts=10)
    with pytest.raises(UsageError, match="the network 16"):
        simulate(job("ring", 8), network)


def test_spreading_pays_from_the_break_even_on() -> None:
    facts = {
        "work": MergeWork(layers=32, vectors=32, dim=128), "strategy": "in-network", "hosts": 4,
        "kv_bytes_per_token": 131_072.0, "bandwidth_bytes_s": 3e12, "rate_bytes_s": 12.5e9,
        "delay_s": 2e-6,
    }  # fmt: skip
    tokens = break_even_tokens(**facts)
    whole_s = tokens * 131_072 / 3e12
    assert spread_s(tokens, **facts) == pytest.approx(whole_s)
    assert spread_s(2 * tokens, **facts) < 2 * whole_s
    assert spread_s(tokens / 2, **facts) > whole_s / 2
    slower = break_even_tokens(**{**facts, "strategy": "gather"})
    assert slower > tokens
