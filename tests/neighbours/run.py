#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests and benchmarks of Cabana and KokkosComm with Sluice's communication spaces and with MPI's: see README.md."""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
CABANA_TESTS = ["CommunicationPlan", "Distributor", "Halo", "Halo2d", "Halo3d"]
KOKKOS_COMM_TESTS = ["test_communicator", "test_send_recv", "test_exchange", "test_channel_p2p", "test_waitall", "test_waitany"]
# Of these benchmarks of KokkosComm's the rows that a communication space moves; the others call MPI by themselves.
KOKKOS_COMM_BENCHES = {"bench_latency": "bench_KC_MpiSpace/[0-9]{1,7}/", "bench_channel_p2p": "."}
SPACES = ("sluice", "mpi")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"run.py: {' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def build(options):
    """The folder with all programs."""
    folder = options.folder.resolve()
    prefixes = [options.kokkos]
    sluice = [f"-DKokkos_ROOT={options.kokkos}", "-DSLUICE_ENABLE_KOKKOS=ON", "-DSLUICE_ENABLE_MPI=ON",
              "-DSLUICE_ENABLE_CUDA=OFF", "-DSLUICE_ENABLE_HIP=OFF", f"-DCMAKE_INSTALL_PREFIX={folder}/sluice"]
    ours = [f"-DCMAKE_BUILD_TYPE=Release"]
    if options.cabana:
        run("cmake", "-S", options.cabana, "-B", folder / "build-cabana", f"-DKokkos_ROOT={options.kokkos}", "-DCabana_REQUIRE_MPI=ON",
            f"-DCMAKE_INSTALL_PREFIX={folder}/cabana")
        run("cmake", "--build", folder / "build-cabana", "--target", "install")
        prefixes.append(folder / "cabana")
        sluice += [f"-DCabana_ROOT={folder}/cabana", "-DSLUICE_ENABLE_CABANA=ON"]
        ours.append(f"-DCABANA={options.cabana.resolve()}")
    if options.kokkos_comm:
        ours += [f"-DKOKKOS_COMM={options.kokkos_comm.resolve()}", f"-DKOKKOS_COMM_CONFIG={options.kokkos_comm_config.resolve()}"]
    run("cmake", "--preset", "install", "-B", folder / "build-sluice", *sluice, cwd=TREE)
    run("cmake", "--build", folder / "build-sluice", "--target", "install", "-j", options.jobs)
    prefixes.append(folder / "sluice")
    run("cmake", "-S", TREE / "tests/neighbours", "-B", folder / "programs", *ours,
        "-DCMAKE_PREFIX_PATH=" + ";".join(str(pathlib.Path(prefix).resolve()) for prefix in prefixes))
    run("cmake", "--build", folder / "programs", "-j", options.jobs)
    return folder / "programs"


def start(program, ranks, *arguments, bind=False):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false")
    binding = ["-bind-to", "core"] if bind else []
    return subprocess.run(["mpiexec", "-n", str(ranks), *binding, str(program), *map(str, arguments)], env=environment,
                          capture_output=True, text=True, check=False, timeout=1200)


def tests_of(programs, names, ranks):
    """{(test, space): [(ranks, how many tests there are, whether all passed)]}"""
    found = {}
    for name in names:
        for space in SPACES:
            program = programs / f"{name}_{space}"
            listed = start(program, 1, "--gtest_list_tests").stdout
            count = len(re.findall(r"^  \w", listed, re.MULTILINE))
            found[name, space] = [(n, count, start(program, n, "--gtest_brief=1").returncode == 0) for n in ranks]
    return found


def cabana_rows(programs, name, space, folder):
    """One run of a benchmark of Cabana's: {row: average microseconds}"""
    output = folder / f"out_{name}_{space}"
    done = start(programs / f"cabana_{name}_{space}", 2, output, bind=True)
    if done.returncode != 0:
        sys.exit(f"run.py: {name} with {space}: {done.stderr[-2000:]}")
    rows = {}
    for path in sorted(folder.glob(output.name + "_*")):
        title, number = "", 0
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 1 and not words[0].startswith("-"):
                title, number = words[0].removeprefix("host_host_"), 0
            elif len(words) == 5 and words[0] == "2":
                number += 1
                rows[f"{title}, {words[1]}" + (f" ({number})" if name == "CommPerformance" else "")] = float(words[4])
        path.unlink()
    return rows


def periodic_rows(programs, space):
    """One run of our benchmark of Cabana's halo: {row: median microseconds}"""
    done = start(programs / f"cabana_periodic_{space}", 2, bind=True)
    if done.returncode != 0:
        sys.exit(f"run.py: periodic with {space}: {done.stderr[-2000:]}")
    return {row: float(time) for row, time in re.findall(r"^(.+): ([\d.]+)$", done.stdout, re.MULTILINE)}


def kokkos_comm_rows(programs, name, space):
    """One run of a benchmark of KokkosComm's with a space, or of the machine's floor for it: {row: average microseconds}"""
    if space == "floor":
        done = start(programs / "kokkos_comm_floor", 2, name, bind=True)
    else:
        done = start(programs / f"kokkos_comm_{name}_{space}", 2, f"--benchmark_filter={KOKKOS_COMM_BENCHES[name]}", bind=True)
    if done.returncode != 0:
        sys.exit(f"run.py: {name} with {space}: {done.stderr[-2000:]}")
    rows = {}
    for row, time, unit in re.findall(r"^(\S+)/manual_time\s+([\d.]+) (ns|us|ms)", done.stdout, re.MULTILINE):
        rows[row.replace("benchmark_", "").replace("bench_", "")] = float(time) * {"ns": 1e-3, "us": 1.0, "ms": 1e3}[unit]
    return rows


