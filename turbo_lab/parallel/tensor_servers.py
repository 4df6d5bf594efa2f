"""Real vLLM with its layers split: its arguments, its own account of it, its text and its steps."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import shared_server, start_together
from turbo_lab.engines.request_times import RequestTimes, read_times, times_since
from turbo_lab.engines.tuning import cpu_settings
from turbo_lab.engines.vllm_dry_run import dry_run
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate import grids
from turbo_lab.estimate.points import MeasuredStep, PromptSource, StepPoint, requests_for
from turbo_lab.estimate.tensor_parallel import allowed_ranks
from turbo_lab.metrics.definitions import outcome
from turbo_lab.models.spec import ModelSpec
from turbo_lab.workload.request import Request

REST_S = 1.2  # a vLLM worker polls for a second after its last step, and takes a core for it
GPU_POOL_GIB = 4  # a pool of known size, so that its tokens can be foretold
COUNTING_PATIENCE_S = 5.0  # how long the server may take to count its last request
WARM_UP = StepPoint("decode", 1, 32)
STEPS = 24  # decode steps of one measured point
_WORKER = re.compile(r"\bWorker_TP(\d+)")


def single_args(dials: Dials, *, report: Callable[[str], None] = print) -> VllmArgs:
    """The unsplit server: on a CPU in float32, so that replies must be equal letter by letter.

    On a GPU the model's own dtype is served, and a card is shared by this and a split server.
    """
    if dials.mode == "cpu":
        cores = cpu_settings(report=report).cores
        return default_args(dials, dtype="float32", cores=cores, report=report)
    return default_args(dials, servers=2, kv_cache_gib=GPU_POOL_GIB, report=report)


def split_args(single: VllmArgs, *, ranks: int) -> VllmArgs:
    """The same server split over ``ranks``, and nothing else changed."""
    return single.replace(tensor_parallel_size=ranks)


def ready(dials: Dials, *, ranks: int = 1, beside: Sequence[int] = ()) -> VllmServer:
    """The ready server of so many ranks from the shared pool.

    ``beside``: numbers of ranks of further servers that will be asked for; where memory allows,
    they are started at the same time. Raises EngineError.
    """
    single = single_args(dials)
    wanted = [split_args(single, ranks=n) for n in (ranks, *beside)]
    if len(wanted) > 1 and dials.mode == "cpu":
        start_together(*wanted)
    return shared_server(wanted[0])


def leave(server: Any) -> None:
    """Stop a split server; an unsplit one, which other notebooks may share, stays."""
    if isinstance(server, VllmServer) and server.args.tensor_parallel_size > 1:
        server.stop()


def server_ranks(spec: ModelSpec, *, dials: Dials, wanted: int) -> int:
    """Ranks for the split server: ``wanted`` on a CPU, on GPUs the most that there are cards for.

    Raises UnmeasuredError where a machine with GPUs has too few of them.
    """
    if dials.mode != "gpu":
        return wanted
    cards = len(host.gpus())
    most = max(allowed_ranks(spec, most=max(1, cards)))
    if most < 2:
        raise UnmeasuredError(f"{spec.name} splits over no number of ranks from 2 to {cards} GPUs")
    return most


def workers_seen(server: VllmServer) -> list[int]:
    """Tensor-parallel ranks of the worker processes that wrote into the server's log."""
    text = server.log.read_text(errors="replace")
    return sorted({int(rank) for rank in _WORKER.findall(text)})


def settings(server: VllmServer) -> dict[str, Any]:
    """What was asked for: ``device``, and the size of the pool on each rank in GiB."""
    return {"device": server.args.device, "pool_gib": server.args.kv_cache_gib or 1}


def facts(server: VllmServer) -> dict[str, Any]:
    """What the engine says of itself: pool in tokens and blocks, workers, seconds until ready."""
    config = server.cache_config()
    return {
        "ranks": server.args.tensor_parallel_size,
        "workers": workers_seen(server),
        "tokens": server.kv_cache_tokens(),
        "blocks": int(config["num_gpu_blocks"]),
        "block_tokens": int(config["block_size"]),
        "load_s": server.load_s,
    }


