"""The reader: any bytes, any length, constant memory, lines split into their parts."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turbo_lab.diagnose import lines as reading
from turbo_lab.diagnose import repeats
from turbo_lab.diagnose.log_rules import evidence_of, log_findings
from turbo_lab.diagnose.logscan import scan_log
from turbo_lab.diagnose.matcher import TEMPLATES_KEPT, Matcher

DISK = b"OSError: [Errno 28] No space left on device\n"


def found(raw: bytes) -> list[str]:
    return [f.cause for f in log_findings(scan_log(io.BytesIO(raw)), source="log")]


@given(st.binary(max_size=4000), st.binary(max_size=4000))
def test_any_bytes_are_read_and_a_whole_line_between_them_is_still_found(before, after):
    assume(before[:2] not in (b"\xff\xfe", b"\xfe\xff"))  # these announce UTF-16
    assert "disk_full" in found(before + b"\n" + DISK + after)


@given(st.lists(st.binary(max_size=60).filter(lambda b: b"\n" not in b), max_size=30))
def test_lines_come_back_whole_in_order_whatever_the_blocks(parts):
    raw = b"\n".join(parts)
    if raw[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff"):
        return
    old, reading.BLOCK_BYTES = reading.BLOCK_BYTES, 7
    try:
        got = b"".join(reading.read_blocks(io.BytesIO(raw)))
    finally:
        reading.BLOCK_BYTES = old
    assert got == raw


def test_a_cut_log_is_read_to_its_last_byte():
    assert found(DISK + b"ERROR 01-01 00:00:00 [core.py:1] ValueE") == ["disk_full"]
    assert found(b"left on device\n" + DISK[:-1]) == ["disk_full"]


def test_one_endless_line_and_junk_need_no_memory():
    class Endless(io.RawIOBase):
        left = 48

        def read(self, size=-1):
            self.left -= 1
            return b"\x00\xffx" * (size // 3) if self.left > 0 else b""

    tracemalloc.start()
    scan_log(Endless())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * reading.BLOCK_BYTES


def test_the_memory_of_templates_is_bounded():
    matcher = Matcher(())
    for number in range(3 * TEMPLATES_KEPT):
        matcher.template(b"word" + bytes(str(number), "ascii").translate(
            bytes.maketrans(b"0123456789", b"abcdefghij")))  # fmt: skip
    assert len(matcher._known) <= TEMPLATES_KEPT


def test_gzip_also_cut_and_utf16_are_unpacked():
    packed = gzip.compress(DISK * 50)
    assert found(packed) == ["disk_full"]
    assert found(gzip.compress(DISK * 50000)[:-20]) == ["disk_full"]
    assert found(("\ufeff" + DISK.decode()).encode("utf-16-le")) == ["disk_full"]


@pytest.mark.parametrize(
    ("raw", "process", "level", "file", "message"),
    [
        (b"(EngineCore_DP0 pid=412) ERROR 09-02 10:11:37 [core.py:708] gone",
         "EngineCore_DP0 412", "ERROR", "core.py", "gone"),
        (b"INFO 11-14 08:20:01 llm_engine.py:624] Avg", None, "INFO", "llm_engine.py", "Avg"),
        (b"WARNING 05-09 00:49:33 scheduler.py:1057 Sequence", None, "WARNING", None,
         "scheduler.py:1057 Sequence"),
        (b"vllm-1  | \x1b[32mINFO\x1b[0m:     Started", None, "INFO", None, "Started"),
        (b"(RayWorkerWrapper pid=9, ip=10.0.0.1) (Worker_TP1 pid=3) x", "RayWorkerWrapper 9",
         None, None, "(Worker_TP1 pid=3) x"),
        (b'{"log":"ERROR 01-01 00:00:00 [a.py:1] b\\n","stream":"stderr"}', None, "ERROR", "a.py",
         "b"),
        (b"plain words", None, None, None, "plain words"),
    ],
)  # fmt: skip
def test_a_line_is_split_into_its_parts(raw, process, level, file, message):
    line = reading.parse_line(raw)
    assert (line.process, line.level, line.message) == (process, level, message)
    if file is not None:
        assert line.file == file


@given(st.binary(max_size=500))
def test_splitting_never_fails_and_evidence_is_printable(raw):
    reading.parse_line(raw)
    text = evidence_of(raw)
    assert text.isprintable() and len(text) <= reading.EVIDENCE_CHARACTERS


def test_evidence_holds_no_secret():
    raw = b"PermissionError: [Errno 13] Permission denied: '/home/alice/x' HF_TOKEN=hf_" + b"a" * 30
    (finding,) = log_findings(scan_log(io.BytesIO(raw)), source="log")
    assert finding.cause == "permission_denied"
    assert "alice" not in finding.evidence and "hf_aaaa" not in finding.evidence


def test_prompts_are_neither_searched_nor_shown():
    text = b"INFO [logger.py:43] Received request a: prompt: 'No space left on device secret-%d', "
    one = text + b"params: SamplingParams(n=1, temperature=%s, seed=None)\n"
    raw = one % (1, b"0.0") + one % (2, b"0.7")
    (finding,) = log_findings(scan_log(io.BytesIO(raw)), source="log")
    assert finding.cause == "mixed_sampling" and "secret" not in finding.evidence


def test_many_lines_of_an_error_do_not_hide_what_comes_after_them():
    noise = b'ERROR 10-25 13:08:43 [core.py:708]   File "core.py", line %d, in step\n'
    flood = b"".join(noise % number for number in range(3 * reading.BLOCK_BYTES // len(noise)))
    late = b"ERROR 10-25 13:08:44 [core.py:708] EngineCore failed to start.\n"
    named = b"ERROR 10-25 13:08:44 [core.py:708] FrobError: phase\n"
    told = log_findings(scan_log(io.BytesIO(flood + named + late)), source="log")
    assert [f.cause for f in told] == ["engine_died"] and "FrobError" in told[0].evidence
    assert found(flood + DISK) == ["disk_full"]


LOOP = (
    b"ERROR 10-25 13:08:43 [io.py:%d] OSError: [Errno 28] No space left on device\n",
    b"error 10-25 13:08:43 [io.py:%d] oserror: [errno 28] no space left on device\n",
    b"ValueError: To serve at least one request with the models's max seq len (%d)\n",
    b"(EngineCore pid=%d) ERROR 10-25 13:08:43 [core.py:708] FrobError: phase\n",
    b"INFO:     Application startup complete.\n",
    b"INFO:     Shutting down\n",
    b"INFO 10-25 13:08:43 [loggers.py:1] Avg prompt throughput: 0.0 tokens/s, Avg generation "
    b"throughput: %d.0 tokens/s, Running: 1 reqs, Waiting: 9 reqs, GPU KV cache usage: 1.0%%\n",
    b'INFO:     10.0.0.4:%d - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n',
    b"no line of any meaning %d\n",
)


@given(st.lists(st.tuples(st.sampled_from(LOOP), st.integers(1, 40)), min_size=1, max_size=30),
       st.integers(1, 3))  # fmt: skip
def test_counting_repeated_lines_at_once_changes_no_result(parts, blocks):
    """The same log with and without the short cut: sightings, phases, findings are equal."""
    raw = b"".join(line % ((n,) if b"%d" in line else ())
                   for line, times in parts for n in range(times))  # fmt: skip
    told = []
    for kept in (4, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repeats, "SHAPES_KEPT", kept)
            patch.setattr(repeats, "SETTLED", 3)
            patch.setattr(repeats, "OFTEN", 5)
            patch.setattr(reading, "BLOCK_BYTES", len(raw) // blocks // 2 + 100)
            read = scan_log(io.BytesIO(raw))
        told.append((read.lines, read.bytes_read, read.phase, read.trouble.count, read.root,
                     read.counts, read.messages, log_findings(read, source="log")))  # fmt: skip
    assert told[0] == told[1]


def test_the_short_cut_is_taken_and_a_change_of_phase_is_not_lost():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", 1 << 14)
        patch.setattr(repeats, "OFTEN", 50)
        seen: list[int] = []
        plain = repeats.Repeats.without

        def noted(self: repeats.Repeats, block: bytes, phase: str):
            text, taken = plain(self, block, phase)
            seen.extend(count for _, count in taken)
            return text, taken

        patch.setattr(repeats.Repeats, "without", noted)
        one = LOOP[0] % 1
        told = scan_log(io.BytesIO(one * 4000 + LOOP[5] + one * 4000))
    assert sum(seen) > 4000 and told.phase == "stopping" and told.lines == 8001
    (rows,) = told.messages.values()
    assert sum(row.count for row in rows.values()) == 8000
    assert sum(row.stopping for row in rows.values()) == 4000
