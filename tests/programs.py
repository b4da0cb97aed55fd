#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the build tree as a person does, with good and bad input, and checks exit codes and what they say.

    tests/programs.py --bin build/release/bin --source . [--mpiexec mpiexec] [--only SUBSTRING]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# name, how it is started, exit code, what standard output or error must match. {bin}, {source}, {out} are folders.
JACOBI = "{bin}/jacobi --nx 67 --ny 41 --niter 50"
LIFE = "{bin}/life --pattern {source}/apps/life/patterns/gosper_gun.rle --nx 101 --ny 67 --timesteps 70"
RUN = "{bin}/sluice-run"
PASSED = r"^VERIFICATION: PASSED"
ROWS = [
    *((f"jacobi.{n}.{stream}", f"{RUN} -n {n} {JACOBI} --stream {stream} --verify", 0, PASSED)
      for n in (1, 2, 4) for stream in ("inline", "host")),
    *((f"life.{n}.{stream}", f"{RUN} -n {n} {LIFE} --stream {stream} --verify", 0, PASSED)
      for n in (1, 2, 4) for stream in ("inline", "host")),
    ("jacobi.threads", f"{RUN} --threads -n 3 {JACOBI} --verify", 0, PASSED),
    ("life.threads", f"{RUN} --threads -n 3 {LIFE} --verify", 0, PASSED),
    ("jacobi.nvidia_flags", f"{RUN} -n 2 {{bin}}/jacobi -nx 32 -ny 32 -niter 10 -nccheck 5 -csv", 0, r"sluice, *32, *32"),
    ("jacobi.mpi", f"mpiexec -n 2 {JACOBI} --comm mpi --verify", 0, PASSED),
    ("jacobi.sluice_under_mpi", f"mpiexec -n 2 {JACOBI} --comm sluice --verify", 0, PASSED),
    ("life.mpi", f"mpiexec -n 2 {LIFE} --comm mpi --verify", 0, PASSED),
    ("jacobi.mpi_without_mpi", f"{RUN} -n 2 {JACOBI} --comm mpi", 2, r"mpi"),
    ("jacobi.unknown_flag", f"{RUN} -n 2 {JACOBI} --no-such-flag", 2, r"no-such-flag"),
    ("jacobi.bad_number", f"{RUN} -n 1 {{bin}}/jacobi --nx many", 2, r"many|nx"),
    ("life.no_pattern", f"{RUN} -n 2 {{bin}}/life --pattern {{out}}/none.rle --nx 64 --ny 64", 2, r"none\.rle"),
    ("life.bad_pattern", f"{RUN} -n 2 {{bin}}/life --pattern {{out}}/bad.rle --nx 64 --ny 64", 2, r"bad\.rle.*2"),
    ("info.text", "{bin}/sluice-info", 0, r"SLUICE_CONNECT_TIMEOUT"),
    ("run.no_program", f"{RUN} -n 2 {{out}}/no_such_program", 2, r"no_such_program"),
    ("run.no_count", f"{RUN} {JACOBI}", 2, r"-n"),
    ("run.help", f"{RUN} --help", 0, r"--threads"),
    ("bench.unknown_name", f"{RUN} -n 2 {{bin}}/sluice-bench no_such_bench", 2, r"no_such_bench"),
    ("bench.no_rival_of_that_name", f"{RUN} -n 2 {{bin}}/sluice-bench latency --against flor", 2, r"flor"),
    ("bench.rival_without_mpi", f"{RUN} -n 2 {{bin}}/sluice-bench stream --against floor,mpi", 2, r"mpiexec"),
    ("bench.stream_without_rival", f"{RUN} -n 2 {{bin}}/sluice-bench halo --against floor", 2, r"not comparable"),
    ("bench.setup_elsewhere", f"{RUN} -n 2 {{bin}}/sluice-bench setup --memory user", 2, r"--memory user"),
    ("bench.setup_on_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench setup --stream host", 2, r"--stream host"),
    ("bench.failure_of_threads", f"{RUN} -n 2 --threads {{bin}}/sluice-bench failure", 2, r"without --threads"),
]

