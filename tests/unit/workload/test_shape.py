"""Workloads: lengths, memberships and exact numbers of each request."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.workload.shape import Slot, Tenant, Workload, counts
from turbo_lab.workload.traces import TraceRow, read_trace

RUN = {"input_tokens": 100, "output_tokens": 20, "seed": 3}


def test_plain_requests_share_nothing_and_add_no_setting():
    assert Workload().slots(3, **RUN) == [Slot(100, 20)] * 3
    assert Workload().variables() == {}


def test_neighbours_never_share_a_prefix_and_the_first_use_is_told():
    slots = Workload(kind="shared-prefix", prefixes=3, prefix_tokens=60).slots(7, **RUN)
    assert [s.prefix for s in slots] == list("0120120")
    assert [s.labels["shared_tokens"] for s in slots] == [0, 0, 0, 60, 60, 60, 60]
    assert all((s.input_tokens, s.prefix_tokens) == (100, 60) for s in slots)


def test_turns_are_numbered_from_one():
    slots = Workload(kind="multi-turn", turns=3).slots(6, **RUN)
    assert [(s.labels["conversation"], s.labels["turn"]) for s in slots] == [
        (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0.1, 50), min_size=1, max_size=6), st.integers(60, 500), st.integers(0, 9)
)
def test_tenants_get_their_share_of_the_requests_in_exact_numbers(shares, count, seed):
    tenants = tuple(Tenant(name=f"t{i}", share=s) for i, s in enumerate(shares))
    total = sum(shares)
    try:
        found = counts(tenants, count)
    except UsageError:
        assert min(shares) / total * count < 1
        return
    assert sum(found) == count
    for share, n in zip(shares, found, strict=True):
        assert abs(n - count * share / total) < 1
    slots = Workload(kind="tenants", tenants=tenants).slots(
        count, input_tokens=10, output_tokens=5, seed=seed
    )
    seen = Counter(s.labels["tenant"] for s in slots)
    assert [seen[t.name] for t in tenants] == found


def test_a_tenants_own_lengths_win_and_only_its_first_prompt_is_new():
    big = Tenant(name="big", share=3, input_tokens=400, output_tokens=7, prefix_tokens=300)
    work = Workload(kind="tenants", tenants=(big, Tenant(name="small")))
    slots = work.slots(8, **RUN)
    own = [s for s in slots if s.labels["tenant"] == "big"]
    assert len(own) == 6 and {(s.input_tokens, s.output_tokens) for s in own} == {(400, 7)}
    assert [s.labels["shared_tokens"] for s in own] == [0, *[300] * 5]
    assert own[0].labels["input_tokens"] == 400 and own[0].prefix == "big"
    assert slots == work.slots(8, **RUN), "one seed, one order"
    assert slots != work.slots(8, **{**RUN, "seed": 4})
    assert work.variables()["tenant.big.share"] == 3


def test_a_trace_gives_each_request_its_own_lengths():
    work = Workload(trace=(TraceRow(0.0, 10, 2), TraceRow(1.0, 30, 4)), trace_name="t")
    assert [(s.input_tokens, s.output_tokens) for s in work.slots(2, **RUN)] == [(10, 2), (30, 4)]
    with pytest.raises(UsageError, match="has 2 requests, not 3"):
        work.slots(3, **RUN)


@pytest.mark.parametrize(
    "work",
    [
        Workload(),
        Workload(kind="shared-prefix", prefixes=2, prefix_tokens=5),
        Workload(kind="multi-turn", turns=2, think_s=1.5),
        Workload(kind="tenants", tenants=(Tenant(name="a"), Tenant(name="b", share=2.0))),
        Workload(trace=(TraceRow(0.0, 10, 2),), trace_name="x.csv", trace_speed=2.0),
    ],
)
def test_json_gives_it_back(work):
    assert Workload.from_dict(json.loads(json.dumps(work.to_dict()))) == work


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "multiturn"}, "Did you mean 'multi-turn'"),
        ({"turns": 3}, "turns belongs to workload multi-turn"),
        ({"kind": "multi-turn"}, "needs turns of 2"),
        ({"kind": "multi-turn", "turns": 2, "think_s": -1.0}, "think_s"),
        ({"kind": "shared-prefix"}, "needs prefix_tokens of 1"),
        ({"kind": "tenants"}, "needs tenants"),
        ({"tenants": (Tenant(name="a"),)}, "no other has them"),
        ({"kind": "tenants", "tenants": (Tenant(name="a"), Tenant(name="a"))}, "different names"),
        ({"kind": "multi-turn", "turns": 2, "trace": (TraceRow(0, 1, 1),)}, "goes with random"),
        ({"trace": (TraceRow(0, 1, 1),), "trace_speed": 0.0}, "trace_speed"),
    ],
)
def test_options_that_do_not_go_together_are_refused(fields, words):
    with pytest.raises(UsageError, match=words):
        Workload(**fields)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tenant(name=""), "needs a name"),
        (lambda: Tenant(name="a", share=0), "share above 0"),
        (lambda: Tenant(name="a", input_tokens=0), "input_tokens of tenant a"),
        (lambda: Workload.from_dict({"colour": 1}), "unknown fields"),
        (lambda: Workload(kind="multi-turn", turns=3).slots(10, **RUN), "give 9 or 12"),
        (
            lambda: Workload(kind="shared-prefix", prefix_tokens=100).slots(2, **RUN),
            "leaves nothing of the 100",
        ),
        (lambda: counts((Tenant(name="a"), Tenant(name="b", share=99)), 5), "none for tenant a"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_traces_as_json_lines(tmp_path):
    own, mooncake = tmp_path / "own.jsonl", tmp_path / "m.jsonl"
    own.write_text('{"arrival_s": 5.0, "prompt_tokens": 9, "output_tokens": 3}\n\n')
    mooncake.write_text(
        '{"timestamp": 2000, "input_length": 7, "output_length": 5, "hash_ids": [1]}\n'
        '{"timestamp": 3500, "input_length": 8, "output_length": 6, "hash_ids": [1]}\n'
    )
    assert read_trace(own) == [TraceRow(0.0, 9, 3)]
    assert read_trace(mooncake) == [TraceRow(0.0, 7, 5), TraceRow(1.5, 8, 6)]


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '{"timestamp": 1}', '{"arrival_s": 1, "prompt_tokens": "x"}',
             '{"timestamp": "nan", "input_length": 1, "output_length": 1}']
)  # fmt: skip
def test_a_damaged_trace_names_file_and_line(tmp_path, line):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"timestamp": 0, "input_length": 1, "output_length": 1}}\n{line}\n')
    with pytest.raises(UsageError, match=r"t\.jsonl, line 2"):
        read_trace(path)


def test_a_trace_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
