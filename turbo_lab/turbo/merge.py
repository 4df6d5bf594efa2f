"""The exact merge of partial attention: any parts, any order, any tree.

A part of the context gives, per head, a normalised output ``A`` and the weight of the part, here in
base 2: ``gamma = log2 sum 2^s`` with ``s = (q . k / sqrt(d)) log2(e)``. Two parts merge as

    delta = |gamma_a - gamma_b|,  gamma = max(gamma_a, gamma_b) + log2(1 + 2^-delta)
    A = w A_big + (1 - w) A_small,  w = 1 / (1 + 2^-delta)

which is associative and commutative. Source: the split-KV step of Flash-Decoding (Dao et al. 2023),
and of online softmax (Milakov and Gimelshein, arXiv 1805.02867), written in base 2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError

LOG2_E = math.log2(math.e)
Part = tuple[np.ndarray, np.ndarray]


def merge(outputs: Any, log2_weights: Any) -> Part:
    """Merge n partial results of attention into one, exact but for rounding.

    ``gamma = top + log2 sum_i 2^(gamma_i - top)``, ``A = sum_i 2^(gamma_i - gamma) A_i``, with
    ``top`` the largest ``gamma_i`` of the head, so that nothing overflows.

    Args:
        outputs: (n, heads, dim), float64; normalised over the part's own tokens.
        log2_weights: (n, heads), float64; ``-inf`` for a part without tokens, whose output is then
            not looked at.

    Returns:
        ``(output (heads, dim), log2_weight (heads,))``, float64. Where all parts are empty, the
        output is 0 and the weight ``-inf``: it merges further without an effect.

    Raises:
        UsageError: shapes that do not fit, no part, or a weight that is NaN or ``+inf``.
    """
    values = np.asarray(outputs, dtype=np.float64)
    gammas = np.asarray(log2_weights, dtype=np.float64)
    _check(values, gammas)
    top = gammas.max(axis=0)
    safe_top = np.where(np.isneginf(top), 0.0, top)
    shares = np.exp2(gammas - safe_top)
    total = shares.sum(axis=0)
    live = np.where(shares[..., None] > 0, values, 0.0)
    summed = (shares[..., None] * live).sum(axis=0)
    with np.errstate(divide="ignore"):
        gamma = safe_top + np.log2(total)
    return summed / np.where(total > 0, total, 1.0)[..., None], gamma


def merge_tree(outputs: Any, log2_weights: Any, *, fan_in: int = 2) -> Part:
    """The same in a balanced tree: groups of ``fan_in`` neighbours merge until one is left."""
    if fan_in < 2:
        raise UsageError(f"fan_in is {fan_in}; a node of a tree merges at least 2 parts")
    values = np.asarray(outputs, dtype=np.float64)
    gammas = np.asarray(log2_weights, dtype=np.float64)
    _check(values, gammas)
    while len(values) > 1:
        groups = [slice(i, i + fan_in) for i in range(0, len(values), fan_in)]
        merged = [merge(values[g], gammas[g]) for g in groups]
        values, gammas = (np.stack(side) for side in zip(*merged, strict=True))
    return merge(values, gammas)


def partial_attention(query: Any, keys: Any, values: Any, *, scale: float | None = None) -> Part:
    """Attention of one query token over one part of the context, with the part's weight.

    Args:
        query: (heads, dim).
        keys, values: (tokens, kv_heads, dim); the heads are consecutive groups per KV head. No
            token at all gives zeros and ``-inf``.
        scale: of the scores; ``1 / sqrt(dim)`` by default.

    Returns:
        ``(output (heads, dim), log2_weight (heads,))``, float64.
    """
    q, k, v = (np.asarray(each, dtype=np.float64) for each in (query, keys, values))
    heads, dim = q.shape
    tokens, kv_heads, _ = k.shape
    if heads % kv_heads or k.shape[:2] != v.shape[:2]:
        raise UsageError(
            f"{heads} query heads, keys {k.shape} and values {v.shape} do not fit: query heads "
            "must be a multiple of KV heads, and keys and values of the same tokens"
        )
    if tokens == 0:
        return np.zeros((heads, v.shape[2])), np.full(heads, -np.inf)
    grouped = q.reshape(kv_heads, heads // kv_heads, dim)
    factor = (scale if scale is not None else dim**-0.5) * LOG2_E
    scores = np.einsum("kgd,tkd->kgt", grouped, k) * factor
    top = scores.max(axis=-1, keepdims=True)
    shares = np.exp2(scores - top)
    total = shares.sum(axis=-1, keepdims=True)
    output = np.einsum("kgt,tkd->kgd", shares / total, v)
    gamma = top + np.log2(total)
    return output.reshape(heads, -1), gamma.reshape(heads)


def shard_bounds(tokens: int, *, shards: int) -> tuple[tuple[int, int], ...]:
    """First token and end of each of ``shards`` consecutive parts, sizes within one token.

    With fewer tokens than shards some parts are empty.
    """
    if tokens < 0 or shards < 1:
        raise UsageError(f"{tokens} tokens over {shards} shards; allowed: 0 or more, 1 or more")
    edges = [tokens * i // shards for i in range(shards + 1)]
    return tuple(itertools.pairwise(edges))


def sharded_parts(query: Any, keys: Any, values: Any, *, shards: int) -> Part:
    """Partial results of every shard: ``(outputs (n, heads, dim), log2_weights (n, heads))``."""
    parts: Sequence[Part] = [
        partial_attention(query, keys[start:end], values[start:end])
        for start, end in shard_bounds(len(keys), shards=shards)
    ]
    outputs, weights = zip(*parts, strict=True)
    return np.stack(outputs), np.stack(weights)


def _check(values: np.ndarray, gammas: np.ndarray) -> None:
    if values.ndim != 3 or values.shape[:2] != gammas.shape or not len(values):
        raise UsageError(
            f"outputs {values.shape} and log2_weights {gammas.shape} do not fit; wanted are "
            "(n, heads, dim) and (n, heads) with n of at least 1"
        )
    if np.isnan(gammas).any() or np.isposinf(gammas).any():
        raise UsageError(
            "a log2 weight is NaN or +inf; allowed: finite numbers, and -inf for an empty part"
        )
