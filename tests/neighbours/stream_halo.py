#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs Cabana's halos on streams, and CabanaGhost with them, by libsluice_mpis: see README.md."""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

import stream_mpi

TREE = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
ENABLED = {"Cabana_ENABLE_MPI", "Cabana_ENABLE_GRID", "Cabana_ENABLE_STREAM_COMM", "Cabana_ENABLE_MPICH", "Cabana_ENABLE_MPI_ADVANCE"}
MPICH_HALO = "impl/Cabana_Grid_MpichStreamHalo.hpp"
SPACES = {"mpi": "Mpi", "mpi-advance": "MpiAdvance", "mpich": "Mpich"}
STEP = re.compile(r"^Step \d+ /", re.MULTILINE)
WRONG = re.compile(r": Failure$", re.MULTILINE)  # a check of a unit test


def prepare(options):
    """Writes what Cabana's configuration would write, and a mended copy of a header."""
    headers = options.folder / "headers"
    mended = options.folder / "mended" / MPICH_HALO
    headers.mkdir(parents=True, exist_ok=True)
    mended.parent.mkdir(parents=True, exist_ok=True)
    for log in options.folder.glob("*.log"):  # of another time
        log.unlink()
    for path in ("core/src/Cabana_Core_Config.hpp.cmakein", "grid/src/Cabana_Grid_Config.hpp.in"):
        text = re.sub(r"#cmakedefine (\w+).*", lambda found: f"#define {found[1]}" if found[1] in ENABLED else "", (options.cabana / path).read_text())
        (headers / re.sub(r"\.\w+$", "", pathlib.Path(path).name)).write_text(text)
    for name in ("hip/hip_runtime.h", "Cuda/Kokkos_Cuda.hpp"):  # are included, and nothing of them is used
        (headers / name).parent.mkdir(exist_ok=True)
        (headers / name).write_text("#pragma once\n")
    # The loop over receives ends before the sends: else all sends run once for each neighbour, and are received once.
    text = (options.cabana / "grid/src" / MPICH_HALO).read_text()
    text, begun = re.subn(r"\n( +// Pack and send the data\.)", r"\n}\n\1", text, count=1)
    text, ended = re.subn(r"\}\s*\}(\s*MPIX_Waitall_enqueue)", r"}\1", text, count=1)
    if (begun, ended) != (1, 1):
        sys.exit(f"stream_halo.py: {MPICH_HALO} is another one than that of the branch mpi-advance-stream-halo")
    mended.write_text(text)


def build(name, text, defines, mended, options):
    """The program of a source; or why it could not be built."""
    source = options.folder / f"{name}.cpp"
    source.write_text(text)
    folders = [HERE / "cabana_ghost", *([options.folder / "mended"] if mended else []), options.folder / "headers", options.cabana / "core/src",
               options.cabana / "grid/src", TREE / "include/sluice/dialects/mpi_advance", TREE, TREE / "include", options.library.parent / "include"]
    binary = source.with_suffix("")
    flags = ["-w", "-O1", "-std=c++20", "-DMPICH_SKIP_MPICXX", *(f"-D{define}" for define in defines), *(f"-I{folder}" for folder in folders),
             f"-isystem{options.kokkos}/include", "-include", "before.hpp"]
    libraries = [options.library, f"-Wl,-rpath,{options.library.parent}", f"-L{options.kokkos}/lib", "-lkokkoscontainers", "-lkokkoscore", "-lgtest", "-ldl"]
    done = subprocess.run([options.compiler, *flags, source, "-o", binary, *libraries], capture_output=True, text=True, check=False)
    return binary, done.stderr if done.returncode != 0 else ""


def unit_test(space, options):
    text = "".join(f'#include "{options.cabana}/{name}"\n' for name in ("grid/unit_test/tstStreamHalo2d.hpp", "cmake/test_harness/mpi_unit_test_main.cpp"))
    defines = ["TEST_CATEGORY=stream", "TEST_EXECSPACE=Kokkos::HIP", "TEST_MEMSPACE=Kokkos::HostSpace", f"HALO_SPACE={SPACES[space]}"]
    return build(f"StreamHalo2d_{space}", text, defines, True, options)


