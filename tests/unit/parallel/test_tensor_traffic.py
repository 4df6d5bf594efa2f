from __future__ import annotations

import pytest

from turbo_lab.core.errors import UsageError
from turbo_lab.estimate.tensor_parallel import bytes_per_layer
from turbo_lab.models.catalog import load_model
from turbo_lab.network.gloo import gloo_traffic
from turbo_lab.parallel.tensor_traffic import (
    generation_exchanges,
    greedy_exchanges,
    total_bytes,
    wire_traffic,
)

SPEC = load_model("smollm2-135m").spec()
LAYERS = len(SPEC.layers)


def test_a_greedy_step_gathers_candidates_and_no_logits() -> None:
    found = greedy_exchanges(SPEC, ranks=3, rows=4)
    assert [one.where for one in found] == ["embedding", "layers", "argmax"]
    assert total_bytes(found, where="layers") == LAYERS * bytes_per_layer(
        SPEC, tokens=4, element_bytes=4
    )
    assert total_bytes(found, where="argmax") == 3 * 4 * 16
    assert greedy_exchanges(SPEC, ranks=1, rows=4) == ()


def test_a_generation_is_a_prefill_and_decode_steps() -> None:
    shape = {"ranks": 3, "rows": 2}
    whole = generation_exchanges(SPEC, prompt_tokens=7, new_tokens=3, **shape)
    parts = total_bytes(greedy_exchanges(SPEC, tokens=7, **shape))
    assert total_bytes(whole) == parts + 2 * total_bytes(greedy_exchanges(SPEC, **shape))


def test_on_the_wire_come_gloos_own_messages_on_top() -> None:
    found = greedy_exchanges(SPEC, ranks=3, rows=1)
    for rank in range(3):
        wire = wire_traffic(found, ranks=3, rank=rank)
        one = gloo_traffic("all_reduce", SPEC.hidden * 4, ranks=3, rank=rank)
        best = gloo_traffic("all_gather", 48, ranks=3, rank=rank, element_bytes=8)
        assert wire.sent_bytes == (2 * LAYERS + 1) * one.sent_bytes + best.sent_bytes
        assert wire.stream_sent_bytes > wire.sent_bytes
    ranks = [wire_traffic(found, ranks=3, rank=r) for r in range(3)]
    payload = sum(one.payload_bytes(ranks=3) for one in found)
    assert sum(one.sent_bytes for one in ranks) == pytest.approx(3 * payload)
    assert sum(r.sent_bytes for r in ranks) == sum(r.received_bytes for r in ranks)


def test_a_number_of_ranks_that_does_not_divide_is_refused() -> None:
    with pytest.raises(UsageError, match="9 query heads cannot be split over 2 ranks"):
        greedy_exchanges(SPEC, ranks=2, rows=1)
