from __future__ import annotations

import pytest

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.course import claim, references
from turbo_lab.course.claims import list_claims
from turbo_lab.metrics.percentiles import samples_to_certify

GOOD = """
- id: {id}
  statement: A statement that is long enough to say something.
  number: {number}
  unit: {unit}
  conditions: none at all
  source: a test
  url: null
  confidence: read
"""


def write(folder, name="a.yaml", *, id="one", number="1", unit="s", extra=""):
    (folder / name).write_text(GOOD.format(id=id, number=number, unit=unit) + extra)
    return folder


def test_every_claim_of_the_course_is_whole():
    found = list_claims()
    assert len(found) >= 30
    assert [one.id for one in found] == sorted(one.id for one in found)
    for one in found:
        assert len(one.statement) < 400 and one.url != ""


def test_an_unknown_id_offers_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'source-kv-example'"):
        claim("source-kv-exampel")


def test_references_are_a_markdown_list():
    text = references("source-kv-example", "loadgen-p95-samples")._repr_markdown_()
    assert text.startswith("- `source-kv-example`: A batch of 8")
    assert "[MLPerf LoadGen, early stopping](https://github.com/mlcommons/" in text


@pytest.mark.parametrize("p", [50, 90, 95, 99])
def test_certifying_sample_sizes_follow_from_the_rule(p):
    assert claim(f"loadgen-p{p}-samples").number == samples_to_certify(p)


def test_memory_claims_follow_from_their_conditions():
    assert claim("source-kv-example").number == 8 * 4096 * 2 * 32 * 8 * 128 * 2 / 2**30
    assert claim("llama31-8b-kv-per-token").number == 2 * 32 * 8 * 128 * 2
    assert claim("llama3-70b-kv-per-token").number == 2 * 80 * 8 * 128 * 2 == 320 * 1024
    assert claim("llama31-405b-kv-per-token").number == 2 * 126 * 8 * 128 * 2
    assert claim("deepseek-v3-kv-per-token").number == 61 * (512 + 64) * 2
    assert claim("gpt2-xl-kv-per-token").number == 2 * 48 * 1600 * 2 == 300 * 1024
    assert claim("qwen3-06b-head-dim").number == 2 * 28 * 8 * 128 * 2
    assert claim("gpt-oss-20b-kv-per-token").number == 24 * 2 * 8 * 64 * 2
    assert claim("vllm-log-70b-concurrency").number == round(1381 / (2048 / 16), 2)
    assert claim("vllm-log-concurrency-997").number == round(127_626 / 128, 2)
    assert claim("estimate-without-activations").number == round(100 * (54400 / 41408 - 1), 1)
    assert claim("h100-budget-llama31-8b").number == round(79.18 * 0.9 - 14.99 - 4.76 - 0.13, 2)


def test_computed_ratios_agree_with_their_statement():
    assert claim("client-hides-waiting").number == round(3330 / 507, 2)
    assert claim("survivors-look-fast").number == round(250 / 256, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "One Two"}, "a.yaml, claim One Two: id"),
        ({"number": "null"}, "number and unit belong together"),
        ({"unit": "null"}, "number and unit belong together"),
        ({"number": ".nan"}, "number"),
        ({"extra": "  colour: red\n"}, "colour"),
    ],
)
def test_a_bad_claim_is_named(tmp_path, change, message):
    with pytest.raises(RecordError, match=message):
        list_claims(folder=write(tmp_path, **change))


def test_an_id_may_exist_once(tmp_path):
    write(tmp_path, "b.yaml")
    with pytest.raises(RecordError, match="b.yaml: the claim 'one' is already defined"):
        list_claims(folder=write(tmp_path))


@pytest.mark.parametrize("content", ["a: 1", "- [", ""])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "a.yaml").write_text(content)
    with pytest.raises(RecordError, match=r"a\.yaml"):
        list_claims(folder=tmp_path)