# Every bench once: name, how it is started, exit code, rivals of its rows in any order.
BENCH = "{bin}/sluice-bench --rounds 1 --iters 10"
APPS = "python3 {source}/apps/bench_apps.py --brief --mpiexec mpiexec"
ONE_SIDED = "mpi_put_flush mpi_put_flush_user"
PAIRS = "floor mpi mpi_persistent"
PARTS = "moving_alone computing_alone"
BENCHES = [
    ("latency", f"{RUN} -n 2 {BENCH} latency --sizes 8:16", 0, "floor"),
    ("latency.user", f"{RUN} -n 2 {BENCH} latency --memory user --sizes 64k --touch --pin", 0, "floor"),
    ("latency.host", f"{RUN} -n 2 {BENCH} latency --stream host --sizes 0:1 --against none", 0, ""),
    ("latency.threads", f"{RUN} -n 2 --threads {BENCH} latency --sizes 8", 0, "floor"),
    ("bandwidth", f"{RUN} -n 2 {BENCH} bandwidth --sizes 4k", 0, "floor"),
    ("bandwidth.host", f"{RUN} -n 2 {BENCH} bandwidth --sizes 64 --stream host --window 4096 --touch", 0, "floor"),
    ("rate", f"{RUN} -n 2 {BENCH} rate --sizes 8", 0, "floor"),
    ("rate.host", f"{RUN} -n 2 {BENCH} rate --sizes 8 --stream host --window 500", 0, "floor"),
    ("stream", f"{RUN} -n 2 {BENCH} stream --sizes 8 --against floor", 0, "floor"),
    ("halo", f"{RUN} -n 4 {BENCH} halo --sizes 8 --neighbours 26", 0, ""),
    ("halo.host", f"{RUN} -n 2 {BENCH} halo --sizes 8 --stream host --touch --neighbours 26", 0, ""),
    ("overlap", f"{RUN} -n 2 {BENCH} overlap --sizes 4k", 0, PARTS),
    ("overlap.inline", f"{RUN} -n 2 {BENCH} overlap --sizes 4k --stream inline --touch", 0, PARTS),
    ("scale", f"{RUN} -n 4 {BENCH} scale --sizes 8 --against floor", 0, "one_pair floor"),
    ("setup", f"{RUN} -n 2 {BENCH} setup", 0, ""),
    ("setup.threads", f"{RUN} -n 8 --threads {BENCH} setup --sizes 4k", 0, ""),
    ("failure", f"{RUN} -n 3 {BENCH} failure", 137, ""),
    ("failure.host", f"{RUN} -n 2 {BENCH} failure --stream host", 137, ""),
    ("latency.mpi", f"mpiexec -n 2 {BENCH} latency --sizes 0:1", 0, f"{PAIRS} {ONE_SIDED} mpi_pscw mpi_fence"),
    ("bandwidth.mpi", f"mpiexec -n 2 {BENCH} bandwidth --sizes 64", 0, f"{PAIRS} {ONE_SIDED}"),
    ("rate.mpi", f"mpiexec -n 2 {BENCH} rate --sizes 8 --window 9", 0, PAIRS),
    ("stream.mpi", f"mpiexec -n 2 {BENCH} stream --sizes 8", 0, "floor mpi_persistent"),
    ("halo.mpi", f"mpiexec -n 2 {BENCH} halo --sizes 8", 0, "mpi_persistent"),
    ("overlap.mpi", f"mpiexec -n 2 {BENCH} overlap --sizes 4k", 0, f"{PARTS} mpi"),
    ("scale.mpi", f"mpiexec -n 2 {BENCH} scale --sizes 8 --against all", 0, PAIRS),
    ("setup.mpi", f"mpiexec -n 2 {BENCH} setup", 0, ""),
    ("jacobi", f"{APPS} {{bin}}/jacobi", 0, "mpi"),
    ("life", f"{APPS} {{bin}}/life", 0, "mpi"),
]
BENCH_KEYS = {"schema", "bench", "backend", "stream", "memory", "touch", "fired_by", "ranks", "pairs", "launch",
              "bytes", "depth", "window", "rails", "metric", "unit", "p50", "p10", "p99", "samples", "sample", "rounds",
              "floor_drift", "version", "cpu", "gpu", "driver", "date", "rivals"}


