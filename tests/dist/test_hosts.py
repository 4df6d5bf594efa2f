"""Ranks on two "hosts": same results, and counted bytes equal what the interfaces count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

import torch

from turbo_lab.core.errors import UsageError
from turbo_lab.network.gloo import gloo_traffic
from turbo_lab.network.headers import HEADER_BYTES
from turbo_lab.network.hosts import Hosts
from turbo_lab.parallel import jobs
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.launch import Place, launch
from turbo_lab.parallel.tally import total
from turbo_lab.parallel.weights import small_config

pytestmark = [pytest.mark.alone, pytest.mark.net]

PROMPTS = [[1, 2, 3, 4, 95], [50, 40, 30, 20, 10]]
WORK = {"model": small_config(), "prompts": PROMPTS, "new_tokens": 3}
BYTES, CALLS = 1 << 20, 4


def interface(name: str) -> tuple[int, int]:
    """(bytes, packets) that this host has sent."""
    row = next(r for r in Path("/proc/net/dev").read_text().splitlines() if f"{name}:" in r)
    fields = row.split(":")[1].split()
    return int(fields[8]), int(fields[9])


def two_hosts(comm: Comm, *, interface_name: str) -> dict[str, Any]:
    """A sharded model and counted all-reduces."""
    tensor = jobs.tensor_job(comm, **WORK)
    pipe = jobs.pipeline_job(comm, **WORK, micro_batches=2)
    comm.reset()
    buffer = torch.ones(BYTES // 4)
    comm.barrier()
    before = interface(interface_name)
    for _ in range(CALLS):
        comm.all_reduce(buffer)
    after = interface(interface_name)
    return {
        "tensor": tensor["tokens"], "pipeline": pipe["tokens"], "tallies": comm.tallies(),
        "bytes": after[0] - before[0], "packets": after[1] - before[1],
    }  # fmt: skip


def test_ranks_on_hosts_compute_the_same_and_interfaces_count_the_payload(hosts: Hosts) -> None:
    run = launch(
        two_hosts, ranks=2, place=lambda rank: Place.on(hosts, rank), deadline_s=90,
        arguments={"interface_name": hosts.interface(0)},
    )  # fmt: skip
    whole = jobs.tensor_job(Comm.single(), **WORK)["tokens"]
    np.testing.assert_array_equal(run.results[1]["pipeline"], whole)
    for rank, found in enumerate(run.results):
        np.testing.assert_array_equal(found["tensor"], whole)
        sent = total(found["tallies"], "sent_bytes", kind="all_reduce")
        assert sent == CALLS * BYTES  # 2 (n-1)/n with two ranks
        stream = found["bytes"] - HEADER_BYTES * found["packets"]
        wanted = gloo_traffic("all_reduce", BYTES, ranks=2, rank=rank).stream_sent_bytes * CALLS
        # A barrier's last message or an announcement may fall on either side of the reading.
        assert abs(stream - wanted) < 2000, (stream, wanted)
        assert 0 < stream - sent < 0.001 * sent  # announcements of the messages
        assert sent < found["bytes"] < 1.06 * sent  # and their headers


def test_places_name_what_there_is_not(hosts: Hosts) -> None:
    with pytest.raises(UsageError, match="there is no host 2; allowed: 0 to 1"):
        launch(two_hosts, ranks=3, place=lambda rank: Place.on(hosts, rank))
