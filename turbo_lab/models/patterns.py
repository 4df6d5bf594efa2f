"""Which kind of layer stands where: every spelling of layer types, windows and intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from turbo_lab.core.errors import ConfigError, did_you_mean
from turbo_lab.models.fields import Fields

# One kind per layer; "state" is any layer with a fixed state, "mlp" and "moe" have no mixer.
_KINDS = MappingProxyType(
    {
        "full_attention": "full",
        "attention": "full",
        "indexed_attention": "full",
        "deepseek_sparse_attention": "full",
        "sliding_attention": "sliding",
        "chunked_attention": "chunked",
        "linear_attention": "state",
        "mamba": "state",
        "mamba2": "state",
        "conv": "state",
        "hybrid": "parallel",
        "moe": "moe",
        "mlp": "mlp",
    }
)
_LETTERS = MappingProxyType({"M": "state", "*": "full", "-": "mlp", "E": "moe"})
Rule = Callable[[Fields, int], "list[str] | None"]


def layer_kinds(text: Fields, *, model_type: str, layers: int, windows: str) -> tuple[str, ...]:
    """One kind for each of ``layers`` layers: full, sliding, chunked, state, parallel, mlp, moe.

    A list in the config wins, then the family's own interval or index fields, then the rule
    ``windows`` (see :class:`turbo_lab.models.families.Family`). Two statements that contradict
    each other raise ConfigError.
    """
    found = [(name, kinds) for name, kinds in _statements(text, layers) if kinds is not None]
    for name, kinds in found[1:]:
        if kinds != found[0][1]:
            raise ConfigError(
                f"{text.where}{found[0][0]} and {text.where}{name} contradict each other: "
                "they name different kinds for some layer."
            )
    if found:
        return tuple(found[0][1])
    if model_type in ("mamba", "mamba2", "falcon_mamba"):
        return ("state",) * layers
    if model_type == "falcon_h1":
        return ("parallel",) * layers
    if model_type == "llama4_text" and "attention_chunk_size" not in text.values:
        raise ConfigError(
            f"{text.where}attention_chunk_size is missing (null would mean: no chunks)."
        )
    if windows.startswith("every:") and "sliding_window" not in text.values:
        raise ConfigError(
            f"{text.where}sliding_window is missing (null would mean: no layer has a window)."
        )
    if model_type in ("bamba", "granitemoehybrid", "lfm2", "lfm2_moe", "nemotron_h", "kimi_linear"):
        raise ConfigError(
            f"{text.where}layer_types is missing; {model_type} needs one kind for each layer."
        )
    if model_type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "jamba"):
        raise ConfigError(
            f"{text.where}layer_types is missing, and so is the interval of its attention layers "
            "(full_attention_interval, attn_layer_period)."
        )
    return tuple(_by_window(text, windows, layers))


def _statements(text: Fields, layers: int) -> Iterator[tuple[str, list[str] | None]]:
    for name, rule in _RULES.items():
        if text.has(name):
            yield name, rule(text, layers)


def _typed(name: str) -> Rule:
    def rule(text: Fields, layers: int) -> list[str]:
        kinds = []
        for index, word in enumerate(text.items(name, length=layers) or []):
            if word not in _KINDS:
                raise ConfigError(
                    f"{text.where}{name}[{index}] is {word!r}, an attention kind that is not "
                    f"known here.{did_you_mean(str(word), list(_KINDS))}"
                )
            kinds.append(_KINDS[word])
        return kinds

    return rule


def _lettered(text: Fields, layers: int) -> list[str]:
    pattern = str(text.get("hybrid_override_pattern"))
    if len(pattern) != layers:
        raise ConfigError(
            f"{text.where}hybrid_override_pattern has {len(pattern)} letters, but "
            f"num_hidden_layers is {layers}; there must be one letter for each layer."
        )
    if wrong := sorted(set(pattern) - set(_LETTERS)):
        raise ConfigError(
            f"{text.where}hybrid_override_pattern holds {wrong}; allowed letters: "
            "M (Mamba), * (attention), - (MLP), E (experts)."
        )
    return [_LETTERS[letter] for letter in pattern]


def _numbered(name: str, meanings: dict[int, str]) -> Rule:
    def rule(text: Fields, layers: int) -> list[str]:
        values = text.items(name, length=layers) or []
        if wrong := [v for v in values if v not in meanings]:
            raise ConfigError(f"{text.where}{name} holds {wrong[0]!r}; allowed: {meanings}.")
        return [meanings[v] for v in values]

    return rule


def _indexed(name: str) -> Rule:
    def rule(text: Fields, layers: int) -> list[str]:
        chosen = set(text.items(name) or [])
        if bad := [i for i in chosen if not isinstance(i, int) or not 0 <= i < layers]:
            raise ConfigError(f"{text.where}{name} holds {bad[0]!r}; allowed: 0 to {layers - 1}.")
        return ["full" if i in chosen else "state" for i in range(layers)]

    return rule


def _every_nth_full(text: Fields, layers: int) -> list[str]:
    interval = text.count("full_attention_interval")
    return ["full" if (i + 1) % interval == 0 else "state" for i in range(layers)]


def _periodic(text: Fields, layers: int) -> list[str]:
    period = text.count("attn_layer_period")
    offset = text.count("attn_layer_offset", zero=True)
    return ["full" if i % period == offset else "state" for i in range(layers)]


def _kimi(text: Fields, layers: int) -> list[str]:
    linear = text.child("linear_attn_config")
    state = set(linear.items("kda_layers") or [])  # numbered from 1
    full = set(linear.items("full_attn_layers") or [])
    if state | full != set(range(1, layers + 1)) or state & full:
        raise ConfigError(
            f"{linear.where}kda_layers and full_attn_layers must name each of the layers 1 to "
            f"{layers} once."
        )
    return ["state" if i + 1 in state else "full" for i in range(layers)]


def _blocks(text: Fields, layers: int) -> list[str]:
    kinds = []
    for index, block in enumerate(text.items("block_configs", length=layers) or []):
        attention = Fields(block, f"{text.where}block_configs[{index}].").child("attention")
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            kinds.append("mlp")
        else:
            kinds.append("sliding" if attention.has("window_length") else "full")
    return kinds


def _chunked(text: Fields, layers: int) -> list[str] | None:
    if text.has("no_rope_layers"):
        rope = text.items("no_rope_layers", length=layers) or []
        return ["chunked" if flag else "full" for flag in rope] if rope else None
    interval = text.count("no_rope_layer_interval", default=4)
    return ["chunked" if (i + 1) % interval else "full" for i in range(layers)]


_RULES: MappingProxyType[str, Rule] = MappingProxyType(
    {
        "layer_types": _typed("layer_types"),
        "layers_block_type": _typed("layers_block_type"),
        "hybrid_override_pattern": _lettered,
        "attn_type_list": _numbered("attn_type_list", {0: "state", 1: "full"}),
        "hybrid_layer_pattern": _numbered("hybrid_layer_pattern", {0: "full", 1: "sliding"}),
        "attn_layer_indices": _indexed("attn_layer_indices"),
        "full_attn_idxs": _indexed("full_attn_idxs"),
        "full_attention_interval": _every_nth_full,
        "attn_layer_period": _periodic,
        "linear_attn_config": _kimi,
        "block_configs": _blocks,
        "attention_chunk_size": _chunked,
    }
)


def _by_window(text: Fields, windows: str, layers: int) -> list[str]:
    """Kinds of a model without a list of layer types."""
    window_off = not text.has("sliding_window") or text.get("sliding_window") == 0
    if windows == "late":
        if window_off or not text.flag("use_sliding_window"):
            return ["full"] * layers
        first = text.count("max_window_layers", zero=True)
        return ["sliding" if i >= first else "full" for i in range(layers)]
    if window_off or not text.flag("use_sliding_window", default=True):
        return ["full"] * layers
    pattern = text.get("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str):
        return _window_letters(text, pattern, layers)
    if windows.startswith("every:"):
        names = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        interval = text.count(*names, default=int(windows.removeprefix("every:")))
        return ["sliding" if (i + 1) % interval else "full" for i in range(layers)]
    return ["sliding"] * layers


def _window_letters(text: Fields, pattern: str, layers: int) -> list[str]:
    """``LLLG``: local, local, local, global, repeated over the layers."""
    if not pattern or set(pattern) - set("LG"):
        raise ConfigError(
            f"{text.where}sliding_window_pattern is {pattern!r}; allowed: letters L (local) and "
            "G (global), or a whole number."
        )
    return ["sliding" if pattern[i % len(pattern)] == "L" else "full" for i in range(layers)]
