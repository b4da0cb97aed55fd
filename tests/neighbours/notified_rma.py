#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of Open MPI's branches for notified one-sided communication with libsluice_mpi_rma: see README.md."""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
# Where a checkout may have each test, and on how many ranks it runs.
PROGRAMS = {"notified_rma": (("test/simple",), (2, 3, 4)), "win_notify_multi": (("test/simple",), (2, 3, 4)),
            "win_notify": (("test/general", "ompi/test/general"), (1,))}


def find(checkouts, name):
    """The newest source of a test: of the last checkout that has it."""
    folders, _ = PROGRAMS[name]
    found = [path for checkout in checkouts for folder in folders if (path := checkout / folder / f"{name}.c").exists()]
    return found[-1].resolve() if found else None


def build(source, options):
    """Why it could not be built."""
    support = source.parent / "support.c"
    (options.folder / "ompi_config.h").write_text("#include <stdio.h>\n")  # of which the tests use nothing
    library = options.library.resolve()
    done = subprocess.run(
        [options.compiler, "-w", "-O1", f"-I{options.folder}", f"-I{TREE}/include", f"-I{library.parent}/include", "-include", "sluice/mpi_rma.h",
         source, *([support] if '"support.h"' in source.read_text() else []), "-o", options.folder / source.stem, library, f"-Wl,-rpath,{library.parent}"],
        capture_output=True, text=True, check=False)
    return done.stderr if done.returncode != 0 else ""


def run(name, ranks, options):
    """(whether it passed, the checks that failed)"""
    try:
        done = subprocess.run([options.mpiexec, "-n", str(ranks), str(options.folder / name)], env=dict(os.environ, MPIEXEC_TIMEOUT=str(options.limit)),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=options.limit + 15)
    except subprocess.TimeoutExpired:
        return False, [f"not ended after {options.limit} s"]
    text = done.stdout + done.stderr
    (options.folder / f"{name}.{ranks}.log").write_text(text)
    failed = [line.strip() for line in text.splitlines() if re.search(r"FAIL\b|Failure :", line)]
    if done.returncode == 0:
        return not failed, failed
    return False, failed or [f"exit code {done.returncode}: {text.strip()[-200:]}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ompi", type=pathlib.Path, nargs="+", required=True, help="checkouts that have some of the tests")
    parser.add_argument("--library", type=pathlib.Path, default=TREE / "build/release/libsluice_mpi_rma.so")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours/ompi", help="for what is built, and the logs")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a test")
    parser.add_argument("--compiler", default="mpicc")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours/notified_rma.md")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)

    lines = [f"{os.cpu_count()} cores, {datetime.date.today()}, {options.limit} s a test.", "", "| test | ranks | with Sluice |", "|---|---|---|"]
    for name, (_, numbers) in PROGRAMS.items():
        source = find(options.ompi, name)
        if source is None:
            lines.append(f"| `{name}` | | no checkout has it |")
            continue
        if why := build(source, options):
            sys.exit(f"notified_rma.py: {source}: {why[-2000:]}")
        for ranks in numbers:
            passed, failed = run(name, ranks, options)
            told = "passed" if passed else "; ".join(failed).replace("|", "/")
            lines.append(f"| `{name}` | {ranks} | {told} |")
            print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n")
    print(options.out)


if __name__ == "__main__":
    main()
