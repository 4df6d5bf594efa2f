"""Hosts as network namespaces: real packets, exact counters, faults that show, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turbo_lab.core.processes import process_token
from turbo_lab.network import keeper, namespaces
from turbo_lab.network.experiments import cross_traffic, incast, point_to_point, probe_mtu
from turbo_lab.network.headers import stream_bytes
from turbo_lab.network.links import Link, open_hosts

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("namespaces_allowed")]

OPENER = """
import os, time
from turbo_lab.network.links import open_hosts
hosts = open_hosts(2, kind="namespaces")
inside = hosts.run(1, ["sleep", "600"], timeout_s=600)
space = f"/proc/{hosts._keeper.pid}/task/{hosts.keeper_threads[1]}/ns/net"
while os.readlink(f"/proc/{inside.pid}/ns/net") != os.readlink(space):
    time.sleep(0.01)
print(hosts.name, os.readlink(space), hosts._keeper.pid, inside.pid, flush=True)
time.sleep(600)
"""


def test_counters_are_payload_and_headers_to_the_byte() -> None:
    with open_hosts(2, link=Link(2e8, whole_packets=True), kind="namespaces") as hosts:
        assert hosts.kind == "namespaces" and "tc tbf" in hosts.why
        found = point_to_point(hosts, payload_bytes=2_000_000)
        assert found.counted is not None
        sent, received = stream_bytes(found.counted)
        again = 1448 * (found.retransmits or 0)
        assert abs(sent - again - 2_000_000) <= 64  # a SYN's options, questions for addresses
        assert abs(received) <= 64
        assert found.counted.sent_packets >= 2_000_000 / 1448


def test_hosts_reach_each_other_and_nothing_else() -> None:
    reach = (
        "import socket, sys\n"
        "for address in sys.argv[1:]:\n"
        "    one = socket.socket()\n"
        "    one.settimeout(1)\n"
        "    print(one.connect_ex((address, 9)))\n"
    )
    with open_hosts(2, kind="namespaces") as hosts:
        argv = [sys.executable, "-I", "-S", "-c", reach, hosts.address(1), "192.0.2.1"]
        refused, outside = hosts.run(0, argv, timeout_s=120).check().split()
        assert int(refused) == 111  # the other host answers that nothing listens there
        assert int(outside) == 101  # no way out
        assert hosts.environment(0)["GLOO_SOCKET_IFNAME"] == hosts.interface(0) == "eth0"
        assert hosts.route(0, 1, port=5) == (hosts.address(1), 5)


def test_large_packets_vanish_where_the_switch_takes_only_small_ones() -> None:
    jumbo = Link(1e8, mtu_bytes=9000, whole_packets=True)
    with open_hosts(2, link=jumbo, kind="namespaces") as hosts:
        healthy = probe_mtu(hosts, sizes=(576, 1500, 9000))
        assert healthy.passed_bytes == (576, 1500, 9000) and not healthy.mismatch
        assert healthy.large_s is not None
        hosts.shape(1, jumbo, switch_mtu_bytes=1500)
        broken = probe_mtu(hosts, sizes=(576, 1500, 1501, 9000))
        assert broken.interface_mtu_bytes == 9000 and broken.mismatch
        assert (broken.path_mtu_bytes, broken.vanished_bytes) == (1500, (1501, 9000))
        assert broken.small_s is not None and broken.large_s is None


def test_incast_drops_at_the_receivers_port() -> None:
    short_queue = Link(1e8, queue_s=0.001, whole_packets=True)
    with open_hosts(5, link=short_queue, kind="namespaces") as hosts:
        found = incast(hosts, bytes_each=150_000)
        assert found.senders == 4 and found.dropped_packets
        assert found.retransmits >= found.dropped_packets / 2
        assert found.seconds > found.ideal_s


def test_links_can_change_while_hosts_live() -> None:
    with open_hosts(2, link="1gbit", kind="namespaces") as hosts:
        for host in (0, 1):
            hosts.shape(host, Link(2e7))
        slow = point_to_point(hosts, payload_bytes=250_000)
        assert slow.seconds >= 0.9 * 250_000 * 8 / 2e7


def test_an_unprivileged_user_gets_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "_is_network_root", lambda: False)
    try:
        hosts = open_hosts(2, link="100mbit", kind="namespaces")
    except Exception as error:
        pytest.skip(f"user namespaces are not allowed here: {error}")
    with hosts:
        assert "own user namespace" in hosts.why
        found = point_to_point(hosts, payload_bytes=500_000)
        assert stream_bytes(found.counted)[0] >= 500_000 - 64


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_killed_opener(end: signal.Signals) -> None:
    opener = subprocess.Popen([sys.executable, "-c", OPENER], stdout=subprocess.PIPE, text=True)
    name, space, *pids = opener.stdout.readline().split()
    spaces = {space}
    assert keeper.processes_in(spaces) == {int(pids[1])}
    opener.send_signal(end)
    opener.wait(60)
    opener.stdout.close()
    deadline = time.monotonic() + 60
    while any(process_token(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not keeper.processes_in(spaces) and not keeper.processes_named(name)
    assert not any(process_token(int(pid)) for pid in pids)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up the rights of root")
def test_without_the_right_hosts_are_paced_and_say_why(tmp_path: Path) -> None:
    code = (
        "from turbo_lab.network.links import open_hosts\n"
        "with open_hosts(2) as hosts:\n"
        "    print(hosts.kind, '|', hosts.why)\n"
    )
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", code], capture_output=True, text=True, timeout=180,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.startswith("paced | no network namespace can be made here"), done.stderr
    assert not list(tmp_path.iterdir())  # nor is a folder of the failed attempt left


@pytest.mark.alone
def test_one_stream_fills_a_gigabit_link() -> None:
    """A busy machine only slows it, so the best of three is what the link can carry."""
    with open_hosts(2, link="1gbit", kind="namespaces") as hosts:
        shares = []
        while len(shares) < 3 and max(shares, default=0) < 0.85:
            shares.append(point_to_point(hosts).share_of(hosts.link))
        assert 0.85 <= max(shares) <= 1.0


@pytest.mark.alone
def test_a_link_shared_by_two_senders_is_half_as_fast() -> None:
    with open_hosts(3, link="200mbit", kind="namespaces") as hosts:
        slowdowns = []
        while len(slowdowns) < 3 and not any(1.3 < s < 4 for s in slowdowns):
            slowdowns.append(cross_traffic(hosts, payload_bytes=4_000_000).slowdown)
        assert 1.3 < slowdowns[-1] < 4, slowdowns
