"""Records: all valid, complete against the reference list, honest about what is unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from turbo_lab.core.errors import RecordError, UsageError
from turbo_lab.core.host import repository_root
from turbo_lab.papers import store
from turbo_lab.papers.schema import PaperRecord, field_names
from turbo_lab.papers.template import FIELDS, empty_record, label, shown

HERE = Path(__file__).parent
REFERENCE = repository_root().parent / "shared" / "reference" / "papers.jsonl"
RECORDS = store.list_records()
IDS = [one.id for one in RECORDS]


def test_there_are_at_least_58_records_on_all_axes_and_layers():
    assert len(RECORDS) >= 58
    assert {r for one in RECORDS for r in one.axes.resource} == {
        "compute", "memory", "scheduling", "network",
    }  # fmt: skip
    assert {one.axes.stage for one in RECORDS} == {"prefill", "decode", "cross_stage"}
    assert {one.axes.hardware_coupling for one in RECORDS} == {"low", "medium", "high"}
    assert len({layer for one in RECORDS for layer in one.layers}) == 4


@pytest.mark.parametrize("paper", IDS)
def test_a_record_says_when_its_number_holds_and_fits_a_screen(paper):
    one = store.record(paper)
    assert len((store.papers_folder() / f"{paper}.yaml").read_text().splitlines()) <= 80
    assert one.sources and one.holds and one.claims
    assert all(number == f"{int(number):02d}" for number in one.notebooks)


def test_no_two_records_share_a_sentence():
    seen: dict[str, str] = {}
    for one in RECORDS:
        for name in ("problem", "method", "holds", "lesson", "verify"):
            text = getattr(one, name)
            assert seen.setdefault(text, one.id) == one.id, text


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference list is not beside the checkout")
def test_facts_agree_with_the_reference_list_and_no_sentence_is_copied():
    by_title = {one.title: one for one in RECORDS}
    for row in map(json.loads, REFERENCE.read_text().splitlines()):
        one = by_title[row["title"]]
        assert (one.venue, one.year, one.arxiv) == (row["venue"], row["year"], row["arxiv_id"])
        assert one.confidence == row["confidence"]
        assert set(one.axes.resource) == set(row["resource_optimised"])
        assert len(one.sources) >= min(3, len(row["sources"]))
        given = one.conditions.model_dump()
        for name, answer in row["metric_conditions_given"].items():
            assert given[name.removesuffix("_length")] == (answer == "yes")
        for name in ("core_problem", "main_mechanism", "lessons_for_engineering"):
            for sentence in row[name].split(". "):
                own = f"{one.problem} {one.method} {one.lesson} {one.holds}"
                assert len(sentence) < 30 or sentence.rstrip(".") not in own


def test_turbo_states_nothing_that_is_not_known():
    turbo = store.record("turbo-sigcomm-2026")
    for name in ("authors", "doi", "setting.baselines", "setting.gpus", "setting.network"):
        assert turbo.status_of(name) == "unknown"
    assert turbo.claims[0].number is None and turbo.claims[0].status == "unknown"
    assert turbo.status_of("method") == "artifact"
    assert turbo.status_of("title") == "confirmed"


def test_statuses_cover_all_fields_once():
    for one in RECORDS:
        listed = [name for names in one.by_status().values() for name in names]
        assert sorted(listed) == sorted(field_names())


def test_a_known_value_cannot_be_called_unknown_nor_a_null_known():
    row = yaml.safe_load((HERE / "clean.yaml").read_text())
    for status in ({"doi": "confirmed"}, {"title": "unknown"}, {"colour": "confirmed"}):
        with pytest.raises(ValueError, match=next(iter(status))):
            PaperRecord.model_validate({**row, "status": status})


def test_an_unknown_field_or_word_is_refused_with_the_file_named(tmp_path):
    row = yaml.safe_load((HERE / "clean.yaml").read_text())
    for change in ({"speedup": "12x"}, {"layers": ["kernel"]}, {"claims": "many"}):
        bad = tmp_path / "clean.yaml"
        bad.write_text(yaml.safe_dump({**row, **change}))
        with pytest.raises(RecordError, match=r"clean\.yaml: "):
            store.read_record(bad)
    (tmp_path / "junk.yaml").write_bytes(b"\xff\xfe\x00[")
    with pytest.raises(RecordError, match=r"junk\.yaml"):
        store.read_record(tmp_path / "junk.yaml")


def test_a_missing_field_is_an_error_because_unknown_is_null():
    row = yaml.safe_load((HERE / "clean.yaml").read_text())
    del row["doi"]
    with pytest.raises(ValueError, match="doi"):
        PaperRecord.model_validate(row)


def test_search_finds_words_of_all_fields_names_first():
    assert store.search("mooncake")[0].id == "mooncake"
    assert "dualpath" in [one.id for one in store.search("rdma storage")]
    with pytest.raises(UsageError):
        store.search("  ")
    with pytest.raises(UsageError, match="mooncake"):
        store.record("moncake")


def test_the_template_names_each_field_in_both_languages_and_can_be_read(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(empty_record("mine", title="A paper"), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert store.read_record(path).title == "A paper"
    for name, (english, chinese, _) in FIELDS.items():
        assert chinese in text and english in text, name
    for chinese in ("核心问题", "优化资源", "优化阶段", "硬件耦合度", "实验环境", "待验证问题"):
        assert chinese in text


def test_showing_follows_the_template_in_either_language():
    one = store.record("orca")
    assert [name for name, _ in shown(one, lang="zh")] == [label(n, lang="zh") for n in FIELDS]
    assert dict(shown(one))["Core problem"] == one.problem
