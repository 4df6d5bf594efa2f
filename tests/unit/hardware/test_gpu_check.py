"""The GPU check's script, run on the CPU with tiny sizes."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from turbo_lab.core.host import repository_root

torch = pytest.importorskip("torch", reason="needs torch")


@pytest.fixture(scope="module")
def script():
    path = repository_root() / "benchmarks" / "gpu_check.py"
    spec = importlib.util.spec_from_file_location("gpu_check", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other take seconds on a busy machine
    yield module
    torch.set_num_threads(threads)
    del sys.modules["gpu_check"]


def test_the_seven_b_shape_has_seven_billion_parameters(script) -> None:
    shape = script.SEVEN_B
    norms = (2 * shape.layers + 1) * shape.hidden
    whole = shape.layers * shape.layer_weights + 2 * shape.vocab * shape.hidden + norms
    assert whole == 6_738_415_616  # Llama-2-7B


def test_counts_agree_with_the_package(script) -> None:
    from turbo_lab.estimate.work import step_work
    from turbo_lab.models.spec import from_hf_config

    spec = from_hf_config(
        {
            "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
            "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32,
            "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }
    )  # fmt: skip
    for batch, new, past in ((1, 1, 511), (16, 1, 2047), (1, 512, 0)):
        flops, moved = script.SEVEN_B.counts(batch=batch, new=new, past=past, element=2)
        work = step_work(spec, [(new, past)] * batch, weight_bytes=2)
        assert flops == pytest.approx(work.flops, rel=1e-3)
        assert moved == pytest.approx(work.bytes_moved, rel=1e-3)


def test_a_step_on_the_cache_equals_the_whole_prompt(script) -> None:
    model = script.Decoder(script.TINY, device="cpu", dtype=torch.float32)
    ids = torch.randint(0, script.TINY.vocab, (2, 9), generator=torch.Generator().manual_seed(1))
    whole = model.forward(ids, model.new_cache(2, 9), past=0)
    cache = model.new_cache(2, 9)
    model.forward(ids[:, :8], cache, past=0)
    step = model.forward(ids[:, 8:], cache, past=8)
    torch.testing.assert_close(step, whole, rtol=1e-4, atol=1e-4)


def test_a_tiny_run_writes_a_whole_record(script, tmp_path, capsys) -> None:
    path = tmp_path / "record.json"
    assert script.main(["--device", "cpu", "--tiny", "--out", str(path)]) == 0
    record = json.loads(path.read_text())
    assert record["schema"] == "gpu_check/1" and record["tiny"] is True
    assert record["matmul"]["fp8"] == {
        "flops": None, "reason": "fp8 products are measured on a GPU only"
    }  # fmt: skip
    phases = {s["phase"] for s in record["steps"]}
    assert phases == {"prefill", "decode"}
    for step in record["steps"]:
        assert step["lower_s"] <= step["upper_s"] <= 2 * step["lower_s"] * 1.001
        assert len(step["samples_s"]) >= 3 and step["ratio"] > 0
    assert "ratio" in capsys.readouterr().out


def test_a_time_below_the_bound_fails_the_check(script) -> None:
    step = {"phase": "decode", "batch": 1, "tokens": 8, "graph": False, "lower_s": 1e-3,
            "samples_s": [2e-6]}  # fmt: skip
    assert "decode " in script.above_roof({"steps": [step]})[0]


def test_a_spent_budget_is_said(script) -> None:
    record = script.run(device="cpu", tiny=True, minutes=0)
    assert {s["reason"] for s in record["steps"]} == {"out of time"}
    script.show(record)


def test_a_missing_device_is_wrong_use(script, capsys) -> None:
    assert script.main(["--device", "cpu"]) == 2
    if not torch.cuda.is_available():
        assert script.main(["--device", "cuda"]) == 2
    assert "--tiny" in capsys.readouterr().err
