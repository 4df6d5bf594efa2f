"""Compressed all-reduces, exchanges and the survey over real ranks: results, bytes, accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

import torch

from turbo_lab.core.errors import DistributedError
from turbo_lab.network.accuracy import held_out_accuracy, together
from turbo_lab.network.compression import message_bytes
from turbo_lab.network.cost import busbw
from turbo_lab.network.links import open_hosts
from turbo_lab.parallel.break_even import greedy_exchanges, spec_of, steps_job
from turbo_lab.parallel.codes import FORMS, expected_error, rank_values
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.compressed import compressed_all_reduce, compression_job
from turbo_lab.parallel.exchange_order import ORDERS, swap_job
from turbo_lab.parallel.grid import placed
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.survey import by_pass, points, survey, survey_job, survey_rows
from turbo_lab.parallel.tally import total
from turbo_lab.parallel.weights import small_config

pytestmark = pytest.mark.alone

COUNT, KEPT = 5000, 0.02
STEPS = {"config": small_config(), "rows": 2, "tokens": 5, "new_tokens": 3, "repeats": 1}


def everything(comm: Comm) -> dict[str, Any]:
    """All that is new over ranks, once, with sizes that make the sums easy."""
    own = torch.from_numpy(rank_values(COUNT, rank=comm.rank))
    before = own.clone()
    sums = {f: compressed_all_reduce(comm, own, form=f, kept_share=KEPT).numpy() for f in FORMS}
    untouched = bool(torch.equal(own, before))
    tallies = comm.tallies()
    ring = comm.exchange(
        torch.full((3,), float(comm.rank)), to=(comm.rank + 1) % comm.size,
        out=torch.empty(3), source=(comm.rank - 1) % comm.size,
    )  # fmt: skip
    kinds = ("all_reduce", "all_gather", "sendrecv")
    rows = survey_job(comm, kinds=kinds, sizes=(1024, 4096), ranks=(2, 3), passes=2)
    job = compression_job(comm, elements=COUNT, forms=FORMS, kept_share=KEPT, repeats=2)
    return {"sums": sums, "untouched": untouched, "tallies": tallies, "ring": ring.numpy(),
            "rows": rows, "job": job}  # fmt: skip


def two_ranks(comm: Comm) -> dict[str, Any]:
    """What needs exactly two."""
    whole, split = (steps_job(comm, split=split, **STEPS) for split in (False, True))
    return {"swaps": swap_job(comm, size_bytes=4096, repeats=3), "whole": whole, "split": split}


@pytest.fixture(scope="module")
def run() -> Any:
    return launch(everything, ranks=3, deadline_s=120)


def test_compressed_sums_are_off_by_what_was_foretold(run: Any) -> None:
    arrays = [rank_values(COUNT, rank=rank) for rank in range(3)]
    exact = np.sum(arrays, axis=0, dtype=np.float64)
    for found in run.results:
        assert found["untouched"]
        for form in FORMS:
            error = np.linalg.norm(found["sums"][form] - exact) / np.linalg.norm(exact)
            told = expected_error(arrays, form=form, kept_share=KEPT)
            if form in ("int8", "topk"):
                assert error == pytest.approx(told, rel=0.1)
            else:
                assert error <= max(told, 1e-6)
            np.testing.assert_array_equal(found["sums"][form], run.results[0]["sums"][form])


def test_compressed_payload_is_the_formulas(run: Any) -> None:
    for found in run.results:
        for form in FORMS:
            size = message_bytes(COUNT, form=form, kept_share=KEPT)
            sent = total(found["tallies"], "sent_bytes", label=form)
            assert sent == pytest.approx(size * (4 / 3 if form in ("fp32", "fp16") else 2))
            assert found["job"][form]["sent_bytes"] == sent
            assert len(found["job"][form]["coding_s"]) == len(found["job"][form]["total_s"]) == 2


def test_an_exchange_moves_a_message_each_way(run: Any) -> None:
    for rank, found in enumerate(run.results):
        np.testing.assert_array_equal(found["ring"], np.full(3, (rank - 1) % 3))


def test_a_survey_has_every_row_of_every_pass_and_right_results(run: Any) -> None:
    rows = survey_rows([found["rows"] for found in run.results])
    assert len(rows) == 2 * 3 * 2 * 2 and not any(row.wrong for row in rows)
    assert [len(one) for one in by_pass(rows)] == [12, 12]
    assert {(row.kind, row.ranks) for row in rows} >= {("all_reduce", 2), ("sendrecv", 3)}


def test_split_steps_give_the_same_tokens_and_the_payload_of_the_formula() -> None:
    done = launch(two_ranks, ranks=2, deadline_s=120)
    spec = spec_of(STEPS["config"])
    sent = sum(
        times * one.total_bytes
        for tokens, times in ((5, 1), (1, 2))  # a prefill and two decode steps
        for one in greedy_exchanges(spec, rows=2, tokens=tokens, ranks=2)
    )
    for found in done.results:
        assert found["whole"]["tokens"] == found["split"]["tokens"]
        assert found["split"]["payload_bytes"] == sent and found["whole"]["payload_bytes"] == 0
        assert len(found["split"]["decode_s"]) == 2
        assert set(found["swaps"]) == set(ORDERS)


def test_a_swap_needs_two_ranks() -> None:
    with pytest.raises(DistributedError, match="a swap needs 2 ranks; there are 3"):
        launch(
            "turbo_lab.parallel.exchange_order:swap_job", ranks=3, deadline_s=60,
            arguments={"size_bytes": 4096, "repeats": 1},
        )  # fmt: skip


@pytest.mark.net
@pytest.mark.usefixtures("namespaces_allowed")
def test_held_out_sizes_are_foretold_and_the_link_is_filled() -> None:
    """Error against the noise of this very run: a busy machine raises both.

    Medians over all held-out sizes and both directions between two passes; no retry.
    """
    with open_hosts(3, link="1gbit", kind="namespaces") as hosts:
        rows = survey(
            kinds=("all_reduce",), ranks=(2, 3), passes=3, place=placed(hosts, [0, 1, 2]),
            sizes=[1024 * 2**k for k in range(11)],
        )  # fmt: skip
        rate = hosts.link.rate_bytes_s
    whole = together(held_out_accuracy(by_pass(rows)))
    assert whole.within(0.15, times_noise=2.0), (whole.median, whole.same_again)
    shares = [
        busbw("all_reduce", size, seconds, ranks) / rate
        for ranks in (2, 3)
        for size, seconds in points(rows, kind="all_reduce", ranks=ranks)
    ]
    assert max(shares[-3:]) < 1.0  # no byte passes faster than the link
    assert max(shares) > 0.4  # 0.85 at this size on an idle machine, and 0.94 at 16 MiB
