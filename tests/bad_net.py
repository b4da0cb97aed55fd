# SPDX-License-Identifier: Apache-2.0
"""What a network of hosts.py may suffer from: cables that hold packets back and lose some, and limits of speed."""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import threading
import time

from hosts import Net, ip


class Tap:
    """A network device of a host, and what is sent to it as a file."""

    def __init__(self, host, name):
        self.file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        tap, raw, set_interface = 0x0002, 0x1000, 0x400454CA
        made = fcntl.ioctl(self.file, set_interface, struct.pack("16sH22x", b"sluice%d", tap | raw))
        ip("link", "set", made[:16].rstrip(b"\0").decode(), "netns", host, "name", name)


class BadNet(Net):
    """The cable of the last host holds packets back, and loses some."""

    def __init__(self, count, delay, loss):
        super().__init__(count)
        self.delay = delay
        self.loss = loss
        self.seed = os.environ.get("SLUICE_USER_FAULT_SEED", str(random.randrange(2**32)))
        self.dice = random.Random(self.seed)
        self.other_end = {}
        self.stop, self.stopping = os.pipe()  # the second end stops the carrier
        self.carrier = threading.Thread(target=self.carry)

    def make(self):
        super().make()
        print(f"  loss of packets by seed {self.seed}", flush=True)
        self.carrier.start()

    def plug(self, name, device, port):
        if name != self.hosts[-1]:
            return super().plug(name, device, port)
        here, there = Tap(name, device), Tap(self.bridge, port)
        self.other_end[here.file], self.other_end[there.file] = there.file, here.file

    def carry(self):
        under_way = []  # a heap: when due, a number that keeps the order, where to, what
        number = 0
        while True:
            patience = max(0, under_way[0][0] - time.monotonic()) if under_way else None
            ready, _, _ = select.select([self.stop, *self.other_end], [], [], patience)
            if self.stop in ready:
                return
            for file in ready:
                packet = os.read(file, 65536)
                number += 1
                if self.dice.random() >= self.loss:
                    heapq.heappush(under_way, (time.monotonic() + self.delay, number, self.other_end[file], packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, file, packet = heapq.heappop(under_way)
                try:
                    os.write(file, packet)
                except OSError:
                    pass  # the device is down or full: one packet more is lost

    def __exit__(self, *_):
        if self.carrier.ident:
            os.write(self.stopping, b"!")
            self.carrier.join(10)
        super().__exit__()
        for file in [*self.other_end, self.stop, self.stopping]:
            os.close(file)


def limit(net, network, rate):
    """Of what each host sends on this network."""
    for host in net.hosts:
        subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", f"eth{network}", "root", "tbf", "rate", rate, "burst", "128kb",
                        "latency", "200ms"], check=True, capture_output=True, text=True, timeout=20)


def sent(net, host, network):
    """How many bytes the host has sent on this network."""
    counters = json.loads(ip("-n", net.hosts[host], "-s", "-j", "link", "show", f"eth{network}"))
    return counters[0]["stats64"]["tx"]["bytes"]
