"""Published roofline and step-time figures, each from the inputs its source gives."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.host import repository_root
from turbo_lab.estimate import operations as ops
from turbo_lab.estimate.step import (
    batch_crossover,
    general_step_s,
    generation_rate_per_chip,
    prefill_s,
)
from turbo_lab.estimate.transfer import attention_intensity, min_reuse_bandwidth_bytes_s
from turbo_lab.hardware.accelerators import accelerator
from turbo_lab.hardware.roofline import Roof, RooflinePoint, require_below_roof
from turbo_lab.models.parameters import count_parameters
from turbo_lab.models.spec import from_hf_config

FACTS = json.loads((repository_root() / "data" / "reference" / "roofline.json").read_text())
SHARED = repository_root().parent / "shared" / "reference" / "roofline.json"
LAYERS, STEPS, WORKED = FACTS["layer_table"], FACTS["step_table"], FACTS["worked"]["rows"]


def layer(phase: str, name: str) -> ops.Operation:
    """The operation of one row of the layer table, from the model's sizes alone."""
    m = LAYERS["model"]
    tokens = m["sequence"] if phase == "prefill" else 1
    if name.endswith("_proj"):
        outputs = m["intermediate"] if name == "gate_proj" else m["hidden"]
        return ops.linear(name, inputs=m["hidden"], outputs=outputs, tokens=tokens)
    shape = ops.AttentionShape(
        query_heads=m["heads"], kv_heads=m["heads"], head_dim=m["head_dim"],
        new_tokens=tokens, context_tokens=m["sequence"], batch=m["batch"],
    )  # fmt: skip
    return {"qk": ops.scores, "sv": ops.values, "softmax": ops.softmax}[name](shape)


@pytest.mark.parametrize("row", LAYERS["rows"], ids=lambda r: f"{r['phase']}-{r['layer']}")
def test_layer_table(row: dict) -> None:
    found = layer(row["phase"], row["layer"])
    roof = Roof(LAYERS["chip"]["peak_flops"], LAYERS["chip"]["bandwidth_bytes_s"])
    assert (found.flops, found.bytes_moved) == (row["flops"], row["bytes"])
    assert found.intensity == pytest.approx(row["intensity"], abs=0.01)
    assert roof.attainable_flops(found.intensity) == pytest.approx(row["attainable_flops"])


@pytest.mark.parametrize("row", STEPS["rows"], ids=lambda r: f"kv/{r['kv_divisor']}-B{r['batch']}")
def test_step_table(row: dict) -> None:
    given = STEPS["inputs"]
    step_s = general_step_s(
        parameters=given["parameters"],
        parameter_bytes=given["parameter_bytes"],
        kv_bytes_per_sequence=given["kv_bytes_per_sequence"] / row["kv_divisor"],
        batch=row["batch"],
        roof=Roof(given["peak_flops"], given["bandwidth_bytes_s"]),
        chips=given["chips"],
    )
    assert round(step_s * 1e3, 2) == row["step_ms"]
    assert round(row["batch"] / step_s, 2) == pytest.approx(row["tok_s"], abs=0.011)


def roof_of(inputs: dict) -> Roof:
    return Roof(inputs["peak_flops"], inputs["bandwidth_bytes_s"])


def test_batch_crossover_of_the_book() -> None:
    row = WORKED[0]
    roof = roof_of(row["inputs"])
    for size, published in ((2, row["bf16_weights"]), (1, row["int8_weights"])):
        found = batch_crossover(roof, bytes_per_parameter=size)
        assert found == pytest.approx(published, rel=row["tolerance"])


def step_of(inputs: dict, batch: float) -> float:
    names = ("parameters", "parameter_bytes", "kv_bytes_per_sequence", "chips")
    return general_step_s(batch=batch, roof=roof_of(inputs), **{n: inputs[n] for n in names})


def test_small_batch_is_memory_bound_and_large_batch_is_not() -> None:
    row = WORKED[1]
    for batch, published in row["step_ms"].items():
        found_ms = step_of(row["inputs"], int(batch)) * 1e3
        assert found_ms == pytest.approx(published, rel=row["tolerance"])


