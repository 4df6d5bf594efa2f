"""Real configs cut to a few layers boot on the CPU engine; its pool equals the prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core import host
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.catalog import load_model
from turbo_lab.models.spec import from_hf_config

pytestmark = [pytest.mark.engine, pytest.mark.slow]  # pools, not times: two may boot at once
MAX_LEN, BATCHED = 1536, 1024
START_TIMEOUT_S = 600.0
# Fewer layers with the same attention pattern, a small vocabulary and few experts: none of that
# changes what one layer keeps.
SMALL = {"vocab_size": 2048}
REDUCED: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {"num_hidden_layers": 4},
    "gemma-2-9b": {"num_hidden_layers": 4},
    "gpt-oss-20b": {"num_hidden_layers": 4, "num_local_experts": 4,
                    "layer_types": ["sliding_attention", "full_attention"] * 2},
    "deepseek-v2-lite": {"num_hidden_layers": 2, "n_routed_experts": 8},
    "mixtral-8x7b": {"num_hidden_layers": 2, "num_local_experts": 4, "intermediate_size": 1024},
    "qwen3-next-80b-a3b": {"num_hidden_layers": 4, "num_experts": 16},
    "falcon-h1-0.5b": {"num_hidden_layers": 3},
}  # fmt: skip
# What this engine refuses on a CPU, with a part of its reason.
REFUSED = {
    "nemotron-3-nano-30b": (
        {"num_hidden_layers": 4, "hybrid_override_pattern": "M*EM", "n_routed_experts": 8},
        "is_act_and_mul",
    ),
}  # fmt: skip


def reduced(name: str, changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    config = {**load_model(name).config, **SMALL, **changes}
    config.pop("quantization_config", None)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return config


def server(folder: Path, logs: Path):
    pytest.importorskip("vllm", reason="needs the cpu environment")
    from turbo_lab.engines.args import VllmArgs
    from turbo_lab.engines.vllm_server import VllmServer

    args = VllmArgs(
        model=str(folder), dtype="bfloat16", max_model_len=MAX_LEN, kv_cache_gib=1,
        max_num_seqs=4, max_num_batched_tokens=BATCHED, load_format="dummy",
        extra=(("--skip-tokenizer-init", ""),),
    )  # fmt: skip
    return VllmServer(args, folder=logs)


@pytest.mark.parametrize("name", REDUCED)
def test_the_engines_pool_equals_the_prediction(name: str, tmp_path: Path) -> None:
    config = reduced(name, REDUCED[name], tmp_path / "model")
    setup = Deployment(
        platform="cpu", dtype="bf16", max_batched_tokens=BATCHED, prefix_caching=False
    )
    predicted = capacity(
        from_hf_config(config), kv_cache_bytes=GiB, max_len=MAX_LEN, deployment=setup
    )
    engine = server(tmp_path / "model", tmp_path / "logs").start()
    try:
        engine.wait_ready(START_TIMEOUT_S)
        found = engine.cache_config()
        assert engine.kv_cache_tokens() == predicted.tokens
        assert int(found["num_gpu_blocks"]) == predicted.blocks
        if "state" not in {kind for group in predicted.pool.groups for kind in group.kinds}:
            # Beside states the server publishes the smaller of the block and the longest length.
            assert int(found["block_size"]) == max(g.block_tokens for g in predicted.pool.groups)
    finally:
        engine.stop()


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_refuses_it_refuses_for_the_noted_reason(name: str, tmp_path: Path) -> None:
    from turbo_lab.core.errors import EngineError

    changes, reason = REFUSED[name]
    reduced(name, changes, tmp_path / "model")
    engine = server(tmp_path / "model", tmp_path / "logs").start()
    try:
        with pytest.raises(EngineError):
            engine.wait_ready(START_TIMEOUT_S)
        assert reason in engine.log.read_text(errors="replace")
    finally:
        engine.stop()


def test_at_least_five_real_configs_are_booted() -> None:
    assert len(REDUCED) >= 5
    assert host.repository_root().is_dir()