def compare(rounds, measure, spaces):
    """Rows of both spaces, in turns: {row: (our median, their median, ratio, its least, its most, the floor's median if there is one)},
    without the outermost of 7 rounds."""
    taken = []
    for turn in range(rounds):
        order = spaces if turn % 2 == 0 else spaces[::-1]
        taken.append({space: measure(space) for space in order})
    rows = {}
    for row in taken[0]["mpi"]:
        ours, theirs = ([one[space][row] for one in taken] for space in SPACES)
        ratios = sorted(b / a for a, b in zip(ours, theirs))
        cut = 1 if rounds >= 7 else 0
        floors = [one["floor"][row] for one in taken if row in one.get("floor", {})]
        floor = statistics.median(floors) if floors else None
        rows[row] = (statistics.median(ours), statistics.median(theirs), statistics.median(ratios), ratios[cut], ratios[-1 - cut], floor)
    return rows


def commit(checkout):
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no repository"


def processor():
    lines = run("lscpu").splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("Model name"))


def test_table(found, ranks):
    lines = [f"| tests, of each {', '.join(str(n) for n in ranks)} ranks | number | with Sluice |", "|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in found):
        failed = [f"{n} ranks" + ("" if theirs else ", with MPI too")
                  for (n, _, ours), (_, _, theirs) in zip(found[name, "sluice"], found[name, "mpi"]) if not ours]
        alone = [str(n) for (n, _, ours), (_, _, theirs) in zip(found[name, "sluice"], found[name, "mpi"]) if ours and not theirs]
        words = "passed" if not failed else "passed, but **failed** on " + "; ".join(failed)
        words += f" (fails with MPI on {', '.join(alone)} ranks)" if alone else ""
        lines.append(f"| `{name}` | {found[name, 'sluice'][0][1]} | {words} |")
    return lines


def bench_table(rows):
    floors = any(floor is not None for *_, floor in rows.values())
    lines = ["| row | Sluice, us | MPI, us | ratio | its interval |", "|---|---|---|---|---|"]
    if floors:
        lines = [lines[0] + " floor, us |", lines[1] + "---|"]
    for row, (ours, theirs, ratio, least, most, floor) in rows.items():
        lines.append(f"| {row} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} | {least:.2f} to {most:.2f} |" + (f" {floor:.2f} |" if floor is not None else ""))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kokkos", type=pathlib.Path, required=True, help="where Kokkos is installed")
    parser.add_argument("--cabana", type=pathlib.Path, help="a checkout of Cabana")
    parser.add_argument("--kokkos-comm", type=pathlib.Path, help="a checkout of KokkosComm, of 2026")
    parser.add_argument("--kokkos-comm-config", type=pathlib.Path, help="the folder of KokkosComm/config.hpp")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours", help="for what is built")
    parser.add_argument("--built", type=pathlib.Path, help="a folder of programs that are built already")
    parser.add_argument("--rounds", type=int, default=11, help="of each benchmark with each space")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4], help="of tests; none: no tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours", help="for neighbours.md and neighbours.json")
    options = parser.parse_args()
    if (options.kokkos_comm is None) != (options.kokkos_comm_config is None):
        parser.error("--kokkos-comm and --kokkos-comm-config belong together")
    if options.cabana is None and options.kokkos_comm is None:
        parser.error("name a checkout: --cabana or --kokkos-comm")
    programs = options.built or build(options)
    options.out.mkdir(parents=True, exist_ok=True)

    lines = [f"{processor()}, {os.cpu_count()} cores, {datetime.date.today()}, {options.rounds} rounds in turns, two ranks, pinned.", ""]
    results = {}
    projects = [("Cabana", options.cabana, [f"cabana_{test}_{device}" for test in CABANA_TESTS for device in ("SERIAL", "OPENMP")],
                 {name: (lambda space, name=name: cabana_rows(programs, name, space, options.out))
                  for name in ("HaloPerformance", "CommPerformance")} | {"periodic": lambda space: periodic_rows(programs, space)}),
                ("KokkosComm", options.kokkos_comm, [f"kokkos_comm_{test}" for test in KOKKOS_COMM_TESTS],
                 {name: (lambda space, name=name: kokkos_comm_rows(programs, name, space)) for name in KOKKOS_COMM_BENCHES})]
    for project, checkout, tests, benches in projects:
        if checkout is None:
            continue
        lines += [f"## {project}, commit {commit(checkout)}", ""]
        if options.ranks:
            lines += [*test_table(tests_of(programs, tests, options.ranks), options.ranks), ""]
        for name, measure in benches.items():
            rows = compare(options.rounds, measure, SPACES if project == "Cabana" else (*SPACES, "floor"))
            results[name] = rows
            lines += [f"### {name}", "", *bench_table(rows), ""]
            (options.out / "neighbours.md").write_text("\n".join(lines))
            (options.out / "neighbours.json").write_text(json.dumps(results, indent=1) + "\n")
    print(options.out / "neighbours.md")


if __name__ == "__main__":
    main()
