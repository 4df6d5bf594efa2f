"""How a rank finds the others: a file they all see, or torchrun's address and port."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from turbo_lab.core.errors import DistributedError, UsageError
from turbo_lab.network.pacing import pace_sockets
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.launch import ADDRESS_VARIABLE


def connect(*, backend: str = "auto", timeout_s: float = 600.0, store: str | None = None) -> Comm:
    """Join the ranks that RANK and WORLD_SIZE describe (set by ``launch`` or by torchrun).

    ``backend``: ``auto`` is NCCL where each local rank has a GPU of its own, else gloo.
    ``store``: a file all ranks see; without it MASTER_ADDR and MASTER_PORT are used.
    """
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{error.args[0]} is not set. Start the ranks with turbo_lab.parallel.launch, or with "
            "torchrun."
        ) from error
    _use_address(os.environ.get(ADDRESS_VARIABLE))
    local = int(os.environ.get("LOCAL_RANK", rank))
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if backend == "auto":
        backend = "nccl" if gpus >= int(os.environ.get("LOCAL_WORLD_SIZE", size)) else "gloo"
    device = f"cuda:{local}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(local)
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{store}" if store else "env://",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
    except (RuntimeError, ValueError) as error:
        raise DistributedError(f"rank {rank} of {size} cannot join ({backend}): {error}") from error
    pace_sockets()  # only where paced hosts set a rate
    return Comm(device=device)


def _use_address(address: str | None) -> None:
    """Tell the backends which interface has this address; without it their own choice stays."""
    if not address:
        return
    import psutil

    interfaces = psutil.net_if_addrs()
    for name, addresses in interfaces.items():
        if any(entry.address == address for entry in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            if not address.startswith("127."):
                os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
            return
    raise UsageError(
        f"no interface of this host has the address {address}; there are {sorted(interfaces)}"
    )
