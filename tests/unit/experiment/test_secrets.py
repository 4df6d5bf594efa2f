"""The API key shows nowhere, whatever a server does with it."""

from __future__ import annotations

import pytest
from rich.console import Console

from turbo_lab.core.errors import EngineError
from turbo_lab.engines.mock_script import Reply, Script, Speech, Step, event, payload
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.bench import run_bench
from turbo_lab.experiment.progress import Lines
from turbo_lab.experiment.secrets import hide_key, without_key
from turbo_lab.metrics.timeline import Timeline
from turbo_lab.report.bench import render_run

from .conftest import quick_options, quick_plan

KEY = "open-sesame-123"
ECHO = f'{{"error": "the key {KEY} is over its limit"}}'.encode()


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TURBO_LAB_API_KEY", KEY)


def test_a_server_that_echoes_it(tmp_path):
    script = Script(replies=(
        Reply(status=503, steps=(Step(0.0, ECHO),), match="r00000"),
        Reply(steps=(event(payload(f"you said {KEY}", finish="stop")), event("[DONE]")),
              match="r00001"),
        Reply(steps=(event({"error": {"message": KEY}}),), match="r00002"),
        Reply(speech=Speech(ttft_s=0.0, gap_s=0.0)),
    ))  # fmt: skip
    console = Console(record=True, width=200)
    with MockServer(script) as server:
        url = server.base_url.replace("http://", "http://me:pass-word-1@")
        run = run_bench(url, plan=quick_plan(requests=6, retries=1), out=tmp_path,
                        options=quick_options(progress=Lines(console)))  # fmt: skip
    assert "over its limit" in (tmp_path / "requests.jsonl").read_text(), "the rest is kept"
    texts = [file.read_text() for file in tmp_path.iterdir()]
    texts += [console.export_text(), render_run(run.record, run.evidence.timelines)]
    for secret in (KEY, "pass-word-1"):
        assert not any(secret in text for text in texts), secret


def test_a_refused_first_request_does_not_print_it(tmp_path):
    with (
        MockServer(Script(replies=(Reply(status=401, steps=(Step(0.0, ECHO),)),))) as server,
        pytest.raises(EngineError, match="over its limit") as caught,
    ):
        run_bench(server.base_url, plan=quick_plan(), out=tmp_path, options=quick_options())
    assert KEY not in str(caught.value)


def test_nothing_else_is_touched():
    plain = Timeline(error=None, text="a reply")
    assert without_key(plain) is plain
    assert hide_key(None) is None and hide_key("") == "" and hide_key("HTTP 500") == "HTTP 500"
