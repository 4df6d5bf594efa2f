"""Precision and recall on the labelled corpus; the held-out part was written before the rules."""

from __future__ import annotations

import io

import pytest
import yaml

from turbo_lab.core.host import repository_root
from turbo_lab.diagnose.doctor import diagnose
from turbo_lab.diagnose.log_rules import log_findings
from turbo_lab.diagnose.logscan import scan_log
from turbo_lab.diagnose.page_rules import page_findings
from turbo_lab.diagnose.pages import parse_page

FAULTS = repository_root() / "data" / "faults"
AIM = 0.95


def cases(part: str) -> list[dict]:
    return [row for path in sorted((FAULTS / part).glob("*.yaml"))
            for row in yaml.safe_load(path.read_text(encoding="utf-8"))]  # fmt: skip


def named(case: dict, text: bytes | None = None) -> set[str]:
    raw = text if text is not None else case["text"].encode()
    if case.get("kind") == "metrics":
        found = page_findings(parse_page(raw.decode(), source=case["id"]))
    else:
        found = log_findings(scan_log(io.BytesIO(raw)), source=case["id"])
    return {finding.cause for finding in found}


@pytest.mark.parametrize("part", ["heldout", "logs"])
def test_precision_and_recall(part, capsys):
    rows = [(set(case["causes"]), named(case), case["id"]) for case in cases(part)]
    right = sum(len(want & got) for want, got, _ in rows)
    precision = right / sum(len(got) for _, got, _ in rows)
    recall = right / sum(len(want) for want, _, _ in rows)
    with capsys.disabled():
        print(f"\n{part}: {len(rows)} cases, precision {precision:.3f}, recall {recall:.3f}")
    wrong = [(name, want ^ got) for want, got, name in rows if want != got]
    assert precision >= AIM and recall >= AIM, wrong


@pytest.mark.parametrize("case", [c for p in ("heldout", "logs") for c in cases(p)
                                  if not c["causes"]], ids=lambda c: c["id"])  # fmt: skip
def test_a_healthy_case_gives_no_finding_and_an_unknown_one_says_what_to_collect(case, tmp_path):
    path = tmp_path / "case"
    path.write_text(case["text"], encoding="utf-8")
    told = diagnose([path])
    assert told.findings == ()
    assert bool(told.collect) == bool(case.get("unknown"))


WRAPPINGS = {
    "compose": lambda line: b"vllm-1  | " + line,
    "cri": lambda line: b"2026-01-01T00:00:00.123456789Z stderr F " + line,
    "kubectl": lambda line: b"[pod/llm-7c/vllm] " + line,
    "journald": lambda line: b"Nov  3 12:00:01 gpu-1 vllm[812]: " + line,
    "ray": lambda line: b"\x1b[36m(RayWorkerWrapper pid=7, ip=10.0.0.2)\x1b[0m " + line,
    "carriage return": lambda line: line + b"\r",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_who_carries_the_log_does_not_change_what_is_found(wrapping):
    wrap = WRAPPINGS[wrapping]
    for case in cases("heldout"):
        if case.get("kind") == "metrics":
            continue
        lines = case["text"].encode().splitlines()
        assert named(case, b"\n".join(map(wrap, lines))) == named(case), case["id"]


def test_lines_of_other_processes_between_do_not_change_what_is_found():
    healthy = next(c["text"] for c in cases("heldout") if c["id"] == "h-ok-04").encode()
    other = [b"(EngineCore_1 pid=9) " + line for line in healthy.splitlines()[:2]]
    for case in cases("heldout"):
        if case.get("kind") == "metrics" or "running:" in case["text"].lower():
            continue
        lines = case["text"].encode().splitlines()
        mixed = [part for line in lines for part in (line, *other)]
        want = {"out_of_memory_in_operation" if c == "out_of_memory_at_start" else c
                for c in case["causes"]}  # fmt: skip
        got = {"out_of_memory_in_operation" if c == "out_of_memory_at_start" else c
               for c in named(case, b"\n".join(mixed))}  # fmt: skip
        assert got == want, case["id"]
