"""Parameter counts against transformers' own classes, built on the meta device."""

from __future__ import annotations

import pytest

from turbo_lab.models.catalog import all_models, load_model
from turbo_lab.models.fields import Fields
from turbo_lab.models.matrices import layer_matrices
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import from_hf_config

# Library defaults, cut where a default is incomplete; (model_type, changed fields).
FAMILIES: dict[str, dict] = {
    "apertus": {}, "arcee": {}, "bamba": {"attn_layer_indices": [9, 18]}, "cohere": {},
    "cohere2": {}, "deepseek_v2": {"num_experts_per_tok": 6}, "deepseek_v3": {},
    "deepseek_v32": {}, "ernie4_5": {}, "ernie4_5_moe": {}, "exaone4": {}, "exaone_moe": {},
    "falcon": {}, "falcon_h1": {}, "falcon_mamba": {}, "gemma": {}, "gemma2": {},
    "gemma3_text": {}, "gemma3n_text": {}, "gemma4_text": {}, "glm": {}, "glm4": {},
    "glm4_moe": {"head_dim": 128, "use_qk_norm": True}, "glm4_moe_lite": {}, "glm_moe_dsa": {},
    "gpt2": {}, "gpt_bigcode": {}, "gpt_neox": {}, "gpt_oss": {}, "gptj": {}, "granite": {},
    "granitemoe": {}, "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16},
    "granitemoeshared": {"shared_intermediate_size": 1024}, "helium": {},
    "hunyuan_v1_dense": {"head_dim": 128}, "jamba": {}, "kimi_linear": {},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 16}, "llama": {"attention_bias": True},
    "llama4_text": {}, "mamba": {}, "mamba2": {}, "minimax": {}, "minimax_m2": {},
    "ministral3": {}, "mistral": {}, "mixtral": {}, "mpt": {}, "nemotron":
    {"num_key_value_heads": 8, "head_dim": 128}, "nemotron_h": {}, "olmo": {}, "olmo2": {},
    "olmo3": {}, "olmoe": {}, "opt": {}, "persimmon": {}, "phi": {}, "phi3": {}, "phimoe": {},
    "qwen2": {}, "qwen2_moe": {}, "qwen3": {}, "qwen3_5_moe_text": {}, "qwen3_5_text": {},
    "qwen3_moe": {}, "qwen3_next": {}, "seed_oss": {}, "smollm3": {}, "stablelm": {},
    "starcoder2": {}, "vaultgemma": {},
}  # fmt: skip
VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma3",
          "mistral3", "llama4")  # fmt: skip


def library_count(config: object, auto: str) -> int:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        model = getattr(transformers, auto).from_config(config)
    model.tie_weights()
    return sum(weight.numel() for weight in model.parameters())


def library_config(model_type: str, changes: dict):
    pytest.importorskip("torch")
    return pytest.importorskip("transformers").CONFIG_MAPPING[model_type](**changes)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_counts_like_the_library(model_type: str) -> None:
    config = library_config(model_type, FAMILIES[model_type])
    ours = count_parameters(from_hf_config(config.to_dict()))
    assert ours.total == library_count(config, "AutoModelForCausalLM")


@pytest.mark.parametrize("model_type", VISION)
def test_vision_towers_count_like_the_library(model_type: str) -> None:
    config = library_config(model_type, {})
    ours = count_parameters(from_hf_config(config.to_dict()))
    assert ours.vision
    assert ours.total == library_count(config, "AutoModelForImageTextToText")


@pytest.mark.parametrize(
    ("model", "billions", "active"),
    [("llama-3.1-8b", 8.030, 8.030), ("mixtral-8x7b", 46.70, 12.88), ("deepseek-v3", 671.0, 37.6),
     ("qwen3-30b-a3b", 30.53, 3.35), ("gpt-oss-120b", 116.8, 5.7), ("qwen2.5-72b", 72.7, 72.7),
     ("nemotron-super-49b", 49.87, 49.87)],
)  # fmt: skip
def test_counts_agree_with_the_names_on_the_label(
    model: str, billions: float, active: float
) -> None:
    count = count_parameters(load_model(model).spec())
    assert count.total / 1e9 == pytest.approx(billions, rel=0.001)
    assert count.active / 1e9 == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("entry", all_models(), ids=lambda entry: entry.id)
def test_parts_add_up_and_no_matrix_is_counted_twice(entry) -> None:
    spec = entry.spec()
    count = count_parameters(spec)
    assert count.text == sum(
        (count.embedding, count.head, count.mixers, count.dense, count.experts, count.norms,
         count.extras)
    )  # fmt: skip
    linear = sum(m.elements for layer in spec.layers for m in layer_matrices(spec, layer))
    # Shared K=V projections and multi-query flags may store less than the list of matrices.
    k_eq_v = Fields(spec.config).flag("attention_k_eq_v")
    assert k_eq_v or linear <= count.mixers + count.dense + count.experts
    assert count.active <= count.text
