"""Ranks return their results, fail loudly with the right name, and are never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

import torch

from turbo_lab.cli.main import main
from turbo_lab.core.errors import DistributedError, UsageError
from turbo_lab.core.processes import process_token
from turbo_lab.parallel.comm import GLOO_REDUCE_SCATTER, Comm
from turbo_lab.parallel.launch import launch
from turbo_lab.parallel.overlap import overlap_job
from turbo_lab.parallel.sweep import KINDS, sweep_job, sweep_rows
from turbo_lab.parallel.tally import total

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="process groups as on Linux"),
]


def calls(comm: Comm) -> dict[str, Any]:
    """Every call once, with sizes that make the sums easy."""
    rank, n = comm.rank, comm.size
    results = {
        "sum": comm.all_reduce(torch.full((6,), float(rank + 1)), label="sum"),
        "gathered": comm.all_gather(torch.tensor([[rank, rank]]), label="gather"),
        "scattered": comm.reduce_scatter(torch.arange(2.0 * n).view(n, 2), label="scatter"),
        "swapped": comm.all_to_all(torch.arange(float(n)) + 10 * rank, label="swap"),
        # rank r sends r + 1 rows to everybody
        "uneven": comm.all_to_all(
            torch.full((n * (rank + 1), 3), float(rank)),
            send_rows=[rank + 1] * n, receive_rows=[r + 1 for r in range(n)], label="uneven",
        ),
        "told": comm.broadcast(torch.full((4,), float(rank)), root=1, label="tell"),
    }  # fmt: skip
    sending = comm.start_send(torch.full((5,), float(rank)), to=(rank + 1) % n, label="ring")
    results["ring"] = comm.recv(torch.empty(5), source=(rank - 1) % n, label="ring")
    sending.wait()
    pending = comm.start_all_reduce(torch.ones(8), label="later")
    results["later"] = pending.wait()
    tallies = comm.tallies()
    comm.timing = "aligned"
    comm.reset()
    comm.all_reduce(torch.ones(1000), label="timed")
    timed = comm.tallies()
    pairs = comm.split([[0, 2], [1]])
    results["pair"] = pairs.all_reduce(torch.tensor([float(rank)]), label="pair")
    plain = {name: tensor.numpy() for name, tensor in results.items()}
    sweeps = {kind: sweep_job(comm, kind=kind, sizes=(12, 4096), iterations=2) for kind in KINDS}
    overlap = overlap_job(comm, size_bytes=4096, compute_s=0.002, pieces=(1, 3), repeats=2)
    return {
        "results": plain, "tallies": tallies, "timed": timed, "pair": pairs.size,
        "sweeps": sweeps, "environment": os.environ["OMP_NUM_THREADS"],
        "overlap": overlap, "products": overlap["products"],
    }  # fmt: skip


def fail(comm: Comm) -> None:
    """Rank 1 raises; rank 0 waits for it."""
    print("about to begin")
    if comm.rank == 1:
        raise ValueError("no luck")
    comm.all_reduce(torch.ones(3))


def die(comm: Comm) -> None:
    """Rank 1 is killed as by a full memory; rank 0 waits for it."""
    print("last words", flush=True)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_reduce(torch.ones(3))


def vanish(comm: Comm) -> None:
    """Leave without a word and without an error."""
    os._exit(0)


def hang(comm: Comm, *, folder: str) -> None:
    """Rank 0 waits in a collective that rank 1 never calls; both have a child."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (Path(folder) / f"{comm.rank}").write_text(f"{os.getpid()} {child.pid}")
    if comm.rank == 0:
        comm.all_reduce(torch.ones(3))
    time.sleep(600)


def alive(pid: int) -> bool:
    return process_token(pid) is not None


