"""Traps of notebook 15 on real vLLM: each has a witness that it is on, and an off-control.

What is compared are texts, steps of a single request and the order of requests. That whole batches
need more steps than continuous ones is tested in ``test_batching_live``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

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
PROMPT = 32


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


def test_a_crowd_ends_in_waves_and_the_survivors_are_the_first_of_them(server: VllmServer) -> None:
    """Twice as many as there are seats: half of them begin only after another has ended."""
    seats = server.args.max_num_seqs
    crowd = send(server, ask(server, [64] * 2 * seats, seed=3), 2 * seats)
    first_end_s = min(t.visible()[-1].t_s for t in crowd)
    late = [t for t in crowd if t.visible()[0].t_s > first_end_s]
    assert len(late) >= seats
    waits = {t.request_id: e2e_s(t) or 0.0 for t in crowd}
    behind = median(waits[t.request_id] for t in late)
    ahead = median(waits[t.request_id] for t in crowd if t not in late)
    read = survivors([*waits.values()], timeout_s=math.sqrt(ahead * behind), p=90)
    print(f"ahead {ahead:.2f} s, behind {behind:.2f} s: {read}, flattery {read.flattery:.2f}")
    assert read.lost >= seats / 2 and read.flattery > 1.2
    off = survivors([*waits.values()], timeout_s=2 * max(waits.values()), p=90)
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
