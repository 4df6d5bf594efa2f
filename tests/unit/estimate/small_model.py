"""A small model and its step times, for laws that hold whatever the numbers are."""

from __future__ import annotations

from turbo_lab.estimate.fit import StepModel
from turbo_lab.hardware.roofline import Roof
from turbo_lab.models.spec import from_hf_config

SPEC = from_hf_config(
    {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
        "max_position_embeddings": 4096, "tie_word_embeddings": True, "torch_dtype": "float32",
    }
)  # fmt: skip
MODEL = StepModel(SPEC, Roof(400e9, 40e9), 4, "fp32", step_s=0.02, sequence_s=1e-3,
                  inverse_cache_efficiency=2.0, request_s=0.03, inverse_linear_efficiency=900.0,
                  inverse_attention_efficiency=4.0)  # fmt: skip
