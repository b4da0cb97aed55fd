#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of MPI Advance's stream-triggering, and MPICH's of streams, with libsluice_mpis: see README.md."""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
# Each program, its arguments, and on how many ranks it runs.
PROGRAMS = {
    "multi-backend/hello_world": ("", (2,)), "multi-backend/ring": ("", (1, 2, 3)), "multi-backend/rsend": ("", (2,)),
    "multi-backend/barrier": ("", (2,)), "multi-backend/allreduce": ("", (2, 3)), "multi-backend/halo": ("20 100", (1, 2, 4)),
    "multi-backend/halo_and_allreduce": ("20 100", (2, 4)), "multi-backend/two_queue": ("20 100", (2,)),
    "individual/thread/barrier": ("", (2,)), "benchmark/pingpong_st": ("200 100", (2,)), "benchmark/pingpong_st_db": ("200 100", (2,)),
}
BACKENDS = ("THREAD", "CUDA", "CXI")
MPICH_TESTS = "test/mpi/impls/mpich/cuda"
ROUNDS = 1000
WRONG = re.compile(r"Wrong|Expected:|(Top|Bottom|Left|Right): |sluice: error|expect \d+, got|Max error")  # the tests exit 0 all the same


def build(name, backend, options):
    """The program of a test of MPI Advance; or why it could not be built."""
    source = options.advance / "tests" / f"{name}.cpp"
    # The copy is beside its original in all but its folder, so that it finds the same headers by the same names.
    folder = options.folder / backend / pathlib.PurePath(name).parent
    common = options.folder / backend / "common"
    common.mkdir(parents=True, exist_ok=True)
    for header in (options.advance / "tests/common").glob("*.hpp"):
        (common / header.name).write_text(launches_as_calls(header.read_text()))
    text = source.read_text()
    flags = ["-DLACKS_ALLOCATION"] if "void allocate_gpu_memory" not in text else []
    flags += ["-DNEED_CUDA", f"-D{backend}_BACKEND", f"-I{HERE}/mpi_advance", f"-I{TREE}/include/sluice/dialects/mpi_advance", f"-I{common}",
              "-include", "stream-triggering.h"]
    return compile_copy(text, folder / source.name, flags, options)


def compile_copy(text, copied, flags, options):
    """The program of a source, which is written to the file `copied`; or why it could not be built."""
    copied.parent.mkdir(parents=True, exist_ok=True)
    copied.write_text(launches_as_calls(text))
    library = options.library.resolve()
    binary = copied.with_suffix("")
    includes = [f"-I{TREE}", f"-I{TREE}/include", f"-I{library.parent}/include"]
    done = subprocess.run([options.compiler, "-w", "-O1", "-std=c++20", *flags, *includes, copied, "-o", binary, library, f"-Wl,-rpath,{library.parent}"],
                          capture_output=True, text=True, check=False)
    return binary, done.stderr if done.returncode != 0 else ""


def launches_as_calls(text):
    """Kernel launches as calls: `name<<<grid, block, 0, stream>>>(` is no C++."""
    return re.sub(r"(\w+)<<<(.*?)>>>\s*\(", r"launched(\1, \2)(", text, flags=re.DOTALL)


def run(binary, arguments, ranks, options, needed=""):
    """passed, or what failed. A program that passes prints `needed`."""
    try:
        done = subprocess.run([options.mpiexec, "-n", str(ranks), str(binary), *arguments.split()],
                              env=dict(os.environ, SLUICE_TIMEOUT=f"{options.limit // 2}s", SLUICE_CONNECT_TIMEOUT=f"{options.limit // 2}s",
                                       MPIEXEC_TIMEOUT=str(options.limit)),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, timeout=options.limit + 15)
    except subprocess.TimeoutExpired:
        return f"not ended after {options.limit} s"
    text = done.stdout + done.stderr
    log_of(binary, arguments, ranks).write_text(text)
    wrong = [line for line in text.splitlines() if WRONG.search(line)]
    if wrong:
        return f"failed: {wrong[0].strip()[:120]}"
    if done.returncode != 0:
        return f"failed: exit code {done.returncode}"
    return "passed" if needed in text else f"failed: no \"{needed}\""


def log_of(binary, arguments, ranks):
    """The file of what a run has printed."""
    return binary.with_name("_".join([binary.name, str(ranks), *arguments.split()]) + ".log")


