#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that span hosts. The hosts are network name spaces with their interfaces on common bridges; needs root.

    tests/hosts.py --bin build/release/bin [--mpiexec mpiexec] [--backend B ...] [--only SUBSTRING]

With --backend, data moves between hosts too: the applications run and verify themselves with it.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PORT = 5000


def ip(*words):
    """What it prints."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20).stdout


class Output:
    """A process of a host, and the lines that it has written so far."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, **environment})
        self.lines = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()

    @property
    def text(self):
        return "\n".join(self.lines)

    def await_line(self, pattern, limit=20, count=1):
        """The match of the first line that has the pattern, or of a later one."""
        def found():
            matches = [match for match in (re.search(pattern, line) for line in self.lines) if match]
            return matches[count - 1] if len(matches) >= count else None
        with self.changed:
            if not self.changed.wait_for(found, limit):
                raise AssertionError(f"no line {pattern!r} within {limit} s in:\n{self.text}")
            return found()

    def end(self, limit=40):
        """The exit code."""
        code = self.process.wait(limit)
        self.reader.join(5)
        return code


class Net:
    """Hosts on one bridge for each network that they share; the bridges have a name space of their own. Their names are this
    process's; all go at the end."""

    def __init__(self, count, networks=1):
        self.bridge = f"sluice{os.getpid()}"
        self.hosts = [f"{self.bridge}h{i}" for i in range(count)]
        self.addresses = [self.address(i, 0) for i in range(count)]
        self.networks = range(networks)
        self.started = []

    @staticmethod
    def address(host, network):
        return f"10.93.{7 + network}.{host + 1}"

    @staticmethod
    def port(host, network):
        return f"h{host}n{network}"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        ip("netns", "add", self.bridge)
        for network in self.networks:
            ip("-n", self.bridge, "link", "add", "name", f"bridge{network}", "type", "bridge")
            ip("-n", self.bridge, "link", "set", f"bridge{network}", "up")
        for host, name in enumerate(self.hosts):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            for network in self.networks:
                self.join(host, network)

    def join(self, host, network):
        name, device, port = self.hosts[host], f"eth{network}", self.port(host, network)
        self.plug(name, device, port)
        ip("-n", self.bridge, "link", "set", port, "master", f"bridge{network}", "up")
        ip("-n", name, "addr", "add", f"{self.address(host, network)}/24", "dev", device)
        ip("-n", name, "link", "set", device, "up")

    def plug(self, name, device, port):
        """A cable from the host to the bridges."""
        ip("link", "add", device, "netns", name, "type", "veth", "peer", "name", port, "netns", self.bridge)

    def __exit__(self, *_):
        for output in self.started:
            output.process.kill()
        for host in [*self.hosts, self.bridge]:
            self.end_all_in(host)
            subprocess.run(["ip", "netns", "del", host], capture_output=True, timeout=20)
        for output in self.started:
            output.process.wait(10)

    @staticmethod
    def end_all_in(host):
        """Ends what runs in the name space, which we made: nobody else's is in there."""
        pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, timeout=20).stdout.split()
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def down(self, host, local=False, network=0):
        """Pulls the cable of the host at the bridge's end: the host itself sees its interface up, unless it is `local`."""
        if local:
            ip("-n", self.hosts[host], "link", "set", f"eth{network}", "down")
        else:
            ip("-n", self.bridge, "link", "set", self.port(host, network), "nomaster")

    def up(self, host, local=False, network=0):
        if local:
            ip("-n", self.hosts[host], "link", "set", f"eth{network}", "up")
        else:
            ip("-n", self.bridge, "link", "set", self.port(host, network), "master", f"bridge{network}")

    def start(self, host, command, **environment):
        output = Output(["ip", "netns", "exec", self.hosts[host], *map(str, command)], environment)
        self.started.append(output)
        return output

    def launch(self, run, ranks, command, flags=(), **environment):
        """sluice-run on every host, the same command on each."""
        return [self.start(host, [run, "-n", count, "--hosts", len(ranks), "--host", host,
                                  "--meet", f"{self.addresses[0]}:{PORT}", *flags, *command], **environment)
                for host, count in enumerate(ranks)]


