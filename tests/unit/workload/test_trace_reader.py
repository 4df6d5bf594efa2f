"""Readers: each public format, property tests over our own, and files that are no traces."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turbo_lab.core.errors import UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.workload.trace_reader import TraceFile, read_requests, write_requests
from turbo_lab.workload.trace_request import TraceRequest

SHARED = repository_root().parent / "shared"
AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST_HEAD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_HEAD_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
QWEN = {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 17,
        "output_length": 3, "type": "text", "turn": 1, "hash_ids": [4, 9]}  # fmt: skip


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_azure_of_both_years(tmp_path):
    text = AZURE_HEAD + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,0\n"
    old = list(read_requests(written(tmp_path, text)))
    assert old[0] == TraceRequest(0.0, 374, 44)
    assert old[1].arrival_s == pytest.approx(4.314579, abs=1e-5)
    # The week of 2024 has a zone, and drops the fraction where it is zero.
    text = AZURE_HEAD + "2024-05-12 00:00:00+00:00,5,6\n2024-05-12 00:00:00.250000+00:00,7,8\n"
    new = TraceFile(written(tmp_path, text))
    assert new.detected().name == "azure"
    assert list(new) == [TraceRequest(0.0, 5, 6), TraceRequest(0.25, 7, 8)]


def test_burstgpt_with_and_without_sessions(tmp_path):
    text = BURST_HEAD + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n"
    rows = list(read_requests(written(tmp_path, text)))
    assert rows == [
        TraceRequest(0.0, 472, 18, tenant="ChatGPT"),
        TraceRequest(40.0, 1087, 0, tenant="GPT-4"),
    ]
    text = BURST_HEAD_3 + "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
    (row,) = read_requests(written(tmp_path, text))
    assert row == TraceRequest(0.0, 906, 446, tenant="GPT-4", session="1722ac82")


def test_burstgpt_rows_without_a_prompt_are_skipped_and_counted(tmp_path):
    text = BURST_HEAD + "5,GPT-4,0,0,0,API log\n6,GPT-4,9,1,10,API log\n7,GPT-4,0,3,3,API log\n"
    trace = TraceFile(written(tmp_path, text))
    for _ in range(2):  # counted anew each time
        assert list(trace) == [TraceRequest(0.0, 9, 1, tenant="GPT-4")]
        assert trace.skipped.rows == 2
    empty = BURST_HEAD + "5,GPT-4,0,0,0,API log\n"
    with pytest.raises(UsageError, match=r"no requests \(1 rows without a prompt\)"):
        list(TraceFile(written(tmp_path, empty)))
    negative = BURST_HEAD + "5,GPT-4,-1,0,0,API log\n"
    with pytest.raises(UsageError, match="Request tokens is '-1'"):
        list(TraceFile(written(tmp_path, negative)))


def test_mooncake_counts_in_milliseconds_and_blocks_of_512(tmp_path):
    row = {"timestamp": 27482, "input_length": 1025, "output_length": 52, "hash_ids": [46, 47, 9]}
    path = written(tmp_path, lines([row, {**row, "timestamp": 30535}]), "m.jsonl")
    first, second = read_requests(path)
    assert first == TraceRequest(0.0, 1025, 52, block_ids=(46, 47, 9), block_tokens=512)
    assert second.arrival_s == pytest.approx(3.053)


def test_qwen_knows_its_conversations(tmp_path):
    follow = {**QWEN, "chat_id": 8, "parent_chat_id": 7, "timestamp": 9.5}
    third = {**QWEN, "chat_id": 12, "parent_chat_id": 8, "timestamp": 10}
    path = written(tmp_path, lines([QWEN, follow, third]), "q.jsonl")
    assert TraceFile(path).detected().name == "qwen-bailian"
    rows = list(read_requests(path))
    assert [r.session for r in rows] == ["7", "7", "7"]
    assert rows[1] == TraceRequest(8.0, 17, 3, (4, 9), 16, tenant="text", session="7")


@pytest.mark.parametrize(
    ("head", "row", "reason"),
    [
        (AZURE_HEAD, "2023-11-16 18:15:46,0,3", r"line 2: .*ContextTokens is '0'; allowed: .*1"),
        (AZURE_HEAD, "2023-11-16 18:15:46,5,-3", "GeneratedTokens is '-3'; allowed"),
        (AZURE_HEAD, "yesterday,5,3", "TIMESTAMP is 'yesterday'; allowed: an ISO time"),
        (AZURE_HEAD, "2023-11-16 18:15:46,5", "line 2: .*too few columns"),
        (AZURE_HEAD, "2023-11-16 18:15:46,9999999999999,3", "2,147,483,647"),
        (BURST_HEAD, "inf,ChatGPT,4,18,22,API log", "Timestamp is 'inf'; allowed: a finite time"),
        ("a,b\n", "1,2", "line 1: the columns are a, b .*wanted azure"),
        ("", "\x00", "columns"),
    ],
)
def test_bad_rows_name_line_value_and_what_is_allowed(tmp_path, head, row, reason):
    with pytest.raises(UsageError, match=reason):
        list(read_requests(written(tmp_path, head + row + "\n")))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hash_ids": [1, 2, 3]}, "hash_ids is '3 blocks'; allowed: 2 blocks of 16 tokens"),
        ({"hash_ids": ["a", "b"]}, "hash_ids is .*whole numbers"),
        ({"input_length": 3.5}, "input_length is 3.5"),
        ({"input_length": True}, "input_length is True"),
        ({"timestamp": True}, "timestamp is True"),
        ({"chat_id": []}, "chat_id is"),
    ],
)
def test_bad_values_in_json(tmp_path, change, reason):
    path = written(tmp_path, lines([QWEN, {**QWEN, **change}]), "q.jsonl")
    with pytest.raises(UsageError, match=r"line 2: .*" + reason):
        list(read_requests(path))


def test_a_missing_key_a_cut_line_and_no_object_are_told(tmp_path):
    for tail, reason in (
        ('{"timestamp": 3}\n', "is missing"),
        ('{"time', "no JSON"),
        ("[1]", "no"),
    ):
        path = written(tmp_path, lines([QWEN]) + tail, "q.jsonl")
        with pytest.raises(UsageError, match=f"line 2: .*{reason}"):
            list(read_requests(path))


def test_unsorted_names_both_lines_and_can_be_sorted(tmp_path):
    text = BURST_HEAD + "5,a,4,1,5,x\n9,a,5,1,6,x\n7,a,6,1,7,x\n"
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match="line 4: the arrival is 2 s before that of line 3"):
        list(read_requests(path))
    rows = list(read_requests(path, sort=True))
    assert [(r.arrival_s, r.input_tokens) for r in rows] == [(0, 4), (2, 6), (4, 5)]


def test_a_wanted_format_that_does_not_fit_says_what_it_needs(tmp_path):
    path = written(tmp_path, AZURE_HEAD + "2023-11-16 18:15:46,5,3\n")
    with pytest.raises(UsageError, match=r"wanted burstgpt \(csv\): Timestamp, Model"):
        list(read_requests(path, format="burstgpt"))
    with pytest.raises(UsageError, match="Did you mean 'azure'"):
        list(read_requests(path, format="azur"))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00bad", b"{" * 5000])
def test_no_traces_at_all(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="x.csv"):
        list(read_requests(path))


def test_a_header_alone_a_folder_and_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="has no requests"):
        list(read_requests(written(tmp_path, AZURE_HEAD)))
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(UsageError, match="cannot be read"):
            list(read_requests(path))


def test_gzip_and_a_cut_gzip(tmp_path):
    packed = gzip.compress((AZURE_HEAD + "2023-11-16 18:15:46,5,3\n" * 5000).encode())
    path = tmp_path / "t.csv.gz"
    path.write_bytes(packed)
    assert len(list(read_requests(path))) == 5000
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_requests(path))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("turbo_lab.workload.trace_reader.LONGEST_LINE", 1000)
    path = written(tmp_path, lines([QWEN]) + "{" * 2000, "q.jsonl")
    with pytest.raises(UsageError, match="line 2: longer than 1,000"):
        list(read_requests(path))


def test_a_gigantic_file_needs_no_more_memory_than_a_small_one(tmp_path):
    path = tmp_path / "big.csv"
    with path.open("w") as file:
        file.write(BURST_HEAD)
        file.writelines(f"{i},ChatGPT,472,18,490,API log\n" for i in range(200_000))
    tracemalloc.start()
    count = sum(1 for _ in islice(read_requests(path), 30_000))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 30_000
    assert peak_bytes < 1_000_000  # the rows alone would take 4 MB


REQUESTS = st.builds(
    lambda gap, tokens, reply, ids, tenant, priority, session: (
        gap,
        TraceRequest(
            0.0, tokens, reply, tuple(range(ids, ids + -(-tokens // 16))) if ids else (),
            16 if ids else 0, tenant, priority, session,
        ),
    ),
    gap=st.floats(0, 1e6), tokens=st.integers(1, 500), reply=st.integers(0, 10**6),
    ids=st.integers(0, 2**62), tenant=st.text(max_size=5), priority=st.integers(-9, 9),
    session=st.text(max_size=5),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(REQUESTS, min_size=1, max_size=20))
def test_what_is_written_is_read_again(tmp_path, drawn):
    from dataclasses import replace

    arrival_s, requests = 0.0, []
    for gap_s, request in drawn:
        requests.append(replace(request, arrival_s=arrival_s))
        arrival_s += gap_s
    path = tmp_path / "own.jsonl"
    assert write_requests(path, requests) == len(requests)
    assert list(read_requests(path)) == requests


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_requests_or_a_usage_error(tmp_path, content):
    path = tmp_path / "any"
    for head in (b"", AZURE_HEAD.encode(), lines([QWEN]).encode()):
        path.write_bytes(head + content)
        try:
            rows = list(read_requests(path))
        except UsageError:
            continue
        assert all(r.input_tokens >= 1 and r.output_tokens >= 0 for r in rows)


@pytest.mark.skipif(not SHARED.exists(), reason="the public traces are not on this machine")
@pytest.mark.parametrize(
    ("file", "name", "rows"),
    [
        ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366),
        ("mooncake_conversation_trace.jsonl", "mooncake", 12_031),
    ],
)
def test_public_files(file, name, rows):
    trace = TraceFile(SHARED / "traces" / file)
    assert trace.detected().name == name
    assert sum(1 for _ in trace) == rows


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_leaves_no_request_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(UsageError, match=f"limit is {limit}; allowed: 1 or more"):
        TraceFile(written(tmp_path, AZURE_HEAD), limit=limit)
