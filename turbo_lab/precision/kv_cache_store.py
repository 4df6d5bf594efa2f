"""Where the keys (or the values) of one layer really lie: first, packed and newest tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.numerics.quantized import Quantized, dequantize, quantize
from turbo_lab.numerics.schemes import Scheme
from turbo_lab.precision.kv_cache_scheme import TOKEN_AXIS, KvScheme


def joined(first: Quantized | None, second: Quantized) -> Quantized:
    """Two packed arrays one after the other along the tokens, without unpacking either.

    Exact because codes lie token after token and a block's codes fill whole bytes; where scales
    cover groups of tokens these are the last axis of the scales, else the tokens are their first.
    """
    if first is None:
        return second
    scheme = first.scheme
    if (first.count * scheme.number.bits) % 8:
        raise UsageError(
            f"{first.count} codes of {scheme.number.bits} bits end inside a byte; choose "
            "block_tokens so that a block fills whole bytes"
        )
    over_tokens = scheme.granularity == "group" and scheme.axis == TOKEN_AXIS
    axis = -1 if over_tokens else 0
    zeros = None
    if first.zeros is not None and second.zeros is not None:
        zeros = np.concatenate([first.zeros, second.zeros], axis=axis)
    return Quantized(
        payload=np.concatenate([first.payload, second.payload]),
        scales=np.concatenate([first.scales, second.scales], axis=axis),
        zeros=zeros,
        shape=(first.shape[0] + second.shape[0], *first.shape[1:]),
        scheme=scheme,
    )


class TokenStore:
    """Tokens [batch, heads, tokens, dim] of one layer: sinks, packed blocks, newest.

    ``append`` packs every whole block that is older than the scheme's recent tokens; ``read`` gives
    back what is stored, in order. Nothing else is kept.
    """

    def __init__(self, scheme: Scheme, plan: KvScheme, *, rotation: Any | None = None) -> None:
        self.scheme, self.plan, self.rotation = scheme, plan, rotation
        self.sinks: Any | None = None
        self.recent: Any | None = None
        self.packed: Quantized | None = None

    def append(self, tokens: Any) -> None:
        """Store new tokens; the input is copied."""
        if self.sinks is None:
            self.sinks = tokens[:, :, :0].clone()
            self.recent = tokens[:, :, :0].clone()
        room = self.plan.sink_tokens - self.sinks.shape[2]
        if room > 0:
            self.sinks = _cat([self.sinks, tokens[:, :, :room]])
        self.recent = _cat([self.recent, tokens[:, :, max(0, room) :]])
        self._pack_old()

    def _pack_old(self) -> None:
        spare = self.recent.shape[2] - self.plan.recent_tokens
        count = max(0, spare) // self.plan.block_tokens * self.plan.block_tokens
        if not count:
            return
        old = self.recent[:, :, :count]
        if self.rotation is not None:
            old = old.float() @ self.rotation
        self.packed = joined(self.packed, quantize(old.permute(2, 0, 1, 3), self.scheme))
        self.recent = self.recent[:, :, count:].clone()  # a view would keep the old tokens alive

    def read(self) -> Any:
        """All tokens in order, in the dtype and on the device of the input."""
        import torch

        if self.packed is None:
            return _cat([self.sinks, self.recent])
        whole = torch.from_numpy(dequantize(self.packed)).permute(1, 2, 0, 3)
        whole = whole.to(self.recent.device)
        if self.rotation is not None:
            whole = whole @ self.rotation.T
        return _cat([self.sinks, whole.to(self.recent.dtype), self.recent])

    @property
    def bytes(self) -> int:
        """Bytes of everything that is kept, counted from the storages themselves."""
        full = [t for t in (self.sinks, self.recent) if t is not None]
        packed = self.packed.bytes if self.packed is not None else 0
        return packed + sum(t.untyped_storage().nbytes() for t in full)


def _cat(parts: list[Any]) -> Any:
    import torch

    return torch.cat(parts, dim=2)
