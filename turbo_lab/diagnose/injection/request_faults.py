"""Faults in what clients send to a running server: nothing has to be started for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from turbo_lab.client.stream import Target
from turbo_lab.diagnose.injection.fault import Evidence, Fault
from turbo_lab.diagnose.injection.patient import client_key
from turbo_lab.diagnose.injection.slow_reader import read_slowly
from turbo_lab.diagnose.injection.ward import LONG_REPLY_TOKENS, Ward

# Requests of a probe, sent one after the other: of a short reply the step that a second request
# waits for is a large share, which on a busy machine looks like a queue.
PROBES = 4
CALM_REPLY_TOKENS = 32  # with its prompt two blocks of the pool
WAVES = 5  # of requests per seat under overload
SLOW_PAUSES = 5.0  # times the server's own time that the slow client lets its reply lie
READ_TIMEOUT_S = 120.0


@contextmanager
def cold_start(ward: Ward, on: bool) -> Iterator[Evidence]:
    """The first requests came while the server was still starting; off: once it is warm."""
    if on:
        yield ward.first_evidence
        return
    watch = ward.patient.watch()
    yield watch.evidence(ward.patient.ask(ward.patient.requests(PROBES), concurrency=1))


@contextmanager
def overload(ward: Ward, on: bool) -> Iterator[Evidence]:
    """Several times as many requests at once as there are seats; off: half the seats."""
    watch, patient = ward.patient.watch(), ward.patient
    count = WAVES * patient.seats if on else patient.seats // 2
    reply_tokens = 8 if on else CALM_REPLY_TOKENS
    yield watch.evidence(patient.ask(patient.requests(count, reply_tokens=reply_tokens)))


@contextmanager
def small_pool(ward: Ward, on: bool) -> Iterator[Evidence]:
    """All seats taken by replies that grow beyond the pool; off: as many as the pool holds."""
    watch, patient = ward.patient.watch(), ward.patient
    count = patient.seats if on else ward.long_replies_that_fit()
    yield watch.evidence(patient.ask(patient.requests(count, reply_tokens=LONG_REPLY_TOKENS)))


@contextmanager
def wrong_key(ward: Ward, on: bool) -> Iterator[Evidence]:
    """Another key than the server's."""
    watch, patient = ward.patient.watch(), ward.patient
    key = f"not-{patient.key}" if on else patient.key
    yield watch.evidence(patient.ask(patient.requests(PROBES), concurrency=1, key=key))


@contextmanager
def wrong_model(ward: Ward, on: bool) -> Iterator[Evidence]:
    """A model name that is not served."""
    watch, patient = ward.patient.watch(), ward.patient
    name = patient.server.model_name
    asked = patient.requests(PROBES, model=f"{name}-large" if on else name)
    yield watch.evidence(patient.ask(asked, concurrency=1))


@contextmanager
def long_prompt(ward: Ward, on: bool) -> Iterator[Evidence]:
    """Prompts longer than the server's longest sequence; off: as long as fits."""
    watch, patient = ward.patient.watch(), ward.patient
    length = patient.longest_tokens + 50 if on else patient.longest_tokens // 4
    asked = patient.requests(PROBES, prompt_tokens=length)
    yield watch.evidence(patient.ask(asked, concurrency=1))


@contextmanager
def changed_sampling(ward: Ward, on: bool) -> Iterator[Evidence]:
    """Half of the requests are sampled, the others greedy."""
    watch, patient = ward.patient.watch(), ward.patient
    asked = patient.requests(PROBES)
    if on:
        sampled = [replace(request, temperature=1.0) for request in asked[::2]]
        asked = [*sampled, *asked[1::2]]
    yield watch.evidence(patient.ask(asked, concurrency=1))


@contextmanager
def everyone_samples(ward: Ward, on: bool) -> Iterator[Evidence]:
    """All requests are sampled alike: replies differ from run to run, and nothing looks odd."""
    watch, patient = ward.patient.watch(), ward.patient
    asked = patient.requests(PROBES, temperature=1.0 if on else 0.0)
    yield watch.evidence(patient.ask(asked, concurrency=1))


@contextmanager
def slow_client(ward: Ward, on: bool) -> Iterator[Evidence]:
    """A client that reads its stream only when the server is long done with it."""
    watch, patient = ward.patient.watch(), ward.patient
    target, runs = Target(patient.server.base_url, timeout_s=READ_TIMEOUT_S), []
    with client_key(patient.key):
        for request in patient.requests(2):
            ended = patient.finished()
            runs.append(
                read_slowly(
                    request, target=target, pauses=SLOW_PAUSES if on else 0.0,
                    finished=lambda ended=ended: patient.finished() > ended,
                )
            )  # fmt: skip
    yield watch.evidence(runs)


REFUSALS = ("error_rate", "bad_request_body")  # the page counts them, the log shows bare statuses
REQUEST_FAULTS = (
    Fault("cold start", "the first requests come while the server still loads",
          "the first reply takes half a minute", ("cold_start",), "running", cold_start),
    Fault("overload", f"{WAVES} times as many requests at once as seats",
          "first tokens come late", ("queue_pressure",), "running", overload,
          ("ttft_bound", "tpot_bound", "slow_client")),  # the client shares the machine's cores
    Fault("small KV pool", "replies that together outgrow the pool", "replies stop and go on",
          ("preemption_pressure",), "running", small_pool,
          ("kv_pressure", "queue_pressure", "ttft_bound", "tpot_bound", "slow_client")),
    Fault("wrong key", "the client's API key", "every request is refused", ("wrong_key",),
          "running", wrong_key, REFUSALS),
    Fault("wrong model name", "the model name in the request", "every request is refused",
          ("wrong_model_name",), "running", wrong_model, REFUSALS),
    Fault("prompt too long", "the length of the prompt", "some requests are refused",
          ("prompt_too_long",), "running", long_prompt, REFUSALS),
    Fault("changed sampling", "the temperature of half of the requests",
          "equal requests give different replies", ("mixed_sampling",), "running",
          changed_sampling),
    Fault("slow client", "how fast the client reads its stream", "replies take long",
          ("slow_client",), "running", slow_client),
)  # fmt: skip

# What the doctor cannot know: nothing is wrong with any single line or number.
BLIND_FAULTS = (
    Fault("everyone samples", "the temperature of all requests", "replies differ from run to run",
          ("mixed_sampling",), "running", everyone_samples),
)  # fmt: skip
