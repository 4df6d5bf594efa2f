"""The tensor-parallel study on real ranks: what it counts, and what interfaces count with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.core.errors import TurboLabError
from turbo_lab.engines import local_model
from turbo_lab.models.spec import ModelSpec, from_hf_config
from turbo_lab.network.links import open_hosts
from turbo_lab.parallel import jobs, tensor_study
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.tally import total
from turbo_lab.parallel.tensor_study import (
    Study,
    carried_bytes,
    run_replicas,
    run_study,
    run_traffic,
)
from turbo_lab.parallel.tensor_traffic import generation_exchanges, total_bytes, wire_traffic
from turbo_lab.parallel.weights import open_weights, small_config

pytestmark = pytest.mark.alone

PROMPTS = [[1, 2, 3, 4, 95], [50, 40, 30, 20, 10]]
POINTS = [(1, 8), (2, 4)]
NEW, PASSES = 3, 2
TINY, ONE_KV = small_config(), small_config(num_key_value_heads=1)


@pytest.fixture(scope="module")
def study() -> Study:
    spec = from_hf_config(TINY, name="tiny")
    raw = run_study(TINY, spec=spec, ranks=2, prompts=PROMPTS, new_tokens=NEW, points=POINTS,
                    passes=PASSES, decode_steps=3)  # fmt: skip
    return Study.of(raw, spec=spec)


def test_the_study_checks_and_counts_what_the_formula_says(study: Study) -> None:
    whole = jobs.tensor_job(Comm.single(), model=TINY, prompts=PROMPTS, new_tokens=NEW)["tokens"]
    assert study.check["logit_error"] < 1e-5
    shape = {"rows": len(PROMPTS), "prompt_tokens": len(PROMPTS[0]), "new_tokens": NEW}
    listed = generation_exchanges(study.spec, ranks=2, **shape)
    for rank in study.raw["rank"]:
        np.testing.assert_array_equal(rank["check"]["tokens"], whole)
        rows = rank["check"]["tallies"]
        assert total(rows, "payload_bytes") == total_bytes(listed) > 0
        assert total(rows, "calls") == sum(one.count for one in listed)
    np.testing.assert_array_equal(study.check["whole_tokens"], whole)


def test_every_part_is_timed_in_every_pass(study: Study) -> None:
    for what in ("whole", "whole_wide", "share", "sharded"):
        for point in POINTS:
            for phase in ("prefill", "decode"):
                times = study.passes(what, point, phase)
                assert len(times) == PASSES and min(times) > 0
    assert all(row["wrong"] == 0 for rank in study.raw["rank"] for turn in rank["sweeps"]
               for rows in turn.values() for row in rows)  # fmt: skip
    for point in POINTS:
        found = study.forecast(point, "decode")
        assert found.exchange_s > 0 and found.share_s > 0


def test_nothing_is_sent_while_shares_are_timed(study: Study) -> None:
    """What the ranks counted in the timed sharded steps is those steps' traffic and no more."""
    calls = [sum(1 for _ in turn) for turn in study.raw["rank"][0]["inside"]]
    assert calls == [4] * PASSES  # embedding, attention, mlp, argmax


@pytest.mark.parametrize(("config", "ranks", "copies"), [(TINY, 4, 2), (ONE_KV, 2, 2)])
def test_kv_heads_are_kept_by_several_ranks(config: dict, ranks: int, copies: int) -> None:
    found = run_replicas(config, ranks=ranks, prompts=PROMPTS)
    whole = found[0]["whole_cache_bytes"]
    assert sum(rank["cache_bytes"] for rank in found) == copies * whole
    assert {rank["kv_heads"] for rank in found} == {1}
    for rank in found:
        assert rank["tokens"] == found[0]["whole_tokens"]


def test_one_rank_in_a_process_of_its_own_is_the_unsharded_bundled_model() -> None:
    model = str(local_model.prepare())
    work = {"model": model, "prompts": PROMPTS, "new_tokens": NEW, "with_logits": True}
    alone = jobs.tensor_job(Comm.single(), **work)
    run = launch(jobs.tensor_job, ranks=1, arguments=work, threads=1, deadline_s=150)
    found = run.results[0]
    np.testing.assert_array_equal(found["tokens"], alone["tokens"])
    np.testing.assert_allclose(found["logits"], alone["logits"], atol=1e-3)
    assert found["tallies"] == [] and found["weight_bytes"] == alone["weight_bytes"]


@pytest.mark.net
def test_interfaces_count_the_payload_and_the_stated_overhead() -> None:
    try:
        open_hosts(2, kind="namespaces").close()
    except TurboLabError as error:
        pytest.skip(str(error))
    model, ranks = str(local_model.prepare()), 3
    spec: ModelSpec = open_weights(model).spec
    found = run_traffic(model, ranks=ranks, prompts=PROMPTS, new_tokens=NEW)
    shape = {"rows": len(PROMPTS), "prompt_tokens": len(PROMPTS[0]), "new_tokens": NEW}
    listed = generation_exchanges(spec, ranks=ranks, **shape)
    for number, rank in enumerate(found):
        assert total(rank["tallies"], "payload_bytes") == total_bytes(listed)
        wire = wire_traffic(listed, ranks=ranks, rank=number)
        stream = carried_bytes([rank])
        # An announcement or a barrier's last message may fall on either side of the reading, and
        # on a busy machine TCP notes packets that overtook each other.
        wanted = wire.stream_sent_bytes
        assert abs(stream - wanted) < 2000 + 0.005 * wanted, (stream, wanted)
        assert rank["tokens"] == found[0]["tokens"]


def test_prompts_are_cut_to_one_length_and_come_back_as_text() -> None:
    model = str(local_model.prepare())
    rows: Any = tensor_study.prompt_ids(model, tokens=12)
    assert {len(row) for row in rows} == {12} and len(rows) == len(tensor_study.PROMPTS)
    for text, back in zip(tensor_study.PROMPTS, tensor_study.texts_of(model, rows), strict=True):
        assert text.startswith(back)
    with pytest.raises(TurboLabError, match="the shortest text has"):
        tensor_study.prompt_ids(model, tokens=500)
