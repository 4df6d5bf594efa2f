"""Faults between client and server: the server itself is well."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from turbo_lab.diagnose.injection.fault import Evidence, Fault
from turbo_lab.diagnose.injection.patient import TIMEOUT_S
from turbo_lab.diagnose.injection.proxy import FaultyProxy, Mode
from turbo_lab.diagnose.injection.ward import LONG_REPLY_TOKENS, Ward

PROBES = 3
AFTER_BYTES = 700  # of the answer: its head and about one event have passed
STALLED_S = 3.0  # a client's patience with a stream that will never go on, whatever its length


@contextmanager
def _behind_proxy(ward: Ward, on: bool, *, mode: Mode) -> Iterator[Evidence]:
    """Requests through a proxy that fails, or, off, through one that passes all on."""
    watch, patient = ward.patient.watch(), ward.patient
    chosen: Mode = mode if on else "pass"
    reply_tokens = LONG_REPLY_TOKENS if on else 8
    with FaultyProxy(patient.server.base_url, mode=chosen, after_bytes=AFTER_BYTES) as proxy:
        runs = patient.ask(
            patient.requests(PROBES, reply_tokens=reply_tokens), base_url=proxy.base_url,
            timeout_s=STALLED_S if chosen == "stall" else TIMEOUT_S,
            concurrency=PROBES if on else 1,
        )  # fmt: skip
        yield watch.evidence(runs)


BROKEN_OFF = ("clients_gave_up", "error_rate")  # the server sees that the reader is gone
NETWORK_FAULTS = (
    Fault("blocked port", "the port: nobody listens on it", "no connection",
          ("peer_unreachable",), "running", functools.partial(_behind_proxy, mode="refuse")),
    Fault("stalled network", f"the network: silent after {AFTER_BYTES} bytes",
          "the reply stops and nothing more comes", ("request_timeouts",), "running",
          functools.partial(_behind_proxy, mode="stall"), BROKEN_OFF),
    Fault("broken network", f"the network: reset after {AFTER_BYTES} bytes",
          "the reply breaks off", ("connection_broken",), "running",
          functools.partial(_behind_proxy, mode="reset"), BROKEN_OFF),
)  # fmt: skip
