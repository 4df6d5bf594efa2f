"""The calibration before a run."""

from __future__ import annotations

import psutil
import pytest

from turbo_lab.client.calibration import calibrate
from turbo_lab.core.errors import EngineError


@pytest.mark.alone
@pytest.mark.parametrize(("rate", "users"), [(20.0, None), (None, 4)])
def test_calibration_tells_the_clients_own_error(rate, users):
    found = calibrate(rate_req_s=rate, concurrency=users, output_tokens=4, tries=1)
    assert 0 <= found.ttft_error_p50_s <= found.ttft_error_p95_s <= found.ttft_error_p99_s < 1
    assert (found.dispatch_lag_p99_s is None) == (rate is None)
    assert found.requests >= 20 and str(rate or users).partition(".")[0] in found.load
    assert not [
        p for p in psutil.Process().children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE and "mock_server" in " ".join(p.cmdline())
    ], "its mock has ended"  # fmt: skip


def test_a_mock_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr("turbo_lab.engines.mock_process.sys.executable", "/bin/true")
    with pytest.raises(EngineError, match="did not start"):
        calibrate(rate_req_s=5.0, concurrency=None, output_tokens=4)