def test_seventy_billion_parameters_in_int8() -> None:
    row = WORKED[2]
    step_s = step_of(row["inputs"], row["inputs"]["batch"])
    assert step_s * 1e3 == pytest.approx(row["step_ms"], rel=row["tolerance"])
    rate = row["inputs"]["batch"] / step_s / row["inputs"]["chips"]
    assert rate == pytest.approx(row["tok_s_per_chip"], rel=row["tolerance"])


def test_prefill_at_forty_percent() -> None:
    row = WORKED[3]
    assert prefill_s(**row["inputs"]) == pytest.approx(row["seconds"], rel=row["tolerance"])


def test_requests_per_chip() -> None:
    row = WORKED[4]
    for case in row["cases"]:
        rate = generation_rate_per_chip(batch=case["batch"], chips=case["chips"], **row["inputs"])
        assert rate == pytest.approx(case["rate"], rel=row["tolerance"])


def test_parameters_of_the_exercise_model() -> None:
    row, g = WORKED[5], WORKED[5]["inputs"]
    spec = from_hf_config({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": g["layers"], "hidden_size": g["hidden"],
        "intermediate_size": g["intermediate"], "num_attention_heads": g["query_heads"],
        "num_key_value_heads": g["kv_heads"], "head_dim": g["head_dim"],
        "vocab_size": g["vocab"], "tie_word_embeddings": True, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    })  # fmt: skip
    count = count_parameters(spec)
    assert count.text - count.norms == row["exact"]
    assert count.text == pytest.approx(row["parameters"], rel=0.001)


def test_operations_per_byte_of_an_a10() -> None:
    facts = FACTS["ops_per_byte"]
    roof = roof_of(facts["chip"])
    assert round(roof.ridge, 1) == facts["ridge"]
    assert accelerator("a10").roof("fp16").ridge == pytest.approx(roof.ridge)
    found = attention_intensity(
        tokens=facts["attention"]["tokens"], head_dim=facts["attention"]["head_dim"]
    )
    assert int(found) == facts["attention"]["intensity"]
    step_s = general_step_s(
        parameters=7e9, parameter_bytes=2, kv_bytes_per_sequence=0, batch=1, roof=roof
    )
    assert round(step_s * 1e3, 1) == facts["decode_7b_ms"]


@pytest.mark.parametrize("row", FACTS["reuse_bandwidth"]["rows"], ids=lambda r: r["hardware"])
def test_least_bandwidth_for_reusing_a_prefix(row: dict) -> None:
    found = min_reuse_bandwidth_bytes_s(
        peak_flops=row["peak_flops"], **FACTS["reuse_bandwidth"]["inputs"]
    )
    assert round(found / 1e9, 2) == row["exact_gb_s"]
    assert round(found / 1e9) == row["published_gb_s"]


@pytest.mark.parametrize("row", FACTS["measured_elsewhere"]["rows"], ids=lambda r: r["source"][:40])
def test_no_published_measurement_beats_its_chip(row: dict) -> None:
    roof, weights = accelerator(row["chip"]).roof("fp16"), 2 * row["parameters"] / row["chips"]
    share = row["parameters"] / row["chips"]
    points = [
        RooflinePoint("prefill", 2 * share * row["prompt"], weights, row["prefill_ms"] / 1e3),
        RooflinePoint("decode", 2 * share, weights, row["decode_ms"] / 1e3),
    ]
    require_below_roof(points, roof=roof)


def test_the_facts_are_those_of_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference folder is not beside this checkout")
    given = json.loads(SHARED.read_text())
    ours = {(r["kv_divisor"], r["batch"]): r for r in STEPS["rows"]}
    for row in given["scaling_book"]["rows"]:
        mine = ours[(5 if "smaller" in row["case"] else 1, row["batch"])]
        assert (mine["step_ms"], mine["tok_s"]) == (row["published_ms"], row["published_tok_s"])
    for row in given["llm_viewer"]["rows"]:
        phase, name = row["layer"].split()
        mine = layer(phase, {"gate": "gate_proj"}.get(name, name))
        assert (mine.flops, mine.bytes_moved) == (row["ops"], row["bytes"])
