"""One request of a trace as routers and simulators need it: lengths, prompt blocks, whose it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request. Readers check its values; a trace of millions has no time to check them twice.

    Attributes:
        arrival_s: seconds from the start of the trace, 0 or more.
        input_tokens: prompt length, at least 1.
        output_tokens: reply length, 0 or more (a request that failed has none).
        block_ids: one hash per prompt block of ``block_tokens`` tokens, in order. Equal hashes mean
            equal tokens in this block **and all before it**, so shared blocks are a shared prefix.
            The last block may be partly filled. Empty: nothing is known about shared prompts.
        block_tokens: tokens of a full block; 0 where ``block_ids`` is empty.
        tenant: whose request it is (model, service or customer); empty where unknown.
        priority: lower goes first, as in vLLM.
        session: the conversation it belongs to; empty where unknown.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()
    block_tokens: int = 0
    tenant: str = ""
    priority: int = 0
    session: str = ""
