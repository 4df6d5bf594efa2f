"""A repair of sampled speculation in vLLM's CPU build, off unless a lesson switches it on.

vLLM 0.32 on CPU loses the temperature (and top-k, top-p) of the tokens that it checks: the wrapper
of ``expand_kernel`` fills a copy as whole numbers and never hands it back, so the logits of guesses
are divided by memory that nobody wrote. Greedy replies are right, sampled ones follow another
distribution. Known as vllm-project/vllm issue 55005. GPU builds have another path.

The repair acts while the file that ``SWITCH`` names exists, so that one server can be asked both
ways.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

SWITCH = "TURBO_LAB_SAMPLING_REPAIR"


def repair_env(switch: Path) -> tuple[str, str]:
    """The environment variable of a server whose sampling can be repaired while it runs."""
    return SWITCH, str(switch)


def install_if_asked() -> None:
    """Wrap the engine's function in this process, where the environment names a switch.

    Does nothing in builds without it.
    """
    if not (switch := os.environ.get(SWITCH)):
        return
    try:
        from vllm.utils import cpu_triton_utils as kernels
    except ImportError:
        return
    shipped = kernels._expand_kernel_impl

    def either(output: Any, input_val: Any, cu_num_tokens: Any, *rest: Any, **named: Any) -> None:
        run = expand if Path(switch).exists() else shipped
        run(output, input_val, cu_num_tokens, *rest, **named)

    kernels._expand_kernel_impl = either


def expand(
    output: Any,
    values: Any,
    ends: Any,
    replace_from: float = 0,
    replace_to: float = 0,
    MAX_NUM_TOKENS: int | None = None,
) -> None:
    """Write each request's value once per token of it: what the engine's kernel is meant to do.

    Args:
        output: one place per token of the batch, in the dtype of ``values``; filled here.
        values: one value per request.
        ends: per request, the number of tokens up to its end.
        replace_from: this value is written as ``replace_to``.
        replace_to: see there.
        MAX_NUM_TOKENS: the engine passes it by this name; not needed here.
    """  # fmt: skip
    counts = ends.diff(prepend=ends.new_zeros(1))
    chosen = values.clone()
    chosen[values == replace_from] = replace_to
    output[: int(ends[-1])] = chosen.repeat_interleave(counts.to(values.device))
