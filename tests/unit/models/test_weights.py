"""Bytes of weights: formats of quantised checkpoints, and what one rank of several keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import ConfigError, UsageError
from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.matrices import layer_matrices
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import ModelSpec, from_hf_config
from turbo_lab.models.weights import WeightBytes, weight_bytes

HIDDEN, LAYERS, WIDTH, VOCAB = 256, 4, 512, 1000


def llama(**changes: Any) -> ModelSpec:
    return from_hf_config(
        {
            "model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
            "intermediate_size": WIDTH, "num_attention_heads": 8, "num_key_value_heads": 2,
            "head_dim": 64, "vocab_size": VOCAB, "max_position_embeddings": 512,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", **changes,
        }
    )  # fmt: skip


def compressed(weights: dict[str, Any], **more: Any) -> ModelSpec:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return llama(
        quantization_config={
            "quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"],
            **more,
        }
    )  # fmt: skip


def known(spec: ModelSpec, **options: Any) -> WeightBytes:
    found = weight_bytes(spec, **options)
    assert found is not None
    return found


def linear_elements(spec: ModelSpec) -> int:
    return sum(m.elements for layer in spec.layers for m in layer_matrices(spec, layer))


NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
MXFP4 = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
MXFP8 = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}


@pytest.mark.parametrize(
    ("weights", "bits", "values_per_scale_byte"),
    [(NVFP4, 4, 16), (MXFP4, 4, 32), (MXFP8, 8, 32), (INT4, 4, 64)],
    ids=["nvfp4", "mxfp4", "mxfp8", "int4"],
)
def test_small_blocks_carry_small_scales(
    weights: dict[str, Any], bits: int, values_per_scale_byte: int
) -> None:
    spec = compressed(weights)
    found, elements = known(spec), linear_elements(spec)
    assert found.packed == elements * bits // 8
    assert found.scales == elements // values_per_scale_byte
    # Embedding, output matrix and norms stay in 16 bits.
    assert found.plain == 2 * (2 * VOCAB * HIDDEN + (2 * LAYERS + 1) * HIDDEN)


def test_scales_of_eight_bits_per_channel_depend_on_who_packs_them() -> None:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    outputs = sum(m.outputs for la in llama().layers for m in layer_matrices(llama(), la))
    assert known(compressed(weights, format="int-quantized")).scales == 4 * outputs
    assert known(compressed(weights, format="pack-quantized")).scales == 2 * outputs


def test_two_rules_or_a_rule_for_some_layers_are_no_rule() -> None:
    groups = {"a": {"targets": ["Linear"], "weights": INT4},
              "b": {"targets": ["Linear"], "weights": NVFP4}}  # fmt: skip
    assert weight_bytes(compressed(INT4, config_groups=groups)) is None
    some = {"a": {"targets": ["re:.*self_attn.*"], "weights": INT4}}
    assert weight_bytes(compressed(INT4, config_groups=some)) is None
    same = {"a": groups["a"], "b": groups["a"]}
    assert known(compressed(INT4, config_groups=same)) == known(compressed(INT4))


def test_a_group_without_a_size_is_named() -> None:
    broken = {name: value for name, value in NVFP4.items() if name != "group_size"}
    with pytest.raises(ConfigError, match="group_size is missing"):
        weight_bytes(compressed(broken))


@pytest.mark.parametrize("entry", all_models(), ids=lambda entry: entry.id)
def test_one_rank_alone_has_everything(entry: Any) -> None:
    found = weight_bytes(entry.spec())
    if found is not None:
        assert abs(found.per_rank - found.total) <= 1


@given(ranks=st.sampled_from([1, 2, 4, 8]))
def test_norms_stay_whole_and_keys_are_copied(ranks: int) -> None:
    spec = llama()
    found = known(spec, tensor_parallel=ranks)
    norms = (2 * LAYERS + 1) * HIDDEN
    keys_and_values = LAYERS * 2 * HIDDEN * 2 * 64
    copies = max(1, ranks / 2)  # two KV heads
    one_rank = known(spec).plain // 2 - norms - keys_and_values
    expected = 2 * (one_rank / ranks + keys_and_values * copies / ranks + norms)
    assert found.per_rank == pytest.approx(expected + found.rotary, abs=1)


def test_ranks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match="one of the two must divide"):
        weight_bytes(llama(), tensor_parallel=3)


def test_latents_and_routers_are_on_every_rank() -> None:
    """DeepSeek-V3 on 8 ranks: nearly 1 GiB a rank that dividing by 8 does not see."""
    spec = load_model("deepseek-v3").spec()
    found = known(spec, tensor_parallel=8)
    way_down = 61 * 7168 * (1536 + 512 + 64) * (1 + 4 / 128**2)
    routers = 58 * 7168 * 256 * 2
    norms = count_parameters(spec).norms * 2
    extra = found.per_rank - found.rotary - (found.total - found.rotary) / 8
    assert extra == pytest.approx(7 / 8 * (way_down + routers + norms), rel=1e-3)


@pytest.mark.parametrize("tied", [True, False])
def test_the_fullest_stage_counts(tied: bool) -> None:
    spec = llama(tie_word_embeddings=tied)
    norms = (2 * LAYERS + 1) * HIDDEN
    ends = VOCAB * HIDDEN + linear_elements(spec) / 2 + norms / 2
    found = known(spec, pipeline_parallel=2)
    assert found.per_rank == pytest.approx(2 * ends + found.rotary, abs=1)
    assert known(spec).plain == 2 * (VOCAB * HIDDEN * (2 - tied) + linear_elements(spec) + norms)


def test_plain_weights_are_kept_in_what_the_engine_computes_in() -> None:
    half, whole = known(llama(torch_dtype="float32")), known(llama(), dtype="float32")
    assert (half.format, whole.format) == ("bf16", "fp32")
    assert whole.plain == 2 * half.plain and whole.per_rank == 2 * half.per_rank


def test_a_gate_beside_the_queries_and_narrow_experts_are_matrices_too() -> None:
    gated = load_model("qwen3.5-27b").spec()
    full = next(layer for layer in gated.layers if layer.attention)
    assert full.attention is not None
    queries = next(m for m in layer_matrices(gated, full) if m.name == "self_attn.q_proj")
    assert queries.outputs == 2 * full.attention.query_heads * full.attention.head_dim_k
    nano = load_model("nemotron-3-nano-30b")
    narrow = from_hf_config({**nano.config, "moe_latent_size": 1024})
    assert linear_elements(narrow) < count_parameters(narrow).text < count_parameters(
        nano.spec()
    ).text  # fmt: skip
