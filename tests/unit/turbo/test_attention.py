"""A sharded model against the untouched one, on a tiny random Llama."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")
pytest.importorskip("transformers", reason="needs the cpu environment")

import torch
import transformers

from turbo_lab.core.errors import UsageError
from turbo_lab.turbo import attention
from turbo_lab.turbo.merge import merge, shard_bounds, sharded_parts
from turbo_lab.turbo.tables import TableMachine, most_fraction_bits

TOKENS = 40


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, head_dim=8, initializer_range=0.3,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 64, (1, TOKENS), generator=torch.Generator().manual_seed(1))


def logits(model, ids, *, shards=None, merging=attention.merge_exactly, step=TOKENS):
    cache = (
        transformers.DynamicCache(config=model.config)
        if shards is None
        else attention.ShardedCache(model.config, shards=shards, merging=merging)
    )
    out = []
    with torch.inference_mode():
        for start in range(0, TOKENS, step):
            part = ids[:, start : start + step]
            if shards is None:
                out.append(model(part, past_key_values=cache).logits)
            else:
                with cache.attached(model):
                    out.append(model(part, past_key_values=cache).logits)
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("shards", [1, 5, 16])
@pytest.mark.parametrize("step", [TOKENS, 7])
def test_the_exact_merge_changes_nothing(llama, ids, shards, step):
    before = llama.config._attn_implementation
    torch.testing.assert_close(
        logits(llama, ids, shards=shards, step=step), logits(llama, ids), rtol=1e-4, atol=1e-4
    )
    assert llama.config._attn_implementation == before
    assert not any(hasattr(m, attention.NAME) for m in llama.modules())


def test_parts_are_those_of_the_exact_module():
    rng = np.random.default_rng(0)
    query, keys = rng.normal(size=(6, 3, 8)), rng.normal(size=(2, 11, 8))
    values = rng.normal(size=(2, 11, 8))
    outputs, weights = attention.partial_results(
        *(torch.from_numpy(x) for x in (query, keys, values)), shards=4, scaling=8**-0.5
    )
    for place in range(3):
        seen = 9 + place
        want, gamma = sharded_parts(
            query[:, place], keys[:, :seen].swapaxes(0, 1), values[:, :seen].swapaxes(0, 1),
            shards=4,
        )  # fmt: skip
        np.testing.assert_allclose(outputs[:, :, place].numpy(), want, atol=1e-12)
        np.testing.assert_allclose(weights[:, :, place].numpy(), gamma, atol=1e-12)
    got = attention.merge_exactly(0, outputs, weights)
    want = merge(outputs[:, :, 0].numpy(), weights[:, :, 0].numpy())[0]
    np.testing.assert_allclose(got[:, 0].numpy(), want, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 2, 7, 16])
@pytest.mark.parametrize("shards", [1, 3, 8])
def test_every_query_cuts_its_own_context(tokens, shards):
    part = attention.shard_of(tokens, tokens, shards=shards)
    for query in range(tokens):
        for shard, (start, end) in enumerate(shard_bounds(query + 1, shards=shards)):
            assert (part[query, start:end] == shard).all()
        assert (part[query, query + 1 :] == -1).all()


def test_tables_come_close_and_coarse_tables_do_not(llama, ids):
    found = attention.Calibrating()
    reference = logits(llama, ids, shards=4, merging=found)
    fixed = found.done()
    assert set(fixed) == {0, 1} and fixed[0].largest.shape == (6,)
    span = max(one.span() for one in fixed.values())
    bits = most_fraction_bits(span, gamma_bits=12)
    fine = attention.Tabled(TableMachine(10, 12, bits, 8), fixed)
    coarse = attention.Tabled(TableMachine(value_bits=2), fixed)
    errors = [
        float((logits(llama, ids, shards=4, merging=m) - reference).abs().max())
        for m in (fine, attention.Rounded(fixed), coarse)
    ]
    assert errors[0] < 0.2 * errors[2] and errors[1] < 0.5 * errors[2]
    assert fine.values and fine.saturated <= 0.01 * fine.values
    assert errors[0] > 0  # it did go through the tables


def test_fraction_bits_follow_from_the_span():
    assert [most_fraction_bits(s) for s in (15.9, 16.0, 31.0, 33.0, 255.0)] == [4, 3, 3, 2, 0]
    with pytest.raises(UsageError, match="do not reach"):
        most_fraction_bits(300.0)


def test_what_cannot_be_sharded_is_refused(llama, ids):
    with (
        pytest.raises(UsageError, match="0 shards"),
        attention.sharded(llama, shards=0, merging=attention.merge_exactly),
    ):
        pass
    with (
        pytest.raises(UsageError, match="one sequence at a time, not 2"),
        attention.sharded(llama, shards=2, merging=attention.merge_exactly),
    ):
        llama(ids.repeat(2, 1))
