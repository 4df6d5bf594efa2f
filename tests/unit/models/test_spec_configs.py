"""Every attention kind and every spelling of it, as small configs written for these tests."""

from __future__ import annotations

import pytest

from turbo_lab.models.memory import (
    indexer_bytes_per_token,
    kv_bytes_per_token,
    kv_bytes_per_token_growing,
    state_bytes_per_request,
)
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


def kinds(**changes) -> str:
    letters = {"full": "F", "sliding": "S", "chunked": "C", "mla": "L", "none": "-"}
    return "".join(letters.get(k, "m") for k in from_hf_config(config(**changes)).attention_kinds)


def test_grouped_multi_query_and_plain() -> None:
    assert kv_bytes_per_token(from_hf_config(config())) == 6 * 2 * 2 * 64 * 2
    assert kv_bytes_per_token(from_hf_config(config(num_key_value_heads=1))) == 6 * 2 * 1 * 64 * 2
    plain = config()
    del plain["num_key_value_heads"]
    assert from_hf_config(plain).kv_heads == 8


def test_head_dim_need_not_be_hidden_over_heads() -> None:
    assert kv_bytes_per_token(from_hf_config(config(head_dim=128))) == 6 * 2 * 2 * 128 * 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sliding_window": 64}, "SSSSSS"),
        ({"sliding_window": 0}, "FFFFFF"),
        ({"sliding_window": 64, "use_sliding_window": False}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": None}, "FFFFFF"),
        ({"model_type": "mistral", "sliding_window": 64}, "SSSSSS"),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, "FFFFFF"),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 64,
                "use_sliding_window": True,
                "max_window_layers": 4,
            },
            "FFFFSS",
        ),
        ({"model_type": "gemma2", "sliding_window": 64}, "SFSFSF"),
        ({"model_type": "gemma3_text", "sliding_window": 64}, "SSSSSF"),
        (
            {"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 3},
            "SSFSSF",
        ),
        ({"model_type": "gpt_oss", "sliding_window": 64, "num_local_experts": 0}, "SFSFSF"),
        (
            {"model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": "LLG"},
            "SSFSSF",
        ),
        ({"model_type": "exaone4", "sliding_window": None}, "FFFFFF"),
        ({"layer_types": [SLIDING, FULL] * 3, "sliding_window": 64}, "SFSFSF"),
        ({"layer_types": [FULL] * 6, "sliding_window": 64}, "FFFFFF"),
        (
            {
                "model_type": "mimo_v2_flash",
                "hybrid_layer_pattern": [0, 1, 1, 0, 1, 1],
                "sliding_window": 64,
            },
            "FSSFSS",
        ),
        ({"model_type": "llama4_text", "attention_chunk_size": 64, "num_local_experts": 0},
         "CCCFCC"),
        (
            {
                "model_type": "llama4_text",
                "attention_chunk_size": 64,
                "no_rope_layers": [1, 1, 0, 1, 1, 0],
                "num_local_experts": 0,
            },
            "CCFCCF",
        ),
    ],
)  # fmt: skip
def test_windows_in_all_spellings(changes: dict, expected: str) -> None:
    assert kinds(**changes) == expected


def test_growing_layers_are_full_and_mla_only() -> None:
    spec = from_hf_config(config(layer_types=[SLIDING, FULL] * 3, sliding_window=64))
    assert kv_bytes_per_token(spec) == 2 * kv_bytes_per_token_growing(spec)


def test_mla_stores_one_latent_whatever_the_heads() -> None:
    spec = from_hf_config(MLA)
    assert set(spec.attention_kinds) == {"mla"}
    assert kv_bytes_per_token(spec) == 6 * (64 + 16) * 2
    assert kv_bytes_per_token(spec, tensor_parallel=8) == kv_bytes_per_token(spec)
    sparse = from_hf_config(
        {**MLA, "model_type": "deepseek_v32", "index_topk": 64, "index_n_heads": 4,
         "index_head_dim": 128}
    )  # fmt: skip
    assert indexer_bytes_per_token(sparse) == 6 * 132
    assert kv_bytes_per_token(sparse) == kv_bytes_per_token(spec)


