"""What the code of each model family fixes and its config.json therefore does not say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from turbo_lab.core.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Family:
    """Facts of one ``model_type``. A string in a bias field is the config field that decides.

    ``windows``: where a ``sliding_window`` applies when no list of layer types is given:
    ``all`` layers, ``late`` (only with ``use_sliding_window``, from ``max_window_layers`` on) or
    ``every:N`` (all but each N-th layer). ``mla``: the cache holds latents.
    ``qk_norm``: one norm per ``head`` dimension, over the ``full`` projection, or none.
    """

    windows: str = "all"
    mla: bool = False
    tied: bool = False
    norm: str = "rms"
    norms_per_layer: int = 2
    matrices: int = 3
    qkv_bias: bool | str = False
    o_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: str = ""
    query_gate: bool = False
    sinks: bool = False
    positions: int | None = None  # learned positions beyond the context length; None: rotary
    head_bias: bool | str = False
    shared_gate: bool = False
    expert_bias: bool = False
    correction_bias: bool = False  # a routing bias that is a weight of the checkpoint
    window_extra_tokens: int = 0


_LLAMA = Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
_MISTRAL = Family()
_QWEN2 = Family(windows="late", qkv_bias=True)
_QWEN3 = replace(_LLAMA, windows="late", qk_norm="head", mlp_bias=False)
_DELTA = replace(_QWEN3, query_gate=True, shared_gate=True)
_GEMMA = Family(tied=True, qkv_bias="attention_bias", o_bias="attention_bias")
_GEMMA3 = replace(_GEMMA, windows="every:6", norms_per_layer=4, qk_norm="head")
_GPT = Family(norm="layer", matrices=2, qkv_bias=True, o_bias=True, mlp_bias=True)
_DEEPSEEK = Family(mla=True, qkv_bias="attention_bias", o_bias="attention_bias")
_HYBRID = Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
_GLM = Family(qkv_bias="attention_bias")
_HUNYUAN = replace(_LLAMA, qk_norm="head", mlp_bias=False)

_FAMILIES: MappingProxyType[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "mistral": _MISTRAL,
        "ministral": _MISTRAL,
        "ministral3": _MISTRAL,
        "mixtral": _MISTRAL,
        "qwen2": _QWEN2,
        "qwen2_moe": replace(_QWEN2, shared_gate=True),
        "qwen2_vl_text": _QWEN2,
        "qwen2_5_vl_text": _QWEN2,
        "mimo": _QWEN2,
        "qwen3": _QWEN3,
        "qwen3_moe": _QWEN3,
        "qwen3_vl_text": _QWEN3,
        "qwen3_vl_moe_text": _QWEN3,
        "qwen3_next": _DELTA,
        "qwen3_5_text": _DELTA,
        "qwen3_5_moe_text": _DELTA,
        "gemma": _GEMMA,
        "gemma2": replace(_GEMMA, windows="every:2", norms_per_layer=4),
        "gemma3_text": _GEMMA3,
        "gemma3n_text": replace(_GEMMA3, windows="every:5"),
        "gemma4_text": _GEMMA3,
        "vaultgemma": replace(_GEMMA, windows="every:2"),
        "phi": replace(_GPT, norms_per_layer=1, head_bias=True),
        "phi3": Family(),
        "phimoe": Family(
            norm="layer",
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            head_bias="lm_head_bias",
        ),
        "gpt2": replace(_GPT, tied=True, positions=0),
        "gpt_bigcode": replace(_GPT, tied=True, positions=0),
        "gpt_neox": replace(_GPT, qkv_bias="attention_bias", o_bias="attention_bias"),
        "gptj": replace(_GPT, norms_per_layer=1, qkv_bias=False, o_bias=False, head_bias=True),
        "opt": replace(
            _GPT,
            tied=True,
            positions=2,
            qkv_bias="enable_bias",
            o_bias="enable_bias",
            mlp_bias="enable_bias",
        ),
        "bloom": replace(_GPT, tied=True),
        "falcon": Family(
            norm="layer", matrices=2, tied=True, qkv_bias="bias", o_bias="bias", mlp_bias="bias"
        ),
        "mpt": Family(norm="layer_no_bias", matrices=2, tied=True),
        "persimmon": replace(_GPT, qk_norm="head_bias"),
        "stablelm": Family(norm="layer", qkv_bias="use_qkv_bias"),
        "starcoder2": replace(
            _GPT, tied=True, qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"
        ),
        "cohere": replace(_GEMMA, norm="layer_no_bias", norms_per_layer=1),
        "cohere2": replace(
            _GEMMA,
            norm="layer_no_bias",
            norms_per_layer=1,
            windows="every:4",
            window_extra_tokens=1,
        ),
        "olmo": replace(_LLAMA, norm="none", mlp_bias=False),
        "olmo2": replace(_LLAMA, qk_norm="full", mlp_bias=False),
        "olmo3": replace(_LLAMA, qk_norm="full", mlp_bias=False, windows="every:4"),
        "olmoe": replace(_LLAMA, qk_norm="full", mlp_bias=False),
        "granite": _LLAMA,
        "granitemoe": replace(_LLAMA, mlp_bias=False),
        "granitemoeshared": replace(_LLAMA, mlp_bias=False),
        "granitemoehybrid": replace(_LLAMA, mlp_bias=False),
        "glm": _GLM,
        "glm4": replace(_GLM, norms_per_layer=4),
        "glm4_moe": replace(_GLM, qk_norm="use_qk_norm"),
        "glm4v_text": replace(_GLM, norms_per_layer=4, qkv_bias=True),
        "glm4v_moe_text": _GLM,
        "glm4_moe_lite": _DEEPSEEK,
        "glm_moe_dsa": _DEEPSEEK,
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "deepseek_v32": _DEEPSEEK,
        "kimi_k2": _DEEPSEEK,
        "kimi_linear": _DEEPSEEK,
        "gpt_oss": replace(_LLAMA, windows="every:2", sinks=True, mlp_bias=False, expert_bias=True),
        "llama4_text": replace(_LLAMA, mlp_bias=False),
        "minimax_m2": Family(qk_norm="full"),
        "minimax": Family(),
        "minimax_text_01": Family(),
        "mimo_v2_flash": replace(_LLAMA, mlp_bias=False, o_bias=False, sinks=True),
        "nemotron": Family(
            norm="layer",
            matrices=2,
            qkv_bias="attention_bias",
            o_bias="attention_bias",
            mlp_bias="mlp_bias",
        ),
        "nemotron_h": replace(_HYBRID, matrices=2, norms_per_layer=1),
        "nemotron-nas": _LLAMA,
        "deci": _LLAMA,
        "jamba": Family(),
        "bamba": _HYBRID,
        "falcon_h1": _HYBRID,
        "mamba": Family(norms_per_layer=1, tied=True),
        "mamba2": Family(norms_per_layer=1),
        "falcon_mamba": Family(norms_per_layer=1, tied=True),
        "lfm2": Family(tied=True, qk_norm="head"),
        "lfm2_moe": Family(tied=True, qk_norm="head"),
        "smollm3": replace(_LLAMA, tied=True, windows="late"),
        "exaone4": Family(qk_norm="head", windows="every:4"),
        "exaone_moe": Family(qk_norm="head", windows="every:4"),
        "seed_oss": replace(_LLAMA, o_bias="attention_out_bias"),
        "ernie4_5": Family(tied=True, qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias"),
        "ernie4_5_moe": Family(
            tied=True,
            qkv_bias="use_bias",
            o_bias="use_bias",
            mlp_bias="use_bias",
            correction_bias=True,
        ),
        "hunyuan_v1_dense": _HUNYUAN,
        "hunyuan_v1_moe": _HUNYUAN,
        "arcee": replace(_LLAMA, matrices=2),
        "apertus": replace(_LLAMA, matrices=2, qk_norm="head", mlp_bias=False),
        "helium": replace(_LLAMA, o_bias=False),
        "dots1": replace(_LLAMA, qk_norm="head", mlp_bias=False),
        "solar_open": replace(_LLAMA, mlp_bias=False),
        "internlm2": Family(qkv_bias="bias", o_bias="bias"),
        "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
        "baichuan": Family(),
        "chatglm": Family(qkv_bias="add_qkv_bias", o_bias="add_bias_linear"),
        "qwen": Family(qkv_bias=True),
        "exaone": Family(),
        "phi4": Family(),
    }
)

# A multimodal root whose language part is one of the above, where model_type differs.
_TEXT_OF_ROOT = MappingProxyType(
    {
        "qwen2_vl": "qwen2_vl_text",
        "qwen2_5_vl": "qwen2_5_vl_text",
        "qwen3_vl": "qwen3_vl_text",
        "qwen3_vl_moe": "qwen3_vl_moe_text",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "gemma3": "gemma3_text",
        "gemma3n": "gemma3n_text",
        "gemma4": "gemma4_text",
        "llama4": "llama4_text",
        "mistral3": "mistral",
        "kimi_vl": "deepseek_v3",
        "kimi_k25": "kimi_k2",
        "mllama_text_model": "llama",
        "Qwen2ForCausalLM": "qwen2",
        "granitemoe_hybrid": "granitemoehybrid",
    }
)


def known_model_types() -> list[str]:
    """Every ``model_type`` whose layers can be read."""
    return sorted({*_FAMILIES, *_TEXT_OF_ROOT})


def canonical_type(model_type: str) -> str:
    """The language part's own name: ``gemma3`` (a multimodal root) becomes ``gemma3_text``."""
    return _TEXT_OF_ROOT.get(model_type, model_type)


def family_of(model_type: str) -> Family:
    """The family's facts. Raises ConfigError for a ``model_type`` that is not known."""
    family = _FAMILIES.get(canonical_type(model_type))
    if family is None:
        raise ConfigError(
            f"model_type is {model_type!r}, whose attention layers are not known here."
            f"{did_you_mean(model_type, known_model_types())}"
        )
    return family
