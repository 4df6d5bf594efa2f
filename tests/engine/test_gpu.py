"""On a CUDA device: real ``vllm serve`` on the GPU, and the GPU check's quick path."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.client.stream import send_one
from turbo_lab.core import host
from turbo_lab.core.config import resolve_dials
from turbo_lab.core.host import repository_root
from turbo_lab.engines import local_model
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.points import PromptSource, decode_grid, measure, prefill_points
from turbo_lab.estimate.work import step_work
from turbo_lab.hardware.probe import probe_machine
from turbo_lab.hardware.roofline import require_below_roof
from turbo_lab.metrics.definitions import outcome
from turbo_lab.models.spec import from_hf_config
from turbo_lab.workload.request import Request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not host.gpus(), reason="nvidia-smi shows no GPU here"),
]


@pytest.fixture(scope="module")
def server():
    if importlib.util.find_spec("vllm") is None or not host.package_version("vllm"):
        pytest.skip("the gpu environment (vllm) is not installed")
    args = default_args(resolve_dials("gpu"), model=local_model.resolve_model(), dtype="bfloat16")
    with VllmServer(args) as running:
        yield running


def test_vllm_serves_on_the_gpu(server) -> None:
    request = Request("The capital of France is", model=server.model_name, max_tokens=8,
                      endpoint="completions")  # fmt: skip
    first, second = (send_one(request, base_url=server.base_url) for _ in range(2))
    assert outcome(first).ok and first.text
    assert first.text == second.text
    assert server.kv_cache_tokens() > 0


def test_no_step_on_the_gpu_beats_its_measured_ceilings(server) -> None:
    spec = from_hf_config(json.loads((Path(server.args.model) / "config.json").read_text()))
    measured = measure(
        [*decode_grid(batches=(1, 8), contexts=(128, 1024)), *prefill_points((256, 1024))],
        send=lambda r, c: run_closed_loop(r, base_url=server.base_url, concurrency=c),
        prompts=PromptSource(vocab=spec.vocab, longest=1024),
        model=server.model_name,
    )
    roof = probe_machine(device="cuda").roof("bf16", working_set_bytes=2**24)
    works = [(m, step_work(spec, m.point.sequences)) for m in measured]
    require_below_roof([w.point(str(m.point), seconds=m.seconds) for m, w in works], roof=roof)


def test_the_gpu_check_runs_its_tiny_path(tmp_path) -> None:
    pytest.importorskip("torch")
    script = repository_root() / "benchmarks" / "gpu_check.py"
    out = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, str(script), "--device", "cuda", "--tiny", "--out", str(out)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["machine"]["device"] != "cpu"