def expect_codes(outputs, code):
    for host, output in enumerate(outputs):
        got = output.end()
        assert got == code, f"host {host} ended with {got}, not {code}:\n{output.text}"


def of_applications(test):
    """A test that runs those, which a build may not have."""
    test.of_applications = True
    return test


class Tests:
    name = "hosts"

    def __init__(self, options):
        self.run = options.bin / "sluice-run"
        self.rank = options.bin / "hosts_rank"
        self.bin = options.bin
        self.mpiexec = options.mpiexec
        self.backends = options.backend

    @staticmethod
    def expect_who(text, ranks):
        rank = 0
        for count in ranks:
            for node_rank in range(count):
                line = f"rank {rank} of {sum(ranks)}, {node_rank} of {count} here"
                assert line in text, f"no line {line!r} in:\n{text}"
                rank += 1

    # ---- sluice-run

    def command(self, net, hosts, host):
        """One rank."""
        meet = f"{net.addresses[0]}:{PORT}"
        return [self.run, "-n", 1, "--hosts", hosts, "--host", host, "--meet", meet, self.rank, "who"]

    def every_rank_is_told_who_it_is(self, ranks):
        with Net(len(ranks)) as net:
            outputs = net.launch(self.run, ranks, [self.rank, "who"])
            expect_codes(outputs, 0)
            self.expect_who("\n".join(output.text for output in outputs), ranks)

    def test_who_of_two_hosts(self):
        self.every_rank_is_told_who_it_is([2, 2])

    def test_who_of_three_hosts(self):
        self.every_rank_is_told_who_it_is([3, 1, 2])

    def test_interface_is_chosen(self):
        with Net(2) as net:
            outputs = net.launch(self.run, [1, 1], [self.rank, "who"], SLUICE_INTERFACE="eth0")
            expect_codes(outputs, 0)
            for wrong in (0, 1):
                outputs = [net.start(host, self.command(net, 2, host), SLUICE_INTERFACE=f"eth{7 * (host == wrong)}")
                           for host in (0, 1)]
                for host, output in enumerate(outputs):
                    assert output.end() == (2 if host == wrong else 1), output.text
                    assert len(output.lines) == 1 and "SLUICE_INTERFACE=eth7" in output.text, output.text

    def test_a_missing_host_is_named(self):
        with Net(2) as net:
            outputs = [net.start(host, self.command(net, 3, host), SLUICE_CONNECT_TIMEOUT="2s") for host in (0, 1)]
            expect_codes(outputs, 1)
            for output in outputs:
                assert len(output.lines) == 1 and "host 2 has not come" in output.text, output.text

    # ---- names and addresses

    def meeting(self, net, place, host, meet, names=None, command=(), hosts=2, **environment):
        """sluice-run of one rank in the name space of `place`; the file `names` says which names there are."""
        launch = [self.run, "-n", 1, "--hosts", hosts, "--host", host, "--meet", f"{meet}:{PORT}", *(command or [self.rank, "chatter", 50])]
        if names:
            launch = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', names, *launch]
        return net.start(place, launch, SLUICE_CONNECT_TIMEOUT="15s", **environment)

    @staticmethod
    def expect_heard(outputs):
        expect_codes(outputs, 0)
        for output in outputs:
            assert "heard 50" in output.text, output.text

    def test_a_name_may_appear_later(self):
        with Net(2) as net, tempfile.NamedTemporaryFile("w") as names:
            outputs = [self.meeting(net, 0, 0, "meeting-point"), self.meeting(net, 1, 1, "meeting-point", names.name)]
            outputs[1].await_line("there is no host meeting-point: .*; asking again")
            names.write(f"{net.addresses[0]} meeting-point\n")
            names.flush()
            self.expect_heard(outputs)

    def test_all_addresses_of_a_name_are_tried(self):
        with Net(2) as net, tempfile.NamedTemporaryFile("w") as names:
            names.write(f"10.93.7.99 meeting-point\n{net.addresses[0]} meeting-point\n")
            names.flush()
            self.expect_heard([self.meeting(net, 0, 0, "meeting-point"), self.meeting(net, 1, 1, "meeting-point", names.name)])

    def test_a_host_may_have_ipv6_alone(self):
        with Net(2) as net, tempfile.NamedTemporaryFile("w") as names:
            for host, name in enumerate(net.hosts):
                ip("-n", name, "addr", "add", f"fd93::{host + 1}/64", "dev", "eth0", "nodad")
            ip("-n", net.hosts[1], "addr", "del", f"{net.addresses[1]}/24", "dev", "eth0")
            names.write(f"{net.addresses[0]} meeting-point\nfd93::1 meeting-point\n")
            names.flush()
            for written in ("fd93::2", "fd93:0:0:0::2"):
                self.expect_heard([self.meeting(net, 0, 0, "meeting-point"),
                                   self.meeting(net, 1, 1, "meeting-point", names.name, SLUICE_INTERFACE=written)])

    def test_link_local_addresses_have_a_zone(self):
        with Net(2) as net:
            for host, name in enumerate(net.hosts):
                ip("-n", name, "addr", "add", f"fe80::93:{host + 1}/64", "dev", "eth0", "nodad")
            self.expect_heard([self.meeting(net, 0, 0, "[fe80::93:1%eth0]"), self.meeting(net, 1, 1, "[fe80::93:1%eth0]")])

    @of_applications
    def test_no_loopback_is_told_to_other_hosts(self):
        commands = [[self.rank, "chatter", 50]]
        commands += [next(self.applications(backend)) for backend in self.backends]
        for command in commands:
            for places in ((0, 0, 1), (0, 1, 0)):  # one by the loopback, one from elsewhere
                with Net(2) as net:
                    meet = ["localhost" if place == 0 else net.addresses[0] for place in places]
                    expect_codes([self.meeting(net, place, host, meet[host], command=command, hosts=3)
                                  for host, place in enumerate(places)], 0)

    def test_a_loopback_that_is_chosen_is_refused(self):
        for chosen in (0, 1):
            with Net(2) as net:
                outputs = [self.meeting(net, host, host, net.addresses[0], **({"SLUICE_INTERFACE": "lo"} if host == chosen else {}))
                           for host in (0, 1)]
                expect_codes(outputs, 1)
                for output in outputs:
                    assert f"host {chosen} is to be reached at 127.0.0.1:" in output.text and "SLUICE_INTERFACE" in output.text, output.text

    def test_hosts_that_are_not_told_apart_are_two(self):
        with Net(2) as net:
            hide = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "hide"]
            outputs = [net.start(host, [*hide, *self.command(net, 2, host)[:-2], self.rank, "chatter", 50]) for host in (0, 1)]
            self.expect_heard(outputs)

    # ---- ranks that end, links that fail

    def watch(self, net, **environment):
        """Two hosts whose ranks have talked; rank 0 watches the last one."""
        outputs = net.launch(self.run, [1, 2], [self.rank, "watch"], ["--keep-going"], **environment)
        outputs[0].await_line("^(unsupported: no backend that is open here reaches|alive:)")
        return outputs

    def test_a_killed_rank_is_noticed(self):
        with Net(2) as net:
            outputs = self.watch(net)
            pid = int(outputs[1].await_line(r"^rank 2 is process (\d+)")[1])
            os.kill(pid, signal.SIGKILL)
            began = time.monotonic()
            outputs[0].await_line("^lost: .*rank 2 has ended")
            assert time.monotonic() - began < 5, "it took long"
            os.kill(int(outputs[1].await_line(r"^rank 1 is process (\d+)")[1]), signal.SIGKILL)
            expect_codes(outputs, 128 + signal.SIGKILL)

    def test_a_host_that_vanishes_is_lost_after_the_timeout(self):
        with Net(2) as net:
            outputs = self.watch(net, SLUICE_PEER_TIMEOUT="3s")
            net.down(1)
            began = time.monotonic()
            outputs[0].await_line("^lost: .*rank 2 cannot be reached")
            passed = time.monotonic() - began
            assert 3 <= passed < 9, f"after {passed:.1f} s"
            outputs[0].await_line("sluice-run of host 1 is lost")
            outputs[1].await_line("sluice-run of host 0 is lost")
            net.end_all_in(net.hosts[1])
            assert outputs[0].end() == 1, outputs[0].text

    def test_a_launcher_that_dies_ends_the_others(self):
        with Net(2) as net:
            outputs = net.launch(self.run, [2, 1], [self.rank, "wait"])
            for host, rank in ((0, 0), (0, 1), (1, 2)):
                outputs[host].await_line(f"^rank {rank} is process")
            outputs[1].process.kill()
            assert outputs[0].end() == 1, outputs[0].text
            assert "the sluice-run of host 1 has ended" in outputs[0].text, outputs[0].text
            assert "killed rank 0, rank 1: still running 5 s after the failure of host 1" in outputs[0].text

    def chatter(self, net, messages):
        return net.launch(self.run, [1, 1], [self.rank, "chatter", messages], SLUICE_PEER_TIMEOUT="10s")

    def test_a_link_that_is_down_for_a_while_loses_nothing(self):
        for local in (False, True):
            with Net(2) as net:
                outputs = self.chatter(net, 6000)
                outputs[0].await_line("^under way")
                net.down(1, local)
                time.sleep(3)  # what is tested: how long it is down
                assert outputs[0].process.poll() is None, outputs[0].text
                net.up(1, local)
                expect_codes(outputs, 0)
                for output in outputs:
                    assert "heard 6000" in output.text, output.text

    def test_a_link_that_is_down_at_first_is_tried_again(self):
        with Net(2) as net:
            outputs = net.launch(self.run, [1, 1], ["sh", "-c", f"sleep 1; exec {self.rank} chatter 200"],
                                 SLUICE_PEER_TIMEOUT="20s")
            time.sleep(0.5)
            net.down(1)
            time.sleep(4)
            net.up(1)
            expect_codes(outputs, 0)
            for output in outputs:
                assert "heard 200" in output.text, output.text

    # ---- MPI

    def mpi(self, net, ranks, command):
        with tempfile.TemporaryDirectory() as folder:
            # What mpiexec takes for ssh: "-x HOST COMMAND".
            wrapper = pathlib.Path(folder) / "enter"
            cases = "\n".join(f"  {address}) host={name};;" for address, name in zip(net.addresses, net.hosts))
            wrapper.write_text("#!/bin/bash\n"
                               'while [[ $1 == -* ]]; do shift; done\naddress=$1\nshift\n'
                               f'case $address in\n{cases}\nesac\nexec ip netns exec "$host" bash -c "$*"\n')
            wrapper.chmod(0o755)
            hosts = ",".join(f"{address}:{count}" for address, count in zip(net.addresses, ranks))
            output = net.start(0, [self.mpiexec, "-launcher", "ssh", "-launcher-exec", wrapper, "-iface", "eth0",
                                   "-hosts", hosts, "-n", sum(ranks), *command])
            code = output.end()
            assert code == 0, f"mpiexec ended with {code}:\n{output.text}"
            return output.text

    def test_mpi_who(self):
        for ranks in ([2, 1], [1, 2, 1]):
            with Net(len(ranks)) as net:
                self.expect_who(self.mpi(net, ranks, [self.rank, "who"]), ranks)

    # ---- data

    def applications(self, backend):
        yield [self.bin / "jacobi", "--nx", 67, "--ny", 41, "--niter", 50, "--verify", "--backend", backend]
        yield [self.bin / "life", "--nx", 101, "--ny", 67, "--timesteps", 60, "--verify", "--backend", backend]

    @of_applications
    def test_a_backend_that_does_not_reach_says_so(self):
        with Net(2) as net:
            program = next(self.applications("shm"))
            outputs = net.launch(self.run, [1, 1], program)
            expect_codes(outputs, 1)
            assert any("no backend that is open here reaches rank" in output.text for output in outputs)

    def test_peers_by_memory_and_by_network_add_to_one_word(self):
        for backend in self.backends:
            with Net(2) as net:
                outputs = net.launch(self.run, [2, 1], [self.rank, "add"], SLUICE_BACKENDS=f"shm,{backend}")
                expect_codes(outputs, 0)
                assert "the sum is 6000 of 6000" in outputs[0].text, outputs[0].text
                assert re.search("rank 1: .*shm", outputs[0].text), outputs[0].text
                assert re.search(f"rank 2: .*{backend.removeprefix('ofi:')}", outputs[1].text), outputs[1].text

    @of_applications
    def test_data_under_sluice_run(self):
        for backend in self.backends:
            for ranks in ([1, 1], [2, 1, 1]):
                for program in self.applications(backend):
                    with Net(len(ranks)) as net:
                        outputs = net.launch(self.run, ranks, program)
                        expect_codes(outputs, 0)
                        assert "VERIFICATION: PASSED" in outputs[0].text, outputs[0].text

    @of_applications
    def test_programs_name_all_backends(self):
        with Net(2) as net:
            outputs = net.launch(self.run, [2, 1], next(self.applications("shm,ofi:tcp")))
            expect_codes(outputs, 0)
            assert "backend ofi:tcp+shm," in outputs[0].text, outputs[0].text

    @of_applications
    def test_mpi_data(self):
        for backend in self.backends:
            for program in self.applications(backend):
                with Net(2) as net:
                    text = self.mpi(net, [2, 1], program)
                    assert "VERIFICATION: PASSED" in text, text