# Not tests.waiting: the ranks load this file by its path, where no package is around it.
def wait_until(condition: Any, timeout_s: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def pids(folder: Path) -> list[int]:
    return [int(word) for rank in "01" for word in (folder / rank).read_text().split()]


@pytest.fixture(scope="module")
def run() -> Any:
    return launch(calls, ranks=3, deadline_s=90)


def test_every_call_gives_what_it_must(run: Any) -> None:
    for rank, found in enumerate(run.results):
        got = found["results"]
        np.testing.assert_array_equal(got["sum"], np.full(6, 6.0))
        np.testing.assert_array_equal(got["gathered"], [[0, 0], [1, 1], [2, 2]])
        np.testing.assert_array_equal(got["scattered"], [[6 * rank, 6 * rank + 3]])
        np.testing.assert_array_equal(got["swapped"], [rank, 10 + rank, 20 + rank])
        np.testing.assert_array_equal(got["uneven"][:, 0], [0, 1, 1, 2, 2, 2])
        np.testing.assert_array_equal(got["told"], np.ones(4))
        np.testing.assert_array_equal(got["ring"], np.full(5, (rank - 1) % 3))
        np.testing.assert_array_equal(got["later"], np.full(8, 3.0))
        np.testing.assert_array_equal(got["pair"], [2.0] if rank != 1 else [1.0])
        assert found["pair"] == (1 if rank == 1 else 2)
    assert run.backend == "gloo" and run.device == "cpu" and len(run.work_s) == 3


def test_payload_is_counted_by_label(run: Any) -> None:
    for rank, found in enumerate(run.results):
        rows = found["tallies"]
        payload = {row["label"]: row["payload_bytes"] for row in rows if row["kind"] != "recv"}
        assert payload == {
            "sum": 24, "gather": 48, "scatter": 24, "swap": 12, "uneven": 36 * (rank + 1),
            "tell": 16, "ring": 20, "later": 32,
        }  # fmt: skip
        assert total(rows, "sent_bytes", label="sum") == pytest.approx(24 * 4 / 3)
        assert total(rows, "sent_bytes", label="uneven") == 24 * (rank + 1)  # the own part stays
        assert total(rows, "payload_bytes", kind="recv") == 20
        how = {row["kind"]: row["how"] for row in rows}
        assert how["reduce_scatter"] == GLOO_REDUCE_SCATTER and how["all_reduce"] == ""
        seconds = {row["label"]: row["seconds"] for row in rows if row["kind"] != "send"}
        assert seconds["later"] is None and seconds["sum"] > 0  # nobody saw the first one end
        timed = next(row for row in found["timed"] if row["label"] == "timed")
        assert timed["payload_bytes"] == 4000 and 0 < timed["seconds"] < 10


def test_sweep_checks_real_results_of_every_kind(run: Any) -> None:
    for kind in KINDS:
        rows = sweep_rows(kind, [found["sweeps"][kind] for found in run.results])
        assert [row.wrong for row in rows] == [0, 0]
        assert rows[0].size_bytes == 12 and rows[1].size_bytes in (4096, 4092)
        assert all(len(row.samples_s) == 2 and row.time_s > 0 for row in rows)


def test_cores_are_shared_out(run: Any) -> None:
    from turbo_lab.core.host import cores_granted

    assert run.threads_per_rank == max(1, cores_granted() // 3)
    assert {found["environment"] for found in run.results} == {str(run.threads_per_rank)}


def test_failing_rank_ends_the_run_with_its_traceback() -> None:
    with pytest.raises(DistributedError) as caught:
        launch(fail, ranks=2, deadline_s=60)
    text = str(caught.value)
    assert text.startswith("rank 1 of 2 failed: ValueError: no luck")
    assert 'raise ValueError("no luck")' in text  # the line of the work, not of the plumbing


def test_killed_rank_is_named_before_those_who_noticed() -> None:
    with pytest.raises(DistributedError, match=r"(?s)^rank 1 of 2 died: was killed \(SIGKILL\)"):
        launch(die, ranks=2, deadline_s=60)


def test_rank_that_ends_without_a_result_is_an_error() -> None:
    with pytest.raises(DistributedError, match="rank 0 of 1 ended without a result"):
        launch(vanish, ranks=1, deadline_s=60)


def test_deadline_says_where_each_rank_stands_and_leaves_nobody(tmp_path: Path) -> None:
    arguments = {"folder": str(tmp_path)}
    with pytest.raises(DistributedError) as caught:
        launch(hang, ranks=2, arguments=arguments, deadline_s=20)
    text = str(caught.value)
    assert text.startswith("not done after 20 s: rank 0, rank 1 of 2.")
    assert text.count("test_launch.py") == 2 and text.count(" in hang") == 2
    assert not any(alive(pid) for pid in pids(tmp_path))


def test_ranks_and_their_children_go_when_their_launcher_goes(tmp_path: Path) -> None:
    """By SIGKILL, where nobody can clean up, and by Ctrl-C."""
    endings = (signal.SIGKILL, signal.SIGINT)
    folders = [tmp_path / ending.name for ending in endings]
    owners = []
    for folder in folders:
        folder.mkdir()
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            "from test_launch import hang; from turbo_lab.parallel.launch import launch\n"
            f"launch(hang, ranks=2, arguments={{'folder': {str(folder)!r}}}, deadline_s=300)"
        )
        command = [sys.executable, "-c", code]
        owners.append(
            subprocess.Popen(
                command, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(folder)}
            )
        )
    files = [folder / rank for folder in folders for rank in "01"]
    try:
        assert wait_until(lambda: all(f.exists() and f.read_text() for f in files), 120)
        everyone = [pid for folder in folders for pid in pids(folder)]
        assert len(everyone) == 8 and all(alive(pid) for pid in everyone)
        for owner, ending in zip(owners, endings, strict=True):
            os.kill(owner.pid, ending)
            owner.wait(120)
        assert wait_until(lambda: not any(alive(pid) for pid in everyone), 60)
        assert not list(tmp_path.glob("*/turbo-lab-ranks-*"))  # nor their files
    finally:
        for owner in owners:
            owner.kill()
        for pid in (int(word) for f in files if f.exists() for word in f.read_text().split()):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_work_that_another_process_cannot_find_is_refused() -> None:
    with pytest.raises(UsageError, match="not at the top level"):
        launch(lambda comm: None, ranks=2)
    with pytest.raises(UsageError, match="MODULE:FUNCTION"):
        launch("turbo_lab.parallel.sweep", ranks=2)
    with pytest.raises(UsageError, match="ranks is 0"):
        launch(fail, ranks=0)
    with pytest.raises(UsageError, match="cannot be sent"):
        launch(fail, ranks=2, arguments={"x": lambda: None})


