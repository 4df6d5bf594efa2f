"""A reader's first minutes: JupyterLab in a real browser, notebook 00, "Run All Cells"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from turbo_lab.core import host
from turbo_lab.engines import guardian
from turbo_lab.engines.base import free_port

from ..browsers import FLAGS, browser_path

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE_MS = 180_000  # with everything else, it only ends what hangs
TOKEN = "only-for-this-test"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A running JupyterLab over a copy of the notebooks: (address with token, folder)."""
    folder = tmp_path / "notebooks"
    shutil.copytree(host.repository_root() / "notebooks", folder)
    port = free_port()
    env = {**os.environ, "TURBO_LAB_POOL_DIR": str(tmp_path / "pool")}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
        "--ServerApp.port_retries=0", "--allow-root", "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    log = (tmp_path / "jupyter.log").open("wb")
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            try:
                urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=2)
                break
            except OSError:
                tail = (tmp_path / "jupyter.log").read_text()[-1500:]
                assert process.poll() is None, tail
                assert time.monotonic() < deadline, tail
                time.sleep(0.2)
        yield address, folder
    finally:
        guardian.stop_group(process.pid)
        log.close()


def executed(path: Path) -> list:
    """Code cells of a saved notebook that have an execution count."""
    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError):  # being written
        return []
    return [c for c in notebook.cells if c.cell_type == "code" and c.execution_count]


def test_notebook_00_runs_to_the_end(lab: tuple[str, Path]) -> None:
    address, folder = lab
    path = folder / "00_start_here.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:  # so that what is seen afterwards was made now
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, path)
    wanted = sum(c.cell_type == "code" and bool(c.source.strip()) for c in notebook.cells)
    chromium = browser_path()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/lab/tree/{path.name}?token={TOKEN}", timeout=PATIENCE_MS)
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=PATIENCE_MS)
        page.get_by_text("Python 3 (ipykernel)").first.wait_for(timeout=PATIENCE_MS)
        page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
        page.get_by_text("Run All Cells", exact=True).click()
        deadline = time.monotonic() + 600
        while len(executed(path)) < wanted and time.monotonic() < deadline:
            page.wait_for_timeout(2_000)
            page.keyboard.press("Control+s")
        browser.close()
    cells = executed(path)
    errors = [o for c in cells for o in c.outputs if o.output_type == "error"]
    assert not errors, json.dumps(errors)[:2000]
    assert len(cells) == wanted
    text = json.dumps([c.outputs for c in cells])
    assert "predictions met" in text and "image/png" in text
