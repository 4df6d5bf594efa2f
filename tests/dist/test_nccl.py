"""The same jobs with NCCL: one rank for each GPU of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the gpu environment")

import torch

from turbo_lab.parallel import jobs
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.sweep import KINDS, sweep_job
from turbo_lab.parallel.weights import small_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROMPTS = [[1, 2, 3, 4, 95], [50, 40, 30, 20, 10], [7, 7, 7, 7, 7], [90, 80, 70, 60, 50]]
WORK = {"model": small_config(num_hidden_layers=4), "prompts": PROMPTS, "new_tokens": 3}
RANKS = 4 if torch.cuda.device_count() >= 4 else min(2, torch.cuda.device_count())


def on_gpus(comm: Comm) -> dict[str, Any]:
    """All jobs once."""
    training = {"model": WORK["model"], "tokens": PROMPTS, "micro_batches": 4}
    return {
        "tensor": jobs.tensor_job(comm, **WORK)["tokens"],
        "pipeline": jobs.pipeline_job(comm, **WORK, micro_batches=2)["tokens"],
        "experts": jobs.expert_job(comm, **WORK, k=8)["tokens"],
        "losses": [
            jobs.training_job(comm, **training, schedule=name)["loss"] for name in ("GPipe", "1F1B")
        ],
        "wrong": [
            row["wrong"] for kind in KINDS if comm.size > 1
            for row in sweep_job(comm, kind=kind, sizes=(4096,), iterations=2)
        ],
    }  # fmt: skip


def test_every_job_on_gpus_equals_the_unsharded_model_on_the_cpu() -> None:
    run = launch(on_gpus, ranks=RANKS, deadline_s=120)
    assert run.backend == "nccl" and run.device == "cuda:0"
    whole = jobs.tensor_job(Comm.single(), **WORK)["tokens"]
    for found in run.results:
        np.testing.assert_array_equal(found["tensor"], whole)
        assert not any(found["wrong"])
    np.testing.assert_array_equal(run.results[-1]["pipeline"], whole)
    np.testing.assert_array_equal(np.concatenate([r["experts"] for r in run.results]), whole)
    one, other = run.results[-1]["losses"]
    assert one == pytest.approx(other, rel=1e-5)
