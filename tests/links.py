#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults between hosts, while data flows: links that fail, lose and delay packets, ranks that are killed or stopped; and hosts that
share more than one network. Hosts are network name spaces, as in hosts.py; needs root.

    tests/links.py --bin build/release/bin [--full] [--only SUBSTRING]
"""

import json
import mmap
import os
import re
import signal
import struct
import sys
import tempfile
import time

import hosts
from bad_net import BadNet, limit, sent
from hosts import Net, expect_codes, ip

END = 1000  # the last phase
NOTICED = 20  # seconds that the peers of a dead rank may take: ten times what is promised
STREAMS = ("inline", "host")


def jacobi(folder, steps):
    return [folder / "jacobi", "--nx", 67, "--ny", 41, "--niter", steps, "--verify"]


class Talk:
    """Ranks that talk, each with each, and the phase that they read."""

    def __init__(self, net, tests, ranks, stream, size=65536, flags=(), body="talk", **environment):
        self.ranks = range(sum(ranks))
        self.host_of = [host for host, count in enumerate(ranks) for _ in range(count)]
        self.file = tempfile.NamedTemporaryFile()
        self.file.truncate(8)
        self.phase = mmap.mmap(self.file.fileno(), 8)
        self.outputs = net.launch(tests.run, ranks, [tests.rank, body, self.file.name, stream, size], flags,
                                  **environment)

    def pid(self, rank):
        return int(self.of(rank).await_line(rf"^rank {rank} is process (\d+)")[1])

    def of(self, rank):
        return self.outputs[self.host_of[rank]]

    @property
    def text(self):
        return "\n".join(output.text for output in self.outputs)

    def pairs(self, ranks):
        return [(a, b) for a in ranks for b in ranks if a != b]

    def say(self, phase):
        self.phase[:] = struct.pack("=Q", phase)

    def all_are_connected(self):
        """Who sends to whom is known, and nothing is sent before phase 1."""
        for here, there in self.pairs(self.ranks):
            self.of(here).await_line(f"^rank {here} sends: to rank {there}, ")

    def all_hear(self, phase, without=(), limit=60):
        """From now on it is the phase, and every rank has heard so from every other."""
        self.say(phase)
        for here, there in self.pairs([rank for rank in self.ranks if rank not in without]):
            self.of(here).await_line(f"^rank {here} hears rank {there} on tag 7 in phase {phase}$", limit)

    def is_lost(self, lost, by, limit=NOTICED):
        """The rank is lost to the others, in both directions."""
        for rank in by:
            for way in ("reaches", "hears"):
                self.of(rank).await_line(f"^rank {rank} {way} rank {lost} on tag 7 no more: (peer_lost|transport): ", limit)

    def end(self, ranks=None, limit=60):
        """All that are left end."""
        self.say(END)
        for rank in ranks if ranks is not None else self.ranks:
            self.of(rank).await_line(f"^rank {rank} is through", limit)

    def expect_none(self, pattern, but="^$"):
        bad = [line for line in self.text.split("\n") if re.search(pattern, line) and not re.search(but, line)]
        assert not bad, "\n".join(bad)

    def expect_no_loss(self, but="^$"):
        self.expect_none("no more|wrong|still waiting|who waits", but)

    def expect_no_wrong_data(self):
        self.expect_none("wrong")


class Tests:
    name = "links"

    def __init__(self, options):
        self.run = options.bin / "sluice-run"
        self.rank = options.bin / "links_rank"
        self.bin = options.bin

    # ---- paths

    def test_each_pair_has_the_best_path(self):
        with Net(3) as net:
            talk = Talk(net, self, [2, 2, 2], "inline", size=4096)
            talk.all_hear(1)
            talk.end()
            expect_codes(talk.outputs, 0)
            talk.expect_no_loss()
            for here, there in talk.pairs(talk.ranks):
                path = talk.of(here).await_line(f"^rank {here} sends: to rank {there}, tag 7, .* bytes: (.*)")[1]
                assert path.startswith("shm: " if talk.host_of[here] == talk.host_of[there] else "ofi:tcp: "), path
        with Net(3) as net:
            outputs = net.launch(self.run, [2, 2, 2], jacobi(self.bin, 20))
            expect_codes(outputs, 0)
            assert "VERIFICATION: PASSED" in outputs[0].text, outputs[0].text

    # ---- links

    def a_link_is_down_for_a_while(self, stream):
        with Net(3) as net:
            talk = Talk(net, self, [2, 1, 1], stream)
            talk.all_hear(1)
            net.down(1)
            talk.all_hear(2, without=[2])
            time.sleep(2)  # what is tested: how long it is down
            net.up(1)
            talk.all_hear(3)
            talk.end()
            expect_codes(talk.outputs, 0)
            talk.expect_no_loss()

    def test_a_link_that_is_down_for_a_while_loses_nothing(self):
        for stream in STREAMS:
            self.a_link_is_down_for_a_while(stream)

    def test_a_link_that_is_down_when_it_is_first_used_loses_nothing(self):
        for local in (False, True):
            with Net(2) as net:
                talk = Talk(net, self, [1, 1], "inline")
                talk.all_are_connected()
                net.down(1, local)
                talk.say(1)
                time.sleep(2.5)  # what is tested: how long it is down
                net.up(1, local)
                talk.all_hear(2)
                talk.end()
                expect_codes(talk.outputs, 0)
                talk.expect_no_loss()

    def a_link_is_down_for_good(self, stream):
        with Net(3) as net:
            talk = Talk(net, self, [2, 1, 1], stream, flags=["--keep-going"], SLUICE_PEER_TIMEOUT="2s")
            talk.all_hear(1)
            net.down(1)
            talk.is_lost(2, by=[0, 1, 3])
            for rank in (0, 1, 3):
                talk.is_lost(rank, by=[2])
            talk.of(2).await_line("^rank 2 is through")
            talk.all_hear(2, without=[2])
            talk.end()
            for output in talk.outputs:
                output.end()
            talk.expect_no_wrong_data()

    def test_a_link_that_is_down_for_good_loses_that_host_alone(self):
        for stream in STREAMS:
            self.a_link_is_down_for_good(stream)

    def test_delay_and_loss_are_not_noticed(self):
        for stream in STREAMS:
            with BadNet(2, 0.05, 0.1) as net:
                talk = Talk(net, self, [1, 1], stream, size=512)
                for phase in range(1, 5):
                    talk.all_hear(phase)
                talk.end()
                expect_codes(talk.outputs, 0)
                talk.expect_no_loss()
        with BadNet(2, 0.05, 0.1) as net:
            outputs = net.launch(self.run, [1, 1], jacobi(self.bin, 5))
            expect_codes(outputs, 0)
            assert "VERIFICATION: PASSED" in outputs[0].text, outputs[0].text

    def test_full_applications_with_delay_and_loss(self):
        for program in (jacobi(self.bin, 50), [self.bin / "life", "--nx", 101, "--ny", 67, "--timesteps", 60, "--verify"]):
            with BadNet(2, 0.05, 0.1) as net:
                outputs = net.launch(self.run, [1, 2], program)
                for output in outputs:
                    assert output.end(200) == 0, output.text
                assert "VERIFICATION: PASSED" in outputs[0].text, outputs[0].text

    # ---- ranks

    def a_rank_is_killed(self, stream):
        with Net(3) as net:
            talk = Talk(net, self, [2, 1, 1], stream, flags=["--keep-going"])
            talk.all_hear(1)
            os.kill(talk.pid(2), signal.SIGKILL)
            talk.is_lost(2, by=[0, 1, 3])
            talk.all_hear(2, without=[2])
            talk.end([0, 1, 3])
            expect_codes(talk.outputs, 128 + signal.SIGKILL)
            talk.expect_no_wrong_data()

    def test_a_killed_rank_fails_its_own_channels_alone(self):
        for stream in STREAMS:
            self.a_rank_is_killed(stream)

    def test_full_a_rank_may_be_killed_at_any_time(self):
        for stream in STREAMS:
            for moment in (0, 0.02, 0.05, 0.1, 0.2, 0.4):
                with Net(3) as net:
                    talk = Talk(net, self, [2, 1, 1], stream, flags=["--keep-going"])
                    talk.say(1)
                    victim = talk.pid(2)
                    time.sleep(moment)
                    os.kill(victim, signal.SIGKILL)
                    talk.is_lost(2, by=[0, 1, 3])
                    talk.all_hear(2, without=[2])
                    talk.end([0, 1, 3])
                    expect_codes(talk.outputs, 128 + signal.SIGKILL)
                    talk.expect_no_wrong_data()

    def a_rank_is_stopped(self, stream):
        with Net(3) as net:
            talk = Talk(net, self, [2, 1, 1], stream, size=2**20, SLUICE_PEER_TIMEOUT="2s")
            talk.all_hear(1)
            os.kill(talk.pid(2), signal.SIGSTOP)
            talk.all_hear(2, without=[2])
            time.sleep(3)  # what is tested: for how long
            os.kill(talk.pid(2), signal.SIGCONT)
            talk.all_hear(3)
            talk.end()
            expect_codes(talk.outputs, 0)
            talk.expect_no_loss()

    def test_a_stopped_rank_goes_on_and_loses_nothing(self):
        for stream in STREAMS:
            self.a_rank_is_stopped(stream)


    def a_channel_breaks(self, stream):
        with Net(2) as net:
            talk = Talk(net, self, [1, 1], stream, body="break")
            talk.all_hear(1)
            talk.all_hear(2)
            talk.of(0).await_line("^rank 0 reaches rank 1 on tag 8 no more: peer_lost: ")
            talk.of(1).await_line("^rank 1 hears rank 0 on tag 8 breaks")
            talk.all_hear(3)
            talk.end()
            expect_codes(talk.outputs, 0)
            talk.expect_no_loss(but="on tag 8")

    def test_a_channel_that_breaks_leaves_others_to_the_same_rank_alone(self):
        for stream in STREAMS:
            self.a_channel_breaks(stream)

    # ---- two networks

    def bandwidth(self, **environment):
        """Of two networks of equal speed: in MB/s, and what share went over each."""
        with Net(2, networks=2) as net, tempfile.NamedTemporaryFile("r") as report:
            for network in net.networks:
                limit(net, network, "100mbit")
            program = [self.bin / "sluice-bench", "bandwidth", "--sizes", "512k:512k", "--window", 8, "--iters", 1, "--rounds",
                       3, "--depth", 4, "--against", "none", "--json", report.name]
            expect_codes(net.launch(self.run, [1, 1], program, **environment), 0)
            bytes_sent = [sent(net, 0, network) for network in net.networks]
            return json.load(report)[0]["p50"], [count / sum(bytes_sent) for count in bytes_sent]

    def test_two_rails_carry_twice_as_much(self):
        one, (first, _) = self.bandwidth(SLUICE_NICS="eth0")
        assert first > 0.9, first
        for environment in ({}, {"SLUICE_NICS": "eth1,eth0", "SLUICE_RAILS": "2"}):
            two, shares = self.bandwidth(**environment)
            assert min(shares) > 0.4, f"{environment}: {shares}"
            assert two > 1.7 * one, f"{environment}: {two:.1f} MB/s over two rails, {one:.1f} over one"

    def test_one_rail_stays_on_one_network(self):
        _, shares = self.bandwidth(SLUICE_RAILS="1")
        assert max(shares) > 0.9, shares

    def test_a_network_inside_each_host_is_not_used(self):
        for environment in ({}, {"SLUICE_RAILS": "1"}):
            with Net(2, networks=2) as net:
                for host in net.hosts:
                    ip("-n", host, "addr", "flush", "dev", "eth1")
                    ip("-n", host, "addr", "add", "172.17.0.1/16", "dev", "eth1")  # as a bridge for containers has it
                talk = Talk(net, self, [2, 1], "inline", **environment)
                talk.all_hear(1)
                talk.end()
                expect_codes(talk.outputs, 0)
                talk.expect_no_loss()

    def test_a_slow_rail_holds_back_what_is_on_it_alone(self):
        with Net(2, networks=2) as net:
            limit(net, 0, "20mbit")
            talk = Talk(net, self, [1, 1], "inline", size=512, body="overtake")
            talk.say(1)
            for tag in range(3, 7):
                talk.of(1).await_line(f"^rank 1 hears rank 0 on tag {tag} in phase 1$")
            talk.say(2)
            talk.of(0).await_line("^rank 0 has put for rank 1 on tag 9: .* over 2 rails")
            for phase in (3, 4, 5):
                talk.say(phase)
                talk.of(1).await_line(f"^rank 1 hears rank 0 on tag . in phase {phase}$", count=2)
            talk.end()
            expect_codes(talk.outputs, 0)
            talk.expect_no_loss()
            lines = talk.of(1).lines
            large = lines.index("rank 1 has all of rank 0 on tag 9")
            assert sum(" in phase 5" in line for line in lines[:large]) >= 2, talk.text


def main():
    parser = hosts.arguments(__doc__)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()

    def left_out(name):
        return "needs /dev/net/tun" if "delay" in name and not os.path.exists("/dev/net/tun") else ""

    return hosts.run_all(Tests, options, left_out)


if __name__ == "__main__":
    sys.exit(main())
