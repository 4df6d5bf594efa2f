"""The step-time model against real vLLM on this machine: fit on few points, judge on the others.

Both the model's error and the machine's own noise (A/A: the same point measured twice) are printed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.client.load import run_closed_loop
from turbo_lab.core.config import resolve_dials
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.estimate.fit import aa_noise, fit_error, fit_step_model
from turbo_lab.estimate.grids import split, step_grid
from turbo_lab.estimate.points import PromptSource, measure
from turbo_lab.hardware.ceilings import merge
from turbo_lab.hardware.probe import probe_machine
from turbo_lab.hardware.roofline import above_roof, require_below_roof
from turbo_lab.models.spec import from_hf_config

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.alone]
pytest.importorskip("vllm", reason="needs the cpu environment")

PASSES, MORE = 2, 2  # of all points; of those whose two least passes differ
PROBES = 3
FIT, JUDGE = step_grid("full")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2}
SHORT = {"float32": "fp32", "bfloat16": "bf16"}


@pytest.fixture
def lab(measured_once: Callable[[Callable[[], Any]], Any]) -> dict:
    return measured_once(measure_lab)


def measure_lab() -> dict:
    """Ceilings before and after, all points measured, the model fitted on its own points."""
    args = default_args(
        resolve_dials("cpu"), enable_prefix_caching=True, kv_cache_gib=2, max_model_len=2048
    )
    spec = from_hf_config(json.loads((Path(args.model) / "config.json").read_text()))
    marks = [time.monotonic()]
    before = probe_machine(repeats=1)
    marks.append(time.monotonic())
    with VllmServer(args) as server:
        marks.append(time.monotonic())
        measured = measure(
            [*FIT, *JUDGE],
            send=lambda r, c: run_closed_loop(r, base_url=server.base_url, concurrency=c),
            prompts=PromptSource(vocab=spec.vocab, longest=1024),
            model=server.model_name,
            passes=PASSES,
            retries=MORE,
            on_point=lambda point, seconds: print(f"{point}: {seconds * 1e3:.1f} ms", flush=True),
        )
        marks.append(time.monotonic())
    ceilings = merge([before, probe_machine(repeats=1)])
    parts = [f"{b - a:.0f}" for a, b in pairwise(marks)]
    print(f"\nprobe, start, points: {', '.join(parts)} s; "
          f"{sum(len(m.passes) for m in measured)} passes over {len(measured)} points")  # fmt: skip
    roof = ceilings.roof(SHORT[args.dtype])
    used, unseen = split(measured, fit=FIT)
    model = fit_step_model(
        used,
        spec=spec,
        roof=roof,
        weight_bytes=ELEMENT_BYTES[args.dtype],
        kv_dtype=SHORT[args.dtype],
    )
    out = {
        "args": args, "roof": roof, "model": model, "measured": measured, "unseen": unseen,
        "ceilings": ceilings,
    }  # fmt: skip
    if path := os.environ.get("TURBO_LAB_STEP_DUMP"):
        Path(path).write_text(
            json.dumps(
                {"ceilings": ceilings.to_dict(), "dtype": args.dtype,
                 "points": [[m.point.phase, m.point.batch, m.point.tokens, m.passes]
                            for m in measured]}
            )
        )  # fmt: skip
    return out


def report(lab: dict, phase: str) -> None:
    model, roof = lab["model"], lab["roof"]
    print(f"\n{phase}: {roof.label}, {roof.peak_flops / 1e9:.0f} G operations/s, "
          f"{roof.bandwidth_bytes_s / 1e9:.1f} GB/s; per step {model.step_s * 1e3:.1f} ms "
          f"(unexplained by the bound {model.host_s * 1e3:.1f}), per sequence "
          f"{model.sequence_s * 1e3:.2f} ms")  # fmt: skip
    for m in lab["measured"]:
        if m.point.phase == phase:
            seen = " " if m in lab["unseen"] else "f"
            print(f" {seen} {m.point!s:22} bound {model.bound_s(m.point.sequences) * 1e3:8.2f}"
                  f"  predicted {model.predict(m.point) * 1e3:8.2f}"
                  f"  measured {m.seconds * 1e3:8.2f}"
                  f"  passes {[round(p * 1e3, 1) for p in m.passes]}")  # fmt: skip


@pytest.mark.parametrize(("phase", "limit"), [("decode", 0.10), ("prefill", 0.15)])
def test_points_not_used_for_the_fit(lab: dict, phase: str, limit: float) -> None:
    report(lab, phase)
    unseen = [m for m in lab["unseen"] if m.point.phase == phase]
    error = fit_error(lab["model"], unseen)
    print(f"{phase}: {error.points} unseen points, median error {error.median:.1%}, worst "
          f"{error.worst:.1%}; A/A noise {error.noise:.1%}; limit {limit:.0%}")  # fmt: skip
    assert error.noise == aa_noise(unseen)
    assert error.within(limit)


def test_no_measured_step_lies_above_the_roof(lab: dict) -> None:
    """Other work makes a ceiling too low, never too high: what is in doubt is probed again."""
    model, ceilings = lab["model"], lab["ceilings"]
    points = [model.work(m.point.sequences).point(str(m.point), seconds=m.seconds)
              for m in lab["measured"]]  # fmt: skip
    for _ in range(PROBES):
        if not above_roof(points, roof=ceilings.roof(SHORT[lab["args"].dtype])):
            break
        ceilings = merge([ceilings, probe_machine()])
    require_below_roof(points, roof=ceilings.roof(SHORT[lab["args"].dtype]))


def test_the_model_is_better_than_its_own_bound(lab: dict) -> None:
    unseen = [m for m in lab["unseen"] if m.point.phase == "decode"]
    bound = sorted(1 - lab["model"].bound_s(m.point.sequences) / m.seconds for m in unseen)
    assert fit_error(lab["model"], unseen).median < bound[len(bound) // 2]
