"""Why four bits fail: a few channels of the keys are far larger than all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import UsageError


@dataclass(frozen=True)
class ChannelSpread:
    """How unlike the channels of one layer's keys (or values) are.

    Attributes:
        layer: index of the layer.
        side: "keys" or "values".
        largest: largest absolute value of the most extreme channel, over tokens and heads.
        median: the same of the channel in the middle.
        head, channel: where the most extreme channel is.
        sign_share: share of tokens at which that channel has its more frequent sign: near 1 means
            it is an offset, which a smallest value per channel takes away.
    """

    layer: int
    side: str
    largest: float
    median: float
    head: int
    channel: int
    sign_share: float

    @property
    def ratio(self) -> float:
        """Largest over median. With one scale per token the step is that of the largest channel, so
        an ordinary channel has ``levels / ratio`` steps left.
        """
        return self.largest / self.median if self.median > 0 else float("inf")


def channel_spreads(cache: Any, *, skip_tokens: int = 1) -> tuple[ChannelSpread, ...]:
    """Spreads of all layers of a filled cache of plain tensors (a DynamicCache), keys first.

    Args:
        cache: after a pass over some text.
        skip_tokens: first tokens left out; the very first has a key of its own size (a sink).

    Raises:
        UsageError: nothing is left of the cache's tokens.
    """
    out = []
    for side in ("keys", "values"):
        for index, layer in enumerate(cache.layers):
            tokens = getattr(layer, side)[0, :, skip_tokens:].float()
            if not tokens.shape[1]:
                raise UsageError(f"skip_tokens is {skip_tokens}, and the cache holds no more")
            out.append(_spread(tokens, index, side))
    return tuple(out)


def _spread(tokens: Any, layer: int, side: str) -> ChannelSpread:
    """``tokens`` [heads, tokens, channels]."""
    sizes = tokens.abs().amax(dim=1)
    place = int(sizes.argmax())
    head, channel = divmod(place, sizes.shape[1])
    positive = float((tokens[head, :, channel] > 0).float().mean())
    return ChannelSpread(
        layer=layer, side=side, largest=float(sizes.max()), median=float(sizes.median()),
        head=head, channel=channel, sign_share=max(positive, 1 - positive),
    )  # fmt: skip