def times(options):
    """Seconds of a rank in ping-pongs by persistent requests of MPI's and by those of MPI Advance, in turns: the least of each."""
    rows = []
    for ours, mpis in (("pingpong_st", "pingpong_mpi"), ("pingpong_st_db", "pingpong_mpi_db")):
        built = {name: build(f"benchmark/{name}", "CUDA", options) for name in (ours, mpis)}
        if why := "".join(why for _, why in built.values()):
            sys.exit(f"stream_mpi.py: {why[-2000:]}")
        taken = {name: [] for name in built}
        for _ in range(options.times):
            for name, (binary, _) in built.items():
                done = subprocess.run([options.mpiexec, "-n", "2", str(binary), str(ROUNDS), "256"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      check=True, timeout=options.limit)
                taken[name].append(float(re.search(r"is done: ([\d.e-]+)", done.stdout)[1]))
        rows.append(f"| `{ours}` | {min(taken[mpis]) / ROUNDS * 1e6:.2f} us | {min(taken[ours]) / ROUNDS * 1e6:.2f} us | {min(taken[mpis]) / min(taken[ours]):.2f} |")
    return ["", f"Ping-pongs of 1 KiB, us for a round; the least of {options.times} runs of {ROUNDS} rounds each, in turns:", "",
            "| test | persistent requests of MPI, host-synchronised | with Sluice, enqueued ahead | ratio |", "|---|---|---|---|", *rows]


def advance_rows(options):
    """Lines of the table of MPI Advance's tests."""
    yield f"| test | ranks | {' | '.join(BACKENDS)} |"
    yield f"|---|---|{'---|' * len(BACKENDS)}"
    for name, (arguments, numbers) in PROGRAMS.items():
        if not (options.advance / "tests" / f"{name}.cpp").exists():
            sys.exit(f"stream_mpi.py: {options.advance} has no tests/{name}.cpp")
        built = {backend: build(name, backend, options) for backend in (BACKENDS if "individual" not in name else BACKENDS[:1])}
        for ranks in numbers:
            told = [result_of(built[backend], arguments, ranks, options) if backend in built else "" for backend in BACKENDS]
            yield row(name, arguments, ranks, told)


def mpich_rows(options):
    """Lines of the table of MPICH's tests of streams: a line for each that its list names, with the ranks and arguments there."""
    folder = options.mpich / MPICH_TESTS
    if not (folder / "testlist").exists():
        sys.exit(f"stream_mpi.py: {options.mpich} has no {MPICH_TESTS}/testlist")
    listed = [words for words in map(str.split, (folder / "testlist").read_text().splitlines()) if words and words[0].startswith("stream")]
    sources = {source.stem for source in folder.glob("stream*.cu")}
    if missing := sources ^ {words[0] for words in listed}:
        sys.exit(f"stream_mpi.py: only a source, or only in the list: {', '.join(sorted(missing))}")
    yield "| test | ranks | on a host stream |"
    yield "|---|---|---|"
    flags = [f"-I{HERE}/mpich_cuda", "-include", "cuda_runtime.h"]
    for name, ranks, *settings in listed:
        built = compile_copy((folder / f"{name}.cu").read_text(), options.folder / "mpich" / f"{name}.cpp", flags, options)
        arguments = " ".join(word.removeprefix("arg=") for word in settings if word.startswith("arg="))
        yield row(name, arguments, int(ranks), [result_of(built, arguments, int(ranks), options, "No Errors")])


def result_of(built, arguments, ranks, options, needed=""):
    binary, why = built
    return f"does not compile: {why[:200]}" if why else run(binary, arguments, ranks, options, needed)


def row(name, arguments, ranks, told):
    cells = " | ".join(text.replace("|", "/").replace("\n", " ") for text in told)
    return f"| `{name} {arguments}`".rstrip(" `") + f"` | {ranks} | {cells} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("advance", type=pathlib.Path, nargs="?", help="a checkout of mpi-advance/stream-triggering")
    parser.add_argument("--mpich", type=pathlib.Path, help="a checkout of pmodels/mpich")
    parser.add_argument("--library", type=pathlib.Path, default=TREE / "build/release/libsluice_mpis.so")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours/mpi_advance", help="for what is built, and the logs")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a test")
    parser.add_argument("--times", type=int, default=0, help="so many runs of MPI Advance's ping-pongs, which are timed, and no tests")
    parser.add_argument("--compiler", default="mpicxx")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours/stream_mpi.md")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if not options.library.exists():
        parser.error(f"{options.library} is not there: build the target sluice_mpis")
    if options.advance is None and (options.mpich is None or options.times > 0):
        parser.error("no checkout")

    if options.times > 0:
        print(*times(options), sep="\n")
        return 0
    lines = [f"{os.cpu_count()} cores, {datetime.date.today()}, {options.limit} s a test."]
    for rows in [advance_rows(options)] * (options.advance is not None) + [mpich_rows(options)] * (options.mpich is not None):
        lines.append("")
        for line in rows:
            lines.append(line)
            print(line, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n")
    print(options.out)
    return 1 if re.search(r"failed|not ended|does not compile", "\n".join(lines)) else 0


if __name__ == "__main__":
    sys.exit(main())
