"""Our capacity law against the installed vLLM's own ``get_kv_cache_configs``.

The layer specs come from vLLM's own model classes, built on the meta device, not from us: specs
of our own would test the block law alone. Refused configs are listed with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turbo_lab.core import host
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.spec import from_hf_config

from .meta_models import engine_config, prepared_engine, stage_models  # noqa: F401

pytestmark = [pytest.mark.engine, pytest.mark.slow]

POOL_BYTES = 80 * GiB + 4321  # no multiple of any page
LENGTHS = (2048, 7777)
RANKS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 3), (2, 2))
KV_DTYPES = ("auto", "fp8")
BLOCKS = (None, 16, 64)
# Falcon's class in vLLM does not hand the cache's number format to its attention layers.
IGNORES_KV_DTYPE = ("falcon",)
# vLLM 0.32 cannot build these here; the reason is part of the fact.
REFUSED = {
    "kimi-linear-48b-a3b": "its model code imports a CUDA library",
    "mimo-7b": "its config class is remote code",
    "nemotron-super-49b": "its config class is remote code",
    "qwen-72b": "its config class is remote code",
    "qwen3-vl-8b": "the text class is inside the multimodal one, which needs torchvision",
}


def layer_specs(config: Any, *, tp: int, pp: int) -> list[dict[str, Any]]:
    """The cache spec of every layer on each pipeline stage, from vLLM's model class."""
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.platforms import current_platform

    stages = []
    for _ in stage_models(config, tp=tp, pp=pp):
        current_platform.update_block_size_for_backend(config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        specs = {
            name: layer.get_kv_cache_spec(config)
            for name, layer in layers.items()
            if not getattr(layer, "kv_sharing_target_layer_name", None)
        }
        stages.append({name: spec for name, spec in specs.items() if spec is not None})
    return stages


def engine_numbers(config: Any, stages: list[dict[str, Any]]) -> tuple[int, int, float, int]:
    """(blocks, tokens of the log line, concurrency, bytes one request needs) by vLLM itself."""
    from vllm.v1.core import kv_cache_utils as law

    config.cache_config.kv_cache_layout = "LBNHC"  # the default of GPU kernels; CPU's is alike
    pools = law.get_kv_cache_configs(config, [dict(s) for s in stages], [POOL_BYTES] * len(stages))
    tokens, concurrency = law.get_kv_cache_capacity(
        config, law.generate_scheduler_kv_cache_config(pools)
    )
    merged = {name: spec for stage in stages for name, spec in stage.items()}
    groups = law.get_kv_cache_groups(config, merged)
    need = max(
        law._max_memory_usage_bytes_from_groups(
            config, law._project_kv_cache_groups_to_worker(groups, stage)
        )
        for stage in stages
    )
    return pools[0].num_blocks, tokens, concurrency, need


def our_numbers(spec: Any, config: Any, *, tp: int, pp: int, kv_dtype: str, block: int | None):
    setup = Deployment(
        tensor_parallel=tp, pipeline_parallel=pp, kv_dtype=kv_dtype, block_tokens=block,
        max_batched_tokens=config.scheduler_config.max_num_batched_tokens, platform="cpu",
        async_scheduling=bool(config.scheduler_config.async_scheduling),
        prefix_caching=bool(config.cache_config.enable_prefix_caching),
    )  # fmt: skip
    length = config.model_config.max_model_len
    found = capacity(spec, kv_cache_bytes=POOL_BYTES, max_len=length, deployment=setup)
    return found.blocks, found.tokens, found.max_concurrency, found.pool.required_bytes


def cases(limit: int):
    """(length, tp, pp, KV dtype, block size), every value of each dimension at least once."""
    for tp, pp in RANKS:
        for kv_dtype in KV_DTYPES:
            for length in LENGTHS:
                block = BLOCKS[(tp + pp + length) % len(BLOCKS)]
                yield min(length, limit), tp, pp, kv_dtype, block


def compare(config: dict, folder: Path) -> tuple[int, list[str]]:
    """Cases that agree exactly; a disagreement fails, a refusal by vLLM is listed."""
    spec, agreed, refused = from_hf_config(config), 0, []
    for length, tp, pp, kv_dtype, block in cases(spec.context_tokens or 10**9):
        if kv_dtype != "auto" and spec.model_type in IGNORES_KV_DTYPE:
            continue
        case = f"len {length} tp {tp} pp {pp} {kv_dtype} block {block}"
        theirs = engine_config(config, folder, max_len=length, block=block, kv_dtype=kv_dtype)
        try:
            stages = layer_specs(theirs, tp=tp, pp=pp)
        except (AssertionError, AttributeError, NotImplementedError, ValueError) as error:
            refused.append(f"{case}: {error!r}"[:160])
            continue
        want = engine_numbers(theirs, stages)
        got = our_numbers(spec, theirs, tp=tp, pp=pp, kv_dtype=kv_dtype, block=block)
        assert got == want, f"{case}: vLLM {want}, closed form {got}"
        agreed += 1
    return agreed, refused


ENTRIES = [entry for entry in all_models() if entry.id not in REFUSED]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_capacity_equals_vllm_for_the_catalogue(engine, entry, tmp_path, record_property) -> None:
    agreed, refused = compare(dict(entry.config), tmp_path / "model")
    record_property("agreed", agreed)
    record_property("refused", refused)
    assert agreed >= 4, refused


def test_at_least_twenty_five_configs_are_compared() -> None:
    assert len(ENTRIES) >= 25


@pytest.mark.parametrize("name", REFUSED)
def test_refused_configs_are_refused_for_a_reason(engine, name: str, tmp_path) -> None:
    with pytest.raises(Exception):  # noqa: B017  (each class of the engine has its own error)
        compare_one = engine_config(
            dict(load_model(name).config), tmp_path, max_len=512, block=None, kv_dtype="auto"
        )
        layer_specs(compare_one, tp=1, pp=1)


FOLDER = host.repository_root().parent / "shared" / "reference" / "hf_configs"
FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.skipif(not FILES, reason="the folder of real config.json files is not here")
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_capacity_equals_vllm_for_real_files(engine, file: Path, tmp_path) -> None:
    config = json.loads(file.read_text())
    try:
        probe = engine_config(config, tmp_path, max_len=512, block=None, kv_dtype="auto")
        layer_specs(probe, tp=1, pp=1)
    except (AssertionError, AttributeError, NotImplementedError, ValueError) as error:
        pytest.skip(f"vLLM refuses it here: {error!r}"[:120])
    agreed, refused = compare(config, tmp_path / "model")
    assert agreed >= 4, refused