def check_outputs(work):
    """Files that the programs of `output_rows` wrote: pictures, patterns and JSON with the keys that scripts rely on."""
    keys = {"app", "comm", "backend", "stream", "nx", "ny", "nz", "ranks", "steps", "create_s", "solve_s", "step_us", "phases",
            "verification", "max_error"}
    faults = []
    for app in ("jacobi", "life"):
        missing = keys - json.loads((work / f"{app}.json").read_text()).keys()
        if missing:
            faults.append(f"{app}.json lacks {sorted(missing)}")
        if not (work / f"{app}.png").read_bytes().startswith(b"\x89PNG\r\n"):
            faults.append(f"{app}.png is no PNG")
    if not re.search(r"^x = ", (work / "life.rle").read_text(), re.MULTILINE):
        faults.append("life.rle has no header")
    return faults


def output_rows():
    """Programs that write every kind of file they can."""
    for app, command in (("jacobi", JACOBI), ("life", LIFE + " --rle {out}/life.rle")):
        yield f"{app}.files", f"{RUN} -n 2 {command} --json {{out}}/{app}.json --image {{out}}/{app}.png", 0, ""


def bench_rows():
    """Benches that write JSON."""
    for name, command, code, _ in BENCHES:
        yield f"bench.{name}", f"{command} --json {{out}}/bench.{name}.json", code, r"^# "


def check_benches(work):
    """Files that the programs of `bench_rows` wrote."""
    faults = []
    for name, _, _, rivals in BENCHES:
        file = work / f"bench.{name}.json"
        if not file.exists():  # it did not run, which is said elsewhere
            continue
        rows = json.loads(file.read_text() or "[]")
        found = {rival for row in rows for rival in row["rivals"]}
        if not rows or any(row.keys() != BENCH_KEYS or row["bench"] != name.split(".")[0] for row in rows):
            faults.append(f"{file.name} has no rows, or rows of other keys than {sorted(BENCH_KEYS)}")
        if found != set(rivals.split()):
            faults.append(f"{file.name} has the rivals {sorted(found)}, not {rivals}")
        values = [value for row in rows for value in (row, *row["rivals"].values())]
        if any(value["p50"] <= 0 or value.get("ratio", 1) <= 0 for value in values):
            faults.append(f"{file.name} has a result that is not above 0")
    return faults


def run(row, folders, mpiexec):
    """Returns what was wrong with a row, or None."""
    name, command, code, pattern = row
    words = [mpiexec if word == "mpiexec" else word.format(**folders) for word in command.split()]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    except subprocess.TimeoutExpired:
        return f"{name}: still running after 100 s: {' '.join(words)}"
    text = done.stdout + done.stderr
    if done.returncode != code or not re.search(pattern, text, re.MULTILINE):
        return f"{name}: exit {done.returncode} (not {code}?), wanted /{pattern}/: {' '.join(words)}\n{text}"
    if code == 2 and len({line for line in text.splitlines() if line.strip()}) != 1:
        return f"{name}: bad input gets one clear line, not:\n{text}"
    return None


def check_info(binary):
    """sluice-info --json has the shape that scripts rely on."""
    info = json.loads(subprocess.run([binary, "--json"], capture_output=True, text=True, check=True).stdout)
    rows = {key for backend in info["backends"] for key in backend}
    names = {backend["name"] for backend in info["backends"]}
    if not {"version", "backends", "gpus", "providers", "variables"} <= info.keys() or not {"threads", "shm"} <= names:
        return ["sluice-info --json lacks a key or a backend"]
    return [] if {"name", "usable", "why_not", "level"} <= rows else ["sluice-info --json: backends lack a key"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    faults, ran = [], 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "bad.rle").write_text("x = 3, y = 3\nbob$2?o!\n")
        folders = {"bin": options.bin, "source": options.source, "out": work}
        rows = [row for row in [*ROWS, *output_rows(), *bench_rows()] if options.only in row[0]]
        for row in rows:
            needs = row[1].split()
            programs = [pathlib.Path(word.format(**folders)) for word in needs if word.startswith("{bin}")]
            absent = [program.name for program in programs if not program.exists()]
            if absent or ("mpiexec" in needs and not options.mpiexec):
                print(f"not in this build: {row[0]} (no {absent[0] if absent else 'MPI'})")
                continue
            fault = run(row, folders, options.mpiexec)
            faults += [fault] if fault else []
            ran += 1
        faults += check_benches(work)
        if not options.only:
            faults += check_info(options.bin / "sluice-info")
            if (options.bin / "jacobi").exists():
                faults += check_outputs(work)
    for fault in faults:
        print(fault)
    print(f"programs: {ran} runs, {len(faults)} faults")
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