def test_same_work_runs_under_torchrun() -> None:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "turbo_lab.parallel.worker", "turbo_lab.parallel.sweep:sweep_job",
        "--arguments", json.dumps({"kind": "all_reduce", "sizes": [1024], "iterations": 1}),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    assert facts["ranks"] == 2 and facts["backend"] == "gloo"
    assert [rows[0]["wrong"] for rows in facts["results"]] == [0, 0]


def test_command_prints_the_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["collectives", "--ranks", "2", "--sizes", "1K", "--iterations", "2", "--json"]
    with pytest.raises(SystemExit) as end:
        main(command)
    assert not end.value.code
    facts = json.loads(capsys.readouterr().out)
    assert facts["ranks"] == 2 and facts["link"] == "loopback, not shaped"
    row = facts["rows"][0]
    assert row["wrong"] == 0 and row["busbw_bytes_s"] == pytest.approx(1024 / row["time_s"])


def test_paced_link_limits_the_bandwidth_without_any_privilege(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["collectives", "--sizes", "1M", "--iterations", "3", "--warm-up", "1",
              "--link", "100mbit", "--hosts", "paced"])  # fmt: skip
    assert not end.value.code
    text = capsys.readouterr().out
    assert "link: 100 Mbit/s, MTU 1500; hosts: paced (asked for)" in text
    row = text.splitlines()[-3].split()
    assert row[0] == "1048576" and 0.001 < float(row[6]) < 0.014  # of 0.0125 GB/s


def test_overlapped_runs_are_timed_beside_their_parts(run: Any) -> None:
    for found in run.results:
        samples = found["overlap"]
        assert samples.pop("products") >= 1
        assert set(samples) == {"compute", "communication", "in_turn", "pieces 1", "pieces 3"}
        assert all(len(row) == 2 and min(row) > 0 for row in samples.values())
    assert len({found["products"] for found in run.results}) == 1  # the same work on all ranks
