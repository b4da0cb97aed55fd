#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a step of jacobi, faces, heat, life, cg, fft and channel_flow with what they exchange moved by Sluice and by MPI, in turns, on two ranks with a core each.

    apps/bench_apps.py [--brief] --json apps.json build/apps/bin/{jacobi,faces,heat,life,cg,fft,channel_flow}
    apps/bench_apps.py --sweep strong|weak --json sweep.json build/apps/bin/heat

A sweep runs them on 1, 2, 4, ... ranks, up to a rank for each core: on one mesh (strong), or on a mesh of so many blocks (weak, the
only one of faces).

Writes rows as sluice-bench does (docs/benchmarks.md, "JSON"); with --csv FILE also a line for each run, in the columns that CUP-ECS
and Comb name their data by (docs/benchmarks.md, "CSV").
"""

import argparse
import csv
import datetime
import functools
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import tempfile

RANKS = 2
# Dimensions of each program.
DIMENSIONS = {"jacobi": (2, 3), "faces": (3,), "heat": (2, 3), "life": (2,), "cg": (2, 3), "fft": (3,), "channel_flow": (3,)}
# Cells along each side of a rank's block, and steps that take about a quarter of a second: many short runs in turns give better results
# than few long ones, because disturbances of a machine last for seconds.
MESHES = {2: [(16, 150000), (64, 60000), (128, 20000), (4096, 10)], 3: [(8, 50000), (16, 10000), (32, 2000), (200, 8)]}
# How many times as long a step of these takes.
COSTLY = {"cg": 4, "fft": 30, "channel_flow": 60}
ROUNDS = 40
LIMIT_S = 600  # of a run
RIVALS = {"mpi": "the same program with --comm mpi: MPI_Irecv, MPI_Isend and MPI_Waitall in each step; sums by "
                 "MPI_Iallreduce, transpositions by MPI_Ialltoallv",
          "mpi_persistent": "the same program with --comm mpi_persistent: requests made once",
          "none": "the same program with --comm none: packing, computing and unpacking alone"}
# The columns of CUP-ECS's data, and after the program's name those of Comb, in seconds, with the phases that they stand for.
RUN_COLUMNS = ["nodes", "ntasks", "backend", "solver_creation", "solver_time", "system", "size", "memory_type", "send_type", "cycles"]
COMB_PHASES = {"pre-comm": "pack", "post-send": "put", "wait-recv": "wait", "post-comm": "unpack"}
COMB_COLUMNS = ["start-up", *COMB_PHASES, "bench-comm"]
# A step should take MPI at least so many times as long, and more if its communication is a larger part of it than that.
GOAL, MUCH_COMMUNICATION, GOAL_OF_MUCH = 0.99, 0.15, 1.1
# Cells along each side of the mesh that is swept, steps and rounds.
SWEPT = {2: (1024, 400, 9), 3: (96, 400, 9)}


def blocks_of(ranks, dims):
    """The number of squares or cubes along each axis, one for each rank; the last axes are cut first."""
    blocks = [1] * dims
    for factor in factors_of(ranks):
        blocks[dims - 1 - min(range(dims), key=lambda axis: blocks[dims - 1 - axis])] *= factor
    return blocks


def factors_of(number):
    """The prime factors, the largest first."""
    factors, factor = [], 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return factors[::-1]


def command_of(program, sides, steps):
    """The command of one rank. The sides of jacobi include its boundary; the option of faces is the side of a rank's block, a cube."""
    if program.name == "faces":
        return [program, "--nodes", min(sides), "--timesteps", steps]
    boundary = 2 if program.name == "jacobi" else 0
    words = [program, *(["--dims", 3] if len(sides) == 3 and program.name not in ("fft", "channel_flow") else [])]
    for axis, side in zip("xyz", sides):
        words += [f"--n{axis}", side + boundary]
    return words + (["--niter", steps, "--nccheck", 0] if program.name in ("jacobi", "cg") else ["--timesteps", steps])


def cores_of(ranks):
    cores = sorted(os.sched_getaffinity(0))
    return [cores[rank % len(cores)] for rank in range(ranks)]


