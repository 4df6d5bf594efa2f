"""Fitting a trace model to a trace. The whole trace is held in memory while it is fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.trace_arrivals import fit_arrivals
from turbo_lab.workload.trace_model import PrefixBin, PrefixShape, TraceModel, quantile_curve
from turbo_lab.workload.trace_request import TraceRequest
from turbo_lab.workload.traces import Marginal

LENGTH_PERCENTS = (
    0, 0.5, 1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 92.5, 95,
    97, 98, 99, 99.5, 99.9, 100,
)  # fmt: skip
SHARE_PERCENTS = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)
LAG_PERCENTS = (0, 10, 25, 40, 50, 60, 70, 80, 90, 95, 99, 100)
BINS = 8
NOTHING = ((0.0, 0.0), (100.0, 0.0))
ROOT_SHARE = 0.5  # a leading block that so many prompts have belongs to the root


def fit_trace(
    requests: Iterable[TraceRequest],
    *,
    name: str,
    source: Mapping[str, Any],
    tick_s: float = 0.0,
    notes: Sequence[str] = (),
) -> TraceModel:
    """The model of a trace.

    Args:
        requests: in order of arrival.
        name: of the model.
        source: the trace it comes from: name, licence, digest.
        tick_s: how coarsely the trace records its times.
        notes: what a reader should know of the fit.

    Raises:
        UsageError: too few requests, or too short a trace.
    """
    rows = list(requests)
    if len(rows) < 100:
        raise UsageError(f"{len(rows)} requests are too few to fit; 100 or more are needed")
    from scipy.stats import spearmanr

    prompts = [r.input_tokens for r in rows]
    outputs = [max(1, r.output_tokens) for r in rows]
    correlation = float(spearmanr(prompts, outputs).statistic) if len(set(outputs)) > 1 else 0.0
    return TraceModel(
        name=name,
        source={**source, "requests": len(rows)},
        arrivals=fit_arrivals([r.arrival_s for r in rows], tick_s=tick_s),
        prompt=Marginal(quantile_curve(prompts, LENGTH_PERCENTS)),
        output=Marginal(quantile_curve(outputs, LENGTH_PERCENTS)),
        rank_correlation=round(correlation, 4),
        prefix=fit_prefix(rows) if rows[0].block_ids else None,
        notes=tuple(notes),
    )


def fit_prefix(rows: Sequence[TraceRequest]) -> PrefixShape:
    """How the prompts of a trace share blocks; the sizes of their blocks must be equal."""
    root = _root_blocks(rows)
    shared, lags = _shared(rows, root)
    blocks = np.array([len(r.block_ids) for r in rows])
    order = np.argsort([r.input_tokens for r in rows], kind="stable")
    bins = []
    for number, chosen in enumerate(np.array_split(order, BINS), start=1):
        more = shared[chosen] > root
        shares = shared[chosen][more] / blocks[chosen][more]
        curve = (
            quantile_curve(shares, SHARE_PERCENTS) if len(shares) else ((0.0, 0.0), (100.0, 0.0))
        )
        bins.append(PrefixBin(number / BINS, round(1 - float(more.mean()), 4), curve))
    lag = quantile_curve(lags, LAG_PERCENTS) if lags else ((0.0, 1.0), (100.0, 1.0))
    return PrefixShape(rows[0].block_tokens, root, tuple(bins), lag)


def _root_blocks(rows: Sequence[TraceRequest]) -> int:
    """Leading blocks of the first prompt that at least half of all prompts begin with."""
    depth = 0
    for block in rows[0].block_ids:
        having = sum(1 for r in rows if len(r.block_ids) > depth and r.block_ids[depth] == block)
        if having < ROOT_SHARE * len(rows):
            break
        depth += 1
    return depth


def _shared(rows: Sequence[TraceRequest], root: int) -> tuple[np.ndarray, list[int]]:
    """Leading blocks that earlier prompts had, per prompt; requests since they were last used."""
    last: dict[int, int] = {}
    shared, lags = [], []
    for index, row in enumerate(rows):
        depth = 0
        while depth < len(row.block_ids) and row.block_ids[depth] in last:
            depth += 1
        shared.append(depth)
        if depth > root:
            lags.append(index - last[row.block_ids[depth - 1]])
        last.update(dict.fromkeys(row.block_ids, index))
    return np.array(shared), lags
