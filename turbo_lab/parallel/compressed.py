"""An all-reduce that sends fewer bytes, run over real collectives: its error and its time.

Halves are summed on the way, like floats. Codes cannot be added, so they are gathered: each rank
decodes all of them and adds up. Coding is done by the CPU, also where the ranks have GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from turbo_lab.numerics.error import error_summary
from turbo_lab.parallel.codes import Code, add_decoded, encode, rank_values, require_form
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.tally import total


def compressed_all_reduce(
    comm: Comm, tensor: torch.Tensor, *, form: str, kept_share: float = 0.01
) -> torch.Tensor:
    """Sum of a float32 vector over the ranks, sent as ``form``; the vector itself stays as it is.

    fp32: exact up to the order of additions. fp16: rounded, and infinite above 65,504. int8: one
    byte per value, a scale per 256. topk: only the ``kept_share`` largest of each rank.
    Raises UsageError for an unknown form.
    """
    if require_form(form) == "fp32":
        return comm.all_reduce(tensor.clone(), label=form)
    if form == "fp16":
        return comm.all_reduce(tensor.half(), label=form).float()
    code = encode(tensor.cpu().numpy(), form=form, kept_share=kept_share)
    wires = comm.all_gather(torch.from_numpy(code.wire).to(comm.device), label=form)
    return torch.from_numpy(_summed(wires.cpu().numpy(), code, comm.size)).to(comm.device)


def coding_only(comm: Comm, tensor: torch.Tensor, *, form: str, kept_share: float = 0.01) -> None:
    """The work of ``compressed_all_reduce`` without any message: coding, decoding, adding up."""
    if form == "fp32":
        tensor.clone()
    elif form == "fp16":
        tensor.half().float()
    else:
        code = encode(tensor.cpu().numpy(), form=form, kept_share=kept_share)
        _summed(np.tile(code.wire, comm.size), code, comm.size)


def compression_job(
    comm: Comm,
    *,
    elements: int,
    forms: Sequence[str],
    kept_share: float = 0.01,
    repeats: int = 5,
    with_messages: bool = True,
    seed: int = 0,
) -> dict[str, Any]:
    """Time and error of every form on one rank.

    Returns for each form: ``coding_s``, ``total_s`` (samples; the latter only ``with_messages``),
    ``sent_bytes`` per operation, ``error`` (relative, against the float64 sum).
    Forms take turns, so that a slow moment of the machine hits all of them.
    """
    own = torch.from_numpy(rank_values(elements, rank=comm.rank, seed=seed)).to(comm.device)
    shared = {"kept_share": kept_share}
    found: dict[str, Any] = {f: {"coding_s": [], "total_s": []} for f in forms}
    for number in range(repeats + 1):
        for form in forms:
            coding_s = _timed(comm, lambda form=form: coding_only(comm, own, form=form, **shared))
            if number:
                found[form]["coding_s"].append(coding_s)
        for form in forms if with_messages else ():
            total_s = _timed(
                comm, lambda form=form: compressed_all_reduce(comm, own, form=form, **shared)
            )
            if number:
                found[form]["total_s"].append(total_s)
    for form in forms if with_messages else ():
        found[form] |= _checked(comm, own, form=form, seed=seed, **shared)
    return found


def _checked(
    comm: Comm, own: torch.Tensor, *, form: str, seed: int, kept_share: float
) -> dict[str, float]:
    """One more operation: its error, and what it sent."""
    ranks = range(comm.size)
    exact = sum(rank_values(own.numel(), rank=r, seed=seed).astype(np.float64) for r in ranks)
    comm.reset()
    result = compressed_all_reduce(comm, own, form=form, kept_share=kept_share)
    error = error_summary(exact.astype(np.float32), result.cpu().numpy()).relative
    return {"error": error or 0.0, "sent_bytes": total(comm.tallies(), "sent_bytes")}


def _summed(wires: np.ndarray, like: Code, ranks: int) -> np.ndarray:
    result = np.zeros(like.count, dtype=np.float32)
    for wire in wires.reshape(ranks, -1):
        add_decoded(Code(wire, like.count, like.form), result)
    return result


def _timed(comm: Comm, run: Callable[[], object]) -> float:
    comm.synchronise()
    comm.barrier()
    start_s = time.perf_counter()
    run()
    comm.synchronise()
    return time.perf_counter() - start_s
