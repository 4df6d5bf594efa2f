"""The four servers of notebook 06: packed weights run packed kernels, plain ones do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turbo_lab.core.config import Dials
from turbo_lab.core.errors import UnmeasuredError
from turbo_lab.engines import local_model
from turbo_lab.engines.defaults import default_args
from turbo_lab.engines.pool import pool_session
from turbo_lab.engines.vllm_server import VllmServer
from turbo_lab.experiment.quality_rows import reply_quality_from_dict
from turbo_lab.models.spec import from_hf_config
from turbo_lab.precision.weights.arms import (
    ARMS,
    ReplyBook,
    arm_bytes,
    arm_server,
    kernel_of,
    leave,
    measure_steps,
)
from turbo_lab.precision.weights.lesson import served_recipes
from turbo_lab.precision.weights.predict import checkpoint_bytes
from turbo_lab.precision.weights.speed import POINTS
from turbo_lab.precision.weights.workshop import Workshop

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(scope="module")
def workshop() -> Workshop:
    pytest.importorskip("vllm", reason="needs the cpu environment")
    return Workshop("smoke")


@pytest.fixture(scope="module")
def servers(
    workshop: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, VllmServer]]:
    dials = Dials("cpu", "smoke", "a test")
    with pool_session(tmp_path_factory.mktemp("pool")):
        yield {arm: arm_server(arm, dials=dials, workshop=workshop) for arm in ARMS}


def test_files_hold_the_bytes_that_config_json_foretells(workshop: Workshop) -> None:
    spec = from_hf_config(workshop.config())
    for arm, name in served_recipes("smoke").items():
        counted = local_model.tensor_bytes(str(workshop.checkpoint(name)))
        assert counted == checkpoint_bytes(spec, workshop.recipes[name])
        assert arm_bytes(spec, workshop)[arm] <= counted


def test_the_engine_runs_packed_kernels_for_packed_weights_alone(
    servers: dict[str, VllmServer],
) -> None:
    kernels = {arm: kernel_of(server) for arm, server in servers.items()}
    assert kernels["fp32"] == kernels["bf16"] == "none"
    assert "W8A8" in kernels["int8"] and "WNA16" in kernels["int4"]


def test_one_server_asked_twice_says_the_same(servers: dict[str, VllmServer]) -> None:
    book = ReplyBook(per_kind=1)
    with pytest.raises(UnmeasuredError, match="bf16, with which replies are compared"):
        book.compare("int4", servers["int4"])
    again = reply_quality_from_dict(book.compare("bf16", servers["bf16"]))
    assert again.equal_share == 1.0 and not again.different.shown
    coarse = reply_quality_from_dict(book.compare("int4", servers["int4"]))
    assert coarse.different.candidate > 0  # four bits, rounded to nearest, do change replies


def test_every_point_of_the_lesson_is_measured(servers: dict[str, VllmServer]) -> None:
    rows = measure_steps(servers["bf16"], vocab=49152, passes=1)
    assert [(r["phase"], r["batch"], r["tokens"]) for r in rows] == [
        (p.phase, p.batch, p.tokens) for p in POINTS
    ]
    assert all(s > 0 for r in rows for s in r["passes_s"])


def test_leaving_stops_all_but_the_default_server(servers: dict[str, VllmServer]) -> None:
    dials = Dials("cpu", "smoke", "a test")
    default = default_args(dials, report=lambda line: None)
    for server in servers.values():
        leave(server, dials=dials)
    assert {arm for arm, s in servers.items() if s.alive()} == {
        arm for arm, s in servers.items() if s.args == default
    }
    leave(None, dials=dials)
