"""How a KV cache is stored in few bits, and how many bytes that takes. Computes only; no torch.

Inside the cache, values have the layout (tokens, batch, heads, head_dim), so axis 0 runs over
tokens and axis -1 over channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from turbo_lab.core.errors import UsageError, did_you_mean
from turbo_lab.numerics.formats import number_format
from turbo_lab.numerics.integers import IntFormat
from turbo_lab.numerics.schemes import ScaleDtype, Scheme, stored_bytes

Sharing = Literal["channel", "token", "none"]
Rotation = Literal["none", "hadamard", "random"]
TOKEN_AXIS, CHANNEL_AXIS = 0, -1
BLOCK_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class KvScheme:
    """One way to store keys and values.

    Attributes:
        keys, values: schemes of the packed part, in the layout of this module.
        block_tokens: tokens that are packed together; the scale of a channel covers one block.
        recent_tokens: at least so many of the newest tokens stay in the model's own dtype.
        sink_tokens: so many first tokens stay in the model's own dtype for good.
        rotation: orthogonal matrix that keys and values of a head are multiplied with before
            packing; undone when they are read.
        seed: of the random rotation.
    """

    keys: Scheme
    values: Scheme
    block_tokens: int = 1
    recent_tokens: int = 0
    sink_tokens: int = 0
    rotation: Rotation = "none"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse schemes whose blocks could not be joined exactly."""
        for name, least in (("block_tokens", 1), ("recent_tokens", 0), ("sink_tokens", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if self.rotation not in get_args(Rotation):
            raise UsageError(
                f"rotation is {self.rotation!r}."
                f"{did_you_mean(str(self.rotation), list(get_args(Rotation)))}"
            )
        for what, scheme in (("keys", self.keys), ("values", self.values)):
            self._check(what, scheme)

    def _check(self, what: str, scheme: Scheme) -> None:
        if scheme.zero == "code":
            raise UsageError(f"{what}: zero 'code' packs zero points across blocks; use 'value'")
        if scheme.granularity in ("tensor", "channel"):
            raise UsageError(
                f"{what}: granularity {scheme.granularity!r} would need the whole cache at once; "
                "use 'group' along the tokens, 'token', or 'none'"
            )
        over_tokens = scheme.granularity == "group" and scheme.axis == TOKEN_AXIS
        if over_tokens and self.block_tokens % (scheme.group_size or 1):
            raise UsageError(
                f"{what}: groups of {scheme.group_size} tokens do not fill blocks of "
                f"{self.block_tokens}"
            )

    def packed_tokens(self, tokens: int) -> int:
        """How many of ``tokens`` tokens are packed: whole blocks beyond sinks and recent ones."""
        spare = tokens - self.sink_tokens - self.recent_tokens
        return max(0, spare) // self.block_tokens * self.block_tokens


def kv_scheme(
    format: str,
    *,
    keys: Sharing = "channel",
    block_tokens: int = BLOCK_TOKENS,
    group_channels: int | None = None,
    recent_tokens: int = 0,
    sink_tokens: int = 0,
    rotation: Rotation = "none",
    scale_dtype: ScaleDtype = "fp16",
) -> KvScheme:
    """The usual schemes by name of the format.

    Integer formats are asymmetric with the smallest value stored, and fp8 symmetric; values always
    share a scale per token. ``keys="channel"``: one scale per channel and block of tokens (KIVI);
    ``"token"``: one per token, like the values; ``"none"``: no scales at all, a plain conversion
    (what vLLM's fp8 does without calibrated scales, and the only choice for 16 and 32 bits).

    Args:
        format: a float or integer format of ``numerics``.
        keys: what shares a scale among the keys.
        block_tokens: tokens packed together; 1 where nothing is shared between tokens.
        group_channels: channels that share a scale within a token; all of the head by default.
        recent_tokens, sink_tokens, rotation: see :class:`KvScheme`.
        scale_dtype: of scales and smallest values.
    """
    if keys not in get_args(Sharing):
        raise UsageError(f"keys is {keys!r}.{did_you_mean(str(keys), list(get_args(Sharing)))}")
    number = number_format(format)
    if keys == "none" or number.bits > 8:
        plain = Scheme(format, "none")
        schemes, block = (plain, plain), 1
    else:
        zero = "value" if isinstance(number, IntFormat) else "none"
        common = {"format": format, "zero": zero, "scale_dtype": scale_dtype}
        by_token = (
            Scheme(granularity="token", axis=CHANNEL_AXIS, **common)
            if group_channels is None
            else Scheme(granularity="group", axis=CHANNEL_AXIS, group_size=group_channels, **common)
        )
        by_channel = Scheme(granularity="group", axis=TOKEN_AXIS, group_size=block_tokens, **common)
        schemes = (by_channel if keys == "channel" else by_token, by_token)
        block = block_tokens if keys == "channel" else 1
    return KvScheme(
        keys=schemes[0], values=schemes[1], block_tokens=block, recent_tokens=recent_tokens,
        sink_tokens=sink_tokens, rotation=rotation,
    )  # fmt: skip


def layer_cache_bytes(
    scheme: KvScheme,
    *,
    tokens: int,
    kv_heads: int,
    head_dim: int,
    batch: int = 1,
    element_bytes: int = 4,
) -> int:
    """Bytes that one layer's cache holds for ``tokens`` tokens, to the byte.

    With q packed tokens: ``stored(q x B x H x D, keys) + stored(q x B x H x D, values)
    + (tokens - q) * B * H * 2 D * element_bytes``, ``stored`` being
    :func:`turbo_lab.numerics.schemes.stored_bytes`.

    Args:
        scheme: how it is stored.
        tokens: tokens that the cache has seen.
        kv_heads: KV heads of the layer (H).
        head_dim: channels of a head (D).
        batch: sequences (B).
        element_bytes: bytes of one value in the model's own dtype.
    """
    for name, value in (("tokens", tokens), ("kv_heads", kv_heads), ("head_dim", head_dim)):
        if value < 0:
            raise UsageError(f"{name} is {value}; it must not be negative")
    packed = scheme.packed_tokens(tokens)
    shape = (packed, batch, kv_heads, head_dim)
    kept = (tokens - packed) * batch * kv_heads * 2 * head_dim * element_bytes
    if not packed:
        return kept
    return kept + sum(stored_bytes(shape, scheme=s).total for s in (scheme.keys, scheme.values))


def bits_per_element(scheme: KvScheme, *, tokens: int, kv_heads: int, head_dim: int) -> float:
    """All bits of the cache per stored value at this length; full-precision parts counted in."""
    total = layer_cache_bytes(scheme, tokens=tokens, kv_heads=kv_heads, head_dim=head_dim)
    return 8 * total / (tokens * kv_heads * 2 * head_dim)
