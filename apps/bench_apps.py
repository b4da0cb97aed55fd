#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a step of jacobi and life with their halo moved by Sluice and by MPI, in turns, on two ranks with a core each.

    apps/bench_apps.py [--brief] --json apps.json build/release/bin/jacobi build/release/bin/life

Writes rows as sluice-bench does (docs/benchmarks.md, "JSON").
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

RANKS = 2
# Cells along each side of a rank's block, and steps that take about half a second or more.
MESHES = [(64, 250000), (128, 100000), (4096, 50)]
LARGE = 4096
ROUNDS, LARGE_ROUNDS = 20, 5
HEADER = ("# {:6} {:>15} {:>7}" + 4 * " {:>12}" + " {:>8}").format(
    "", "cells per rank", "rounds", "step (us)", "p10", "p99", "mpi (us)", "ratio")
RIVAL = {"what": "the same program with --comm mpi: persistent requests"}


def command_of(program, cells, steps):
    """The command of one rank: a mesh that two ranks cut into two squares. Jacobi counts its boundary."""
    if program.name == "jacobi":
        return [program, "--nx", cells + 2, "--ny", RANKS * cells + 2, "--niter", steps, "--nccheck", 0]
    return [program, "--nx", cells, "--ny", RANKS * cells, "--timesteps", steps]


def result(mpiexec, command, comm):
    """What one run says about itself. Both are started alike, and every rank has a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    line = [mpiexec]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = [*command, "--comm", comm, "--no-verify", "--json", file.name]
        for rank in range(RANKS):
            line += [":"] if rank > 0 else []
            line += ["-n", 1, "taskset", "-c", cores[rank % len(cores)], *words]
        subprocess.run([str(word) for word in line], check=True, stdout=subprocess.DEVNULL)
        return json.loads(pathlib.Path(file.name).read_text())


def percentile(values, part):
    """As sluice-bench has it: between neighbours."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def measure(mpiexec, command, rounds):
    """What runs say of themselves: one each per round, in the opposite order every second one."""
    results = {"sluice": [], "mpi": []}
    for number in range(rounds):
        for comm in sorted(results, reverse=number % 2 == 0):
            results[comm].append(result(mpiexec, command, comm))
    return results


def row(cells, steps, results, machine):
    """A mesh's results as sluice-bench writes them; null is what applications do not know or have several of."""
    ours, theirs = ([run["step_us"] for run in results[comm]] for comm in ("sluice", "mpi"))
    one = results["sluice"][0]
    ratio = statistics.median(mpi / sluice for sluice, mpi in zip(ours, theirs))
    return {"schema": 1, "bench": one["app"], "backend": one["backend"], "stream": one["stream"], "memory": "allocated",
            "touch": True, "fired_by": None, "ranks": one["ranks"], "pairs": None, "launch": "mpi", "bytes": None,
            "depth": 2, "window": 1, "rails": 1, "settings": None, "metric": f"step, {cells} x {cells} per rank", "unit": "us",
            "p50": statistics.median(ours), "p10": percentile(ours, 0.1), "p99": percentile(ours, 0.99),
            "samples": len(ours), "sample": f"mean step of a run of {steps}", "rounds": len(ours), "floor_drift": None,
            **machine,
            "rivals": {"mpi": {**RIVAL, "p50": statistics.median(theirs), "ratio": ratio}}}


def line_of(app, cells, done):
    mpi = done["rivals"]["mpi"]
    times = "".join(f" {value:>12.4f}" for value in (done["p50"], done["p10"], done["p99"], mpi["p50"]))
    return f"{app:8} {f'{cells}^2':>15} {done['rounds']:>7}{times} {mpi['ratio']:>8.4f}"


def this_machine(folder):
    info = json.loads(subprocess.run([folder / "sluice-info", "--json"], capture_output=True, check=True).stdout)
    models = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"version": info["version"], "cpu": models[0].split(": ", 1)[-1] if models else "unknown", "gpu": None,
            "driver": None, "date": now}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", metavar="PROGRAM", type=pathlib.Path, nargs="+", help="jacobi, life")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--brief", action="store_true", help="one round of a thousandth of the steps: does it run?")
    options = parser.parse_args()
    machine = this_machine(options.programs[0].parent)
    rows = []
    print(HEADER)
    for program in options.programs:
        for cells, steps in MESHES:
            rounds = LARGE_ROUNDS if cells == LARGE else ROUNDS
            if options.brief:
                rounds, steps = 1, max(1, steps // 1000)
            results = measure(options.mpiexec, command_of(program, cells, steps), rounds)
            done = row(cells, steps, results, machine)
            print(line_of(program.name, cells, done), flush=True)
            rows.append(done)
    options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
