#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts and the ways between them: routers, bridges of containers, addresses of all kinds, links that are dead or become so. Data
arrives, or there is an error in time that names the device. Hosts are network name spaces, as in hosts.py; needs root.

    tests/paths.py --bin build/release/bin [--mpiexec mpiexec] [--full] [--only SUBSTRING]
"""

import re
import subprocess
import sys
import threading
import time

import hosts
from bad_net import sent
from hosts import Net, expect_codes, ip

PEER_TIMEOUT = 8  # seconds, of those that are to end with an error
STARTS = 6  # and so much more, until a loaded machine has started all


def move(net, host, network, *addresses):
    """The interface of this network has these addresses, with their prefixes, and no others."""
    ip("-n", net.hosts[host], "addr", "flush", "dev", f"eth{network}")
    for address in addresses:
        ip("-n", net.hosts[host], "addr", "add", address, "dev", f"eth{network}", *(["nodad"] if ":" in address else []))


def bridge(net, host, address, carrier=True, device="docker0"):
    """As engines of containers make it."""
    name = net.hosts[host]
    ip("-n", name, "link", "add", device, "type", "bridge")
    if carrier:
        ip("-n", name, "link", "add", f"{device}-in", "type", "veth", "peer", "name", f"{device}-out")
        ip("-n", name, "link", "set", f"{device}-out", "master", device, "up")
        ip("-n", name, "link", "set", f"{device}-in", "up")
    ip("-n", name, "addr", "add", address, "dev", device)
    ip("-n", name, "link", "set", device, "up")


def drop_what_comes(net, host, network):
    """A firewall: what comes in is dropped, what goes out is not. The rule stands before that for local addresses."""
    name = net.hosts[host]
    ip("-n", name, "rule", "add", "pref", "100", "lookup", "local")
    ip("-n", name, "rule", "del", "pref", "0")
    ip("-n", name, "rule", "add", "pref", "10", "iif", f"eth{network}", "blackhole")


# ---- how the two hosts are joined: each takes a net of two hosts, which share as many networks as it says


def shared_subnet(net):
    pass


def routed(net):
    """Each in a network of its own, with a router between them."""
    ip("-n", net.bridge, "addr", "add", "10.93.7.254/24", "dev", "bridge0")
    ip("-n", net.bridge, "addr", "add", "10.93.9.254/24", "dev", "bridge0")
    subprocess.run(["ip", "netns", "exec", net.bridge, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True, timeout=20)
    move(net, 1, 0, "10.93.9.2/24")
    for host, router in ((0, "10.93.7.254"), (1, "10.93.9.254")):
        ip("-n", net.hosts[host], "route", "add", "default", "via", router)


def routed_with_a_bridge(net):
    routed(net)
    bridge(net, 0, "172.17.0.1/16")


def a_bridge_on_one_host(net):
    bridge(net, 0, "172.17.0.1/16")


def equal_bridges(net):
    for host in (0, 1):
        bridge(net, host, "172.17.0.1/16")


def bridges_on_equal_networks(net):
    for host in (0, 1):
        bridge(net, host, f"172.17.0.{host + 1}/16")


def bridges_on_different_networks(net):
    routed(net)
    for host in (0, 1):
        bridge(net, host, f"172.{17 + host}.0.1/16")


def different_netmasks(net):
    bridge(net, 0, "172.17.0.1/16")
    move(net, 1, 0, "10.93.7.2/16")


def addresses_on_the_loopback(net):
    """Links without addresses, as routers of a data centre have them."""
    for host, name in enumerate(net.hosts):
        move(net, host, 0)
        ip("-n", name, "addr", "add", f"10.0.0.{host + 1}/32", "dev", "lo")
        ip("-n", name, "route", "add", f"10.0.0.{2 - host}/32", "dev", "eth0", "src", f"10.0.0.{host + 1}")
    net.addresses = ["10.0.0.1", "10.0.0.2"]


def ipv6_alone(net):
    for host in (0, 1):
        move(net, host, 0, f"fd93::{host + 1}/64")
    net.addresses = ["[fd93::1]", "[fd93::2]"]


def ipv6_alone_on_one_host(net):
    for host in (0, 1):
        ip("-n", net.hosts[host], "addr", "add", f"fd93::{host + 1}/64", "dev", "eth0", "nodad")
    ip("-n", net.hosts[1], "addr", "del", "10.93.7.2/24", "dev", "eth0")
    net.addresses = ["[fd93::1]", "[fd93::2]"]


def a_dead_second_link(net):
    net.down(1, network=1)


def many_bridges(net):
    for number in range(12):
        bridge(net, 0, f"172.{20 + number}.0.1/16", device=f"docker{number}")


def bridges_without_carrier(net):
    for host in (0, 1):
        bridge(net, host, f"172.17.0.{host + 1}/16", carrier=False)


def a_firewall_on_the_second_link(net):
    drop_what_comes(net, 1, 1)


def dormant(net):
    for name in net.hosts:
        ip("-n", name, "link", "set", "eth0", "down")
        ip("-n", name, "link", "set", "eth0", "mode", "dormant")
        ip("-n", name, "link", "set", "eth0", "up")


class Tests:
    name = "paths"

    def __init__(self, options):
        self.run = options.bin / "sluice-run"
        self.rank = options.bin / "hosts_rank"
        self.mpiexec = options.mpiexec

    def start(self, net, body, flags=(), **environment):
        environment = {"SLUICE_BACKENDS": "shm,ofi:tcp", "SLUICE_PEER_TIMEOUT": f"{PEER_TIMEOUT}s", **environment}
        return net.launch(self.run, [1, 1], [self.rank, body], flags, **environment)

    def arrives(self, topology, networks=1, **environment):
        """Small messages and striped ones. What the ranks have said."""
        with Net(2, networks) as net:
            topology(net)
            outputs = self.start(net, "exchange", **environment)
            expect_codes(outputs, 0)
            for output in outputs:
                assert "all has arrived" in output.text, output.text
            return "\n".join(output.text for output in outputs), [sent(net, 0, network) for network in net.networks]

    def fails(self, topology, *named, networks=1, **environment):
        """In time, with an error that has these words at each end."""
        with Net(2, networks) as net:
            topology(net)
            began = time.monotonic()
            outputs = self.start(net, "exchange", **environment)
            for output in outputs:
                assert output.end() == 1, output.text
            passed = time.monotonic() - began
            for output in outputs:
                for word in named:
                    assert word in output.text, f"no {word!r} in:\n{output.text}"
            assert passed < PEER_TIMEOUT + STARTS, f"after {passed:.1f} s"

    # ---- twelve topologies, and what they become together

    def test_routed_with_a_bridge(self):
        self.arrives(routed_with_a_bridge)

    def test_bridges_without_carrier(self):
        text, _ = self.arrives(bridges_without_carrier)
        assert re.search(r"not used: the network path from docker0 \(172.17.0.\d\) to docker0 .*SLUICE_NICS", text), text

    def test_full_more_bridges_than_devices_are_used(self):
        text, _ = self.arrives(many_bridges)
        assert re.search(r"not used, as a rank uses 8 network devices at most: .*docker\d+ \(SLUICE_NICS chooses\)", text), text

    def test_addresses_on_the_loopback(self):
        self.arrives(addresses_on_the_loopback)

    def test_dormant(self):
        self.fails(dormant, "no network device that is up", "SLUICE_INTERFACE")

    def test_full_shared_subnet(self):
        self.arrives(shared_subnet)

    def test_full_routed(self):
        self.arrives(routed)

    def test_full_a_bridge_on_one_host(self):
        self.arrives(a_bridge_on_one_host)

    def test_full_equal_bridges(self):
        self.arrives(equal_bridges)

    def test_full_bridges_on_equal_networks(self):
        self.arrives(bridges_on_equal_networks)

    def test_full_bridges_on_different_networks(self):
        self.arrives(bridges_on_different_networks)

    def test_full_different_netmasks(self):
        self.arrives(different_netmasks)

    def test_full_ipv6_alone(self):
        self.arrives(ipv6_alone)

    def test_full_ipv6_alone_on_one_host(self):
        self.arrives(ipv6_alone_on_one_host)

    def test_full_a_dead_second_link(self):
        text, _ = self.arrives(a_dead_second_link, networks=2)
        assert re.search(r"not used: the network path from eth1 \(10.93.8.\d\) to eth1 ", text), text

    def test_full_a_firewall_on_the_second_link(self):
        self.arrives(a_firewall_on_the_second_link, networks=2)

    def test_full_a_dead_link_that_is_chosen(self):
        for topology in (a_dead_second_link, a_firewall_on_the_second_link):
            self.fails(topology, "eth1 (10.93.8.1)", "eth1 (10.93.8.2)", "SLUICE_NICS", networks=2, SLUICE_NICS="eth1")

    # ---- what chooses devices

    def test_an_interface_that_is_chosen_carries_the_data(self):
        for chosen in ("eth1", None):
            environment = {"SLUICE_INTERFACE": chosen} if chosen else {"SLUICE_NICS": "eth1"}
            _, (first, second) = self.arrives(shared_subnet, networks=2, **environment)
            assert second > 4 * 2**20 > first, f"{first} and {second} bytes with {environment}"

    def test_full_a_device_that_is_chosen_and_leads_nowhere(self):
        self.fails(bridges_on_different_networks, "docker0 (172.17.0.1)", "docker0 (172.18.0.1)", "SLUICE_NICS", SLUICE_NICS="docker0")
        self.fails(equal_bridges, "no route leads", "docker0 (172.17.0.1)", "SLUICE_NICS", SLUICE_NICS="docker0")

    def test_full_an_interface_that_others_do_not_reach(self):
        for topology in (equal_bridges, bridges_on_equal_networks, bridges_on_different_networks):
            self.fails(topology, "SLUICE_INTERFACE", SLUICE_INTERFACE="docker0")

    # ---- what comes up, and what goes down

    @staticmethod
    def come_up(net):
        time.sleep(1.5)  # what is tested: until when
        for name in net.hosts:
            ip("-n", name, "link", "set", "eth0", "state", "up")

    def test_a_link_that_comes_up_is_waited_for(self):
        with Net(2) as net:
            dormant(net)
            outputs = self.start(net, "exchange")
            self.come_up(net)
            expect_codes(outputs, 0)

    def a_path_ends(self, cut):
        with Net(2, networks=2) as net:
            outputs = self.start(net, "exchange_on")
            for output in outputs:
                output.await_line("four rounds have arrived")
            cut(net)
            began = time.monotonic()
            for output in outputs:
                output.await_line(r"^sluice: rank \d: transport: .*eth1 \(10.93.8.\d\).*SLUICE_NICS", PEER_TIMEOUT + STARTS)
            passed = time.monotonic() - began
            assert passed < PEER_TIMEOUT + STARTS, f"after {passed:.1f} s"
            expect_codes(outputs, 1)

    def test_a_path_that_ends_fails_its_channels_in_time(self):
        self.a_path_ends(lambda net: net.down(1, network=1))

    def test_full_a_path_that_ends_one_way_fails_its_channels_in_time(self):
        self.a_path_ends(lambda net: drop_what_comes(net, 1, 1))

    def test_full_a_path_that_is_away_for_a_while_loses_nothing(self):
        with Net(2, networks=2) as net:
            outputs = self.start(net, "exchange_on", SLUICE_PEER_TIMEOUT="20s")
            for output in outputs:
                output.await_line("four rounds have arrived")
            net.down(1, network=1)
            time.sleep(3)  # what is tested: how long it is down
            net.up(1, network=1)
            time.sleep(12)
            for output in outputs:
                assert output.process.poll() is None, output.text

    # ---- MPI

    def test_mpi_bridges(self):
        with Net(2) as net:
            bridges_without_carrier(net)
            text = hosts.Tests.mpi(self, net, [1, 1], [self.rank, "exchange"])
            assert text.count("all has arrived") == 2, text

    def test_mpi_full_a_link_that_comes_up_is_waited_for(self):
        with Net(2) as net:
            dormant(net)
            soon = threading.Thread(target=self.come_up, args=[net])
            soon.start()
            try:
                text = hosts.Tests.mpi(self, net, [1, 1], [self.rank, "exchange"])
            finally:
                soon.join()
            assert text.count("all has arrived") == 2, text



def main():
    parser = hosts.arguments(__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--mpiexec", default="")
    options = parser.parse_args()
    return hosts.run_all(Tests, options, lambda name: name.startswith("test_mpi") and not options.mpiexec and "no MPI")


if __name__ == "__main__":
    sys.exit(main())