def refusals(single: VllmArgs, *, ranks: Sequence[int]) -> dict[str, str]:
    """What vLLM's own checks say to each number of ranks before anything is loaded; empty: fine."""
    words = [("vllm", "serve", single.model, *split_args(single, ranks=n).flags()) for n in ranks]
    answers = dry_run(words, configure=True, env=split_args(single, ranks=max(ranks)).environment())
    return {str(n): answer.message for n, answer in zip(ranks, answers, strict=True)}


def greedy_texts(
    server: VllmServer, prompts: Sequence[Sequence[int]], *, max_tokens: int
) -> list[str]:
    """Greedy replies of exactly ``max_tokens`` tokens to prompts of token ids, all at once.

    Raises UnmeasuredError when one failed.
    """
    asked = [
        Request(list(prompt), model=server.model_name, endpoint="completions",
                max_tokens=max_tokens, extra={"ignore_eos": True})
        for prompt in prompts
    ]  # fmt: skip
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=len(asked))
    for run in runs:
        if not (state := outcome(run)).ok:
            raise UnmeasuredError(f"a request failed: {run.error or state.reason}")
    return [run.text or "" for run in runs]


def steps_in_turns(
    servers: Mapping[str, VllmServer],
    points: Sequence[StepPoint],
    *,
    vocab: int,
    passes: int,
) -> dict[str, list[dict[str, Any]]]:
    """Seconds of every point on every server, pass by pass, as ``estimate.grids`` keeps rows.

    Servers take turns: a machine's speed drifts over minutes, so only neighbours in time are
    compared. Between turns the workers of the server before are left to stop polling.
    """
    seconds: dict[str, dict[StepPoint, list[float]]] = {name: {} for name in servers}
    for turn in range(passes):
        for name, server in servers.items():
            time.sleep(REST_S)
            for point, took_s in _one_pass(server, points, vocab=vocab, seed=turn).items():
                seconds[name].setdefault(point, []).append(took_s)
    return {
        name: grids.to_rows([MeasuredStep(p, tuple(times)) for p, times in rows.items()])
        for name, rows in seconds.items()
    }


def _one_pass(
    server: VllmServer, points: Sequence[StepPoint], *, vocab: int, seed: int
) -> dict[StepPoint, float]:
    """Seconds of every point by the engine's own clock, after a warm-up that is thrown away.

    Not by the client's: where ranks that wait take the cores, a whole reply may be handed over at
    once. Decode: mean decode time of a request over its further tokens. Prefill: its prefill time.
    """
    longest = 2 * max(p.tokens for p in (WARM_UP, *points))
    prompts = PromptSource(vocab=vocab, longest=longest, seed=seed)
    _times(server, requests_for(WARM_UP, prompts=prompts, model=server.model_name, steps=1))
    found = {}
    for point in points:
        asked = requests_for(point, prompts=prompts, model=server.model_name, steps=STEPS)
        times = _times(server, asked)
        further = max(1, (asked[0].max_tokens or 1) - 1)
        whole_s = times.prefill_s if point.phase == "prefill" else times.decode_s / further
        found[point] = whole_s / times.requests  # the server tells sums over its requests
    return found


def _times(server: VllmServer, asked: Sequence[Request]) -> RequestTimes:
    """Send the requests together; the server's own account of them."""
    before = read_times(server)
    runs = run_closed_loop(asked, base_url=server.base_url, concurrency=len(asked))
    for run in runs:
        if not (state := outcome(run)).ok:
            raise UnmeasuredError(f"a request failed: {run.error or state.reason}")
    return times_since(server, before, requests=len(runs), patience_s=COUNTING_PATIENCE_S)


def ratios(
    found: Mapping[str, Sequence[Mapping[str, Any]]] | None, *, of: str, to: str
) -> dict[StepPoint, list[float]]:
    """Time on server ``of`` over time on server ``to``, for each point, pass by pass.

    Raises UnmeasuredError without them.
    """
    if not found or not found.get(of) or not found.get(to):
        raise UnmeasuredError(f"steps of {of} and {to} were not measured")
    rows = {name: {m.point: m.passes for m in grids.from_rows(found[name])} for name in (of, to)}
    return {
        point: [a / b for a, b in zip(passes, rows[to][point], strict=True)]
        for point, passes in rows[of].items()
    }
