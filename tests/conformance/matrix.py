#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes and checks matrix.txt: which cases of the conformance suite the quick run consists of.

    matrix.py --check CONFORMANCE BUILD   checks what the head of matrix.txt claims, and that the quick tests of the build folder run each row;
                                          prints a line per gap and exits 1 if there is any
    matrix.py --sanitized CONFORMANCE BUILD   checks that the quick tests of a build with a sanitizer run each test of the rows on each ground
                                              that is no network; of GPUs they run few
    matrix.py --write CONFORMANCE         replaces the rows of matrix.txt: the same rows for the same program
"""

import collections
import fnmatch
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("matrix.txt")
# From the cheapest to the dearest: what a suite needs more than a row a ground is added to the first of these that has it.
GROUNDS = ["threads", "shm", "posted", "rung", "shm_between_threads", "threads_ofi_tcp", "ofi_tcp", "ofi_shm", "ofi_sockets", "emucxi", "chaos",
           "threads_mpi", "late_messages"]
IN_BOTH_ORDERS = ["threads", "shm", "posted", "rung"]
PAIRED = "Epochs"
NETWORKS = [ground for ground in GROUNDS if "ofi" in ground or ground in ("emucxi", "chaos", "threads_mpi", "late_messages")]
SLOW = ["ofi_sockets", "emucxi"]
MEBIBYTE = 1024 * 1024
CASE = re.compile(r"(?P<stream>inline_cuda|inline|host|cuda)_(?:(?P<way>stream|graph|kernel)|(?P<memory>allocated|user|[a-z]+_to_[a-z]+))"
                  r"(?:_d(?P<depth>\d+))?_(?P<bytes>\d+)(?P<unit>B|MiB)(?:_(?P<ranks>\d+)ranks)?")


class Case(str):
    """A case without its ground, as in the name of a test; `values` holds one value a dimension."""

    def __init__(self, name):
        found = CASE.fullmatch(name)
        if found is None:
            sys.exit(f"matrix.py: not the name of a case: {name}")
        words = found.groupdict()
        self.kind = "gpu" if "cuda" in words["stream"] else "host"
        self.bytes = int(words["bytes"]) * (MEBIBYTE if words["unit"] == "MiB" else 1)
        self.values = {("stream", words["stream"]), ("bytes", self.bytes), ("ranks", words["ranks"] or "2")}
        self.values |= {(name, words[name]) for name in ("way", "memory", "depth") if words[name]}
        self.pairs = {frozenset(pair) for pair in itertools.combinations(self.values, 2)}
        self.moves_nothing = self.bytes == 0 or ("ranks", "1") in self.values


def listed(program):
    """The cases the program has without Full, and the tests of each: {(suite, ground, kind): {case: {name of a test}}}."""
    cases = collections.defaultdict(lambda: collections.defaultdict(set))
    names = ":".join(f"*{ground}_*" for ground in GROUNDS) + ":cuda:-Full/*"  # a network or a GPU that is not named has no cases
    for gpus in ({}, {"SLUICE_GPUS": "hip"}):  # some are HIP's alone
        command = [program, "--gtest_list_tests", f"--gtest_filter={names}"]
        suite = ""
        for line in subprocess.run(command, env=os.environ | gpus, check=True, capture_output=True, text=True).stdout.splitlines():
            name = line.split("#")[0].strip()
            if not line.startswith(" "):
                prefix, suite = name, name.rstrip(".").rsplit("/", 1)[-1]
            elif ground := ground_of(name.rpartition("/")[2]):
                case = Case(name.rpartition(f"/{ground}_")[2])
                cases[suite, ground, case.kind][case].add(prefix + name)
    return cases


def quick_filters(build):
    """What the tests of a build folder that `./dev test` runs give to the suite as filters: [([positive], [negative])]."""
    command = ["ctest", "--test-dir", build, "-L", "conformance", "-LE", "full", "--show-only=json-v1"]
    tests = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["tests"]
    filters = [word.removeprefix("--gtest_filter=") for test in tests for word in test["command"] if word.startswith("--gtest_filter=")]
    parts = [filter_.partition("-")[::2] for filter_ in filters]
    return [(positive.split(":") if positive else ["*"], negative.split(":")) for positive, negative in parts]


def is_run(name, filters):
    return any(matches(name, positive) and not matches(name, negative) for positive, negative in filters)


def not_run(cases, rows, filters):
    """Tests that are in the rows and that no quick test of the build runs."""
    for key, some in sorted(rows.items()):
        for name in sorted(set().union(*(cases[key].get(case, ()) for case in some))):
            if not is_run(name, filters):
                yield f"no quick test runs {name}"


def not_sanitized(cases, rows, filters):
    """Tests that have rows on a ground, of which no quick test of the build runs one."""
    for (suite, ground, kind), some in sorted(rows.items()):
        if kind == "gpu" or ground in NETWORKS:
            continue
        rows_of = collections.defaultdict(set)
        for case in some:
            for name in cases[suite, ground, kind].get(case, ()):
                rows_of[name.rpartition("/")[0].rpartition("/")[2]].add(name)
        for test, names in sorted(rows_of.items()):
            if not any(is_run(name, filters) for name in names):
                yield f"no quick test runs {test} on {ground}"


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def ground_of(case):
    return max((ground for ground in GROUNDS if case.startswith(ground + "_")), key=len, default=None)


def read():
    """The text before the rows, what the lines `only` say, and the rows: {(suite, ground, kind): [case]}."""
    lines = TABLE.read_text().splitlines()
    head = list(itertools.takewhile(lambda line: not line or line.startswith(("#", "only ")), lines))
    only = {}
    for line in head:
        if line.startswith("only "):
            _, ground, kind, *suites = line.split()
            only.setdefault((ground, kind), set()).update(suites)
    rows = collections.defaultdict(list)
    for line in lines[len(head):]:
        suite, ground, *names = line.split()
        for case in map(Case, names):
            rows[suite, ground, case.kind].append(case)
    return head, only, rows


def wanted(cases, only):
    """What the quick run chooses from."""
    chosen = {}
    for (suite, ground, kind), some in cases.items():
        if suite not in only.get((ground, kind), {suite}):
            continue
        few = {case for case in some if not too_long(ground, case)}
        if few:
            chosen[suite, ground, kind] = few
    return chosen


def too_long(ground, case):
    return ground in NETWORKS and case.bytes >= MEBIBYTE or ground in SLOW and ("ranks", "2") not in case.values


def gaps(wanted_cases, rows):
    """What is claimed and not so."""
    for (suite, ground, kind), cases in sorted(wanted_cases.items()):
        have = rows.get((suite, ground, kind), [])
        if not have:
            yield f"{suite} has no {kind} case on {ground}"
        elif all(case.moves_nothing for case in have) and not all(case.moves_nothing for case in cases):
            yield f"{suite} moves nothing on {ground}"
        for name in sorted(set(have) - cases):
            yield f"{suite} has no case {ground}_{name}"
        if kind == "host" and ground in IN_BOTH_ORDERS:
            for value in sorted(streams(cases) - streams(have)):
                yield f"{suite} has no case on {ground} with stream {value}"
    for suite, ground, kind in sorted(set(rows) - set(wanted_cases)):
        yield f"{suite} is not to have {kind} cases on {ground}"
    for suite in sorted({suite for suite, _, _ in wanted_cases}):
        for value in sorted(values(wanted_cases, suite) - values(rows, suite), key=str):
            yield f"{suite} has no case with {value[0]} {value[1]}"
    paired = {key: cases for key, cases in wanted_cases.items() if key[0] == PAIRED and key[2] == "host"}
    every_pair = {frozenset(pair) for pair in itertools.combinations(values(paired, PAIRED), 2) if pair[0][0] != pair[1][0]}
    for pair in sorted(map(sorted_pair, (pairs(wanted_cases) | every_pair) - pairs(rows)), key=str):
        yield f"no case has {pair[0][0]} {pair[0][1]} and {pair[1][0]} {pair[1][1]}"


def streams(cases):
    return {value for case in cases for name, value in case.values if name == "stream"}


def values(rows, suite):
    return set().union(*(case.values for key, cases in rows.items() if key[0] == suite for case in cases))


def pairs(rows):
    return set().union(*(case.pairs for cases in rows.values() for case in cases))


def sorted_pair(pair):
    return tuple(sorted(pair, key=str))


class Chooser:
    """Greedy: each row is the case that adds most; of those that add as much, the one whose values are rarest in its suite."""

    def __init__(self, cases):
        self.cases = cases
        self.rows = collections.defaultdict(list)
        self.pairs = set()
        self.used = collections.Counter()

    def add(self, key, cases):
        def merit(case):
            mine = [(key[0], value) for value in sorted(case.values, key=str)]
            new = sum(self.used[value] == 0 for value in mine)
            return -new, -len(case.pairs - self.pairs), sum(self.used[value] for value in mine), case.bytes, case

        case = min((case for case in cases if case not in self.rows[key]), key=merit)
        self.rows[key].append(case)
        self.pairs |= case.pairs
        self.used.update((key[0], value) for value in case.values)

    def add_first_with(self, suites, has):
        """One more case, for which `has` is true, on the cheapest ground that has one."""
        keys = sorted((key for key in self.cases if key[0] in suites), key=lambda key: (GROUNDS.index(key[1]), key))
        for key in keys:
            cases = [case for case in self.cases[key] if has(case)]
            if cases:
                return self.add(key, cases)

    def choose(self):
        for key in sorted(self.cases, key=lambda key: (key[0], key[2], GROUNDS.index(key[1]))):
            cases = {case for case in self.cases[key] if not case.moves_nothing} or self.cases[key]
            if key[2] == "host" and key[1] in IN_BOTH_ORDERS:
                for stream in sorted(streams(cases)):
                    self.add(key, [case for case in cases if ("stream", stream) in case.values])
            else:
                self.add(key, cases)
        for suite in sorted({key[0] for key in self.cases}):
            while missing := values(self.cases, suite) - values(self.rows, suite):
                value = min(missing, key=str)
                self.add_first_with({suite}, lambda case: value in case.values)
        every = {key[0] for key in self.cases}
        while missing := pairs(self.cases) - self.pairs:
            pair = min(missing, key=lambda pair: str(sorted_pair(pair)))
            self.add_first_with(every, lambda case: pair in case.pairs)
        return self.rows


def written(rows):
    """A line for each suite and ground; the cases of GPUs come last."""
    lines = collections.defaultdict(list)
    for suite, ground, kind in sorted(rows, key=lambda key: (key[0], GROUNDS.index(key[1]), key[2] == "gpu")):
        lines[suite, ground] += sorted(rows[suite, ground, kind])
    return [f"{suite:20} {ground:20} {' '.join(cases)}" for (suite, ground), cases in lines.items()]


def main():
    if [*sys.argv[1:2], len(sys.argv)] not in (["--check", 4], ["--sanitized", 4], ["--write", 3]):
        sys.exit(__doc__)
    head, only, rows = read()
    all_cases = listed(sys.argv[2])
    cases = wanted(all_cases, only)
    if sys.argv[1] == "--write":
        TABLE.write_text("\n".join(head + written(Chooser(cases).choose())) + "\n")
        return
    filters = quick_filters(sys.argv[3])
    if sys.argv[1] == "--sanitized":
        found = [*not_sanitized(all_cases, rows, filters)]
    else:
        found = [*gaps(cases, rows), *not_run(all_cases, rows, filters)]
    for gap in found:
        print(f"matrix.txt: {gap}")
    total, of = (sum(map(len, table.values())) for table in (rows, cases))
    print(f"matrix.txt: {total} of {of} rows, {len(pairs(rows))} pairs of values; {len(found)} gaps")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
