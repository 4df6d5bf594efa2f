"""Every notebook under papermill in replay mode."""

from __future__ import annotations

import nbformat
import pytest

from turbo_lab.core import units
from turbo_lab.course.manifest import load_manifest
from turbo_lab.records import store

COURSE = load_manifest()
IDS = [entry.id for entry in COURSE.notebooks]
MAX_PEAK_BYTES = 1 * units.GB


def row_of(run, notebook_id):
    return next(row for row in run.summary.notebooks if row.id == notebook_id)


@pytest.mark.parametrize("notebook_id", IDS)
def test_notebook_runs_to_the_end(replay_run, notebook_id):
    row = row_of(replay_run, notebook_id)
    assert row.status == "passed", row.error
    book = nbformat.read(replay_run.folder.path / row.notebook, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code" and "raises-exception" not in cell.metadata.get("tags", []):
            assert all(output.output_type != "error" for output in cell.outputs)


@pytest.mark.parametrize("notebook_id", IDS)
def test_notebook_leaves_a_valid_record_with_predictions(replay_run, notebook_id):
    record = store.load(replay_run.folder.records / f"nb{notebook_id}.json")
    row = row_of(replay_run, notebook_id)
    assert record.mode == "replay" and record.complete
    assert row.predictions_total == len(record.predictions) > 0
    assert row.predictions_met == sum(line.verdict == "met" for line in record.comparison)


@pytest.mark.parametrize("notebook_id", IDS)
def test_notebook_has_a_page_that_needs_no_network(replay_run, notebook_id):
    page = replay_run.folder.path / row_of(replay_run, notebook_id).html
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text.lower() and "<link" not in text.lower()
    assert 'src="http' not in text and "@import" not in text


def test_the_index_links_every_page_and_labels_recorded_numbers(replay_run):
    index = replay_run.folder.index.read_text(encoding="utf-8")
    for row in replay_run.summary.notebooks:
        assert f'href="{row.html}"' in index
    assert "Recorded results, not measured in this run" in index
    assert replay_run.exit_code == 0, replay_run.output


def test_replay_stays_below_one_gigabyte(replay_run):
    """Runner and kernel together; shared pages count twice, so the true figure is lower."""
    assert 50 * units.MB < replay_run.peak_bytes < MAX_PEAK_BYTES
