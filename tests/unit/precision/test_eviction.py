"""Token eviction equals attention under the mask that it stands for; bytes equal the formula."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
import torch
from transformers import DynamicCache

from turbo_lab.core.errors import UsageError
from turbo_lab.precision.eviction import EvictingCache, EvictingLayer
from turbo_lab.precision.eviction_rule import Eviction, evicted_layer_bytes

from .conftest import DIM, HEADS, LAYERS, passes

SINKS = Eviction(window_tokens=12, sink_tokens=4)
HEAVY = Eviction(window_tokens=8, heavy_tokens=8)


@pytest.mark.parametrize("step", [1, 8])
@pytest.mark.parametrize("rule", [SINKS, Eviction(window_tokens=16)], ids=["sinks", "window"])
def test_sink_and_window_equal_masked_attention(llama, ids, rule, step):
    query, key = torch.arange(60)[:, None], torch.arange(60)[None]
    before = query // step * step  # eviction happened before the pass of this query
    kept = (key >= before - rule.window_tokens) | (key < rule.sink_tokens)
    kept |= before <= rule.budget_tokens
    mask = torch.zeros(60, 60).masked_fill(~(kept & (key <= query)), -torch.inf)
    with torch.inference_mode():
        wanted = llama(ids, attention_mask=mask[None, None].expand(2, -1, -1, -1)).logits
    found = passes(llama, ids, EvictingCache(llama.config, rule), step=step)
    assert torch.allclose(found, wanted, atol=2e-3)


def test_a_budget_that_is_never_reached_changes_nothing(llama, ids):
    plain = passes(llama, ids, DynamicCache(config=llama.config), step=8)
    roomy = EvictingCache(llama.config, Eviction(window_tokens=99))
    assert torch.equal(passes(llama, ids, roomy, step=8), plain)
    heavy = EvictingCache(llama.config, Eviction(window_tokens=9, heavy_tokens=99))
    assert torch.allclose(passes(llama, ids, heavy, step=8), plain, atol=2e-3)
    assert llama.config._attn_implementation == "sdpa"  # eager only while it is attached


@pytest.mark.parametrize("rule", [SINKS, HEAVY], ids=["sinks", "heavy"])
def test_bytes_equal_the_formula_and_stop_growing(llama, ids, rule):
    for count in (10, 16, 40, 60):
        cache = EvictingCache(llama.config, rule)
        passes(llama, ids[:, :count], cache, step=8)
        wanted = evicted_layer_bytes(rule, tokens=count, kv_heads=HEADS, head_dim=DIM, batch=2)
        assert cache.stored_bytes == LAYERS * wanted
        assert cache.get_seq_length() == count
    cache.reset()
    assert cache.stored_bytes == 0


def test_heavy_hitters_keep_what_attention_looked_at():
    layer = EvictingLayer(Eviction(window_tokens=2, heavy_tokens=1))
    states = torch.arange(6.0).view(1, 1, 6, 1).expand(1, 2, 6, 1)
    layer.update(states, states)
    weights = torch.full((1, 4, 6, 6), 0.01)
    weights[:, :2, :, 1] = 1.0  # both query heads of the first KV head look at token 1
    weights[:, 2:, :, 3] = 1.0  # those of the second at token 3
    layer.observe(weights)
    assert layer.keys[0, :, :, 0].tolist() == [[1.0, 4.0, 5.0], [3.0, 4.0, 5.0]]
    layer.update(states[:, :, :1] + 6, states[:, :, :1] + 6)
    layer.observe(torch.full((1, 4, 1, 4), 0.25))  # scores add up: the old hitters stay
    assert layer.keys[0, :, :, 0].tolist() == [[1.0, 5.0, 6.0], [3.0, 5.0, 6.0]]


def test_heavy_hitters_without_attention_weights_are_an_error(llama, ids):
    cache = EvictingCache(llama.config, HEAVY)
    with torch.inference_mode(), pytest.raises(UsageError, match=r"inside cache.attached\(model\)"):
        for _ in range(2):
            llama(ids[:, :4], past_key_values=cache, use_cache=True)


def test_impossible_budgets_are_refused():
    with pytest.raises(UsageError, match="window_tokens is 0"):
        Eviction(window_tokens=0)
    with pytest.raises(UsageError, match="sink_tokens is -1"):
        Eviction(window_tokens=4, sink_tokens=-1)
    assert SINKS.rule == "sink and window" and HEAVY.rule == "heavy hitters"
