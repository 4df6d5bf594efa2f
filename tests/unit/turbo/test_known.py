"""Nothing unconfirmed is stated as the paper's."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from turbo_lab.core.host import repository_root
from turbo_lab.turbo.known import artifact, gemm_slowdowns, known_table, paper

UNKNOWN = ("authors", "doi", "abstract", "speed-up", "baselines", "testbed")


def test_the_record_leaves_unknown_what_nobody_could_read() -> None:
    one = paper()
    assert one.authors is None and one.doi is None and one.arxiv is None
    assert one.setting.baselines is None and one.setting.gpus is None
    assert one.setting.network is None
    speed = [c for c in one.claims if re.search("speed|latency|throughput", c.what, re.I)]
    assert speed and all(c.number is None and c.status == "unknown" for c in speed)
    assert all(c.status == "artifact" for c in one.claims if c.number is not None)


def test_the_table_marks_every_row() -> None:
    rows = known_table({"merge error": "none"})
    by_status: dict[str, set[str]] = {}
    for row in rows:
        by_status.setdefault(row["status"], set()).add(row["field"])
    assert set(by_status) == {"confirmed", "artifact", "unknown", "our measurement"}
    assert by_status["confirmed"] == {"title", "venue"}
    assert set(UNKNOWN) <= by_status["unknown"]
    assert by_status["our measurement"] == {"merge error"}


def test_claims_call_the_artifacts_numbers_the_artifacts() -> None:
    rows = yaml.safe_load((repository_root() / "data/claims/turbo.yaml").read_text())
    for row in rows:
        if row["number"] is not None:
            assert "rtifact" in row["source"] and "rtifact" in row["statement"]


def test_the_loss_of_multiprocessors_alone_explains_too_little() -> None:
    worst = next(r for r in gemm_slowdowns() if r["taken"] == "30 of 108")
    assert worst["loss of cores alone"] == pytest.approx(1.385, abs=1e-3)
    assert worst["artifact"] == pytest.approx(1.82, abs=5e-3)
    excess = [r["artifact"] / r["loss of cores alone"] for r in gemm_slowdowns()[:5]]
    assert excess[0] == pytest.approx(1.0, abs=0.02) and excess == sorted(excess)


def test_the_facts_are_those_of_the_shared_record() -> None:
    path = repository_root().parent / "shared" / "reference" / "papers.jsonl"
    if not path.exists():
        pytest.skip("needs the shared reference")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    shared = next(r for r in rows if r["id"] == "turbo_sigcomm26")
    numbers = " ".join(str(c["number"]) for c in shared["headline_claims"])
    for row in artifact()["perplexity"]:
        assert f"{row['base']:.4f} / {row['turbo']:.4f} / {row['int8']:.4f}" in numbers
    for row in artifact()["gemm_ms"]:
        if row["taken"] in (10, 30):
            assert f"{row['alone']}->{row['shared']} ms" in numbers
    assert artifact()["title"] == shared["title"]
