"""The notebooks marked ``smoke`` against a real engine, one shared server, then none left."""

from __future__ import annotations

import pytest

from turbo_lab.core.config import resolve_dials
from turbo_lab.core.errors import UsageError
from turbo_lab.course.manifest import load_manifest
from turbo_lab.records import store

SMOKE = [entry.id for entry in load_manifest().notebooks if entry.smoke]


@pytest.fixture
def live_run(run_watched, tmp_path_factory, measured_once):
    """One run for all; whoever is tried again has a run of its own."""
    try:
        resolve_dials("cpu")
    except UsageError as error:
        pytest.skip(str(error))

    def run():
        out = tmp_path_factory.mktemp("live") / "run"
        return run_watched(out, *SMOKE, "--mode", "cpu", "--effort", "smoke", "--keep-going")

    return measured_once(run)


@pytest.mark.live
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("notebook_id", SMOKE)
def test_notebook_runs_live(live_run, notebook_id):
    row = next(row for row in live_run.summary.notebooks if row.id == notebook_id)
    assert row.status == "passed", row.error
    record = store.load(live_run.folder.records / f"nb{notebook_id}.json")
    assert record.mode == "cpu" and record.effort == "smoke" and record.complete
    assert all(line.measured is not None for line in record.comparison), record.comparison


@pytest.mark.live
@pytest.mark.engine
@pytest.mark.slow
def test_the_run_leaves_no_server(live_run):
    from turbo_lab.engines.pool import ServerPool

    assert ServerPool(live_run.folder.path / "servers").servers() == []
    assert live_run.exit_code == 0, live_run.output
