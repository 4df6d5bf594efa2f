"""Experts over real ranks: the same text from 1, 2 and 4, and what each layout sends.

What notebook 10 measures; all results are plain data. Needs torch in the ranks only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.pipeline_study import text_prompts
from turbo_lab.parallel.tally import total

if TYPE_CHECKING:
    from turbo_lab.parallel.comm import Comm

THIS = "turbo_lab.parallel.expert_study"


def run_spread(
    model: str, *, experts: int, k: int, requests: int, prompt_tokens: int, new_tokens: int,
    layers: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The MoE over 1, 2 and 4 ranks: ``tokens`` and ``tallies`` (for each rank) by ``"1"`` ...

    ``requests``: 4 at least, so that every rank has one. ``layers``: only the first ones.
    """
    work = _work(model, requests=requests, prompt_tokens=prompt_tokens)
    work |= {"new_tokens": new_tokens, "layers": layers}
    ranks = launch(
        f"{THIS}:spread_job", ranks=4, threads=1, arguments={**work, "experts": experts, "k": k},
        deadline_s=240,
    ).results  # fmt: skip
    return {
        str(n): {
            "tokens": [row for rank in ranks[:n] for row in rank[str(n)]["tokens"]],
            "tallies": [rank[str(n)]["tallies"] for rank in ranks[:n]],
        }
        for n in (1, 2, 4)
    }


def run_layouts(
    model: str, *, ranks: int, experts: int, k: int, requests: int, prompt_tokens: int,
    new_tokens: int, layers: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The same requests by tensor, pipeline and expert parallelism over ``ranks`` ranks.

    By layout ``tokens`` and ``tallies`` (for each rank); ``alone`` is the unsharded dense model.
    """
    work = _work(model, requests=requests, prompt_tokens=prompt_tokens)
    work |= {"new_tokens": new_tokens, "layers": layers}
    found = launch(
        f"{THIS}:layouts_job", ranks=ranks, threads=1, deadline_s=240,
        arguments={**work, "experts": experts, "k": k},
    ).results  # fmt: skip
    last = {"tensor": found[0], "pipeline": found[-1], "alone": found[0]}
    plain = {
        name: {"tokens": rank[name]["tokens"], "tallies": [r[name]["tallies"] for r in found]}
        for name, rank in last.items()
    }
    own = [r["experts"] for r in found]
    plain["experts"] = {
        "tokens": [row for one in own for row in one["tokens"]],
        "tallies": [one["tallies"] for one in own],
    }
    return plain


def sent_bytes(tallies: Sequence[Sequence[Mapping[str, Any]]], *labels: str) -> float:
    """Bytes that left a rank, mean over the ranks, of calls with these labels."""
    rows = [row for rank in tallies for row in rank]
    return sum(total(rows, "sent_bytes", label=label) for label in labels) / len(tallies)


def payload_bytes(tallies: Sequence[Sequence[Mapping[str, Any]]], label: str) -> int:
    """Payload of all ranks together, of calls with this label."""
    return int(total([row for rank in tallies for row in rank], label=label))


def spread_job(comm: Comm, **work: Any) -> dict[str, Any]:
    """One rank of ``run_spread``: as one of 4, as one of two groups of 2, and rank 0 alone."""
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.jobs import expert_job

    half = comm.split([[0, 1], [2, 3]])
    found = {"4": expert_job(comm, **work), "2": expert_job(half, **work)}
    if comm.rank == 0:
        found["1"] = expert_job(Comm.single(device=str(comm.device)), **work)
    comm.barrier()
    return {name: _plain(run) for name, run in found.items()}


def layouts_job(comm: Comm, *, experts: int, k: int, **work: Any) -> dict[str, Any]:
    """One rank of ``run_layouts``."""
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.jobs import expert_job, pipeline_job, tensor_job

    found = {"tensor": tensor_job(comm, **work)}
    comm.reset()
    found["pipeline"] = pipeline_job(comm, **work, micro_batches=comm.size)
    found["experts"] = expert_job(comm, **work, experts=experts, k=k)
    single = Comm.single(device=str(comm.device))
    found["alone"] = tensor_job(single, **work) if comm.rank == 0 else {}
    comm.barrier()
    return {name: _plain(run) for name, run in found.items()}


def _work(model: str, *, requests: int, prompt_tokens: int) -> dict[str, Any]:
    return {"model": model, "prompts": text_prompts(model, rows=requests, tokens=prompt_tokens)}


def _plain(run: Mapping[str, Any]) -> dict[str, Any]:
    tokens = run.get("tokens")
    return {
        "tokens": [] if tokens is None else tokens.tolist(),
        "tallies": run.get("tallies", []),
    }
