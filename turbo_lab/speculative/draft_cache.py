"""Keys and values of many sequences of different lengths, for fast batched decoding on a CPU.

transformers' own caches copy all keys at every token (dynamic) or need padding on the left. Here
rows are padded on the right: each row writes behind its own end, and a mask hides the rest.
"""

from __future__ import annotations

from typing import Any

ATTENTION = "turbo_lab_grouped"


class RaggedCache:
    """Room for ``rows`` sequences of up to ``room`` tokens in every layer.

    ``write`` says where the next keys go: ``(rows, start)`` with a slice of rows while prompts are
    read, or ``(None, lengths)`` with one place for each row while tokens are decoded.
    """

    def __init__(self, model: Any, *, rows: int, room: int) -> None:
        import torch

        config = model.config
        shape = (rows, config.num_key_value_heads, room, config.head_dim)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(shape, dtype=model.dtype) for _ in layers]
        self.values = [torch.zeros(shape, dtype=model.dtype) for _ in layers]
        self.write: tuple[Any, Any] = (slice(None), 0)
        self.width = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Asked by transformers; positions and masks are always given, so it is not used."""
        return 0

    def update(self, keys: Any, values: Any, layer_idx: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Store new keys and values [rows, KV heads, tokens, head dim]; return all so far."""
        import torch

        rows, place = self.write
        out = []
        for store, new in ((self.keys[layer_idx], keys), (self.values[layer_idx], values)):
            if rows is None:
                every = torch.arange(len(store))
                store[every, :, place] = new[:, :, 0]
                out.append(store[:, :, : self.width])
            else:
                store[rows, :, place : place + new.shape[2]] = new
                out.append(store[rows, :, : place + new.shape[2]])
        return out[0], out[1]

    def share(self, source: RaggedCache, tokens: int) -> None:
        """Take the first ``tokens`` of the source's only row into every row."""
        for mine, theirs in ((self.keys, source.keys), (self.values, source.values)):
            for to, origin in zip(mine, theirs, strict=True):
                to[:, :, :tokens] = origin[:1, :, :tokens]

    def keep(self, rows: Any) -> None:
        """Drop all other rows."""
        for store in (self.keys, self.values):
            for i, tensor in enumerate(store):
                store[i] = tensor[rows]


def use_grouped_attention(model: Any) -> None:
    """Let the model share each KV head among its query heads instead of repeating it in memory."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _grouped)
    model.set_attn_implementation(ATTENTION)


def _grouped(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *,
    scaling: float | None = None, **_: Any,
) -> tuple[Any, None]:  # fmt: skip
    """Attention of queries [rows, heads, tokens, dim]; the mask [rows or 1, 1, tokens, width]."""
    import torch

    rows, heads, tokens, dim = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(rows, key.shape[1], groups * tokens, dim)
    out = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask.repeat(1, 1, groups, 1), scale=scaling
    )
    return out.reshape(rows, heads, tokens, dim).transpose(1, 2), None
