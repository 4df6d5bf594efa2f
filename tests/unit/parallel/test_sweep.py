from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.cli import main as cli
from turbo_lab.core.errors import UnmeasuredError, UsageError
from turbo_lab.network.busbw import busbw
from turbo_lab.parallel.sweep import (
    KINDS,
    SIZES,
    check_kind,
    parse_sizes,
    sweep_rows,
    table_text,
    whole_size,
)


def measured(size: int, *times: float, wrong: int = 0) -> list[dict[str, object]]:
    mean = sum(times) / len(times)
    return [{"size_bytes": size, "time_s": mean, "samples_s": list(times), "wrong": wrong}]


def test_the_slowest_rank_counts() -> None:
    row = sweep_rows("all_reduce", [measured(4096, 1.0, 3.0), measured(4096, 2.0, 1.0, wrong=2)])[0]
    assert row.time_s == 2.0 and row.samples_s == (2.0, 3.0) and row.wrong == 2
    assert row.count == 1024 and row.algbw_bytes_s == 2048
    assert row.busbw_bytes_s == busbw("all_reduce", 4096, 2.0, 2)


def test_elements_are_counted_as_in_nccl_tests() -> None:
    for kind, count in (("all_gather", 256), ("all_to_all", 256), ("broadcast", 1024)):
        assert sweep_rows(kind, [measured(4096, 1.0)] * 4)[0].count == count


def test_names_of_nccl_tests_are_taken_too() -> None:
    found = [check_kind(name) for name in ("allreduce", "allgather", "reducescatter", "alltoall")]
    assert found == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    assert [check_kind(kind) for kind in KINDS] == [*KINDS]
    with pytest.raises(UsageError, match="all_to_all"):
        check_kind("alltoal")


def test_different_sizes_are_no_measurement() -> None:
    with pytest.raises(UnmeasuredError, match="different sizes"):
        sweep_rows("all_reduce", [measured(4, 1.0), measured(8, 1.0)])


def test_table_says_when_values_are_wrong() -> None:
    good = sweep_rows("all_reduce", [measured(1048576, 0.01)] * 2)
    text = table_text("all_reduce", good)
    assert "1048576       262144   float    sum   10000.0    0.105    0.105       0" in text
    assert "# Out of bounds values : 0 OK" in text and "# Avg bus bandwidth    : 0.1049" in text
    bad = sweep_rows("all_reduce", [measured(4, 0.01, wrong=1)] * 2)
    assert "2 FAILED" in table_text("all_reduce", bad)


def test_sizes() -> None:
    assert parse_sizes("12, 1K,64KiB,1m,2G") == (12, 1024, 65536, 2**20, 2**31)
    assert SIZES[0] == 1024 and SIZES[-1] == 16 * 2**20
    for wrong in ("", "1X", "0", "-4", "1.5K", "4,,8", "K"):
        with pytest.raises(UsageError, match=r"allowed: whole bytes, or 64K"):
            parse_sizes(wrong)


@given(st.sampled_from(KINDS), st.integers(1, 10**7), st.integers(2, 8))
def test_whole_sizes_divide_and_stay_near(kind: str, size: int, ranks: int) -> None:
    whole = whole_size(kind, size, ranks=ranks)
    assert whole % 4 == 0 and (whole <= size or whole == 4 * ranks or whole == 4)
    if kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert whole % (4 * ranks) == 0
    assert size - whole < 4 * ranks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "all_redcue"], "Did you mean 'all_reduce'"),
        (["--ranks", "9"], "allowed: 2 to 8 ranks"),
        (["--ranks", "1"], "allowed: 2 to 8 ranks"),
        (["--sizes", "1Q"], "size '1Q'"),
        (["--link", "fast"], "link rate 'fast'"),
    ],
)
def test_wrong_use_of_the_command(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["collectives", *arguments])
    assert end.value.code == 2 and message in capsys.readouterr().err
