#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Misuse that types show: each program of wrong.cpp is refused by the compiler, in the words that stand beside it.

usage: wrong.py wrong.cpp COMPILE_COMMANDS    compile_commands.json of a build, for how it compiles kokkos_test
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

WITH_THREADS = "with Threads: "


def how_to_compile(commands):
    """The build's own command, which only checks, for another file."""
    entry = next(entry for entry in json.loads(pathlib.Path(commands).read_text())
                 if "tests/kokkos/CMakeFiles/kokkos_test.dir/" in entry["command"])
    words = shlex.split(entry["command"])
    return words[:words.index("-o")] + ["-Wno-unused-but-set-variable", "-Wno-unused-variable"], entry["directory"]


def precompiled(how, directory, folder):
    """The same, with the header that takes most of the time compiled once."""
    header = pathlib.Path(folder) / "kokkos.hpp"
    header.write_text("#include <sluice/kokkos.hpp>\n")
    subprocess.run([*how, "-x", "c++-header", str(header), "-o", f"{header}.gch"], cwd=directory, check=True)
    return [*how, "-include", str(header), "-fsyntax-only"]


def compiles(how, directory, source, number):
    done = subprocess.run([*how, f"-DWRONG={number}", str(source)], cwd=directory, capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    how, directory = how_to_compile(sys.argv[2])
    wrong = re.findall(r"^#elif WRONG == (\d+) +// (.+)$", source.read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        return check(source, precompiled(how, directory, folder), directory, wrong)


def check(source, how, directory, wrong):
    """Returns the exit code."""
    good, said = compiles(how, directory, source, 0)
    if not good:
        print(f"the right program does not compile:\n{said}")
        return 1
    threads, _ = compiles([*how, "-DASK_FOR_THREADS"], directory, source, 0)
    failed = [int(number) for number, _ in wrong] != list(range(1, source.read_text().count("WRONG == ")))
    if failed:
        print("not all of the wrong programs are found in the file")
    for number, words in wrong:
        if words.startswith(WITH_THREADS) != threads:
            continue
        accepted, said = compiles(how, directory, source, number)
        told = words.removeprefix(WITH_THREADS) in said
        print(f"{'refused' if told and not accepted else 'NOT SO ':8}{number}: {words}")
        if accepted or not told:
            failed = True
            print(said[:4000])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
