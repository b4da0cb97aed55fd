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
    ("bench.latency", f"{RUN} -n 2 {{bin}}/sluice-bench latency --sizes 8:16 --rounds 2 --iters 100", 0, r"^ *16 "),
]


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
        rows = [row for row in [*ROWS, *output_rows()] if options.only in row[0]]
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
