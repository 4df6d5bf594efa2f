"""Every command of docs/multi-machine.md, run on two hosts in namespaces as it stands there."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the cpu environment")

from turbo_lab.core.host import repository_root
from turbo_lab.network.hosts import Hosts
from turbo_lab.parallel import jobs
from turbo_lab.parallel.comm import Comm
from turbo_lab.parallel.survey import main as survey_main
from turbo_lab.parallel.weights import small_config

pytestmark = [pytest.mark.alone, pytest.mark.net]

GUIDE = repository_root() / "docs" / "multi-machine.md"
COMMANDS = [line for line in GUIDE.read_text().splitlines() if line.startswith("torchrun ")]


def work_of(command: str) -> str:
    return next(
        word for word in command.split() if word.startswith("turbo_lab.parallel.") and ":" in word
    )


def run(hosts: Hosts, command: str, folder: Path) -> Path:
    """Both hosts' commands; the output of the first."""
    command = command.replace("MODEL", json.dumps(small_config()))
    processes = []
    for node in (0, 1):
        text = command.replace("$NODE", str(node)).replace("$HEAD", hosts.address(0))
        argv = [sys.executable, "-m", "torch.distributed.run", *shlex.split(text)[1:]]
        log = folder / f"{node}.log"
        processes.append(hosts.run(node, argv, timeout_s=120, log=log))
    for process in processes:
        process.check()
    return folder / "0.log"


def test_the_guide_has_commands() -> None:
    assert len(COMMANDS) >= 6 and len({work_of(command) for command in COMMANDS}) == len(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=work_of)
def test_command_of_the_guide(
    hosts: Hosts, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run(hosts, command, tmp_path)
    line = next(row for row in output.read_text().splitlines() if row.startswith('{"ranks"'))
    facts = json.loads(line)
    results = facts["results"]
    assert facts["ranks"] == len(results) == (4 if "grid_job" in command else 2)
    if "survey_job" in command:
        survey_main([str(output)])
        assert "all_to_all" in capsys.readouterr().out
    elif "sweep_job" in command:
        assert [row["wrong"] for rank in results for row in rank] == [0] * 6
    elif "compression_job" in command:
        assert 0 < results[0]["fp16"]["error"] < results[0]["int8"]["error"] < 0.1
    else:
        prompts = [[1, 2, 3, 4], [5, 6, 7, 8]]
        whole = jobs.tensor_job(Comm.single(), model=small_config(), prompts=prompts, new_tokens=3)
        assert results[-1]["tokens"] == whole["tokens"].tolist()
