"""A config that is incomplete or contradicts itself: the error names the field."""

from __future__ import annotations

import pytest

from turbo_lab.core.errors import ConfigError
from turbo_lab.models.spec import from_hf_config

BASE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
MLA = {
    **BASE,
    "model_type": "deepseek_v3",
    "kv_lora_rank": 64,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "n_shared_experts": 1,
}
FULL, SLIDING = "full_attention", "sliding_attention"


def config(**changes) -> dict:
    return {**BASE, **changes}


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads",
                                  "vocab_size", "max_position_embeddings", "intermediate_size",
                                  "model_type"])  # fmt: skip
@pytest.mark.parametrize("state", ["missing", "null"])
def test_a_missing_or_null_field_is_named(name: str, state: str) -> None:
    broken = config(**{name: None})
    if state == "missing":
        del broken[name]
    with pytest.raises(ConfigError, match=name):
        from_hf_config(broken)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_attention_heads": "8"}, "num_attention_heads"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": 16}, "num_key_value_heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "head_dim"),
        ({"layer_types": [FULL] * 5}, "layer_types"),
        ({"layer_types": [FULL] * 5 + ["window_of_wonder"]}, "window_of_wonder"),
        ({"layer_types": [SLIDING] * 6}, "sliding_window"),
        ({"model_type": "lama"}, "llama"),
        ({"model_type": "deepseek_v4"}, "deepseek_v4"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*"}, "hybrid_override_pattern"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*-MX-"}, "hybrid_override"),
        ({"model_type": "qwen3_next"}, "layer_types"),
        ({"model_type": "gemma2"}, "sliding_window"),
        ({"model_type": "llama4_text", "num_local_experts": 0}, "attention_chunk_size"),
        ({"layer_types": [FULL] * 6, "full_attention_interval": 3}, "contradict"),
        ({"num_kv_heads": 4}, "contradicts"),
        ({"model_type": "qwen3_moe", "num_experts": 8}, "num_experts_per_tok"),
        ({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 9,
          "moe_intermediate_size": 64}, "num_experts_per_tok"),
        ({"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2},
         "moe_intermediate_size"),
        ({"text_config": []}, "text_config"),
    ],
)  # fmt: skip
def test_contradictions_name_the_field(changes: dict, named: str) -> None:
    with pytest.raises(Exception, match=named) as caught:
        from_hf_config(config(**changes))
    assert getattr(caught.value, "exit_code", None) == 2


@pytest.mark.parametrize("name", ["kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
                                  "v_head_dim", "first_k_dense_replace"])  # fmt: skip
def test_mla_names_its_missing_fields(name: str) -> None:
    broken = {key: value for key, value in MLA.items() if key != name}
    with pytest.raises(ConfigError, match=name):
        from_hf_config(broken)
