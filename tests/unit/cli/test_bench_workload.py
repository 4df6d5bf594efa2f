"""The workload options of bench: from words to a plan, and one run of each output form."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from turbo_lab.cli.main import build_app
from turbo_lab.core.errors import UsageError
from turbo_lab.engines.mock_script import Reply, Script, Speech
from turbo_lab.engines.mock_server import MockServer
from turbo_lab.experiment.workload_words import make_workload, parse_tenant
from turbo_lab.workload.shape import Tenant, Workload

RUN = {"requests": 8, "input_tokens": 64}


def test_defaults_of_each_kind():
    assert make_workload("random", **RUN) == Workload()
    assert make_workload("shared-prefix", **RUN).prefix_tokens == 32
    assert make_workload("multi-turn", **RUN, think=0.5) == Workload(
        kind="multi-turn", turns=4, think_s=0.5
    )


def test_tenants_in_words():
    assert parse_tenant("a") == Tenant(name="a")
    assert parse_tenant("b:share=2.5,input=512,output=64,prefix=256") == Tenant(
        name="b", share=2.5, input_tokens=512, output_tokens=64, prefix_tokens=256
    )


def test_a_trace_is_read_as_far_as_it_is_asked_for(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2224670,879,55\n"
    )
    found = make_workload("random", requests=2, input_tokens=1, trace=path, trace_speed=3.0)
    assert [r.prompt_tokens for r in found.trace] == [374, 396]
    assert (found.trace_name, found.trace_speed) == ("t.csv", 3.0)
    short = make_workload("random", requests=9, input_tokens=1, trace=path, trace_longest=505)
    assert [r.prompt_tokens for r in short.trace] == [374, 396], "prompt and reply together"
    with pytest.raises(UsageError, match="no request of 100 tokens"):
        make_workload("random", requests=9, input_tokens=1, trace=path, trace_longest=100)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("random", {"turns": 3}), "belongs to workload multi-turn"),
        (("tenants", {}), "needs tenants"),
        (("tenants", {"tenants": ["a:weight=3"]}), "not 'weight'"),
        (("tenants", {"tenants": ["a:input=many"]}), "no number"),
        (("tenants", {"tenants": ["a:input"]}), "not NAME=VALUE"),
        (("tenants", {"tenants": [":share=1"]}), "needs a name"),
    ],
)
def test_wrong_words_are_refused(arguments, words):
    kind, options = arguments
    with pytest.raises(UsageError, match=words):
        make_workload(kind, **RUN, **options)


def test_a_run_with_tenants_and_retries(tmp_path, monkeypatch):
    monkeypatch.setattr("turbo_lab.cli.bench._sigterm_interrupts", lambda: None)
    script = Script(replies=(Reply(status=503, match="r00000"),
                             Reply(speech=Speech(ttft_s=0.0, gap_s=0.0), match="r00000"),
                             Reply(speech=Speech(ttft_s=0.01, gap_s=0.0))))  # fmt: skip
    with MockServer(script) as server:
        done = CliRunner().invoke(build_app("bench"), [
            "bench", server.base_url, "--requests", "6", "--concurrency", "2", "--no-calibrate",
            "--warmup", "0", "--input-tokens", "12", "--output-tokens", "3", "--retries", "1",
            "--workload", "tenants", "--tenant", "a:share=2", "--tenant", "b:input=20,output=2",
            "--out", str(tmp_path / "run"), "--json",
        ])  # fmt: skip
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert [r["group"] for r in data["groups"]["tenant"]] == ["a", "b"]
    assert data["attempts"]["sends"] == 7 and data["attempted"] == 6
    assert "By tenant" in (tmp_path / "run" / "report.html").read_text()