def application(name, mended, options):
    text = f'#include "{options.ghost}/src/{name}.cpp"\n'
    return build(name if mended else f"{name}_as_it_is", text, ["CABANA_GHOST"], mended, options)


def count(expression, built, arguments, ranks):
    """How often it occurs in the log of a run."""
    log = stream_mpi.log_of(built[0], arguments, ranks)
    return len(expression.findall(log.read_text())) if log.exists() else 0


def test_cells(tests, ranks, options):
    """Where the halo on MPI's own calls fails checks, the others are expected to fail as many."""
    told = {space: stream_mpi.result_of(built, "", ranks, options, "[  PASSED  ]") for space, built in tests.items()}
    if told["mpi"] == "passed":
        return list(told.values())
    wrong = {space: count(WRONG, built, "", ranks) for space, built in tests.items()}
    return [f"{number} checks fail" + (", as with mpi" if number == wrong["mpi"] > 0 else ": failed") for number in wrong.values()]


def rows(options):
    """Lines of the table."""
    yield f"| program | ranks | {' | '.join(SPACES)} | mpich, not mended |"
    yield f"|---|---|{'---|' * (len(SPACES) + 1)}"
    tests = {space: unit_test(space, options) for space in SPACES}
    for ranks in (1, 2, 3, 4):
        yield stream_mpi.row("StreamHalo2d", "", ranks, [*test_cells(tests, ranks, options), ""])
    for name, arguments, needed in (("GOL", "-n 32 -t 100", "Solver solve time"), ("Jacobi", "-n 16 -m 200 -t 0.05", "Solver time")):
        built = application(name, True, options)
        as_it_is = application(name, False, options) if name == "GOL" else None
        for ranks in (1, 2, 4):
            told = []
            for space in SPACES:
                all_arguments = f"{arguments} -c {space}"
                told.append(stream_mpi.result_of(built, all_arguments, ranks, options, needed))
                # Steps are made until the values change by less than the tolerance.
                made, by_mpi = (count(STEP, built, f"{arguments} -c {which}", ranks) for which in (space, "mpi"))
                if told[-1] == "passed":
                    told[-1] = f"passed, {made} steps" if made == by_mpi > 0 else f"failed: {made} steps, not {by_mpi}"
            told.append("" if as_it_is is None else stream_mpi.result_of(as_it_is, f"{arguments} -c mpich", ranks, options, needed))
            yield stream_mpi.row(name, arguments, ranks, told)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cabana", type=pathlib.Path, help="a checkout of CUP-ECS/Cabana, branch mpi-advance-stream-halo")
    parser.add_argument("ghost", type=pathlib.Path, help="a checkout of CUP-ECS/CabanaGhost, branch stream-halo")
    parser.add_argument("--kokkos", type=pathlib.Path, required=True, help="an installed Kokkos with Serial, built with Kokkos_ENABLE_IMPL_VIEW_LEGACY=ON")
    parser.add_argument("--library", type=pathlib.Path, default=TREE / "build/release/libsluice_mpis.so")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours/cabana_ghost", help="for what is built, and the logs")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a run")
    parser.add_argument("--compiler", default="mpicxx")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours/stream_halo.md")
    options = parser.parse_args()
    for name in ("cabana", "ghost", "kokkos", "library", "folder"):
        setattr(options, name, getattr(options, name).resolve())
    if not options.library.exists():
        parser.error(f"{options.library} is not there: build the target sluice_mpis")

    prepare(options)
    lines = [f"{os.cpu_count()} cores, {datetime.date.today()}, {options.limit} s a run.", ""]
    for line in rows(options):
        lines.append(line)
        print(line, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n")
    print(options.out)
    mended = ["|".join(line.split("|")[:-2]) for line in lines]
    return 1 if re.search(r"failed|not ended|does not compile", "\n".join(mended)) else 0


if __name__ == "__main__":
    sys.exit(main())
