"""Several ways to run one pipeline, in turns on the same ranks: what notebook 10 measures.

An arm says how many micro-batches, of how many requests, over which split of the layers. All arms
run once before anything is timed, then in turns, so that a machine's drift falls on all of them.
Needs torch in the ranks only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.pipeline_arms import Arm
from turbo_lab.parallel.schedule import rows_from

if TYPE_CHECKING:
    from turbo_lab.parallel.comm import Comm
    from turbo_lab.parallel.pipeline import Pipeline
    from turbo_lab.parallel.weights import Weights

TEXTS = ("passages", "code", "facts", "arithmetic", "json")


def run_study(
    model: str, *, arms: Sequence[Arm], stages: int, passes: int = 1, layers: int | None = None,
    deadline_s: float = 300.0,
) -> dict[str, Any]:  # fmt: skip
    """All arms on ``stages`` ranks with one thread each; the data that ``Studied`` reads.

    ``model``: a folder with a tokenizer, cut after ``layers`` layers if given.
    Raises DistributedError when a rank fails.
    """
    if passes < 1 or not arms:
        raise UsageError(f"{len(arms)} arms, {passes} passes; allowed: 1 or more of both")
    rows = max(arm.rows for arm in arms)
    prompts = text_prompts(model, rows=rows, tokens=max(arm.prompt_tokens for arm in arms))
    work = {"model": model, "prompts": prompts, "arms": [asdict(arm) for arm in arms]}
    found = launch(
        "turbo_lab.parallel.pipeline_study:study_job", ranks=stages, threads=1,
        arguments={**work, "passes": passes, "layers": layers}, deadline_s=deadline_s,
    ).results  # fmt: skip
    return {
        "runs": {arm.name: _merged([rank["runs"][arm.name] for rank in found]) for arm in arms},
        "tokens": {a.name: found[0 if a.alone else -1]["tokens"][a.name] for a in arms},
        "sent_bytes": {a.name: sum(r["sent_bytes"][a.name] for r in found) for a in arms},
        "weight_bytes": [rank["weight_bytes"] for rank in found],
    }


def text_prompts(model: str, *, rows: int, tokens: int) -> list[list[int]]:
    """Token ids of the course's own texts, cut into ``rows`` pieces of equal length.

    English, Chinese, code, sums and tables in turn, as a server's users would mix them.
    Raises UsageError where the texts are too short.
    """
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    pieces: list[list[list[int]]] = []
    for name in TEXTS:
        lines = (repository_root() / "data" / "prompts" / f"{name}.jsonl").read_text("utf-8")
        texts = [_text(json.loads(line)) for line in lines.splitlines()]
        ids = [token for text in texts for token in reader.encode(text).ids]
        whole = len(ids) // tokens
        pieces.append([ids[n * tokens : (n + 1) * tokens] for n in range(whole)])
    turns = [kind[n] for n in range(max(map(len, pieces))) for kind in pieces if n < len(kind)]
    if len(turns) < rows:
        raise UsageError(f"{rows} prompts of {tokens} tokens; the texts give {len(turns)}")
    return turns[:rows]


def study_job(
    comm: Comm,
    *,
    model: Any,
    prompts: Sequence[Sequence[int]],
    arms: Sequence[Mapping[str, Any]],
    passes: int,
    layers: int | None = None,
) -> dict[str, Any]:
    """One rank's part of ``run_study``: its tasks, tokens, payload and kept activations."""
    import torch

    from turbo_lab.parallel.jobs import model_weights

    weights = model_weights(model, comm=comm, layers=layers)
    tokens = torch.tensor(prompts, device=comm.device)
    wanted, pipes = [Arm(**dict(arm)) for arm in arms], _Pipes(weights, comm)
    for arm in wanted:
        _run(pipes, arm, tokens[: arm.each, : arm.prompt_tokens], warm_up=True)
    found: dict[str, Any] = {"runs": {arm.name: [] for arm in wanted}}
    found |= {"tokens": {}, "sent_bytes": {}, "weight_bytes": pipes.held_bytes()}
    for number in range(passes):
        for arm in wanted:
            run = _run(pipes, arm, tokens[: arm.rows, : arm.prompt_tokens])
            value, sent = run.pop("value"), run.pop("sent_bytes")
            found["runs"][arm.name].append(run)
            if number == 0:
                found["tokens"][arm.name] = value
                found["sent_bytes"][arm.name] = sent
    return found


