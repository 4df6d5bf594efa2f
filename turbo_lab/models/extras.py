"""Weights that only one or two families have, layer by layer and once for the model."""

from __future__ import annotations

from turbo_lab.models.fields import Fields
from turbo_lab.models.layers import Layer
from turbo_lab.models.spec import ModelSpec


def layer_extras(spec: ModelSpec, text: Fields, layer: Layer, *, index: int) -> int:
    """Weights of one layer that the general rule does not cover."""
    hidden, kind = spec.hidden, spec.model_type
    if kind == "gemma3n_text":
        return _gemma3n_layer(hidden, text)
    if kind == "gemma4_text":
        return _gemma4_layer(hidden, text, layer)
    if kind == "bitnet" and layer.attention and layer.feed_forward:
        return hidden + layer.feed_forward.width
    if kind == "apertus":
        return 2  # the activation's two learned slopes
    if kind in ("nemotron-nas", "deci"):
        return _linear_blocks(hidden, text, index)
    if kind == "phi" and text.flag("qk_layernorm") and layer.attention:
        return 4 * layer.attention.head_dim_k
    return 0


def root_extras(spec: ModelSpec, text: Fields) -> int:
    """Weights outside the layers that the general rule does not cover."""
    hidden, kind = spec.hidden, spec.model_type
    if kind == "bloom":
        return 2 * hidden  # a norm after the embedding
    if kind == "gemma3n_text":
        inputs = text.count("altup_num_inputs", default=4)
        return _per_layer_inputs(spec, text) + 2 * (inputs - 1) * hidden * hidden
    if kind == "gemma4_text":
        return _per_layer_inputs(spec, text)
    if kind == "opt":
        narrow = text.count("word_embed_proj_dim", default=hidden)
        if narrow != hidden:
            return 2 * narrow * hidden - spec.vocab * (hidden - narrow)
        return 0 if text.flag("do_layer_norm_before", default=True) else -2 * hidden
    return 0


def lookup_tables(spec: ModelSpec, text: Fields, *, positions: int | None) -> int:
    """Weights among the extras of which one token reads a single row, as of an embedding.

    Learned positions (``positions``: rows beyond the context length, None without) and the table
    of inputs for each layer (Gemma 3n, Gemma 4).
    """
    rows = 0 if positions is None else (spec.context_tokens + positions) * spec.hidden
    if spec.model_type in ("gemma3n_text", "gemma4_text"):
        return rows + _per_layer_table(spec, text)
    return rows


def _per_layer_inputs(spec: ModelSpec, text: Fields) -> int:
    table = _per_layer_table(spec, text)
    if not table:
        return 0
    width = text.count("hidden_size_per_layer_input")
    return table + spec.hidden * width * len(spec.layers) + width


def _per_layer_table(spec: ModelSpec, text: Fields) -> int:
    width = text.count("hidden_size_per_layer_input", default=0, zero=True)
    vocab = text.count("vocab_size_per_layer_input", default=spec.vocab)
    return vocab * width * len(spec.layers)


def _gemma3n_layer(hidden: int, text: Fields) -> int:
    inputs = text.count("altup_num_inputs", default=4)
    altup = 2 * hidden + inputs * inputs + inputs**3 + inputs * hidden
    laurel = 2 * text.count("laurel_rank", default=64) * hidden + hidden
    width = text.count("hidden_size_per_layer_input")
    return altup + laurel + 2 * width * hidden + hidden


def _gemma4_layer(hidden: int, text: Fields, layer: Layer) -> int:
    width = text.count("hidden_size_per_layer_input", default=0, zero=True)
    per_layer = 2 * width * hidden + hidden if width else 0
    experts = layer.feed_forward.experts if layer.feed_forward else 0
    # The experts' own three norms, the router's scale over the input and one per expert.
    sparse = 3 * hidden + hidden + experts if experts else 0
    return per_layer + sparse


def _linear_blocks(hidden: int, text: Fields, index: int) -> int:
    """Parts that the search replaced by one square matrix."""
    block = (text.items("block_configs") or [])[index]
    return sum(
        hidden * hidden for part in ("attention", "ffn") if block[part].get("replace_with_linear")
    )
