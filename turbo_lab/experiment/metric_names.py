"""Names of the metrics that runs are compared by, and which direction is better."""

from __future__ import annotations

import re
from dataclasses import dataclass

from turbo_lab.core.errors import UsageError, did_you_mean

SLO_NAMES = ("ttft", "ttft_scheduled", "tpot", "e2e", "e2e_scheduled")
# Metrics with one sample per request, in seconds: less is better.
PER_REQUEST = (
    "ttft_s", "ttft_scheduled_s", "ttft_connected_s", "tpot_s", "itl_s", "e2e_s",
    "e2e_scheduled_s", "close_s", "connect_s", "dispatch_lag_s",
)  # fmt: skip
# Metrics of a stretch of time: more is better.
PER_WINDOW = ("output_rate_tok_s", "request_rate_req_s", "goodput_req_s")
_ALIASES = {
    "throughput": "output_rate_tok_s", "output_rate": "output_rate_tok_s",
    "output_throughput": "output_rate_tok_s", "request_rate": "request_rate_req_s",
    "request_throughput": "request_rate_req_s", "goodput": "goodput_req_s", "latency": "e2e_s",
}  # fmt: skip
_PERCENTILE = re.compile(r"^(?P<base>.+?)[._](?:p(?P<p>\d{1,2}(?:\.\d+)?)|(?P<word>median|mean))$")


@dataclass(frozen=True)
class MetricName:
    """A metric and the statistic of it. ``percentile`` 50 is the median; None is the mean."""

    base: str
    percentile: float | None

    @property
    def lower_is_better(self) -> bool:
        """True for latencies, False for rates."""
        return self.base not in PER_WINDOW

    @property
    def unit(self) -> str:
        """Seconds or a rate."""
        return {"output_rate_tok_s": "tok/s"}.get(
            self.base, "req/s" if self.base in PER_WINDOW else "s"
        )

    def __str__(self) -> str:
        if self.base in PER_WINDOW:
            return self.base
        return f"{self.base}.{'mean' if self.percentile is None else f'p{self.percentile:g}'}"


def metric_name(text: str) -> MetricName:
    """``ttft``, ``ttft_s``, ``ttft.p95``, ``throughput`` ... to a MetricName.

    Raises UsageError with the allowed names.
    """
    wanted, percentile = text.strip().lower(), 50.0
    statistic: float | None = percentile
    if match := _PERCENTILE.match(wanted):
        wanted = match["base"]
        if match["word"] == "mean":
            statistic = None
        elif match["p"]:
            statistic = float(match["p"])
    wanted = _ALIASES.get(wanted, wanted)
    possible = statistic is None or 0 < statistic < 100
    for candidate in (wanted, f"{wanted}_s") if possible else ():
        if candidate in PER_REQUEST:
            return MetricName(candidate, statistic)
        if candidate in PER_WINDOW:
            return MetricName(candidate, 50.0)
    allowed = [*PER_REQUEST, *PER_WINDOW, *_ALIASES]
    raise UsageError(
        f"metric {text!r}.{did_you_mean(wanted, allowed)} Add .p95, .p99 (above 0, below 100) or "
        ".mean for another statistic than the median."
    )
