"""From the numbers of one or several ``/metrics`` pages to findings.

Counters and histograms hold all that happened since the server started; with two readings a few
seconds apart the rules look at the difference instead (``difference``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turbo_lab.diagnose.causes import found
from turbo_lab.diagnose.finding import Confidence, Finding
from turbo_lab.diagnose.pages import Labels, Page


@dataclass(frozen=True)
class Limits:
    """Thresholds. Each says why; all can be set for another service level."""

    waiting: float = 4  # a few waiting requests are the normal state of a busy server
    waiting_share: float = 0.5  # of the running ones
    queue_share: float = 0.3  # of the end-to-end time spent in the queue
    kv_share: float = 0.95  # above it the next request's blocks are not there
    preemptions_per_request: float = 0.05
    prefix_tokens: float = 20_000  # fewer queries say nothing about reuse
    prefix_hit_share: float = 0.10
    prompt_to_output: float = 4  # only where prompts dominate, a missed prefix costs time
    imbalance: float = 2.0  # largest replica over the mean of the others plus one request
    imbalance_requests: float = 8
    failed_share: float = 0.05
    failed_requests: float = 3
    ttft_s: float = 1.0
    ttft_share: float = 0.5  # of the end-to-end time
    tpot_s: float = 0.1  # ten tokens a second, slower than fast reading
    tok_s_per_request: float = 1.0
    draft_share: float = 0.3
    draft_tokens: float = 500
    cold_factor: float = 10.0
    cold_s: float = 0.5
    cold_requests: float = 200  # later the first requests are lost among the others


DEFAULT_LIMITS = Limits()
Rule = Callable[[Page, Limits], Finding | None]


def page_findings(page: Page, *, limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
    """All findings about one page."""
    return [finding for rule in RULES if (finding := rule(page, limits)) is not None]


def replica_findings(pages: Sequence[Page], *, limits: Limits = DEFAULT_LIMITS) -> list[Finding]:
    """Imbalance between servers, one page each; [] for fewer than two."""
    loads = {page.source: _load(page) for page in pages}
    finding = _imbalance(loads, limits, source=", ".join(loads)) if len(pages) > 1 else None
    return [finding] if finding else []


def difference(earlier: Page, later: Page) -> Page:
    """``later`` with its counters and histograms counted from ``earlier``; gauges stay.

    A counter that fell (the server was started again) keeps its later value.
    """
    samples: dict[str, Mapping[Labels, float]] = {}
    for name, rows in later.samples.items():
        old = earlier.samples.get(name, {})
        if name.endswith(("_total", "_sum", "_count", "_bucket")):
            samples[name] = {
                key: value - old.get(key, 0.0) if value >= old.get(key, 0.0) else value
                for key, value in rows.items()
            }
        else:
            samples[name] = rows
    return Page(source=later.source, samples=samples)


def _say(
    page: Page, cause: str, evidence: str, where: str, confidence: Confidence | None = None
) -> Finding:
    return found(cause, evidence=evidence, where=where, source=page.source, confidence=confidence)


def _queue(page: Page, limits: Limits) -> Finding | None:
    waiting, running = page.total("waiting"), page.total("running") or 0.0
    queue, e2e = page.mean("queue"), page.mean("e2e")
    share = queue[0] / e2e[0] if queue and e2e and e2e[0] > 0 else None
    now = waiting is not None and waiting >= max(limits.waiting, limits.waiting_share * running)
    before = share is not None and share >= limits.queue_share and queue is not None
    if not now and not before:
        return None
    text = f"{waiting or 0:.0f} waiting, {running:.0f} running"
    if share is not None:
        text += f"; {share:.0%} of the end-to-end time is queue"
    return _say(
        page, "queue_pressure", text, "vllm:num_requests_waiting", "high" if now else "medium"
    )


def _kv(page: Page, limits: Limits) -> Finding | None:
    share = page.largest("kv_share")
    if share is None or share < limits.kv_share:
        return None
    return _say(page, "kv_pressure", f"{share:.1%} of the KV blocks are in use",
                "vllm:kv_cache_usage_perc")  # fmt: skip


def _preemption(page: Page, limits: Limits) -> Finding | None:
    count, finished = page.total("preemptions") or 0.0, page.total("finished")
    requests = (finished or 0.0) + (page.total("running") or 0.0)
    if count < limits.failed_requests or count < limits.preemptions_per_request * requests:
        return None
    return _say(page, "preemption_pressure", f"{count:.0f} preemptions for {requests:.0f} requests",
                "vllm:num_preemptions_total")  # fmt: skip


def _offload(page: Page, limits: Limits) -> Finding | None:
    swapped, share = page.total("swapped") or 0.0, page.largest("cpu_kv_share") or 0.0
    if not swapped and not share:
        return None
    return _say(page, "cpu_offload_active", f"{swapped:.0f} requests swapped out, {share:.1%} of "
                "the host's KV space in use", "vllm:num_requests_swapped")  # fmt: skip


def _prefix(page: Page, limits: Limits) -> Finding | None:
    asked, hits = page.total("prefix_queries"), page.total("prefix_hits")
    read, written = page.total("prompt_tokens") or 0.0, page.total("generation_tokens")
    if not asked or hits is None or asked < limits.prefix_tokens or written is None:
        return None
    if hits / asked >= limits.prefix_hit_share or read < limits.prompt_to_output * written:
        return None
    text = f"{hits:.0f} of {asked:.0f} prompt tokens found in the cache ({hits / asked:.1%})"
    return _say(page, "prefix_cache_inefficiency", text, "vllm:prefix_cache_hits_total")


def _load(page: Page) -> float:
    return (page.total("running") or 0.0) + (page.total("waiting") or 0.0)


def _replicas(page: Page, limits: Limits) -> Finding | None:
    labels = ("engine", "instance", "server", "worker", "pod")
    running, waiting = page.by_label("running", *labels), page.by_label("waiting", *labels)
    loads = {name: value + waiting.get(name, 0.0) for name, value in running.items()}
    return _imbalance(loads, limits, source=page.source)


def _imbalance(loads: Mapping[str, float], limits: Limits, *, source: str) -> Finding | None:
    if len(loads) < 2:
        return None
    name = max(loads, key=lambda key: loads[key])
    others = (sum(loads.values()) - loads[name]) / (len(loads) - 1)
    if loads[name] < limits.imbalance_requests or loads[name] < limits.imbalance * (others + 1):
        return None
    text = f"replica {name} carries {loads[name]:.0f} requests, the others {others:.1f} in the mean"
    return found("replica_imbalance", evidence=text, where="vllm:num_requests_running",
                 source=source)  # fmt: skip


def _errors(page: Page, limits: Limits) -> Finding | None:
    reasons = page.by_label("finished", "finished_reason")
    failed = sum(reasons.get(name, 0.0) for name in ("abort", "error"))
    total, where = sum(reasons.values()), "vllm:request_success_total"
    web = _answers(page)
    broken, answered = sum(n for s, n in web.items() if s[:1] in "45"), sum(web.values())
    if answered and broken / answered > (failed / total if total else 0.0):
        failed, total, where = broken, answered, "http_requests_total"
    if failed < limits.failed_requests or failed < limits.failed_share * total:
        return None
    return _say(page, "error_rate", f"{failed:.0f} of {total:.0f} requests failed ({where})", where)


def _answers(page: Page) -> dict[str, float]:
    """Answers of the API's own paths by status, health and metrics paths left out."""
    out: dict[str, float] = {}
    for key, value in page.samples.get("http_requests_total", {}).items():
        labels = dict(key)
        if labels.get("handler", "").startswith("/v1/") and "status" in labels:
            out[labels["status"]] = out.get(labels["status"], 0.0) + value
    return out