def result(options, command, comm, ranks):
    """The JSON of one run. All runs are started alike, and every rank has a core of its own."""
    line = [options.mpiexec]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = [*command, "--comm", comm, "--no-verify", "--json", file.name, *(["--phases"] if options.phases else [])]
        for rank, core in enumerate(cores_of(ranks)):
            line += [":"] if rank > 0 else []
            line += ["-n", 1, "taskset", "-c", core, *words]
        subprocess.run([str(word) for word in line], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        done = json.loads(pathlib.Path(file.name).read_text())
    options.runs.append(done)
    return done


def write_csv(file, runs):
    """A line for each run: all on one machine, with memory of the host."""
    with open(file, "w", newline="") as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow([*RUN_COLUMNS, "app", *COMB_COLUMNS])
        for run in runs:
            phases = run["phases"] or {}
            backend = f"sluice-{run['backend']}" if run["comm"] == "sluice" else run["comm"]
            send = {"sluice": "put", "none": ""}.get(run["comm"], "Standard")
            lines.writerow([1, run["ranks"], backend, run["create_s"], run["solve_s"], platform.node(), size_of(run), "host", send,
                            run["steps"], run["app"], run["create_s"], *(phases.get(name, "") for name in COMB_PHASES.values()),
                            run["solve_s"]])


def size_of(run):
    """The side of the mesh, or its sides if they differ."""
    sides = [run[name] for name in ("nx", "ny", "nz") if name != "nz" or run["nz"] > 1]
    return sides[0] if len(set(sides)) == 1 else "x".join(str(side) for side in sides)


def percentile(values, part):
    """Interpolated between neighbours, as in sluice-bench."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def in_turns(runs, rounds):
    """The results of runs: one of each per round, each equally often at each place of a round. `runs`: functions by name."""
    results = {name: [] for name in runs}
    names = sorted(runs)
    for number in range(rounds):
        reversals, first = divmod(number, len(names))
        order = names[first:] + names[:first]
        for name in order if reversals % 2 == 0 else reversed(order):
            results[name].append(runs[name]())
    return results


def interval_of_median(values):
    """The 95 % confidence interval by the bootstrap, as in sluice-bench; None for too few values."""
    if len(values) < 6:
        return None
    draw = random.Random(2000)
    medians = [statistics.median(draw.choices(values, k=len(values))) for _ in range(2000)]
    return [percentile(medians, 0.025), percentile(medians, 0.975)]


def goal_of(name, times):
    """The goal of the ratio to MPI where a step without communication was measured too."""
    if name not in ("mpi", "mpi_persistent") or "none" not in times:
        return None
    communication = 1 - statistics.median(times["none"]) / statistics.median(times[name])
    return GOAL_OF_MUCH if communication > MUCH_COMMUNICATION else GOAL


def verdict_of(interval, goal):
    if interval and interval[0] >= goal:
        return "holds"
    return "fails" if interval and interval[1] < goal else "inconclusive"


def rival(what, name, times):
    """How many times as long a step takes with this rival."""
    ratios = [theirs / ours for ours, theirs in zip(times["sluice"], times[name])]
    interval, goal = interval_of_median(ratios), goal_of(name, times)
    return {"what": what, "p50": statistics.median(times[name]), "ratio": statistics.median(ratios), "interval": interval, "goal": goal,
            "verdict": goal and verdict_of(interval, goal)}


def row(dims, metric, steps, results, whats, machine):
    """Results as sluice-bench writes them: those of "sluice", and of the others as rivals; null stands for values that applications
    do not know or have several of."""
    times = {name: [run["step_us"] for run in runs] for name, runs in results.items()}
    one, ours = results["sluice"][0], times["sluice"]
    return {"schema": 1, "bench": name_of(one["app"], dims), "backend": one["backend"], "stream": one["stream"], "memory": "allocated",
            "touch": True, "fired_by": None, "ranks": one["ranks"], "pairs": None, "channels": None, "exponent": None,
            "launch": "mpi", "bytes": None, "offset": None, "cores": cores_of(one["ranks"]), "depth": 2, "window": 1, "rails": 1,
            "settings": None, "metric": metric, "unit": "us",
            "p50": statistics.median(ours), "p10": percentile(ours, 0.1), "p99": percentile(ours, 0.99),
            "low": None, "high": None, "samples": len(ours), "sample": f"mean step of a run of {steps}", "rounds": len(ours), "floor_drift": None, "drifted_rounds": None,
            **machine,
            "rivals": {name: rival(what, name, times) for name, what in whats.items()}}


def name_of(app, dims):
    return app if dims == 2 else f"{app}_3d"


def print_line(done, mesh):
    times = "".join(f" {done[value]:>12.4f}" for value in ("p50", "p10", "p99"))
    rivals = "".join(f" {one['p50']:>16.4f} {one['ratio']:>8.4f} {interval_text(one['interval']):>13}" for one in done["rivals"].values())
    verdicts = "".join(f"  {name} {one['goal']}: {one['verdict']}" for name, one in done["rivals"].items() if one["goal"])
    print(f"{done['bench']:12} {done['ranks']:>5} {mesh:>15} {done['rounds']:>7}{times}{rivals}{verdicts}", flush=True)


def interval_text(interval):
    return "{:.3f}-{:.3f}".format(*interval) if interval else ""


def print_header(rivals):
    words = [word for name in rivals for word in (name, "ratio", "interval")]
    print(("# {:10} {:>5} {:>15} {:>7}" + 3 * " {:>12}" + len(rivals) * " {:>16} {:>8} {:>13}").format(
        "", "ranks", "cells", "rounds", "step (us)", "p10", "p99", *words))


def compare(options, machine):
    """Each program with its halo moved by Sluice and by MPI, on blocks of several sizes."""
    print_header(RIVALS)
    for program in options.programs:
        for dims in DIMENSIONS[program.name]:
            for cells, steps in MESHES[dims][1:2] if options.brief else MESHES[dims]:
                rounds, steps = ROUNDS, max(1, steps // COSTLY.get(program.name, 1))
                if options.brief:
                    rounds, steps = 1, max(1, steps // 1000)
                command = command_of(program, [side * cells for side in blocks_of(RANKS, dims)], steps)
                runs = {comm: functools.partial(result, options, command, comm, RANKS) for comm in ("sluice", *RIVALS)}
                metric = f"step, {' x '.join([str(cells)] * dims)} per rank"
                done = row(dims, metric, steps, in_turns(runs, rounds), RIVALS, machine)
                print_line(done, f"{cells}^{dims} per rank")
                yield done


def sweep(options, machine):
    """Each program on more and more ranks, compared with one rank and with persistent MPI on as many ranks. The ratio to
    one rank is the speedup if the mesh stays the same, and the efficiency if it grows with the ranks."""
    whats = {"one_rank": "the same program on one rank, " + ("on the same mesh" if options.sweep == "strong" else "on one block"),
             "mpi_persistent": RIVALS["mpi_persistent"]}
    print_header(whats)
    cores = len(os.sched_getaffinity(0))
    for program in options.programs:
        if program.name == "faces" and options.sweep == "strong":
            raise SystemExit("faces has a block for each rank: --sweep weak")
        for dims in DIMENSIONS[program.name]:
            cells, steps, rounds = SWEPT[dims]
            steps = max(1, steps // COSTLY.get(program.name, 1))
            if options.brief:
                rounds, steps = 1, max(1, steps // 100)
            for ranks in (2**power for power in range(cores.bit_length())):
                blocks = blocks_of(ranks, dims) if options.sweep == "weak" else [1] * dims
                command = command_of(program, [side * cells for side in blocks], steps)
                alone = command_of(program, [cells] * dims, steps)
                runs = {"sluice": functools.partial(result, options, command, "sluice", ranks),
                        "one_rank": functools.partial(result, options, alone, "sluice", 1),
                        "mpi_persistent": functools.partial(result, options, command, "mpi_persistent", ranks)}
                mesh = " x ".join(str(side * cells) for side in blocks)
                done = row(dims, f"{options.sweep} scaling of a step, {mesh}", steps, in_turns(runs, rounds), whats, machine)
                print_line(done, mesh)
                yield done


def line_time(options, folder):
    """How long a cache line needs from one core to another: what a short run of sluice-bench says."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        brief = ["latency", "--sizes", "8", "--rounds", "1", "--iters", "1", "--against", "none", "--json", file.name]
        subprocess.run([options.mpiexec, "-n", "2", folder / "sluice-bench", *brief], check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        return json.loads(pathlib.Path(file.name).read_text())[0]["line_ns"]


def this_machine(options):
    folder = options.programs[0].parent
    info = json.loads(subprocess.run([folder / "sluice-info", "--json"], capture_output=True, check=True).stdout)
    models = [line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"version": info["version"], "cpu": models[0].split(": ", 1)[-1] if models else "unknown", "gpu": None,
            "driver": None, "date": now, "line_ns": line_time(options, folder)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", metavar="PROGRAM", type=pathlib.Path, nargs="+", help="jacobi, faces, heat, life, cg, fft, channel_flow")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--csv", type=pathlib.Path, help="a line for each run, in the columns of CUP-ECS and Comb")
    parser.add_argument("--phases", action="store_true", help="time the phases of each step, for --csv (slows small ones down)")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--sweep", choices=("strong", "weak"), help="more and more ranks, on one mesh or on as many blocks")
    parser.add_argument("--brief", action="store_true", help="one round of few steps on one mesh: does it run?")
    options = parser.parse_args()
    options.runs = []
    machine = this_machine(options)
    rows = list((sweep if options.sweep else compare)(options, machine))
    options.json.write_text(json.dumps(rows, indent=2) + "\n")
    if options.csv:
        write_csv(options.csv, options.runs)


if __name__ == "__main__":
    main()
