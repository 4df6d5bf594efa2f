"""What a simulated run gives: metrics, counts, and Timelines where they were kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turbo_lab.metrics.streamed import StreamedMetrics
from turbo_lab.metrics.timeline import Attempt, Timeline
from turbo_lab.sim.clock import to_s
from turbo_lab.sim.job import Job
from turbo_lab.sim.step_log import reply_chunks
from turbo_lab.workload.trace_stats import NO_BLOCKS


@dataclass
class SimResult:
    """One simulated run.

    Attributes:
        requests: requests of the trace. completed: those that finished. refused: those that need
            more KV cache than an engine has.
        metrics: TTFT, TPOT, E2E and attainment; exact, or sketched for huge runs.
        wall_s, read_s: seconds that the simulation, and reading the trace, took on this machine.
        duration_s: simulated seconds from the first send to the last token.
        prompt_tokens, hit_tokens: prompt tokens, and those found in a prefix cache at the first
            admission.
        told_blocks: whether any request told its prompt blocks; else nothing can be found.
        replica_s: simulated seconds that replicas were up, summed: what is paid for.
        busy_s: simulated seconds that replicas computed, summed.
        jobs: finished requests with their token times, where kept.
    """

    requests: int = 0
    refused: int = 0
    metrics: StreamedMetrics = field(default_factory=StreamedMetrics)
    wall_s: float = 0.0
    read_s: float = 0.0
    duration_s: float = 0.0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    told_blocks: bool = False
    preemptions: int = 0
    migrations: int = 0
    restarts: int = 0
    replica_s: float = 0.0
    busy_s: float = 0.0
    jobs: list[Job] | None = None

    @property
    def completed(self) -> int:
        """Requests that finished."""
        return self.metrics.completed

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of prompt tokens found in a prefix cache; None where no request told its blocks."""
        if not self.told_blocks or not self.prompt_tokens:
            return None
        return self.hit_tokens / self.prompt_tokens

    @property
    def throughput_tok_s(self) -> float | None:
        """Output tokens per simulated second; None for a run without length."""
        return self.metrics.output_tokens / self.duration_s if self.duration_s else None

    @property
    def slo_attainment(self) -> float | None:
        """Share of all requests, refused ones included, that met every objective; None if none."""
        if not self.metrics.slo or not self.requests:
            return None
        return self.metrics.attained / self.requests

    def timelines(self) -> list[Timeline]:
        """One per finished request, in the order of the trace (empty where none were kept)."""
        return [timeline(job) for job in sorted(self.jobs or (), key=lambda job: job.index)]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "requests": self.requests,
            "completed": self.completed,
            "refused": self.refused,
            "wall_s": self.wall_s,
            "read_s": self.read_s,
            "requests_per_s": self.requests / self.wall_s if self.wall_s else None,
            "duration_s": self.duration_s,
            **self.metrics.to_dict(),
            "percentile_error": self.metrics["ttft"].relative_error,
            "output_tokens": self.metrics.output_tokens,
            "throughput_tok_s": self.throughput_tok_s,
            "prefix_hit_rate": self.prefix_hit_rate,
            "prefix_hit_note": None if self.told_blocks else NO_BLOCKS,
            "preemptions": self.preemptions,
            "migrations": self.migrations,
            "restarts": self.restarts,
            "slo": self.metrics.slo,
            "slo_attainment": self.slo_attainment,
            "goodput_req_s": self.metrics.attained / self.duration_s
            if self.metrics.slo and self.duration_s
            else None,
            "replica_s": self.replica_s,
            "busy_s": self.busy_s,
            "busy_share": self.busy_s / self.replica_s if self.replica_s else None,
        }


def timeline(job: Job) -> Timeline:
    """The Timeline of a finished job whose token times were kept."""
    sent_s = to_s(job.sent_fs)
    request = job.request
    labels: dict[str, str | int] = {
        "input_tokens": job.prompt, "output_tokens": job.output, "replica": job.replica,
    }  # fmt: skip
    if request.tenant:
        labels["tenant"] = request.tenant
    if request.session:
        labels["conversation"] = request.session
    ends = [to_s(t) for t in job.failures or ()]
    begins = [sent_s, *ends]
    attempts = [Attempt(a, None, b, "replica failed") for a, b in zip(begins, ends, strict=False)]
    if ends:
        attempts.append(Attempt(ends[-1], 200, to_s(job.last_fs)))
    return Timeline(
        scheduled_s=sent_s, sent_s=sent_s, connected_s=begins[-1], status_code=200,
        chunks=reply_chunks(job), finish_reason="length", saw_done=True,
        usage={"prompt_tokens": job.prompt, "completion_tokens": job.output},
        closed_s=to_s(job.last_fs), request_id=str(job.index), attempts=tuple(attempts),
        labels=labels,
    )  # fmt: skip
