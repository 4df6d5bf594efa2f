"""``turbo-lab estimate``: the JSON contract, the table, errors, and what it must not import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from turbo_lab.cli.main import main
from turbo_lab.core.units import GiB
from turbo_lab.models.catalog import load_model

ALWAYS = ("parameters", "weights_bytes", "kv_bytes_per_token", "kv_bytes_per_token_growing",
          "kv_bytes_per_token_per_rank", "indexer_bytes_per_token",
          "state_bytes_per_request")  # fmt: skip
SIZED = ("kv_cache_blocks", "kv_cache_tokens", "max_concurrency", "required_gib")


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["estimate", *arguments])
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def test_json_holds_the_fixed_names(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(capsys, "deepseek-v3.2", "--json")
    found = json.loads(out)
    assert code == 0
    assert set(ALWAYS) <= set(found)
    assert not set(SIZED) & set(found)
    assert found["kv_bytes_per_token"] == 70_272
    assert found["indexer_bytes_per_token"] == 8_052


def test_a_file_a_folder_and_an_id_give_the_same(capsys: pytest.CaptureFixture, tmp_path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(load_model("qwen3-8b").config))
    answers = [
        json.loads(run(capsys, model, "--json")[1])
        for model in (str(file), str(tmp_path), "qwen3-8b", "Qwen/Qwen3-8B")
    ]
    for answer in answers:
        answer.pop("model")
    assert all(answer == answers[0] for answer in answers)


def test_a_sized_pool(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(
        capsys, "qwen3-32b", "--kv-cache-gib", "10", "--max-len", "32768", "--tp", "4", "--pp",
        "2", "--kv-dtype", "fp8", "--block-size", "32", "--max-batched-tokens", "8192", "--json",
    )  # fmt: skip
    found = json.loads(out)
    per_rank = 32 * 2 * 2 * 128
    assert code == 0
    assert found["kv_bytes_per_token_per_rank"] == per_rank
    assert found["kv_cache_blocks"] == 10 * GiB // (32 * per_rank)
    assert found["required_gib"] == 32_768 * per_rank / GiB
    assert found["kv_cache_tokens"] == int(found["max_concurrency"] * 32_768)
    assert "0.32" in found["law"]


def test_the_law_changes_the_token_line(capsys: pytest.CaptureFixture) -> None:
    arguments = ("gpt-oss-120b", "--kv-cache-gib", "5.38", "--max-len", "131072", "--json")
    old = json.loads(run(capsys, *arguments, "--law", "0.19")[1])
    new = json.loads(run(capsys, *arguments)[1])
    assert old["kv_cache_blocks"] == new["kv_cache_blocks"]
    assert old["kv_cache_tokens"] < new["kv_cache_tokens"]


def test_the_table_explains_each_line(capsys: pytest.CaptureFixture) -> None:
    code, out, _ = run(
        capsys, "gpt-oss-20b", "--max-len", "8192", "--kv-cache-gib", "8", "--explain"
    )
    assert code == 0
    assert "49,152 B" in out
    assert "layers that keep growing" in out
    assert "bf16 is assumed" in out
    assert "int(max concurrency * longest length)" in out


def test_a_device_gives_a_band(capsys: pytest.CaptureFixture) -> None:
    found = json.loads(run(capsys, "qwen3-8b", "--memory-gib", "80", "--json")[1])
    assert 0 < found["kv_cache_bytes_low"] < found["kv_cache_bytes_high"] < 80 * GiB
    assert "llm-d-planner" in found["explain"]["kv_cache_bytes_low"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "MODEL is missing"),
        (("no-such-model",), "no-such-model"),
        (("qwen3-8b", "--tp", "5"), "tensor_parallel"),
        (("qwen3-8b", "--kv-cache-gib", "4"), "--max-len"),
        (("qwen3-8b", "--kv-cache-gib", "-4", "--max-len", "5"), "--kv-cache-gib"),
        (("qwen3-8b", "--kv-dtype", "fp7"), "fp7"),
        (("qwen3-8b", "--max-len", "9", "--law", "banana"), "banana"),
    ],
)
def test_wrong_use_is_exit_code_two(
    capsys: pytest.CaptureFixture, arguments: tuple[str, ...], named: str
) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert named in err


def test_broken_files_are_named(capsys: pytest.CaptureFixture, tmp_path) -> None:
    file = tmp_path / "config.json"
    for text, named in (("{", "is not JSON"), ("[]", "an object is needed"), ("{}", "empty")):
        file.write_text(text)
        code, _, err = run(capsys, str(file))
        assert (code, named in err) == (2, True)


def test_unknown_weight_formats_are_null_not_a_guess(
    capsys: pytest.CaptureFixture, tmp_path
) -> None:
    file = tmp_path / "config.json"
    config = {**load_model("qwen3-8b").config, "quantization_config": {"quant_method": "magic"}}
    file.write_text(json.dumps(config))
    found = json.loads(run(capsys, str(file), "--json")[1])
    assert found["weights_bytes"] is None
    assert found["kv_bytes_per_token"] == 147_456


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; sys.argv=['x']\n"
        "from turbo_lab.cli.main import main\n"
        "try: main(['estimate','qwen3.5-27b','--max-len','4096','--kv-cache-gib','4'])\n"
        "except SystemExit: pass\n"
        "heavy={'torch','transformers','vllm','pandas','matplotlib','numpy','scipy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
