"""The calibration before a run."""

from __future__ import annotations

import psutil
import pytest

from turbo_lab.client.calibration import calibrate, mock_process
from turbo_lab.core.errors import EngineError
from turbo_lab.engines.base import http_get
from turbo_lab.engines.mock_script import Reply, Script


@pytest.mark.parametrize(("rate", "users"), [(20.0, None), (None, 4)])
def test_calibration_tells_the_clients_own_error(rate, users):
    found = calibrate(rate_req_s=rate, concurrency=users, output_tokens=4, tries=1)
    assert 0 <= found.ttft_error_p50_s <= found.ttft_error_p95_s <= found.ttft_error_p99_s < 1
    assert (found.dispatch_lag_p99_s is None) == (rate is None)
    assert found.requests >= 20 and str(rate or users).partition(".")[0] in found.load


def test_the_mock_process_is_ended():
    with mock_process(Script(replies=(Reply(),))) as url:
        assert http_get(url, "/health")[0] == 200
    with pytest.raises(OSError):
        http_get(url, "/health", timeout_s=2)
    assert not [
        p for p in psutil.Process().children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE and "mock_server" in " ".join(p.cmdline())
    ]  # fmt: skip


def test_a_mock_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr("turbo_lab.client.calibration.sys.executable", "/bin/true")
    with pytest.raises(EngineError, match="did not start"), mock_process(Script()):
        pass