def _ttft(page: Page, limits: Limits) -> Finding | None:
    ttft, e2e = page.mean("ttft"), page.mean("e2e")
    if not ttft or not e2e or ttft[0] < limits.ttft_s or ttft[0] < limits.ttft_share * e2e[0]:
        return None
    text = f"mean TTFT {ttft[0]:.2f} s of {e2e[0]:.2f} s end to end over {ttft[1]:.0f} requests"
    return _say(page, "ttft_bound", text, "vllm:time_to_first_token_seconds")


def _tpot(page: Page, limits: Limits) -> Finding | None:
    tpot = page.mean("tpot")
    if not tpot or tpot[0] < limits.tpot_s:
        return None
    text = f"{tpot[0] * 1e3:.0f} ms per output token in the mean"
    return _say(page, "tpot_bound", text, "vllm:request_time_per_output_token_seconds")


def _throughput(page: Page, limits: Limits) -> Finding | None:
    tokens, e2e = page.total("generation_tokens"), page.mean("e2e")
    queue = page.mean("queue")
    if not tokens or not e2e:
        return None
    busy_s = (e2e[0] - (queue[0] if queue else 0.0)) * e2e[1]
    if busy_s <= 0 or tokens / busy_s >= limits.tok_s_per_request:
        return None
    text = f"{tokens / busy_s:.2f} tokens per second and request ({tokens:.0f} in {busy_s:.0f} s)"
    return _say(page, "low_throughput", text, "vllm:generation_tokens_total")


def _drafts(page: Page, limits: Limits) -> Finding | None:
    drafted, accepted = page.total("draft_tokens"), page.total("accepted_tokens")
    if not drafted or accepted is None or drafted < limits.draft_tokens:
        return None
    share = accepted / drafted
    if share >= limits.draft_share:
        return None
    text = f"{accepted:.0f} of {drafted:.0f} drafted tokens accepted ({share:.1%})"
    return _say(page, "draft_rarely_accepted", text,
                "vllm:spec_decode_num_accepted_tokens_total")  # fmt: skip


def _asleep(page: Page, limits: Limits) -> Finding | None:
    for key, value in page.samples.get("vllm:engine_sleep_state", {}).items():
        state = dict(key).get("sleep_state", "")
        if state and state != "awake" and value == 1:
            return _say(page, "engine_asleep", f"sleep state: {state}", "vllm:engine_sleep_state")
    return None


def _cold(page: Page, limits: Limits) -> Finding | None:
    """One or two requests of many waited far longer for their first token than the rest."""
    buckets = page.buckets("ttft")
    total = sum(count for _, count in buckets)
    if not 5 <= total <= limits.cold_requests:
        return None
    reached, median = 0.0, 0.0
    for edge, count in buckets:
        reached += count
        if reached >= total / 2:
            median = edge
            break
    slow = [(e, n) for e, n in buckets if n and e > max(limits.cold_factor * median, limits.cold_s)]
    late = sum(count for _, count in slow)
    if not late or late > max(2.0, 0.02 * total):
        return None
    text = f"{late:.0f} of {total:.0f} first tokens took over {limits.cold_factor:.0f} x the median"
    return _say(page, "cold_start", text, "vllm:time_to_first_token_seconds_bucket")


RULES: tuple[Rule, ...] = (
    _queue, _kv, _preemption, _offload, _prefix, _replicas, _errors, _ttft, _tpot, _throughput,
    _drafts, _asleep, _cold,
)  # fmt: skip
