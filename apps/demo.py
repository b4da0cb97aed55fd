#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jacobi, heat and life: verified, in pictures, and beside the same programs with MPI. `./dev demo` builds them and calls this.

    apps/demo.py --bin build/apps/bin --out build/demo [--plots PYTHON]

PYTHON has matplotlib; without it there are no pictures. Exits 1 if a program fails or a result is wrong.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import bench_apps

HERE = pathlib.Path(__file__).resolve().parent
PLOTS = HERE.parent / "docs/plots"
# Whole problems, each on four ranks and compared with a serial run of the whole: so the pictures are correct.
VERIFIED = [
    ("jacobi", ["--nx", 258, "--ny", 258, "--niter", 20000, "--nccheck", 0]),
    ("heat", ["--dims", 3, "--nx", 160, "--ny", 120, "--nz", 24, "-t", 300, "--start", "spots"]),
    ("life", ["--pattern", HERE / "life/patterns/acorn.rle", "--nx", 192, "--ny", 144, "--timesteps", 4000, "-F", 100]),
]
# Cells along each axis of a rank's block, and steps that take a twentieth of a second: (program, dimensions, cells, steps, ranks a core).
COMPARED = [("jacobi", 2, 64, 8000, 1), ("jacobi", 2, 1024, 40, 1), ("heat", 3, 8, 8000, 1), ("life", 2, 64, 8000, 1),
            ("jacobi", 2, 64, 500, 2)]
ROUNDS = 6  # each contender is first equally often


def run(*words, **options):
    subprocess.run([str(word) for word in words], check=True, **options)


def verify(options):
    """Each program once, on four ranks. The programs print whether the result is correct."""
    for name, arguments in VERIFIED:
        words = [name, *arguments, "--verify"]
        print(f"\n$ sluice-run -n 4 {' '.join(os.path.relpath(word) if isinstance(word, pathlib.Path) else str(word) for word in words)}", flush=True)
        run(options.bin / "sluice-run", "-n", 4, options.bin / name, *words[1:], "--json", options.out / f"{name}.json",
            "--field", options.out / f"{name}.npy")


def draw(options):
    """PNG files of the fields that `verify` has written, and of two steps of a run on two ranks."""
    timeline, fields = options.out / "timeline.json", options.out
    run(options.bin / "sluice-run", "-n", 2, options.bin / "jacobi", "--nx", 514, "--ny", 514, "--niter", 40, "--nccheck", 0, "--stream", "host",
        "--no-verify", "--trace", timeline, stdout=subprocess.DEVNULL)
    figures = [
        ["field.py", fields / "jacobi.npy", "--title", "Laplace's equation after 20,000 steps of Jacobi's method, on 4 ranks"],
        ["field.py", fields / "heat.npy", "--title", "Heat that spreads from spots: a slice of 160 x 120 x 24 cells, on 4 ranks",
         "--label", "temperature"],
        ["field.py", "--growth", *sorted(fields.glob("life_*.npy")), "--title",
         "A garden grown from the 7 cells of acorn: 4000 generations on 4 ranks"],
        ["timeline.py", timeline, "--steps", 2, "--format", "png"]]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for done in [pool.submit(run, options.plots, "-B", PLOTS / script, *words, "--out", options.out, stdout=subprocess.DEVNULL)
                     for script, *words in figures]:
            done.result()


def compare(options):
    """A step of each program with its halo moved by Sluice and by MPI: short runs in turns, all of them started alike."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:4])
    cores = len(os.sched_getaffinity(0))
    rows = []
    for name, dims, cells, steps, each in COMPARED:
        ranks = each * cores
        if ranks == 1:  # one rank exchanges nothing
            continue
        command = bench_apps.command_of(options.bin / name, [side * cells for side in bench_apps.blocks_of(ranks, dims)], steps)
        contestants = ("sluice", "mpi_persistent", *(["none"] if each == 1 else []))
        done = bench_apps.in_turns({comm: functools.partial(bench_apps.result, options, command, comm, ranks) for comm in contestants}, ROUNDS)
        times = {comm: [one["step_us"] for one in results] for comm, results in done.items()}
        ratios = sorted(theirs / ours for ours, theirs in zip(times["sluice"], times["mpi_persistent"]))
        middle = {comm: statistics.median(values) for comm, values in times.items()}
        rows.append({"app": name, "ranks": ranks, "cores": cores, "cells_per_rank": [cells] * dims, "steps": steps, "rounds": ROUNDS,
                     "sluice_us": middle["sluice"], "mpi_us": middle["mpi_persistent"], "compute_us": middle.get("none"),
                     "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1]})
    (options.out / "comparison.json").write_text(json.dumps(rows, indent=2) + "\n")
    return rows


def table(rows):
    cores = rows[0]["cores"]
    print(f"\nA step with Sluice and with MPI's persistent requests: {ROUNDS} runs each, in turns, with a core for each rank unless the row says otherwise.")
    print("MPI / Sluice: median of the runs' ratios (lowest to highest); above 1 Sluice is faster.")
    print("Waiting: how much of MPI's step is not computing.\n")
    print(f"{'program':8} {'cells per rank':>15} {'ranks':>5} {'waiting':>8} {'Sluice':>11} {'MPI':>11}   MPI / Sluice")
    for row in rows:
        waiting = "" if row["compute_us"] is None else f"{max(0, 1 - row['compute_us'] / row['mpi_us']):.0%}"
        note = f"   {row['ranks']} ranks on {cores} cores, where MPI polls in turns" if row["ranks"] > cores else ""
        print(f"{row['app']:8} {' x '.join(str(side) for side in row['cells_per_rank']):>15} {row['ranks']:>5} {waiting:>8} {row['sluice_us']:>8.1f} us"
              f" {row['mpi_us']:>8.1f} us   {row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f}){note}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--plots", default="", metavar="PYTHON")
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args()
    options.runs, options.phases = [], False  # for bench_apps
    options.out.mkdir(parents=True, exist_ok=True)
    for made in itertools.chain.from_iterable(options.out.glob(f"*.{end}") for end in ("json", "npy", "png")):
        made.unlink()
    try:
        verify(options)
        if options.plots:
            draw(options)
        if shutil.which(options.mpiexec):
            table(compare(options))
        else:
            print("\nNo MPI is installed, so there is nothing to compare with.")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"demo: '{' '.join(str(word) for word in failed.cmd)}' ended with {failed.returncode}")


if __name__ == "__main__":
    main()
