"""Reads fields of a config.json by any of their known names, with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_lab.core.errors import ConfigError

# The same quantity under the names that model families gave it. The first one is quoted in errors.
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
INTERMEDIATE = ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "block_ff_dim")
VOCAB = ("vocab_size", "padded_vocab_size", "n_vocab")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
           "max_sequence_length", "model_max_length", "max_length")  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k", "moe_topk",
          "experts_per_token", "moe_top_k", "num_selected_experts")  # fmt: skip


@dataclass(frozen=True)
class Fields:
    """One config (or its nested text part). ``where`` prefixes field names in errors."""

    values: Mapping[str, Any]
    where: str = ""

    def has(self, *names: str) -> bool:
        """True when one of ``names`` is present and not null."""
        return any(self.values.get(name) is not None for name in names)

    def get(self, *names: str) -> Any:
        """The first of ``names`` that is present and not null, else None."""
        return next((self.values[n] for n in names if self.values.get(n) is not None), None)

    def name_of(self, *names: str) -> str:
        """The spelling that this config uses, with its prefix; the first name if it has none."""
        return self.where + next((n for n in names if n in self.values), names[0])

    def count(self, *names: str, default: int | None = None, zero: bool = False) -> int:
        """A whole number, at least 1 (0 where ``zero``). Two spellings must not disagree."""
        found = {n: self.values[n] for n in names if self.values.get(n) is not None}
        name = self.name_of(*(found or names))
        if not found:
            if default is not None:
                return default
            state = "null" if any(n in self.values for n in names) else "missing"
            raise ConfigError(f"{name} is {state} in config.json; a whole number is needed.")
        value = _single(next(iter(found.values())))
        whole = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not whole or value != value or value in (float("inf"), float("-inf")):
            raise ConfigError(f"{name} is {value!r}; a whole number is needed.")
        if value != int(value) or value < (0 if zero else 1):
            raise ConfigError(
                f"{name} is {value!r}; allowed: whole numbers from {0 if zero else 1}."
            )
        if len({repr(_single(v)) for v in found.values()}) > 1:
            raise ConfigError(f"config.json contradicts itself: {found} are one quantity.")
        return int(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true/false field; null counts as the default."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}{name} is {value!r}; allowed: true, false.")
        return value

    def items(self, name: str, *, length: int | None = None) -> list[Any] | None:
        """A list field (None when absent), checked against the number of layers where given."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise ConfigError(f"{self.where}{name} is {value!r}; a list is needed.")
        if length is not None and len(value) != length:
            raise ConfigError(
                f"{self.where}{name} has {len(value)} entries, but num_hidden_layers is {length}; "
                "there must be one entry for each layer."
            )
        return list(value)

    def child(self, name: str) -> Fields:
        """A nested object as Fields of its own."""
        value = self.get(name)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.where}{name} is {value!r}; an object is needed.")
        return Fields(value, f"{self.where}{name}.")

    def for_layer(self, index: int) -> Fields:
        """These fields with the overrides of ``per_layer_config`` for layer ``index``."""
        overrides = self.get("per_layer_config")
        if not isinstance(overrides, Mapping):
            return self
        for key, changes in overrides.items():
            if str(key).isdigit() and int(key) == index and isinstance(changes, Mapping):
                return Fields({**self.values, **changes}, self.where)
        return self


def _single(value: Any) -> Any:
    """A list that repeats one value for every layer stands for that value."""
    if isinstance(value, (list, tuple)) and value and all(v == value[0] for v in value):
        return value[0]
    return value
