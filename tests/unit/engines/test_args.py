"""Engine arguments: unknown and impossible ones are refused, equal ones are equal."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.engines.args import VllmArgs


def test_unknown_argument_names_the_close_one() -> None:
    with pytest.raises(UsageError, match="'max_model_length'.*Did you mean 'max_model_len'"):
        VllmArgs.make(model="m", max_model_length=3)
    with pytest.raises(UsageError, match="max_seqs"):
        VllmArgs.make(model="m").replace(max_seqs=3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dtype": "fp32"}, "dtype is 'fp32'"),
        ({"kv_cache_gib": 0.5}, "whole GiB"),
        ({"kv_cache_gib": 0}, "kv_cache_gib is 0"),
        ({"kv_cache_gib": "two"}, "kv_cache_gib is 'two'"),
        ({"kv_cache_gib": float("nan")}, "kv_cache_gib is nan"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"max_num_seqs": "many"}, "max_num_seqs is 'many'; it must be a whole number"),
        ({"max_num_seqs": 2.5}, "max_num_seqs is 2.5"),
        ({"max_num_seqs": None}, "max_num_seqs is None"),
        ({"block_size": True}, "block_size is True"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size is 0"),
        ({"speculative_config": "{broken"}, "not JSON"),
    ],
)
def test_impossible_values_are_refused_before_loading(values: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        VllmArgs.make(model="m", **values)


def test_arguments_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        VllmArgs.make(model="m").dtype = "float16"  # type: ignore[misc]


@given(st.sampled_from(["float32", "bfloat16"]), st.integers(1, 99), st.integers(1, 9))
def test_digest_tells_arguments_apart(dtype: str, length: int, gib: int) -> None:
    one = VllmArgs.make(model="m", dtype=dtype, max_model_len=length, kv_cache_gib=gib)
    assert one.digest() == one.replace().digest()
    assert one.digest() != one.replace(max_model_len=length + 1).digest()
    assert one.digest() != one.replace(kv_cache_gib=gib + 1).digest()


def test_flags_and_environment() -> None:
    args = VllmArgs.make(
        model="m",
        kv_cache_gib=2,
        cores=(0, 1),
        enable_prefix_caching=True,
        speculative_config={"method": "ngram"},
        extra=(("--api-key", "x"),),
    )
    flags = args.flags()
    assert "--enable-prefix-caching" in flags and "--no-enable-prefix-caching" not in flags
    assert flags[flags.index("--speculative-config") + 1] == '{"method": "ngram"}'
    assert flags[-2:] == ["--api-key", "x"]
    assert args.environment()["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert args.environment()["VLLM_CPU_OMP_THREADS_BIND"] == "0,1"


@pytest.mark.parametrize(
    ("ranks", "cores", "binding"),
    [
        (1, (0, 1), "0,1"),
        (3, (0, 1), "0|1|0"),
        (2, (0, 1, 2, 3), "0,1|2,3"),
        (2, (4, 5), "4|5"),
    ],
)
def test_cores_are_dealt_to_ranks(ranks: int, cores: tuple[int, ...], binding: str) -> None:
    args = VllmArgs.make(model="m", tensor_parallel_size=ranks, cores=cores)
    assert args.environment()["VLLM_CPU_OMP_THREADS_BIND"] == binding


def test_gpu_pool_is_given_in_bytes() -> None:
    args = VllmArgs.make(model="m", device="gpu", kv_cache_gib=1.5)
    assert args.flags()[-2:] == ["--kv-cache-memory-bytes", str(int(1.5 * 2**30))]
    assert "VLLM_CPU_KVCACHE_SPACE" not in args.environment()


@pytest.mark.parametrize(
    ("silenced", "back"),
    [
        ({}, {}),
        ({"VLLM_LOGGING_LEVEL": "debug"}, {}),
        ({"VLLM_LOGGING_LEVEL": "WARNING"}, {"VLLM_LOGGING_LEVEL": "INFO"}),
        ({"VLLM_CONFIGURE_LOGGING": "0"}, {"VLLM_CONFIGURE_LOGGING": "1"}),
    ],
)
def test_a_silenced_engine_tells_its_pool_again(
    monkeypatch: pytest.MonkeyPatch, silenced: dict, back: dict
) -> None:
    for name in ("VLLM_LOGGING_LEVEL", "VLLM_CONFIGURE_LOGGING"):
        monkeypatch.delenv(name, raising=False)
    plain = VllmArgs.make(model="m").environment()
    for name, value in silenced.items():
        monkeypatch.setenv(name, value)
    assert VllmArgs.make(model="m").environment() == plain | back
    own = VllmArgs.make(model="m", env=(("VLLM_LOGGING_LEVEL", "ERROR"),))
    assert own.environment()["VLLM_LOGGING_LEVEL"] == "ERROR", "asked for on purpose"
