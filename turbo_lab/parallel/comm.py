"""The only place that calls collectives. Every call is counted: payload, calls, time.

A ``Comm`` is a group of ranks. It is passed to whoever needs it; there is no global group in the
project's own code. A group of one rank needs no process group, moves nothing and counts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist

from turbo_lab.core.errors import UsageError
from turbo_lab.network.pacing import pace_sockets
from turbo_lab.parallel.pending import Pending
from turbo_lab.parallel.tally import Ledger

Timing = Literal["call", "aligned"]
GLOO_REDUCE_SCATTER = "all-to-all and local sum (gloo's own moves a whole all-reduce)"


class Comm:
    """A group of ranks and its calls.

    ``timing``: ``call`` is the time a rank spends inside the call, waiting for slower ranks
    included (on a GPU only the launch); ``aligned`` puts a barrier and a device synchronisation
    before and after it, so that only the transfer is left.
    """

    def __init__(
        self,
        group: Any = None,
        *,
        device: str = "cpu",
        timing: Timing = "call",
        alone: bool = False,
    ) -> None:
        self._group, self._alone, self.timing = group, alone, timing
        self.device = torch.device(device)
        self.rank = 0 if alone else dist.get_rank(group)
        self.size = 1 if alone else dist.get_world_size(group)
        self.backend = "none" if alone else dist.get_backend(group)
        self.ledger = Ledger(self.size)

    @classmethod
    def single(cls, *, device: str = "cpu") -> Comm:
        """A group of one rank without any process group: the unsharded case of the same code."""
        return cls(device=device, alone=True)

    def all_reduce(self, tensor: torch.Tensor, *, label: str = "") -> torch.Tensor:
        """Sum over the ranks, in place. Payload: the tensor."""
        return self.start_all_reduce(tensor, label=label, wait=True).wait()

    def start_all_reduce(
        self, tensor: torch.Tensor, *, label: str = "", wait: bool = False
    ) -> Pending:
        """Start a sum over the ranks, in place; compute meanwhile, then ``wait``."""
        if self.size == 1:
            return Pending(None, tensor)
        work = self._timed(
            "all_reduce", label, _bytes(tensor),
            lambda: dist.all_reduce(tensor, group=self._group, async_op=not wait),
            known=wait, align=wait,
        )  # fmt: skip
        return Pending(work, tensor)

    def all_gather(
        self, tensor: torch.Tensor, *, label: str = "", out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """All ranks' equal pieces, one after the other along dimension 0. Payload: the result."""
        if self.size == 1:
            return tensor
        piece = tensor.contiguous()
        shape = (self.size * piece.shape[0], *piece.shape[1:])
        whole = piece.new_empty(shape) if out is None else out
        self._timed(
            "all_gather", label, _bytes(whole),
            lambda: dist.all_gather_single(whole, piece, group=self._group),
        )  # fmt: skip
        return whole

    def reduce_scatter(
        self, tensor: torch.Tensor, *, label: str = "", out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Sum over the ranks; rank r keeps the r-th piece of dimension 0. Payload: the input.

        Gloo has it only as an all-reduce of everything, so there it is an all-to-all of the
        pieces and a local sum: the same bytes as a ring; the tally says so.
        """
        if self.size == 1:
            return tensor
        if tensor.shape[0] % self.size:
            raise UsageError(
                f"reduce_scatter over {self.size} ranks of {tensor.shape[0]} rows; allowed: a "
                f"multiple of {self.size}. Pad the rows."
            )
        gloo, source = self.backend == "gloo", tensor.contiguous()
        shape = (source.shape[0] // self.size, *source.shape[1:])
        own = source.new_empty(shape) if out is None else out

        def run() -> None:
            if not gloo:
                dist.reduce_scatter_single(own, source, group=self._group)
                return
            pieces = torch.empty_like(source)
            dist.all_to_all_single(pieces, source, group=self._group)
            torch.sum(pieces.view(self.size, *own.shape), dim=0, out=own)

        how = GLOO_REDUCE_SCATTER if gloo else ""
        self._timed("reduce_scatter", label, _bytes(source), run, how=how)
        return own

    def all_to_all(
        self,
        tensor: torch.Tensor,
        *,
        send_rows: Sequence[int] | None = None,
        receive_rows: Sequence[int] | None = None,
        label: str = "",
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Rows for rank 0, for rank 1 ... out; rows of rank 0, of rank 1 ... back.

        Without row counts the rows are split evenly. Payload: this rank's send buffer; what
        stays on the rank itself is payload, but not sent.
        """
        if self.size == 1:
            return tensor
        source = tensor.contiguous()
        rows = list(send_rows or [source.shape[0] // self.size] * self.size)
        back = list(receive_rows or rows)
        if sum(rows) != source.shape[0] or len(rows) != self.size or len(back) != self.size:
            raise UsageError(
                f"all_to_all over {self.size} ranks: {source.shape[0]} rows, send_rows {rows}, "
                f"receive_rows {back}; needed: one number for each rank, their sum the rows."
            )
        target = source.new_empty((sum(back), *source.shape[1:])) if out is None else out
        row_bytes = source[0:1].numel() * source.element_size() if rows and source.numel() else 0
        self._timed(
            "all_to_all", label, _bytes(source),
            lambda: dist.all_to_all_single(target, source, back, rows, group=self._group),
            sent=float((sum(rows) - rows[self.rank]) * row_bytes),
        )  # fmt: skip
        return target

    def broadcast(self, tensor: torch.Tensor, *, root: int = 0, label: str = "") -> torch.Tensor:
        """The root's values into every rank's tensor. Payload: the tensor."""
        if self.size > 1:
            self._timed(
                "broadcast", label, _bytes(tensor),
                lambda: dist.broadcast(tensor, group=self._group, group_src=root),
            )  # fmt: skip
        return tensor

    def send(self, tensor: torch.Tensor, *, to: int, label: str = "") -> None:
        """Send and wait until the other rank has taken it. Payload: the tensor."""
        self._check_peer(to)
        self._timed(
            "send", label, _bytes(tensor),
            lambda: dist.send(tensor.contiguous(), group=self._group, group_dst=to), align=False,
        )  # fmt: skip

    def start_send(self, tensor: torch.Tensor, *, to: int, label: str = "") -> Pending:
        """Start to send; the tensor must not change before ``wait``."""
        self._check_peer(to)
        source = tensor.contiguous()
        work = self._timed(
            "send", label, _bytes(source),
            lambda: dist.isend(source, group=self._group, group_dst=to), align=False, known=False,
        )  # fmt: skip
        return Pending(work, source)

    def recv(self, tensor: torch.Tensor, *, source: int, label: str = "") -> torch.Tensor:
        """Receive into ``tensor``; wait for it. Payload: the tensor."""
        self._check_peer(source)
        self._timed(
            "recv", label, _bytes(tensor),
            lambda: dist.recv(tensor, group=self._group, group_src=source), align=False,
        )  # fmt: skip
        return tensor

    def exchange(
        self, tensor: torch.Tensor, *, to: int, out: torch.Tensor, source: int
    ) -> torch.Tensor:
        """Send to one rank while receiving from another; returns ``out``.

        Receives are posted first: gloo's note that a receiver is ready would wait behind a payload
        given to the same connection before, and the directions would take turns.
        """
        for peer in (to, source):
            self._check_peer(peer)
        group, sent = self._group, _bytes(tensor)
        get = dist.P2POp(dist.irecv, out, group=group, group_peer=source)
        give = dist.P2POp(dist.isend, tensor.contiguous(), group=group, group_peer=to)

        def run() -> None:
            for work in dist.batch_isend_irecv([get, give]):
                work.wait()

        self._timed("send", "exchange", sent, run)
        self.ledger.add("recv", "exchange", payload_bytes=_bytes(out), seconds=None)
        return out

    def barrier(self) -> None:
        """Wait for all ranks. Not counted: it carries no payload."""
        if self.size > 1:
            dist.barrier(group=self._group)

    def gather_objects(self, value: Any) -> list[Any]:
        """Every rank's picklable value. Not counted: for results, not for the work itself."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def split(self, groups: Sequence[Sequence[int]]) -> Comm:
        """The group of ``groups`` that holds this rank; all ranks of that group must call it.

        Raises UsageError when a rank of this group is in none or in two of them.
        """
        flat = [rank for group in groups for rank in group]
        if sorted(flat) != list(range(self.size)):
            raise UsageError(
                f"groups are {[list(g) for g in groups]}; needed: each rank 0 to {self.size - 1} "
                "exactly once."
            )
        if self._alone:
            return Comm.single(device=str(self.device))
        world = [dist.get_global_rank(self._group or dist.group.WORLD, rank) for rank in flat]
        place = dict(zip(flat, world, strict=True))
        members = [place[rank] for rank in next(g for g in groups if self.rank in g)]
        own = dist.new_group(members, use_local_synchronization=True)
        pace_sockets()  # paced hosts: this group has connections of its own
        return Comm(own, device=str(self.device), timing=self.timing)

    def twin(self) -> Comm:
        """The same ranks with messages of their own, so that two directions never block."""
        return self.split([range(self.size)])

    def tallies(self) -> list[dict[str, Any]]:
        """What was counted so far, one dict for each kind and label."""
        return self.ledger.to_list()

    def reset(self) -> None:
        """Forget what was counted."""
        self.ledger = Ledger(self.size)

    def synchronise(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Leave the process group, after everyone has arrived."""
        if not self._alone and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()

    def _timed(
        self,
        kind: str,
        label: str,
        payload_bytes: int,
        run: Callable[[], Any],
        *,
        sent: float | None = None,
        align: bool = True,
        known: bool = True,
        how: str = "",
    ) -> Any:
        aligned = align and self.timing == "aligned"
        if aligned:
            self.synchronise()
            self.barrier()
        start_s = time.perf_counter()
        result = run()
        if aligned:
            self.synchronise()
        seconds = time.perf_counter() - start_s if known else None
        self.ledger.add(
            kind, label, payload_bytes=payload_bytes, seconds=seconds, sent=sent, how=how
        )
        return result

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            others = [rank for rank in range(self.size) if rank != self.rank]
            raise UsageError(f"rank {self.rank} and peer {peer}; allowed: {others}")


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
