#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the programs in README.md and docs/*.md, so that no page shows one that does not work.

A ```cpp block, or a ```c block (C99), with a main is a program, and the line before it must be a comment that says how to run it:
    <!-- run: sluice-run -n 2 -->     or     <!-- run: mpiexec -n 2 -->     or     <!-- run: sluice-run -n 2 with CUDA's driver -->
    or     <!-- run: mpiexec -n 2 with Sluice's windows -->     or     <!-- run: mpiexec -n 2 linked with Sluice's windows -->
    or     <!-- run: mpiexec -n 2 linked with Sluice's stream MPI -->
    or     <!-- run: mpiexec -n 2 with CUDA's driver linked with Sluice's stream MPI -->
Each must exit 0. If a ```text block follows it directly, those lines must be its output, in any order. CUDA's driver is the emulated one.
What this build has no MPI, no Kokkos or no CUDA for is listed as left out.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(
    r"(?P<before>[^\n]*)\n```(?P<language>cpp|c)\n(?P<code>.*?)\n```\n(?:\n?```text\n(?P<output>.*?)\n```\n)?", re.DOTALL
)
RUN = re.compile(r"<!-- run: (?P<launcher>sluice-run|mpiexec) (?P<args>[^>]*?)(?P<cuda> with CUDA's driver)?(?P<rma>(?: linked)? with Sluice's windows| linked with Sluice's stream MPI)? ?-->")


class Failure(Exception):
    """A page promises something that does not hold."""


def programs(source):
    """Yields (name, code, launcher, args, whether with CUDA, expected output or None, language, how with MPI's windows by Sluice, if so) for each program."""
    for page in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start("code")) + 1
            if "int main(" not in found["code"]:
                continue
            how = RUN.search(found["before"])
            if not how:
                raise Failure(f"{page.name}:{line}: a program without <!-- run: ... --> on the line before it")
            yield (f"{page.stem}_{line}", found["code"], how["launcher"], how["args"].split(), bool(how["cuda"]), found["output"],
                   found["language"], how["rma"] or "")


def uses_kokkos(program):
    return "<Kokkos_Core.hpp>" in program[1]


def what_lacks(program, options):
    """What a program needs that this build has not; None: nothing."""
    needs = {"MPI": (program[2] == "mpiexec", options.mpiexec), "Kokkos": (uses_kokkos(program), options.kokkos),
             "CUDA": (program[4], options.cuda_include)}
    return next((name for name, (needed, there) in needs.items() if needed and not there), None)


def compile_and_run(program, options):
    """Returns a line that says what was run. Raises Failure."""
    name, code, launcher, args, with_cuda, expected, language, with_windows = program
    with_mpi = launcher == "mpiexec"
    source, binary = options.work / f"{name}.{language}", options.work / name
    source.write_text(code + "\n")
    library = [f"-L{options.build}", f"-Wl,-rpath,{options.build}"]
    linked = with_windows.startswith(" linked")
    ours = "-lsluice_mpis" if with_windows.endswith("stream MPI") else "-lsluice_mpi_rma"
    mpi_flags = ["-Wl,-u,sluice_mpi_starter", "-lsluice_mpi"] if with_mpi and not linked else [ours] if linked else []
    compiler = "mpicxx" if with_mpi else options.compiler
    # With checks, in which what the pages teach is no mistake.
    environment = {**os.environ, "SLUICE_CHECK": "1", "MPICH_CXX": options.compiler, "OMPI_CXX": options.compiler}  # what mpicxx calls
    kokkos_flags = []
    if uses_kokkos(program):
        kokkos_flags = ["-isystem", f"{options.kokkos}/../include", f"-L{options.kokkos}", "-lkokkoscore", "-ldl", *options.kokkos_flags.split()]
        environment |= {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}  # many run at a time, which Kokkos warns of
    cuda_flags = []
    if with_cuda:
        driver = options.build / "emucuda"
        cuda_flags = ["-isystem", options.cuda_include, driver / "libcuda.so.1"]
        paths = [str(driver), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment |= {"LD_LIBRARY_PATH": ":".join(paths), "EMUCUDA_KERNELS": str(driver / "libemukernels.so")}
        # LeakSanitizer reads memory of the emulated GPU, which the processor cannot touch, and crashes.
        environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    common = [*options.flags.split(), "-O0", "-Wall", "-Wextra", f"-I{options.source}/include", f"-I{options.build}/include"]
    in_c = [options.c_compiler, "-std=c99", "-pedantic", "-Werror", *common, "-c", source, "-o", f"{binary}.o"]  # C++ links it
    windows = ["env", f"LD_PRELOAD={options.build}/libsluice_mpi_rma.so"] if with_windows and not linked else []
    steps = [
        *([in_c] if language == "c" else []),
        [compiler, "-std=c++20", *common, f"{binary}.o" if language == "c" else source,
         "-o", binary, *library, *mpi_flags, *kokkos_flags, *cuda_flags, "-lsluice", *filter(None, options.libraries.split(";")), "-pthread"],
        [options.mpiexec if with_mpi else options.build / "bin" / "sluice-run", *args, *windows, binary],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=600, check=False, env=environment)
        if done.returncode != 0:
            raise Failure(f"{name}: exit {done.returncode}: {' '.join(map(str, step))}\n{done.stdout}{done.stderr}")
    if expected is not None and sorted(done.stdout.split("\n")) != sorted((expected + "\n").split("\n")):
        raise Failure(f"{name}: the page says\n{expected}\nbut the program printed\n{done.stdout}")
    return f"{name}: {launcher} {' '.join(args)}: ok"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--source", "--build", "--work"):
        parser.add_argument(option, type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--c-compiler", default="cc")
    parser.add_argument("--flags", default="")
    parser.add_argument("--libraries", default="", help="what the library is linked with")
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--kokkos", default="", help="the folder of its libraries")
    parser.add_argument("--kokkos-flags", default="")
    parser.add_argument("--cuda-include", default="", help="the folder of cuda.h")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        found = list(programs(options.source))
    except Failure as failure:
        print(failure)
        return 1
    runnable = []
    for program in found:
        lacks = what_lacks(program, options)
        if lacks:
            print(f"not in this build: {program[0]} (no {lacks})")
        else:
            runnable.append(program)
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        for result in [pool.submit(compile_and_run, program, options) for program in runnable]:
            try:
                print(result.result())
            except (Failure, subprocess.TimeoutExpired) as failure:
                failures += 1
                print(failure)
    print(f"docs: {len(runnable)} programs, {failures} failures")
    return 1 if failures or not runnable else 0


if __name__ == "__main__":
    sys.exit(main())
