"""What a lesson must know of the model and the server it measures: observed live, replayed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.course.lesson import Lesson
from turbo_lab.engines import local_model
from turbo_lab.models.dtypes import canonical_dtype, element_bytes
from turbo_lab.models.spec import ModelSpec, from_hf_config


@dataclass(frozen=True)
class Served:
    """``dtype`` of weights and cache; ``seats``: most requests in a step; lengths in tokens."""

    spec: ModelSpec
    dtype: str
    seats: int
    block_tokens: int
    longest_tokens: int

    @property
    def formats(self) -> dict[str, Any]:
        """The keywords of ``estimate.fit``: spec, bytes per weight, number format of the cache."""
        return {
            "spec": self.spec,
            "weight_bytes": element_bytes(self.dtype),
            "kv_dtype": self.dtype,
        }


def served(lab: Lesson, server: Any, *, name: str = "served") -> Served:
    """Read them under ``name``. Raises UnmeasuredError when the server tells nothing."""

    def read() -> dict[str, Any]:
        folder = local_model.snapshot_folder(server.args.model)
        return {
            "config": json.loads((folder / "config.json").read_text()),
            "dtype": server.args.dtype,
            "seats": server.args.max_num_seqs,
            "block_tokens": int(server.cache_config()["block_size"]),
            "longest_tokens": server.args.max_model_len,
        }

    found = lab.observe(name, read)
    if found is None:
        raise UnmeasuredError("nothing is known of the server; its reason is printed above")
    rest = {key: value for key, value in found.items() if key not in ("config", "dtype")}
    config, asked = found["config"], found["dtype"]
    dtype = canonical_dtype(config["dtype"] if asked == "auto" else asked)
    return Served(spec=from_hf_config(config), dtype=dtype, **rest)
