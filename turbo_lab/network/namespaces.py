"""Hosts as Linux network namespaces: a bridge in the middle, one shaped interface each.

    host i: eth0 (10.77.0.i+1) == veth pair == port i of the bridge, in a namespace of its own

Both ends of a pair have the link's MTU and a token bucket (``tc tbf``) at its rate: the host's end
limits what it sends, the port's end what it receives, and there packets of many senders queue and
drop.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turbo_lab.core.errors import TurboLabError
from turbo_lab.network.hosts import Counters, Hosts
from turbo_lab.network.link import Link, as_link

INTERFACE = "eth0"
SUBNET = "10.77.0"
TOOLS = ("ip", "tc", "nsenter")
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
SETUP_TIMEOUT_S = 20.0
FIRST_PORT = 29500


class NamespaceHosts(Hosts):
    """Hosts with an own network stack each. Raises TurboLabError where that is not allowed."""

    kind = "namespaces"

    def __init__(self, count: int, *, link: Link) -> None:
        own_user = not _is_network_root()
        _require_tools()
        who = "an own user namespace" if own_user else "root"
        why = f"Linux network namespaces, veth and tc tbf as {who}"
        super().__init__(count, link=link, why=why, namespaces=count + 1, own_user=own_user)
        self._own_user = own_user
        self._ports = [FIRST_PORT] * count
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def address(self, host: int) -> str:
        """``10.77.0.(host+1)``."""
        self.require(host)
        return f"{SUBNET}.{host + 1}"

    def interface(self, host: int) -> str:
        """``eth0``."""
        self.require(host)
        return INTERFACE

    def environment(self, host: int) -> dict[str, str]:
        """Where gloo and NCCL shall find the link."""
        return {"GLOO_SOCKET_IFNAME": INTERFACE, "NCCL_SOCKET_IFNAME": INTERFACE}

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """``nsenter`` into the host's namespace, then ``argv``."""
        self.require(host)
        return self._enter(host, argv)

    def route(self, source: int, target: int, *, port: int) -> tuple[str, int]:
        """The target's own address and port."""
        self.require(source)
        return self.address(target), port

    def free_port(self, host: int) -> int:
        """The next port that was not given out; a new host has all of its own."""
        self.require(host)
        self._ports[host] += 1
        return self._ports[host]

    def counters(self, host: int) -> Counters:
        """The kernel's counters of ``eth0`` (the same as ``/sys/class/net/eth0/statistics``)."""
        self.require(host)
        text = Path(
            f"/proc/{self._keeper.pid}/task/{self.keeper_threads[host]}/net/dev"
        ).read_text()
        row = next(line for line in text.splitlines() if line.strip().startswith(f"{INTERFACE}:"))
        field = [int(part) for part in row.partition(":")[2].split()]
        return Counters(field[8], field[9], field[0], field[1], field[3] + field[11])

    def switch_drops(self, host: int) -> int:
        """Packets for ``host`` that its port of the switch has dropped: its queue was full."""
        self.require(host)
        text = self._tool(self.count, ["tc", "-s", "-j", "qdisc", "show", "dev", _port(host)])
        return sum(row.get("drops", 0) for row in json.loads(text))

    def shape(self, host: int, link: Link | str, *, switch_mtu_bytes: int | None = None) -> None:
        """Give host ``host`` another link; its connections stay."""
        self.require(host)
        link = as_link(link)
        far = replace(link, mtu_bytes=switch_mtu_bytes or link.mtu_bytes)
        self._batch(host, "ip", _size(INTERFACE, link))
        self._batch(self.count, "ip", _size(_port(host), far))
        self._batch(host, "tc", _bucket(INTERFACE, link))
        self._batch(self.count, "tc", _bucket(_port(host), link))

    def _build(self) -> None:
        switch, everyone = self.count, range(self.count)
        lines = ["link add br0 type bridge", "link set br0 addrgenmode none",
                 "link set br0 type bridge mcast_snooping 0", "link set lo up"]  # fmt: skip
        for host in everyone:
            port, thread = _port(host), self.keeper_threads[host]
            lines += [
                f"link add {port} type veth peer name {INTERFACE} netns {thread}",
                f"link set {port} master br0 addrgenmode none",
            ]
        lines += [f"link set {name} up" for name in ("br0", *map(_port, everyone))]
        self._batch(switch, "ip", lines)
        for host in everyone:
            self._batch(host, "ip", [
                f"link set {INTERFACE} addrgenmode none", "link set lo up",
                f"addr add {SUBNET}.{host + 1}/24 dev {INTERFACE}", f"link set {INTERFACE} up",
            ])  # fmt: skip
            self.shape(host, self.link)

    def _batch(self, host: int, tool: str, lines: list[str]) -> None:
        self._tool(host, [tool, "-batch", "-"], given="\n".join(lines) + "\n")

    def _tool(self, host: int, argv: list[str], *, given: str = "") -> str:
        """Run ``ip`` or ``tc`` in a host, or in the switch (host number ``count``)."""
        where = "the switch" if host == self.count else f"host {host}"
        try:
            done = subprocess.run(
                self._enter(host, argv), input=given, capture_output=True, text=True,
                timeout=SETUP_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise TurboLabError(f"{argv[0]} did not end in {where}") from error
        if done.returncode:
            reason = " ".join(done.stderr.split())
            raise TurboLabError(f"{argv[0]} cannot set up {where}: {reason}")
        return done.stdout

    def _enter(self, host: int, argv: Sequence[str]) -> list[str]:
        pid, thread = self._keeper.pid, self.keeper_threads[host]
        user = ["--preserve-credentials", f"--user=/proc/{pid}/ns/user"] if self._own_user else []
        return ["nsenter", *user, f"--net=/proc/{pid}/task/{thread}/ns/net", *argv]


def _port(host: int) -> str:
    return f"port{host}"


def _size(interface: str, link: Link) -> list[str]:
    """Lines for ``ip``: the MTU, and how many packets the kernel may carry as one buffer."""
    return [f"link set {interface} mtu {link.mtu_bytes} gso_max_segs {link.segments_per_buffer}"]


def _bucket(interface: str, link: Link) -> list[str]:
    """Lines for ``tc``: a token bucket at the link's rate, or none."""
    if link.rate_bit_s is None:
        return [f"qdisc replace dev {interface} root pfifo limit 1000"]
    return [
        f"qdisc replace dev {interface} root tbf rate {int(link.rate_bit_s)}bit "
        f"burst {link.burst_bytes} limit {link.burst_bytes + link.queue_bytes}"
    ]


def _is_network_root() -> bool:
    """True when this process may make namespaces and shape links without a user namespace."""
    if sys.platform != "linux":
        raise TurboLabError(f"network namespaces exist on Linux only, and this is {sys.platform}")
    status = Path("/proc/self/status").read_text()
    effective = int(next(x for x in status.splitlines() if x.startswith("CapEff")).split()[1], 16)
    return all(effective >> bit & 1 for bit in (CAP_NET_ADMIN, CAP_SYS_ADMIN))


def _require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise TurboLabError(
            f"missing programs: {', '.join(missing)}. Install iproute2 and util-linux for shaped "
            "links between namespaces."
        )
