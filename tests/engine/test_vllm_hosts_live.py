"""vLLM itself over several machines: tensor parallelism over three hosts, one rank on each.

Hosts are network namespaces with shared memory of their own, so that nothing but the link joins the
ranks; the commands are those of docs/multi-machine.md.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs the cpu environment")

from turbo_lab.core.errors import TurboLabError
from turbo_lab.core.host import repository_root
from turbo_lab.engines import vllm_cli
from turbo_lab.engines.local_model import resolve_model
from turbo_lab.models.catalog import load_model
from turbo_lab.network.gloo import gloo_traffic
from turbo_lab.network.headers import stream_bytes
from turbo_lab.network.hosts import Hosts
from turbo_lab.network.links import open_hosts
from turbo_lab.parallel import jobs
from turbo_lab.parallel.comm import Comm

pytestmark = [
    pytest.mark.engine,
    pytest.mark.alone,
    pytest.mark.net,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives each host its own shared memory"),
]

RANKS, FEW, MANY = 3, 4, 20
GUIDE = repository_root() / "docs" / "multi-machine.md"
ASK = """
import json, sys, time, urllib.request
base, deadline = sys.argv[1], time.monotonic() + 400
while True:
    try:
        urllib.request.urlopen(base + "/health", timeout=5).read()
        break
    except OSError:
        if time.monotonic() > deadline:
            raise SystemExit("the server was not ready in time")
        time.sleep(0.5)
question = urllib.request.Request(
    base + "/v1/completions", sys.argv[2].encode(), {"Content-Type": "application/json"}
)
print(urllib.request.urlopen(question, timeout=180).read().decode())
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        opened = open_hosts(RANKS, link="1gbit", kind="namespaces")
    except TurboLabError as error:
        pytest.skip(str(error))
    with opened:
        start(opened)
        yield opened


def flags_of(node: int, head: str) -> list[str]:
    """What the guide gives the first host, or the others."""
    lines = [row for row in GUIDE.read_text().splitlines() if row.startswith("vllm serve ")]
    line = next(row for row in lines if ("--headless" in row) is bool(node))
    text = line.replace("$NODE", str(node)).replace("$HEAD", head)
    return shlex.split(text)[3:]  # without the model


def start(hosts: Hosts) -> None:
    cores = sorted(os.sched_getaffinity(0))
    small = ["--served-model-name", "m", "--dtype", "float32", "--enforce-eager",
             "--max-model-len", "512", "--max-num-seqs", "4"]  # fmt: skip
    for node in range(RANKS):
        environment = {
            "VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": str(cores[node % len(cores)]),
            "LD_PRELOAD": vllm_cli.openmp_preload() or "", "VLLM_HOST_IP": hosts.address(node),
        }  # fmt: skip
        serve = vllm_cli.vllm_command(
            "serve", resolve_model(), *small, *flags_of(node, hosts.address(0))
        )
        own_memory = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        hosts.run(node, ["unshare", "-m", "sh", "-c", own_memory, "sh", *serve], timeout_s=850,
                  env=environment)  # fmt: skip


def ask(hosts: Hosts, *, tokens: int) -> dict[str, Any]:
    """From the second host, through the link, to the first one's API."""
    body = {"model": "m", "prompt": "The network is", "max_tokens": tokens, "temperature": 0,
            "ignore_eos": True, "return_token_ids": True}  # fmt: skip
    question = [sys.executable, "-c", ASK, f"http://{hosts.address(0)}:8000", json.dumps(body)]
    return json.loads(hosts.run(1, question, timeout_s=600).check().splitlines()[-1])


def test_three_hosts_answer_as_one_process_does(hosts: Hosts) -> None:
    choice = ask(hosts, tokens=MANY)["choices"][0]
    whole = jobs.tensor_job(
        Comm.single(), model=resolve_model(), prompts=[choice["prompt_token_ids"]], new_tokens=MANY
    )
    assert choice["token_ids"] == whole["tokens"][0].tolist()


def test_each_further_token_costs_the_link_its_all_reduces(hosts: Hosts) -> None:
    """Nothing but the link joins the ranks: what a host sends is the formula's bytes or more."""
    sent = []
    for tokens in (FEW, MANY):
        before = hosts.counters(2)
        ask(hosts, tokens=tokens)
        sent.append(stream_bytes(hosts.counters(2).since(before))[0])
    spec = load_model("smollm2-135m").spec()
    one = gloo_traffic("all_reduce", 4 * spec.hidden, ranks=RANKS, rank=2).stream_sent_bytes
    each = (2 * len(spec.layers) + 1) * one
    assert (
        each <= (sent[1] - sent[0]) / (MANY - FEW) < 3 * each
    )  # and logits, and the steps' orders