def test_keys_and_values_of_different_size_and_windowed_heads_of_their_own() -> None:
    spec = from_hf_config(
        config(
            model_type="mimo_v2_flash", head_dim=96, v_head_dim=64, swa_num_key_value_heads=4,
            swa_head_dim=96, swa_v_head_dim=64, sliding_window=16,
            hybrid_layer_pattern=[0, 1, 1, 1, 1, 1],
        )
    )  # fmt: skip
    assert kv_bytes_per_token_growing(spec) == 2 * (96 + 64) * 2
    assert kv_bytes_per_token(spec) == (2 + 5 * 4) * (96 + 64) * 2


def test_global_heads_of_their_own_and_shared_caches() -> None:
    spec = from_hf_config(
        config(
            model_type="gemma4_text", head_dim=32, global_head_dim=64, attention_k_eq_v=True,
            num_global_key_value_heads=1, sliding_window=16, layer_types=[SLIDING, FULL] * 3,
            num_kv_shared_layers=2,
        )
    )  # fmt: skip
    assert [layer.shares_kv for layer in spec.attention_layers] == [False] * 4 + [True] * 2
    assert kv_bytes_per_token_growing(spec) == 2 * 1 * 2 * 64 * 2


def test_heads_in_group_is_the_size_of_a_group_not_their_number() -> None:
    block = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 1.5}}
    skipped = {"attention": {"no_op": True}, "ffn": {"no_op": True}}
    spec = from_hf_config(
        config(model_type="nemotron-nas", num_key_value_heads=None, intermediate_size=None,
               block_configs=[block, skipped] * 3)
    )  # fmt: skip
    assert spec.attention_kinds == ("full", "none") * 3
    assert spec.kv_heads == 8 // 4
    assert spec.layers[0].feed_forward.width == 512
    assert spec.layers[1].feed_forward is None


STATES = {
    "gated delta": (
        {
            "model_type": "qwen3_next", "full_attention_interval": 3, "linear_num_value_heads": 4,
            "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4,
        },
        4, 3 * (2 * 2 * 16 + 4 * 8) * 2 + 4 * 8 * 16 * 4,
    ),
    "mamba-2": (
        {
            "model_type": "nemotron_h", "hybrid_override_pattern": "M*-MM-", "mamba_num_heads": 4,
            "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
        },
        3, 3 * (32 + 2 * 2 * 16) * 2 + 4 * 8 * 16 * 4,
    ),
    "mamba-1": (
        {
            "model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1,
            "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
        },
        4, (3 + 16) * 1024 * 2,
    ),
    "convolution": (
        {"model_type": "lfm2", "full_attn_idxs": [1, 3], "conv_L_cache": 3},
        4, 2 * 512 * 2,
    ),
    "lightning": (
        {"model_type": "minimax_text_01", "attn_type_list": [0, 1, 0, 1, 0, 1]},
        3, 8 * 64 * 64 * 2,
    ),
    "kimi delta": (
        {
            **MLA, "model_type": "kimi_linear",
            "linear_attn_config": {
                "kda_layers": [1, 2, 4, 5], "full_attn_layers": [3, 6], "num_heads": 4,
                "head_dim": 16, "short_conv_kernel_size": 4,
            },
        },
        4, 3 * 3 * 64 * 2 + 4 * 16 * 16 * 4,
    ),
    "both in parallel": (
        {
            "model_type": "falcon_h1", "mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32,
            "mamba_n_groups": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
        },
        6, 3 * (128 + 2 * 16) * 2 + 128 * 16 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_states_have_a_fixed_size(name: str) -> None:
    changes, layers, layer_bytes = STATES[name]
    spec = from_hf_config(config(**changes))
    assert len(spec.state_layers) == layers
    assert state_bytes_per_request(spec) == layers * layer_bytes


def test_nested_text_config_and_old_field_names() -> None:
    nested = from_hf_config({"model_type": "qwen3_vl", "text_config": config(model_type="qwen3")})
    assert nested.kv_heads == 2
    old = from_hf_config({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
                          "n_positions": 1024, "vocab_size": 50257})  # fmt: skip
    assert kv_bytes_per_token(old) == 36864
    assert old.tied_embeddings


def test_defaults_are_the_documented_ones() -> None:
    bare = config()
    del bare["torch_dtype"]
    spec = from_hf_config(bare)
    assert (spec.dtype, spec.dtype_assumed, spec.tied_embeddings) == ("bf16", True, False)
    quantised = from_hf_config(config(quantization_config={"quant_method": "fp8"}))
    assert kv_bytes_per_token(quantised, dtype="auto") == kv_bytes_per_token(quantised)
    assert quantised.quantization == "fp8"
