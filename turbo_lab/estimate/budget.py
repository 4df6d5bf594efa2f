"""What is left for the cache on a device: a band unless the other parts were measured."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_lab.core.errors import UsageError
from turbo_lab.core.units import GiB

# Smallest and largest values seen in eight start-up logs of vLLM 0.11 on an H100 (batched tokens
# as the server chose them): llm-d-planner@e50305a, docs/empirical-vllm-memory-results.md.
ACTIVATION_GIB = (2.12, 7.38)
NON_TORCH_GIB = (0.13, 0.55)
GRAPHS_GIB = (0.0, 1.03)
BAND_SOURCE = "eight start-up logs of vLLM 0.11 on H100 (llm-d-planner@e50305a)"


@dataclass(frozen=True)
class Budget:
    """Bytes of a device by use. Pairs are (low, high); equal numbers mean measured or given.

    ``kv_bytes``: what remains for the cache; negative when nothing does.
    """

    total_bytes: int
    utilization: float
    weights_bytes: int
    activation_bytes: tuple[int, int]
    non_torch_bytes: tuple[int, int]
    graphs_bytes: tuple[int, int]
    subtracts_graphs: bool
    source: str

    @property
    def kv_bytes(self) -> tuple[int, int]:
        """(low, high): ``total * utilization - weights - activation - non-torch [- graphs]``."""
        room = int(self.total_bytes * self.utilization) - self.weights_bytes
        graphs = self.graphs_bytes if self.subtracts_graphs else (0, 0)
        return (
            room - self.activation_bytes[1] - self.non_torch_bytes[1] - graphs[1],
            room - self.activation_bytes[0] - self.non_torch_bytes[0] - graphs[0],
        )

    @property
    def measured(self) -> bool:
        """True when every part is one number."""
        parts = (self.activation_bytes, self.non_torch_bytes, self.graphs_bytes)
        return all(low == high for low, high in parts)


def memory_budget(
    *,
    total_bytes: int,
    weights_bytes: int,
    utilization: float = 0.92,
    activation_bytes: int | None = None,
    non_torch_bytes: int | None = None,
    graphs_bytes: int | None = None,
    law_version: str = "0.32",
) -> Budget:
    """The budget of one rank. Parts left None become the band of published logs.

    vLLM up to 0.11 did not subtract CUDA graphs; 0.32 subtracts an estimate of them
    (``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS``). ``utilization`` 0.92 is 0.32's default (0.9
    before).

    Raises:
        UsageError: for a utilisation outside 0 to 1 or a size that is not positive.
    """
    from turbo_lab.estimate.law import version_key

    if not 0 < utilization <= 1:
        raise UsageError(f"utilization is {utilization}; allowed: above 0, at most 1.")
    if total_bytes <= 0:
        raise UsageError(f"total_bytes is {total_bytes}; allowed: above 0.")
    parts = (
        _band(activation_bytes, ACTIVATION_GIB),
        _band(non_torch_bytes, NON_TORCH_GIB),
        _band(graphs_bytes, GRAPHS_GIB),
    )
    given = None not in (activation_bytes, non_torch_bytes, graphs_bytes)
    return Budget(
        total_bytes=total_bytes,
        utilization=utilization,
        weights_bytes=weights_bytes,
        activation_bytes=parts[0],
        non_torch_bytes=parts[1],
        graphs_bytes=parts[2],
        subtracts_graphs=version_key(law_version) > (0, 11),
        source="given" if given else BAND_SOURCE,
    )


def _band(value: int | None, band_gib: tuple[float, float]) -> tuple[int, int]:
    if value is not None:
        return value, value
    return int(band_gib[0] * GiB), int(band_gib[1] * GiB)
