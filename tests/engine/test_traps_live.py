"""Traps of notebook 15 on real vLLM: each has a witness that it is on, and an off-control.

What is compared are steps, requests and order, which no machine's speed changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.config import resolve_dials
from turbo_lab.course.held import conversations
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import pool_session, shared_server
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.metrics.definitions import e2e_s, outcome
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.papers.trap_sizes import survivors
from turbo_lab.workload.request import Request

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

STEPS = "vllm:iteration_tokens_total_count"
USERS, PROMPT = 8, 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with pool_session(tmp_path_factory.mktemp("pool")):
        yield shared_server(default_args(resolve_dials("cpu")))


def ask(server: VllmServer, replies: Sequence[int], *, seed: int) -> list[Request]:
    which = {"model": server.model_name, "vocab_size": 40_000, "seed": seed}
    asked = conversations(len(replies), prompt_tokens=PROMPT, reply_tokens=1, **which)
    return [replace(one, max_tokens=n) for one, n in zip(asked, replies, strict=True)]


def send(server: VllmServer, asked: Sequence[Request], users: int) -> list[Timeline]:
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=users)
    assert all(outcome(t).ok for t in runs), [outcome(t).reason for t in runs]
    return runs


def steps(server: VllmServer, groups: Sequence[Sequence[Request]]) -> float:
    before = server.counter(STEPS)
    for group in groups:
        send(server, group, USERS)
    return server.counter(STEPS) - before


def in_batches(asked: Sequence[Request]) -> list[Sequence[Request]]:
    return [asked[i : i + USERS] for i in range(0, len(asked), USERS)]


def test_the_weak_baseline_needs_more_steps_and_with_equal_replies_no_more(
    server: VllmServer,
) -> None:
    """Witness: mixed lengths. Off-control: equal ones (each late starter may add a step)."""
    mixed = ask(server, ([8] * 7 + [48]) * 2, seed=1)
    assert steps(server, in_batches(mixed)) >= 2 * 48
    assert steps(server, [mixed]) <= 64 + 2 * USERS
    equal = ask(server, [16] * 2 * USERS, seed=2)
    whole, flowing = steps(server, in_batches(equal)), steps(server, [equal])
    assert whole >= 32 and abs(whole - flowing) <= USERS


def test_a_crowd_ends_in_waves_and_the_survivors_are_the_first_of_them(server: VllmServer) -> None:
    """Twice as many as there are seats: those beyond the seats end last, whatever it takes."""
    seats = server.args.max_num_seqs
    crowd = send(server, ask(server, [16] * 2 * seats, seed=3), 2 * seats)
    waits = sorted(value for t in crowd if (value := e2e_s(t)) is not None)
    assert len(waits) == 2 * seats
    limit = math.sqrt(waits[seats - 1] * waits[seats])
    read = survivors(waits, timeout_s=limit, p=90)
    assert read.lost == seats and read.flattery > 1.2
    off = survivors(waits, timeout_s=2 * waits[-1], p=90)
    assert off.lost == 0 and off.flattery == 1


def test_the_placebo_changes_no_text_and_no_step(server: VllmServer) -> None:
    """A field that the engine does not use: one request alone, with it and without."""
    (plain,) = ask(server, [24], seed=4)
    marked = replace(plain, extra={**plain.extra, "user": "placebo"})
    counts, texts = [], []
    for one in (plain, marked):
        before = server.counter(STEPS)
        texts += [timeline.text for timeline in send(server, [one], 1)]
        counts.append(server.counter(STEPS) - before)
    assert texts[0] == texts[1] and texts[0]
    assert abs(counts[0] - counts[1]) <= 1
