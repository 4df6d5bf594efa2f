"""From a record of ``turbo-lab`` to findings: failed gates first, then the times themselves."""

from __future__ import annotations

import statistics

from turbo_lab.diagnose.causes import found
from turbo_lab.diagnose.finding import Finding
from turbo_lab.diagnose.page_rules import DEFAULT_LIMITS, Limits
from turbo_lab.records.schema import Record

GATES = {
    "complete": "run_incomplete",
    "server stayed up": "run_incomplete",
    "failures": "error_rate",
    "client": "client_is_bottleneck",
    "quiet machine": "noisy_machine",
    "prefix hits": "warm_cache",
    "preemptions": "preemption_pressure",
    "output length": "output_length_differs",
    "achieved rate": "rate_not_reached",
    "samples": "too_few_samples",
}
COLD_FACTOR, COLD_S = 5.0, 0.5


def record_findings(
    record: Record, *, source: str, limits: Limits = DEFAULT_LIMITS
) -> list[Finding]:
    """All findings about one record. A gate that is unknown gives none."""
    out: dict[str, Finding] = {}
    for gate in record.gates:
        cause = GATES.get(gate.name)
        if cause and gate.passed is False:
            out.setdefault(
                cause,
                found(cause, evidence=gate.detail, where=f"gate {gate.name!r}", source=source),
            )
    for finding in _by_times(record, source, limits):
        out.setdefault(finding.cause, finding)
    return list(out.values())


def _by_times(record: Record, source: str, limits: Limits) -> list[Finding]:
    samples = {
        row.name: [value for value in row.samples if value is not None]
        for row in record.measurements
    }
    ttft, e2e, tpot = (samples.get(name, []) for name in ("ttft_s", "e2e_s", "tpot_s"))
    out = []
    if len(ttft) >= 5:
        rest = statistics.median(ttft[1:])
        if ttft[0] >= COLD_FACTOR * rest and ttft[0] - rest >= COLD_S:
            text = (
                f"first request {ttft[0]:.2f} s to its first token, median of the rest {rest:.3f} s"
            )
            out.append(found("cold_start", evidence=text, where="ttft_s", source=source,
                             confidence="medium"))  # fmt: skip
    if ttft and e2e:
        first, whole = statistics.median(ttft), statistics.median(e2e)
        if first >= limits.ttft_s and first >= limits.ttft_share * whole:
            text = f"median TTFT {first:.2f} s of {whole:.2f} s end to end"
            out.append(found("ttft_bound", evidence=text, where="ttft_s", source=source))
    if tpot and statistics.median(tpot) >= limits.tpot_s:
        text = f"median {statistics.median(tpot) * 1e3:.0f} ms per output token"
        out.append(found("tpot_bound", evidence=text, where="tpot_s", source=source))
    return out
