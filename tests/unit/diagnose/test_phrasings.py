"""Rules match the program's message, not one version's wording."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from turbo_lab.diagnose.causes import ROWS, list_causes
from turbo_lab.diagnose.log_rules import log_findings
from turbo_lab.diagnose.logscan import scan_log

PHRASINGS: dict[str, list[str]] = {}
for _path in sorted(Path(__file__).parent.glob("phrasings_*.yaml")):
    PHRASINGS.update(yaml.safe_load(_path.read_text(encoding="utf-8")))
TOLD = [cause for cause in list_causes() if cause.messages]


def causes_in(text: str) -> list[str]:
    return [f.cause for f in log_findings(scan_log(io.BytesIO(text.encode())), source="log")]


@pytest.mark.parametrize("cause", sorted(PHRASINGS))
def test_each_wording_is_named(cause):
    assert len(PHRASINGS[cause]) >= 2
    for text in PHRASINGS[cause]:
        assert cause in causes_in(text), text


def test_every_cause_that_is_told_by_a_message_has_wordings():
    assert {cause.cause for cause in TOLD} <= set(PHRASINGS)


def test_most_wordings_are_named_without_anything_else():
    """A line may show two faults; more than a few such lines would mean careless rules."""
    texts = [(cause, text) for cause, rows in PHRASINGS.items() for text in rows]
    beside = [text for cause, text in texts if set(causes_in(text)) != {cause}]
    assert len(beside) <= 0.06 * len(texts), beside


def test_the_table_covers_every_row_of_the_sources_and_has_forty_causes():
    table = list_causes()
    assert len(table) >= 40
    assert {row for cause in table for row in cause.rows} == set(ROWS)
    for name in ("kv_cache_too_small", "out_of_memory_at_start", "disk_full", "port_in_use"):
        assert name in {cause.cause for cause in table}
