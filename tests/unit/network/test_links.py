"""Links, buckets, hosts without privilege, and that nothing outlives whoever opened them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_lab.core.errors import TurboLabError, UnmeasuredError, UsageError
from turbo_lab.core.processes import process_token
from turbo_lab.network import keeper
from turbo_lab.network.experiments import (
    CrossTraffic,
    Incast,
    MtuProbe,
    Transfer,
    incast,
    median_points,
    message_points,
    point_to_point,
    probe_mtu,
)
from turbo_lab.network.link import LARGEST_BUFFER_BYTES
from turbo_lab.network.links import Link, as_link, clean_stale, open_hosts, parse_rate
from turbo_lab.network.pacing import RATE_VARIABLE, TokenBucket, pace_sockets

from ...waiting import wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes as on Linux")


@pytest.mark.parametrize(
    ("text", "rate_bit_s"),
    [("1gbit", 1e9), ("100 Mbit/s", 1e8), ("2.5Gbit", 2.5e9), ("9600bit", 9600.0), (5e6, 5e6)],
)
def test_rates(text: str | float, rate_bit_s: float) -> None:
    assert parse_rate(text) == rate_bit_s


@pytest.mark.parametrize("text", ["1gb", "1gbps", "fast", "-1gbit", "0mbit", 0, float("nan")])
def test_no_rates(text: str | float) -> None:
    with pytest.raises(UsageError, match="allowed: a number of bits per second"):
        parse_rate(text)


@given(rate=st.floats(1e3, 1e12), mtu=st.integers(576, 65_521), whole=st.booleans())
def test_a_burst_holds_two_of_what_passes_at_once(rate: float, mtu: int, whole: bool) -> None:
    link = Link(rate, mtu_bytes=mtu, whole_packets=whole)
    buffer_bytes = link.segments_per_buffer * link.mtu_bytes
    assert 2 * buffer_bytes <= link.burst_bytes
    assert buffer_bytes <= LARGEST_BUFFER_BYTES
    assert link.segments_per_buffer == 1 or not whole


def test_impossible_links_are_refused() -> None:
    for wrong in ({"mtu_bytes": 100}, {"queue_s": 0.0}, {"rate_bit_s": -1.0}):
        with pytest.raises(UsageError, match="allowed"):
            Link(**wrong)
    assert as_link(None) == Link() and as_link("1gbit").describe() == "1 Gbit/s, MTU 1500"


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@given(
    takes=st.lists(st.integers(1, 5_000), min_size=1, max_size=30),
    pauses=st.lists(st.floats(0, 3), min_size=30, max_size=30),
    burst=st.integers(1, 4_000),
)
def test_a_bucket_never_lets_more_through_than_rate_and_burst(
    takes: list[int], pauses: list[float], burst: int
) -> None:
    clock = Clock()
    bucket = TokenBucket(1000.0, burst_bytes=burst, clock=clock, sleep=clock.sleep)
    passed: list[tuple[float, int]] = []
    for count, pause in zip(takes, pauses, strict=False):
        clock.sleep(pause)
        bucket.take(count)
        passed.append((clock(), count))
    for i in range(len(passed)):
        for j in range(i, len(passed)):
            span_s = passed[j][0] - passed[i][0]
            through = sum(count for _, count in passed[i : j + 1])
            # what passed at the first moment may have waited for its own tokens
            assert through - passed[i][1] <= burst + 1000.0 * span_s + 1e-6


def test_a_bucket_that_is_always_asked_gives_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(1000.0, burst_bytes=50, clock=clock, sleep=clock.sleep)
    for _ in range(100):
        bucket.take(50)
    assert clock() - 100.0 == pytest.approx((100 * 50 - 50) / 1000.0)


@linux
def test_sockets_of_this_process_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RATE_VARIABLE, raising=False)
    assert pace_sockets() == 0  # no rate, nothing to do
    with socket.create_server(("127.0.0.1", 0)) as door:
        near = socket.create_connection(door.getsockname())
        far, _ = door.accept()
        with near, far:
            assert pace_sockets(2e6) >= 2
            assert near.getsockopt(socket.SOL_SOCKET, 47) == 2_000_000
            assert far.getsockopt(socket.SOL_SOCKET, 47) == 2_000_000
            assert door.getsockopt(socket.SOL_SOCKET, 47) != 2_000_000  # it listens only


@linux
def test_a_paced_link_holds_its_rate_and_brings_everything() -> None:
    with open_hosts(3, link="80mbit", kind="paced") as hosts:
        assert (hosts.kind, hosts.why) == ("paced", "asked for")
        found = point_to_point(hosts, payload_bytes=1_000_000)
        assert found.payload_bytes == 1_000_000 and found.kind == "paced"
        assert found.seconds >= (1_000_000 - 300_000) / 1e7  # less what buffers may take at once
        assert found.share_of(hosts.link) == found.rate_bit_s / 8e7
        gathered = incast(hosts, bytes_each=500_000)
        assert gathered.senders == 2 and gathered.ideal_s == pytest.approx(0.1)
        assert gathered.seconds >= (1_000_000 - 500_000) / 1e7
        assert gathered.dropped_packets is None
        points = message_points(hosts, [64, 4096], repeats=3)
        assert [size for size, _ in median_points(points)] == [64.0, 4096.0] and len(points) == 6


@linux
def test_what_paced_hosts_cannot_do_is_said() -> None:
    with open_hosts(2, link="1gbit", kind="paced") as hosts:
        with pytest.raises(UnmeasuredError, match="no interface of their own"):
            hosts.counters(0)
        with pytest.raises(UnmeasuredError, match="no MTU"):
            hosts.shape(0, "1gbit", switch_mtu_bytes=9000)
        with pytest.raises(UnmeasuredError, match="paced hosts have no packets"):
            probe_mtu(hosts)
        with pytest.raises(UsageError, match="no host 2; allowed: 0 to 1"):
            hosts.address(2)
        with pytest.raises(TurboLabError, match="no program 'no-such-program'"):
            hosts.run(0, ["no-such-program"], timeout_s=1)
    with pytest.raises(TurboLabError, match="closed"):
        hosts.run(0, ["true"], timeout_s=1)


def test_impossible_hosts_are_refused() -> None:
    with pytest.raises(UsageError, match="allowed: 2 to 9"):
        open_hosts(1)
    with pytest.raises(UsageError, match=r"no kind of hosts 'namespace'.*'namespaces'"):
        open_hosts(2, kind="namespace")


@linux
def test_a_process_is_waited_for_read_and_ended() -> None:
    with open_hosts(2, kind="paced") as hosts:
        fine = hosts.run(0, ["sh", "-c", "echo $TURBO_LAB_LINK_BYTES_S $EXTRA"],
                         timeout_s=120, env={"EXTRA": "yes"})  # fmt: skip
        assert fine.check() == "125000000.0 yes\n"
        bad = hosts.run(1, ["sh", "-c", "echo no luck; exit 3"], timeout_s=120)
        with pytest.raises(TurboLabError, match=r"(?s)in host 1\) ended with code 3.*no luck"):
            bad.check()
        late = hosts.run(0, ["sh", "-c", "sleep 100 & sleep 100"], timeout_s=0.3)
        with pytest.raises(TurboLabError, match="past its deadline"):
            late.check()
        slow = hosts.run(0, ["sleep", "100"], timeout_s=100)
        with pytest.raises(TurboLabError, match=r"still runs after 0\.05 s"):
            slow.wait(0.05)
        slow.stop()
        slow.stop()
        assert slow.poll() == -signal.SIGTERM


OPENER = textwrap.dedent(
    """
    import signal, sys, time
    from turbo_lab.network.links import open_hosts
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
    stubborn = "trap '' TERM; sleep 600 & wait; sleep 600"
    with open_hosts(2, kind=sys.argv[1]) as hosts:
        inside = hosts.run(1, ["sh", "-c", stubborn], timeout_s=600)
        escaped = hosts.run(0, ["setsid", "sleep", "600"], timeout_s=600)
        time.sleep(0.1)
        print(hosts.name, hosts._keeper.pid, inside.pid, escaped.pid, hosts.folder, flush=True)
        if sys.argv[2] == "raise":
            raise RuntimeError("on purpose")
        time.sleep(600)
    """
)


@linux
@pytest.mark.parametrize("end", ["raise", "SIGINT", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_opener(end: str) -> None:
    opener = subprocess.Popen(
        [sys.executable, "-c", OPENER, "paced", end], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    name, *pids, folder = opener.stdout.readline().split()
    if end != "raise":
        os.kill(opener.pid, getattr(signal, end))
    opener.wait(60)
    opener.stdout.close()
    assert wait_until(lambda: not any(process_token(int(pid)) for pid in pids))
    assert not keeper.processes_named(name)
    assert wait_until(lambda: not Path(folder).exists())


@linux
def test_leftovers_of_dead_openers_are_cleaned_and_of_living_ones_not() -> None:
    dead = f"{keeper.NAME_PREFIX}1-1-abcdef"  # process 1 has another start time
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, keeper.NAME_VARIABLE: dead})
    with open_hosts(2, kind="paced") as hosts:
        mine = hosts.run(0, ["sleep", "600"], timeout_s=600)
        assert wait_until(lambda: left.pid in keeper.processes_named(dead))
        assert dead in clean_stale()
        assert left.wait(60) == -signal.SIGKILL
        assert mine.poll() is None
    assert mine.popen.poll() is not None
    assert keeper.opener_lives(f"{keeper.NAME_PREFIX}of-somebody-else")


def test_results_speak_for_themselves() -> None:
    fast, slow = (Transfer("paced", 1_000_000, s, 1) for s in (0.1, 0.2))
    assert fast.rate_bit_s == 8e7 and fast.share_of(Link()) is None
    assert CrossTraffic(fast, slow).slowdown == 2.0
    both = Incast("paced", 2, 1_000_000, 0.2, None, None, (fast, slow))
    assert (both.retransmits, both.slowest_over_fastest) == (2, 2.0)
    assert not MtuProbe(9000, (576, 9000), (), 0.1, 0.1).mismatch
    black_hole = MtuProbe(9000, (576, 1500), (8000, 9000), 0.1, None)
    assert black_hole.mismatch and black_hole.path_mtu_bytes == 1500
    assert not MtuProbe(9000, (), (576,), None, None).mismatch  # nothing passes: no mismatch
