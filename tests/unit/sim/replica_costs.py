"""Costs of a replica that were made up, for tests of what follows from any costs."""

from __future__ import annotations

from turbo_lab.sim.calibration import Calibration
from turbo_lab.sim.router_witness import SharedBeginnings


def calibration_for(load: SharedBeginnings) -> Calibration:
    """A replica whose cache has the size that this load asks for."""
    return Calibration(
        name="test", source="invented", fixed_s=0.02, prefill_token_s=6e-4,
        prefill_context_s=1e-7, decode_sequence_s=2e-3, context_token_s=2e-6, request_s=0.01,
        blocks=load.pool_blocks, block_tokens=load.block_tokens, max_batched_tokens=2048,
        max_sequences=8,
    )  # fmt: skip
