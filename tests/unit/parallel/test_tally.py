from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turbo_lab
from turbo_lab.core.errors import UsageError
from turbo_lab.network.busbw import busbw_factor
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.payload import argmax_bytes, pipeline_bytes
from turbo_lab.parallel.tally import KINDS, Ledger, sent_bytes, total
from turbo_lab.parallel.weights import small_config
from turbo_lab.parallel.worker import load_work

NAMES = "|".join(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv",
     "isend", "irecv", "reduce", "gather", "scatter", "barrier", "batch_isend_irecv")
)  # fmt: skip
COLLECTIVE = re.compile(rf"\b(?:dist|distributed|c10d)\.(?:{NAMES})(?:_\w+)?\(")
IMPORT = re.compile(r"torch\.distributed|from torch import .*distributed")


def test_only_comm_calls_collectives() -> None:
    root = Path(turbo_lab.__file__).parent
    texts = {str(p.relative_to(root)): p.read_text() for p in root.rglob("*.py")}
    assert {n for n, t in texts.items() if COLLECTIVE.search(t)} == {"parallel/comm.py"}
    importing = {n for n, t in texts.items() if re.search(rf"^\s*import .*({IMPORT.pattern})|"
                 rf"^\s*from ({IMPORT.pattern})", t, re.M)}  # fmt: skip
    assert importing == {"parallel/comm.py", "parallel/rendezvous.py"}


@given(st.sampled_from(KINDS), st.integers(0, 2**30), st.integers(2, 16))
def test_sent_bytes_agree_with_the_bus_factor(kind: str, size: int, ranks: int) -> None:
    sent = sent_bytes(kind, size, ranks=ranks)
    if kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert sent == pytest.approx(busbw_factor(kind, ranks) * size)
    assert (sent == 0) == (kind == "recv" or size == 0)
    if kind == "broadcast":  # all ranks together: everybody but the root must get it
        assert sent * ranks == pytest.approx((ranks - 1) * size)


def test_ledger_groups_by_kind_and_label() -> None:
    ledger = Ledger(4)
    for label in ("mlp", "mlp", "attention"):
        ledger.add("all_reduce", label, payload_bytes=100, seconds=0.5)
    ledger.add("all_to_all", "mlp", payload_bytes=10, seconds=None, sent=7.0, how="somehow")
    ledger.add("all_to_all", "mlp", payload_bytes=10, seconds=1.0, sent=7.0)
    rows = ledger.to_list()
    assert [(row["kind"], row["label"], row["calls"]) for row in rows] == [
        ("all_reduce", "mlp", 2), ("all_reduce", "attention", 1), ("all_to_all", "mlp", 2)
    ]  # fmt: skip
    assert rows[0]["sent_bytes"] == pytest.approx(300) and rows[0]["seconds"] == 1.0
    assert rows[2]["sent_bytes"] == 14 and rows[2]["seconds"] is None and rows[2]["how"]
    assert total(rows, label="mlp") == 220 and total(rows, "calls", kind="all_reduce") == 3


def test_payload_formulas() -> None:
    from turbo_lab.models.spec import from_hf_config

    spec = from_hf_config(small_config(), name="small")
    assert pipeline_bytes(spec, tokens=10, stages=3) == 2 * 10 * 32 * 4
    assert pipeline_bytes(spec, tokens=10, stages=3, backward=True) == 4 * 10 * 32 * 4
    assert pipeline_bytes(spec, tokens=10, stages=1) == 0
    assert argmax_bytes(rows=5, ranks=3) == 3 * 5 * 2 * 8 and argmax_bytes(rows=5, ranks=1) == 0
    for wrong in (lambda: argmax_bytes(rows=1, ranks=0), lambda: sent_bytes("x", 1, ranks=2),
                  lambda: pipeline_bytes(spec, tokens=1, stages=0)):  # fmt: skip
        with pytest.raises(UsageError):
            wrong()


def test_work_by_name() -> None:
    assert load_work("turbo_lab.parallel.sweep:parse_sizes")("1K") == (1024,)
    assert load_work("any:KINDS", file=str(Path(__file__)))
    for wrong in ("turbo_lab.parallel.sweep", "turbo_lab.absent:x", "turbo_lab.parallel.sweep:x"):
        with pytest.raises(UsageError):
            load_work(wrong)
    with pytest.raises(UsageError, match="cannot find the work"):
        load_work("a:b", file="absent.py")


def test_without_torch_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from turbo_lab.core import host
    from turbo_lab.core.errors import MissingDependencyError

    monkeypatch.setattr(host, "has_module", lambda name: False)
    with pytest.raises(MissingDependencyError, match=r"python scripts/install.py cpu"):
        launch("a:b", ranks=2)
