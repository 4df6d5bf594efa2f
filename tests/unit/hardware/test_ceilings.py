"""Measured ceilings: reading caches, merging runs, and the probe itself at a tiny size."""

from __future__ import annotations

import json

import pytest

from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.hardware.ceilings import BandwidthPoint, Ceilings, cache_sizes, merge


def ceilings(**changes) -> Ceilings:
    values = {
        "device": "test", "threads": 2, "cores": 2, "cache_bytes": {"L2": 2**20},
        "matmul_flops": {"fp32": 50e9, "fp8": None}, "reasons": {"fp8": "no fp8 product here"},
        "bandwidth": (BandwidthPoint(2**20, 90e9, 80e9), BandwidthPoint(2**28, 15e9, 12e9)),
        "core_speedup": 1.9, "repeat_spread": 0.05,
    }  # fmt: skip
    return Ceilings(**{**values, **changes})


def test_bandwidth_of_a_set_is_that_of_sets_at_least_as_large() -> None:
    found = ceilings()
    assert found.bandwidth_bytes_s() == 15e9
    assert found.bandwidth_bytes_s(2**27) == 15e9
    assert found.bandwidth_bytes_s(2**19) == 90e9
    assert found.bandwidth_bytes_s(2**40) == 15e9
    assert found.roof("fp32").ridge == pytest.approx(50 / 15)


def test_a_dtype_without_a_product_tells_its_reason() -> None:
    with pytest.raises(UnmeasuredError, match="no fp8 product here"):
        ceilings().peak_flops("fp8")
    with pytest.raises(UsageError, match="fp32"):
        ceilings().peak_flops("fp64")


def test_merging_keeps_the_best_of_each() -> None:
    slow = ceilings(
        matmul_flops={"fp32": 60e9, "fp8": None},
        bandwidth=(BandwidthPoint(2**20, 10e9, 99e9), BandwidthPoint(2**28, 5e9, 4e9)),
    )
    best = merge([ceilings(), slow])
    assert best.peak_flops("fp32") == 60e9
    assert best.bandwidth[0] == BandwidthPoint(2**20, 90e9, 99e9)
    assert best.bandwidth_bytes_s() == 15e9
    with pytest.raises(UsageError):
        merge([])


def test_json_round_trip() -> None:
    assert Ceilings.from_dict(json.loads(ceilings().to_json())) == ceilings()


def test_cache_sizes_are_read_from_the_system(tmp_path) -> None:
    rows = (("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "1M"))
    for i, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        (folder / "level").write_text(level)
        (folder / "type").write_text(kind)
        (folder / "size").write_text(size + "\n")
    assert cache_sizes(tmp_path) == {"L1d": 2**15, "L1i": 2**16, "L2": 2**20}
    assert cache_sizes(tmp_path / "absent") == {}


@pytest.mark.alone
def test_the_probe_measures_something_plausible() -> None:
    pytest.importorskip("torch", reason="needs torch")
    from turbo_lab.hardware.probe import measure_ceilings

    found = measure_ceilings(budget_s=0.01, sets=(2**20, 2**22), sides=(64, 128),
                             dtypes=("fp32", "bf16"))  # fmt: skip
    assert 1e6 < found.peak_flops("fp32") < 1e15
    assert 1e6 < found.bandwidth_bytes_s() < 1e13
    assert [p.working_set_bytes for p in found.bandwidth] == [2**20, 2**22]
    assert found.core_speedup is not None and found.core_speedup > 0
    assert Ceilings.from_dict(json.loads(found.to_json())) == found


def test_a_product_that_does_not_exist_is_none_with_a_reason() -> None:
    pytest.importorskip("torch", reason="needs torch")
    from turbo_lab.hardware.probe import measure_ceilings

    found = measure_ceilings(budget_s=0.01, sets=(2**20,), sides=(64,), dtypes=("fp32", "fp4"))
    assert found.matmul_flops["fp4"] is None
    assert "fp4" in found.reasons["fp4"]


def test_without_a_cuda_device_the_probe_says_so() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    from turbo_lab.hardware.probe import measure_ceilings

    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    with pytest.raises(UnmeasuredError, match="no CUDA device"):
        measure_ceilings(device="cuda")
    with pytest.raises(UsageError, match="cpu, cuda"):
        measure_ceilings(device="tpu")
