"""The choice of dtype and threads follows the measured seconds, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import MissingDependencyError, UsageError
from turbo_lab.core.units import GiB
from turbo_lab.engines import defaults, tuning


def seconds(**factor: float) -> dict[str, float]:
    """A machine on which every setting takes 1 ms times its factor (``bfloat16_2=0.5``)."""
    return {
        f"{dtype}/{threads}/{rows}": 1e-3 * factor.get(f"{dtype}_{threads}", 1.0)
        for dtype in tuning.DTYPES
        for threads in (1, 2)
        for rows in tuning.ROWS
    }


@pytest.mark.parametrize(
    ("factors", "chosen"),
    [
        ({"bfloat16_2": 0.5}, ("bfloat16", 2)),
        ({"bfloat16_1": 50, "bfloat16_2": 40, "float32_2": 0.6}, ("float32", 2)),
        ({"float32_1": 0.9}, ("float32", 1)),  # more threads are not always faster
    ],
)
def test_fastest_setting_wins(factors: dict[str, float], chosen: tuple[str, int]) -> None:
    assert tuning.choose(seconds(**factors)) == chosen


def test_one_batch_size_does_not_rule() -> None:
    table = seconds(bfloat16_2=0.5)
    table["bfloat16/2/256"] = 1.5e-3  # loses at prefill, wins twice at decode by two
    assert tuning.choose(table) == ("bfloat16", 2)


def test_choice_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning.host, "package_version", lambda *_: "9.9")
    calls: list[int] = []
    monkeypatch.setattr(
        tuning, "_measure_in_subprocess", lambda: calls.append(1) or seconds(float32_2=0.25)
    )
    said: list[str] = []
    first = tuning.cpu_settings(report=said.append)
    again = tuning.cpu_settings(report=said.append)
    assert first == again and calls == [1] and len(said) == 1
    assert "float32 on 2 core(s)" in first.describe() and "4.0x as long" in first.describe()


@pytest.mark.parametrize("damage", ["", "{}", "not json", json.dumps({"float32/2/1": 1.0})])
def test_damaged_cache_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("TURBO_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning.host, "package_version", lambda *_: "9.9")
    monkeypatch.setattr(tuning, "_measure_in_subprocess", lambda: seconds(float32_1=0.5))
    tuning.cpu_settings(report=lambda _: None)
    [kept] = (tmp_path / "machine").glob("*.json")
    kept.write_text(damage)
    assert tuning.cpu_settings(report=lambda _: None).threads == 1
    assert json.loads(kept.read_text())


def test_without_torch_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning.host, "package_version", lambda *_: None)
    with pytest.raises(MissingDependencyError, match=r"scripts/install.py cpu"):
        tuning.cpu_settings()


@pytest.mark.parametrize(
    ("gib", "name"), [(80, "Qwen3-8B"), (24, "Qwen3-1.7B"), (16, "Qwen3-1.7B"), (8, "Qwen3-0.6B")]
)
def test_gpu_model_follows_the_cards_memory(gib: int, name: str) -> None:
    assert defaults.gpu_model(gib * GiB).endswith(name)


def test_replay_starts_no_engine() -> None:
    with pytest.raises(UsageError, match="replay mode starts no engine"):
        defaults.default_args(Dials("replay", "quick", "asked for"))


def test_explicit_dtype_and_cores_skip_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults.local_model, "resolve_model", lambda *_, **__: "/m")
    monkeypatch.setattr(defaults, "cpu_settings", lambda **_: pytest.fail("measured"))
    args = defaults.default_args(
        Dials("cpu", "quick", "asked for"), dtype="float32", cores=(0,), max_num_seqs=3
    )
    assert (args.model, args.dtype, args.cores, args.max_num_seqs) == ("/m", "float32", (0,), 3)
