from __future__ import annotations

from types import SimpleNamespace

import pytest

from turbo_lab.core import host
from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines.args import VllmArgs
from turbo_lab.estimate.grids import to_rows
from turbo_lab.estimate.points import MeasuredStep, StepPoint
from turbo_lab.models.catalog import load_model
from turbo_lab.parallel import tensor_servers as servers

SPEC = load_model("smollm2-135m").spec()
POINT = StepPoint("decode", 2, 64)


def dials(mode: str) -> Dials:
    return Dials(mode=mode, effort="quick", reason="test")


def test_a_split_server_differs_in_its_ranks_alone() -> None:
    single = VllmArgs.make(model="some/model", dtype="float32", cores=(0, 1))
    split = servers.split_args(single, ranks=3)
    assert split.replace(tensor_parallel_size=1) == single
    assert split.environment()["VLLM_CPU_OMP_THREADS_BIND"] == "0|1|0"
    assert split.flags()[split.flags().index("--tensor-parallel-size") + 1] == "3"


@pytest.mark.parametrize(("cards", "ranks"), [(3, 3), (4, 3), (9, 3)])
def test_a_gpu_machine_splits_over_the_cards_it_has(monkeypatch, cards: int, ranks: int) -> None:
    monkeypatch.setattr(host, "gpus", lambda: [object()] * cards)
    assert servers.server_ranks(SPEC, dials=dials("gpu"), wanted=3) == ranks
    assert servers.server_ranks(SPEC, dials=dials("cpu"), wanted=3) == 3


def test_too_few_cards_are_a_reason(monkeypatch) -> None:
    monkeypatch.setattr(host, "gpus", lambda: [object()])
    with pytest.raises(UnmeasuredError, match="from 2 to 1 GPUs"):
        servers.server_ranks(SPEC, dials=dials("gpu"), wanted=3)


def test_workers_are_read_from_the_log(tmp_path) -> None:
    log = tmp_path / "log"
    log.write_text("(Worker_TP1 pid=7) a\n(Worker_TP0 pid=6) b\n(Worker_TP1 pid=7) c\n")
    assert servers.workers_seen(SimpleNamespace(log=log)) == [0, 1]


def test_ratios_pair_the_passes() -> None:
    found = {
        "1": to_rows([MeasuredStep(POINT, (0.02, 0.04))]),
        "3": to_rows([MeasuredStep(POINT, (0.06, 0.08))]),
    }
    assert servers.ratios(found, of="3", to="1") == {POINT: pytest.approx([3.0, 2.0])}
    for missing in (None, {}, {"1": found["1"]}):
        with pytest.raises(UnmeasuredError, match="not measured"):
            servers.ratios(missing, of="3", to="1")


def test_an_unsplit_server_stays(monkeypatch) -> None:
    stopped = []
    monkeypatch.setattr(servers.VllmServer, "stop", lambda self: stopped.append(self.args))
    for ranks in (1, 3):
        server = object.__new__(servers.VllmServer)
        server.args = VllmArgs.make(model="some/model", tensor_parallel_size=ranks)
        servers.leave(server)
    servers.leave(None)
    assert [args.tensor_parallel_size for args in stopped] == [3]


def test_steps_are_read_from_the_engines_own_clock(monkeypatch) -> None:
    sent: list[list] = []

    def run(asked, *, base_url, concurrency):
        assert concurrency == len(asked)
        sent.append(list(asked))
        return [SimpleNamespace(error=None)] * len(asked)

    def since(server, before, *, requests, patience_s):
        assert requests == len(sent[-1])
        decode_s = 0.01 * (sent[-1][0].max_tokens - 1) * requests  # a sum over the requests
        return SimpleNamespace(prefill_s=0.3, decode_s=decode_s, requests=requests)

    monkeypatch.setattr(servers, "REST_S", 0.0)
    monkeypatch.setattr(servers, "run_closed_loop", run)
    monkeypatch.setattr(servers, "read_times", lambda server: None)
    monkeypatch.setattr(servers, "times_since", since)
    monkeypatch.setattr(servers, "outcome", lambda run: SimpleNamespace(ok=True, reason=""))
    server = SimpleNamespace(model_name="lab", base_url="http://127.0.0.1:1")
    points = [POINT, StepPoint("prefill", 1, 96)]
    found = servers.steps_in_turns({"1": server}, points, vocab=9_000, passes=2)
    rows = {row["phase"]: row["passes_s"] for row in found["1"]}
    assert rows["decode"] == pytest.approx([0.01, 0.01]) and rows["prefill"] == [0.3, 0.3]
    assert [len(asked) for asked in sent] == [1, POINT.batch, 1] * 2  # a warm-up goes before
    monkeypatch.setattr(servers, "outcome", lambda run: SimpleNamespace(ok=False, reason="cut"))
    with pytest.raises(UnmeasuredError, match="cut"):
        servers.steps_in_turns({"1": server}, points, vocab=9_000, passes=1)