def why_not():
    """Why this machine cannot run any of it, or nothing."""
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    if not shutil.which("ip"):
        return "needs ip (package iproute2)"
    try:
        with Net(1):
            return ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot make network namespaces here: {(getattr(error, 'stderr', '') or str(error)).strip()}"


def arguments(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    return parser


def run_all(tests, options, left_out):
    """All tests of the class `tests` but those for which there is a reason, `left_out(name)`. The exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was made is removed
    reason = why_not()
    if reason:
        print(f"SKIPPED-HERE: {tests.name}: {reason}")
        return 0
    options.bin = options.bin.resolve()
    full = getattr(options, "full", False)
    names = [name for name in dir(tests) if name.startswith("test_") and options.only in name and (full or "full" not in name)]
    faults = 0
    for name in names:
        if left_out(name):
            print(f"SKIPPED-HERE: {tests.name}.{name}: {left_out(name)}")
            continue
        began = time.monotonic()
        try:
            getattr(tests(options), name)()
            print(f"{name}: passed in {time.monotonic() - began:.1f} s", flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            faults += 1
            print(f"{name}: FAILED: {error}", flush=True)
    print(f"{tests.name}: {len(names)} tests, {faults} faults")
    return 1 if faults or not names else 0


def main():
    parser = arguments(__doc__)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--backend", action="append", default=[])
    options = parser.parse_args()

    def left_out(name):
        if name.startswith("test_mpi") and not options.mpiexec:
            return "no MPI"
        if name == "test_hosts_that_are_not_told_apart_are_two" and "ASAN_OPTIONS" in os.environ:
            return "AddressSanitizer reads its options in /proc"
        lacks = hasattr(getattr(Tests, name), "of_applications") and not (options.bin / "jacobi").exists()
        return "this build has no applications" if lacks else ""

    return run_all(Tests, options, left_out)


if __name__ == "__main__":
    sys.exit(main())
