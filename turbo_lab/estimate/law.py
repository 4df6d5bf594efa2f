"""What vLLM's capacity lines meant, version by version. Every result names the law it follows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class Law:
    """One meaning of the start-up lines. ``since``: the first version that has it.

    ``token_line``: ``blocks`` * block size; ``per_group``: blocks // groups * smallest block;
    ``requests``: int(concurrency * longest length). ``windows``: sliding and chunked layers free
    what leaves the window (before, every layer was sized as full attention).
    ``counts_batches``: the reserve for tokens in flight counts every concurrent batch.
    ``state_checkpoint``: Mamba-2 keeps one more state block for prefix caching.
    ``keeps_null_block``: one block is held back before the longest length is checked.
    """

    name: str
    since: str
    token_line: Literal["blocks", "per_group", "requests"]
    windows: bool
    counts_batches: bool
    state_checkpoint: bool
    keeps_null_block: bool
    source: str

    @property
    def label(self) -> str:
        """How results name it, e.g. ``vLLM 0.32 (since 0.32)``."""
        return f"{self.name} (vLLM since {self.since})"


LATEST = "0.32.0"

LAWS: tuple[Law, ...] = (
    Law(
        "blocks", "0.1", "blocks", False, False, False, False,
        "vllm-project/vllm#13596: tokens = blocks * block size, concurrency = tokens / length",
    ),
    Law(
        "groups", "0.10", "per_group", True, False, False, False,
        "vllm-project/vllm#40691 (0.19.0): tokens = blocks // groups * smallest block size",
    ),
    Law(
        "requests", "0.21", "requests", True, False, False, False,
        "vllm-project/vllm#40694, #43308: tokens = int(concurrency * longest length)",
    ),
    Law(
        "requests, batches in flight", "0.26", "requests", True, True, False, False,
        "vllm-project/vllm#47728, #49878: windows keep the tokens of every batch in flight",
    ),
    Law(
        "requests, batches in flight, null block", "0.32", "requests", True, True, True, True,
        "vLLM 0.32.0 source: kv_cache_utils.get_kv_cache_configs, kv_cache_interface",
    ),
)  # fmt: skip


def law_for(version: str | None = None) -> Law:
    """The law of a vLLM version (``0.19``, ``v0.32.0+cpu``, ``latest``).

    Raises UsageError for text that is no version.
    """
    text = LATEST if version in (None, "", "latest") else str(version)
    wanted = version_key(text)
    return [law for law in LAWS if version_key(law.since) <= wanted][-1]


def version_key(text: str) -> tuple[int, int]:
    """(major, minor) of a version, to compare. Raises UsageError for text that is no version."""
    match = re.fullmatch(r"v?(\d+)(?:\.(\d+))?(?:[.\-+].*|(?:rc|post|dev).*)?", text.strip())
    if not match:
        raise UsageError(
            f"law is {text!r}; allowed: a vLLM version such as 0.19 or {LATEST}, or 'latest'."
        )
    return int(match[1]), int(match[2] or 0)
