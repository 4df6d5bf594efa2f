"""The solutions of notebook 16 and the package give the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.course.solutions import nb16
from turbo_lab.diagnose.injection.fault import Examined, score
from turbo_lab.diagnose.injection.figures import time_split
from turbo_lab.diagnose.injection.patient import PROMPT_TOKENS
from turbo_lab.diagnose.injection.ward import BLOCK_TOKENS, BLOCKS, LONG_REPLY_TOKENS, Ward
from turbo_lab.engines.args import VllmArgs

IDS = st.sets(st.sampled_from(["queue_pressure", "wrong_key", "disk_full"]))


@given(st.lists(st.tuples(IDS, IDS), max_size=6))
def test_precision_and_recall(pairs) -> None:
    rows = [
        Examined("f", bool(want), tuple(want), (), {"log": tuple(named)}) for want, named in pairs
    ]
    found = score(rows)
    assert nb16.precision_recall(pairs) == (found.precision, found.recall)


def test_what_fits_into_the_patients_pool(tmp_path: Path) -> None:
    ward = Ward(VllmArgs.make(model="any"), folder=tmp_path)
    fits = nb16.requests_that_fit(BLOCKS, BLOCK_TOKENS, PROMPT_TOKENS, LONG_REPLY_TOKENS)
    assert ward.long_replies_that_fit() == fits == 3


@given(*[st.floats(0.01, 10)] * 3)
def test_the_slowest_place(queue: float, engine: float, outside: float) -> None:
    server, client = queue + engine, queue + engine + outside
    split = time_split({"queue_s": queue, "server_s": server, "client_s": client})
    assert split is not None
    largest = max(split, key=lambda place: split[place])
    if sorted(split.values())[-1] - sorted(split.values())[-2] > 1e-9:
        assert largest.startswith(nb16.slowest_place(queue, server, client))


@pytest.mark.parametrize("waves", [1, 2, 3, 7])
def test_the_queues_share_by_counting(waves: int) -> None:
    waits = list(range(waves))
    ends = [wait + 1 for wait in waits]
    assert nb16.queue_share(waves) == pytest.approx(sum(waits) / sum(ends))