class _Pipes:
    """One pipeline for each split, and the unsharded model on rank 0; made when first used."""

    def __init__(self, weights: Weights, comm: Comm) -> None:
        self.weights, self.comm = weights, comm
        self._made: dict[Any, Pipeline] = {}

    def of(self, arm: Arm) -> Pipeline:
        from turbo_lab.parallel.comm import Comm
        from turbo_lab.parallel.pipeline import Pipeline

        split = tuple(map(tuple, arm.split)) if arm.split else None
        key = "alone" if arm.alone else split
        if key not in self._made:
            comm = Comm.single(device=str(self.comm.device)) if arm.alone else self.comm
            layers = [range(*pair) for pair in split] if split else None
            self._made[key] = Pipeline(self.weights, comm=comm, layers=layers)
        return self._made[key]

    def held_bytes(self) -> int:
        """Bytes of this rank's matrices in the even split."""
        whole = self.of(Arm("even", 1, 1, 1)).stage.parameters().values()
        return sum(weight.numel() * weight.element_size() for weight in whole)


def _run(pipes: _Pipes, arm: Arm, tokens: Any, *, warm_up: bool = False) -> dict[str, Any]:
    """One pass of an arm. All ranks start together; those that have no part in it wait."""
    from turbo_lab.parallel.tally import total

    pipes.comm.barrier()
    empty: dict[str, Any] = {"slots": [], "kept_bytes": 0, "value": None, "sent_bytes": 0}
    if arm.alone and pipes.comm.rank:
        pipes.comm.barrier()
        return empty
    pipe = pipes.of(arm)
    pipe.comm.reset()
    count = 1 if warm_up else arm.micro_batches
    if arm.schedule:
        run, kept = _train(pipe, tokens, schedule=arm.schedule, micro_batches=count)
        value = run.value
    else:
        steps = min(2, arm.steps) if warm_up else arm.steps
        run, kept = pipe.generate(tokens, micro_batches=count, new_tokens=steps), 0
        value = None if run.value is None else run.value.tolist()
    if arm.alone:
        pipes.comm.barrier()
    sent = int(total(pipe.comm.tallies(), kind="send", label="activation"))
    return {"slots": rows_from(run.slots), "kept_bytes": kept, "value": value, "sent_bytes": sent}


def _train(pipe: Pipeline, tokens: Any, *, schedule: str, micro_batches: int) -> tuple[Any, int]:
    """A training step and the most bytes of activations that this stage kept in it."""
    from turbo_lab.parallel.pipeline_memory import KeptActivations

    stage = pipe.stage
    meter = KeptActivations([*stage.parameters().values(), *stage.norms(), tokens])
    with meter.counting():
        run = pipe.train_step(tokens, schedule=schedule, micro_batches=micro_batches)
    for weight in stage.parameters().values():
        weight.requires_grad_(False)
        weight.grad = None
    return run, meter.most_bytes


def _merged(per_rank: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Pass by pass the tasks of all ranks, and what each of them kept."""
    return [
        {
            "slots": [list(row) for one in same for row in one["slots"]],
            "kept_bytes": [one["kept_bytes"] for one in same],
        }
        for same in zip(*per_rank, strict=True)
    ]


def _text(row: Mapping[str, Any]) -> str:
    return str(row.get("text") or row.get("prompt") or row.get("question") or "")
