"""The arguments of ``vllm serve`` that the course turns, as one frozen value."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from dataclasses import dataclass
from typing import Any, Literal, Self

from turbo_lab.core import host
from turbo_lab.core.errors import UsageError, did_you_mean

DTYPES = ("auto", "float32", "bfloat16", "float16")
_NEEDED = ("max_model_len", "max_num_seqs", "tensor_parallel_size")
_COUNTS = (*_NEEDED, "max_num_batched_tokens", "block_size")


@dataclass(frozen=True, kw_only=True)
class VllmArgs:
    """Arguments of one server. Equal arguments mean the same server, so a pool can share it.

    ``model``: folder or Hugging Face id. ``kv_cache_gib``: size of the KV pool (whole GiB on CPU;
    None lets vLLM choose on a GPU and means 1 on CPU). ``cores``: ids of the CPU cores to use, one
    worker on all of them (None: all granted; with tensor parallelism they are dealt out).
    ``extra``: further flags of ``vllm serve`` as ("--flag", "value") pairs, checked against the
    installed parser; ``env``: further environment variables as pairs.
    """

    model: str
    served_model_name: str = "lab"
    device: Literal["cpu", "gpu"] = "cpu"
    dtype: str = "float32"
    max_model_len: int = 2048
    kv_cache_gib: float | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool = False
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool = True
    block_size: int | None = None
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = "auto"
    load_format: str = "auto"
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    speculative_config: str | None = None
    seed: int = 0
    cores: tuple[int, ...] | None = None
    extra: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Reject values that vLLM would only refuse after half a minute of loading."""
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}.{did_you_mean(self.dtype, list(DTYPES))}")
        for name in _COUNTS:
            value = getattr(self, name)
            optional = value is None and name not in _NEEDED
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not optional and (not whole or value < 1):
                raise UsageError(f"{name} is {value!r}; it must be a whole number of at least 1")
        gib = self.kv_cache_gib
        if gib is not None and (
            not isinstance(gib, int | float)
            or not 0 < gib < math.inf
            or (self.device == "cpu" and gib != int(gib))
        ):
            raise UsageError(f"kv_cache_gib is {gib!r}; on CPU vLLM takes whole GiB from 1 up")
        if self.speculative_config is not None:
            try:
                json.loads(self.speculative_config)
            except ValueError as error:
                raise UsageError(f"speculative_config is not JSON: {error}") from error

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Build arguments from names; an unknown name is an error that lists the known ones."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise UsageError(
                    f"unknown engine argument {name!r}.{did_you_mean(name, known)} "
                    "Other flags of vllm serve go into extra=((flag, value),)."
                )
        if isinstance(values.get("speculative_config"), dict):
            values["speculative_config"] = json.dumps(values["speculative_config"], sort_keys=True)
        return cls(**values)

    def replace(self, **changes: Any) -> Self:
        """The same arguments with some changed; unknown names are refused."""
        return type(self).make(
            **{**{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}, **changes}
        )

    def digest(self) -> str:
        """Short name of these arguments: equal arguments, equal digest."""
        return hashlib.sha256(
            json.dumps(dataclasses.asdict(self), sort_keys=True).encode()
        ).hexdigest()[:12]

    def flags(self) -> list[str]:
        """Arguments of ``vllm serve`` after the model; host and port are added by the server."""
        flags = [
            "--served-model-name",
            self.served_model_name,
            "--dtype",
            self.dtype,
            "--max-model-len",
            str(self.max_model_len),
            "--max-num-seqs",
            str(self.max_num_seqs),
            "--seed",
            str(self.seed),
            "--tensor-parallel-size",
            str(self.tensor_parallel_size),
        ]
        optional = {
            "--max-num-batched-tokens": self.max_num_batched_tokens,
            "--block-size": self.block_size,
            "--gpu-memory-utilization": self.gpu_memory_utilization,
            "--speculative-config": self.speculative_config,
        }
        for flag, value in optional.items():
            if value is not None:
                flags += [flag, str(value)]
        defaults = {
            "--kv-cache-dtype": (self.kv_cache_dtype, "auto"),
            "--load-format": (self.load_format, "auto"),
            "--scheduling-policy": (self.scheduling_policy, "fcfs"),
        }
        for flag, (value, default) in defaults.items():
            if value != default:
                flags += [flag, value]
        flags.append(f"--{'' if self.enable_prefix_caching else 'no-'}enable-prefix-caching")
        if self.enable_chunked_prefill is not None:
            flags.append(f"--{'' if self.enable_chunked_prefill else 'no-'}enable-chunked-prefill")
        if self.enforce_eager:
            flags.append("--enforce-eager")
        if self.device == "gpu" and self.kv_cache_gib is not None:
            flags += ["--kv-cache-memory-bytes", str(int(self.kv_cache_gib * 2**30))]
        return flags + [part for pair in self.extra for part in pair if part]

    def api_key(self) -> str | None:
        """The key the server will ask for; None when it asks for none.

        A flag goes before the environment, and an empty key is none (vLLM 0.32,
        ``entrypoints/serve/middleware/register.py``).
        """
        flags = [value for flag, value in self.extra if flag in ("--api-key", "--api_key")]
        inherited = os.environ.get("VLLM_API_KEY")
        return (flags[-1] if flags else dict(self.env).get("VLLM_API_KEY", inherited)) or None

    def environment(self) -> dict[str, str]:
        """Environment variables of the server process."""
        values = {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **_told_in_the_log(),
        }
        if self.device == "cpu":
            values["VLLM_CPU_KVCACHE_SPACE"] = str(int(self.kv_cache_gib or 1))
            values["VLLM_CPU_OMP_THREADS_BIND"] = self._thread_binding()
        return {**values, **dict(self.env)}

    def _thread_binding(self) -> str:
        """Core lists per worker, e.g. ``0,1`` for one worker, ``0|1|0`` for three on two cores."""
        cores = list(self.cores or host.core_ids())
        ranks = self.tensor_parallel_size
        if ranks == 1:
            return ",".join(map(str, cores))
        if ranks > len(cores):
            return "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
        share = len(cores) // ranks
        return "|".join(
            ",".join(map(str, cores[r * share : (r + 1) * share])) for r in range(ranks)
        )


def _told_in_the_log() -> dict[str, str]:
    """What brings back the engine's own lines where this environment has silenced them.

    The size of the KV pool, for one, is read from there. Empty where nothing is silenced.
    """
    back = {}
    if os.environ.get("VLLM_LOGGING_LEVEL", "INFO").upper() not in ("INFO", "DEBUG"):
        back["VLLM_LOGGING_LEVEL"] = "INFO"
    if os.environ.get("VLLM_CONFIGURE_LOGGING", "1") != "1":
        back["VLLM_CONFIGURE_LOGGING"] = "1"
    return back
