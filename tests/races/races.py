#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ThreadSanitizer says of programs that use Sluice: of each of wrong.cpp it must name both places, of each of right.cpp nothing.

    tests/races/races.py --bin build/tsan/bin [--network ofi:tcp] [--times N] [--only NAME]

Ranks are threads, then processes. A place is a line with `// HERE`, or `// or` in place of the other end's, and the report must have
the function's name beside it. The longest history: with the default one, 1 run of about 1,500 beside other work did not name the earlier place.

That the order is needed was tried: without Slots::taken_back every program of right.cpp but `event` and `host_row`, which were not
tried, is reported between processes, over shm and over tcp.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).parent
NETWORK_ALONE = {"write_before_drain"}  # elsewhere such a put has moved its bytes when it returns
WITHOUT_CHANNELS = {"two_streams_without_event", "event"}
CHECKED = {"write_after_put", "write_before_the_stream_acquires"}  # also with SLUICE_CHECK=1, whose locks must hide no race
LIMIT_S = 60


def programs(source):
    """name: [(line, mark), ...]"""
    found, name = {}, None
    for number, line in enumerate((SOURCES / source).read_text().splitlines(), 1):
        if match := re.match(r"void (\w+)\(Context&", line):
            name = match[1]
            found[name] = []
        elif match := re.search(r"// (HERE|or)$", line):
            found[name].append((number, match[1]))
    return found


def rows(network):
    for kind in ("wrong", "right"):
        for name, marks in programs(kind + ".cpp").items():
            for threads in (True, False):
                if name not in NETWORK_ALONE:
                    yield kind, name, marks, threads, "", ""
                if network and name not in WITHOUT_CHANNELS and not threads:
                    yield kind, name, marks, threads, network, ""
                if name in CHECKED or kind == "right":
                    yield kind, name, marks, threads, "", "checks"


def reports(text):
    """The two stacks of each report."""
    for report in text.split("WARNING: ThreadSanitizer: ")[1:]:
        yield [stack for stack in report.split("\n\n") if re.search(r"^  (Previous )?(atomic )?(read|write) of", stack, re.I | re.M)][:2]


def names(stacks, name, lines):
    """Whether one stack has a line of `lines[0]`, and the other one of `lines[1]`, in a frame of the function `name` or of a lambda in it."""
    def has(stack, line):
        return re.search(rf"(\b{name}\b|operator\(\)).* \S*wrong\.cpp:{line}\b", stack)
    return any(has(stacks[a], lines[0]) and has(stacks[1 - a], lines[1]) for a in (0, 1) if len(stacks) == 2)


def check(bin_folder, kind, name, marks, threads, network, checks):
    """What is wrong; empty: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TSAN_OPTIONS": f"log_path={folder}/log:exitcode=66:history_size=7"}
        if checks:
            environment["SLUICE_CHECK"] = "1"
        if network:
            environment["SLUICE_BACKENDS"] = network
        command = [f"{bin_folder}/sluice-run", "-n", "2", *["--threads"] * threads, f"{bin_folder}/races_{kind}", name]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"not over after {LIMIT_S} s"
        text = "".join(log.read_text() for log in sorted(pathlib.Path(folder).iterdir()))
    if kind == "right":
        return "" if done.returncode == 0 and not text else f"exit code {done.returncode}\n{done.stderr}{text}"
    here = [line for line, mark in marks if mark == "HERE"]
    pairs = [here] + [[line, other] for line, mark in marks if mark == "or" for other in here]
    if done.returncode != 66:
        return f"not reported, exit code {done.returncode}\n{done.stderr}"
    if not any(names(stacks, name, pair) for stacks in reports(text) for pair in pairs):
        return f"the report does not name wrong.cpp:{here}\n{text}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--network", default="")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    failed = 0
    chosen = [row for row in rows(arguments.network) if arguments.only in row[1]] * arguments.times
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for row, why in zip(chosen, pool.map(lambda row: check(arguments.bin, *row), chosen)):
            kind, name, _, threads, network, checks = row
            title = f"{kind} {name} {'threads' if threads else 'processes'} {network}{checks}"
            if why:
                failed += 1
                print(f"FAILED: {title}: {why}")
    print(f"{len(chosen) - failed} of {len(chosen)} passed")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
