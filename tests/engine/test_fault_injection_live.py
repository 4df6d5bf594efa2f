"""Faults in real vLLM servers: the doctor names each, and stays quiet where there is none.

Each fault is injected and, as its off-control, the same probe is sent without it. What is judged
are counters, log lines, statuses and shares of one request's own time, never a speed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turbo_lab.diagnose.doctor import diagnose
from turbo_lab.diagnose.injection.catalog import FAULTS, examine, examine_starts
from turbo_lab.diagnose.injection.fault import Examined, Fault, score
from turbo_lab.diagnose.injection.views import row_text
from turbo_lab.diagnose.injection.ward import Ward
from turbo_lab.engines import local_model
from turbo_lab.engines.args import VllmArgs

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]
AIM = 0.95
STARTS = [fault for fault in FAULTS if fault.when == "start"]
OTHERS = [fault for fault in FAULTS if fault.when != "start"]
NAMES = {"ids": lambda fault: fault.name.replace(" ", "-")}


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    base = VllmArgs.make(model=local_model.resolve_model(), dtype="float32")
    with Ward(base, folder=tmp_path_factory.mktemp("ward")) as one:
        yield one


@pytest.fixture(scope="module")
def starts(ward: Ward) -> dict[str, Examined]:
    """All failed starts, two at a time."""
    return {row.fault: row for row in examine_starts(ward, STARTS)}


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, bool], Examined]:
    """Every examination, the last try of each."""
    return {}


@pytest.mark.parametrize("fault", STARTS, **NAMES)
def test_a_failed_start_is_named(
    ward: Ward, starts: dict[str, Examined], rows: dict, fault: Fault
) -> None:
    on, off = starts[fault.name], examine(ward, fault, on=False)
    rows |= {(fault.name, True): on, (fault.name, False): off}
    assert not off.named, row_text(off)
    if on.reason:
        pytest.skip(on.reason)
    assert not on.missed and not on.wrong, (row_text(on), on.proofs)


def revive(ward: Ward, fault: Fault) -> None:
    """Start anew where an earlier try has ended the server that this fault needs."""
    patient = ward.drafted if fault.name == "killed engine" else ward.patient
    if not patient.server.alive():
        ward.close()
        ward.open()


@pytest.mark.parametrize("fault", OTHERS, **NAMES)
def test_a_fault_is_named_and_its_control_is_quiet(ward: Ward, rows: dict, fault: Fault) -> None:
    revive(ward, fault)
    off = examine(ward, fault, on=False)
    on = examine(ward, fault)
    rows |= {(fault.name, True): on, (fault.name, False): off}
    assert on.reason is None and off.reason is None, (on.reason, off.reason)
    assert not off.named, (row_text(off), off.proofs)
    assert not on.missed and not on.wrong, (row_text(on), on.proofs)


def test_the_log_as_a_whole_still_tells_the_end(ward: Ward, rows: dict) -> None:
    """What ``turbo-lab doctor server.log`` says; small shares of refused requests are diluted."""
    if ("killed worker", True) not in rows:
        pytest.skip("only a part of the faults was injected")
    told = set(diagnose([ward.patient.server.log]).causes)
    wanted = {"worker_killed"}
    if ward.starts == 1:  # a patient that was started again has not seen the others
        wanted |= {"wrong_key", "mixed_sampling"}
    assert wanted <= told, told


def test_precision_and_recall_on_the_live_faults(
    rows: dict[tuple[str, bool], Examined], capsys: pytest.CaptureFixture[str]
) -> None:
    if len(rows) < 2 * len(FAULTS):
        pytest.skip("only a part of the faults was injected")
    found = score([*rows.values()])
    with capsys.disabled():
        print(f"\n{len(FAULTS)} live faults, each on and off: {found}")
    assert found.precision is not None and found.precision >= AIM
    assert found.recall is not None and found.recall >= AIM
    alone = [n for (n, on), row in rows.items() if on and not row.seen_by("log", "metrics")]
    assert {"slow client", "blocked port"} <= set(alone), "these leave no trace on the server"
