#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the field's benchmarks of one-sided communication with MPI alone, and with libsluice_mpi_rma in front of it: see README.md."""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

from mpich_rma import COLUMNS, TREE, ranks_of

SIZES = (8, 512, 4096, 65536)  # of messages, in the table
UNITS = {"us": "less is better", "s": "less is better", "MB/s": "more is better"}


class Suite:
    """Programs of a checkout. `builds` yields (program, compiler, arguments); `runs` (name, ranks, command, readers)."""

    def __init__(self, checkout, options):
        self.checkout, self.options = checkout.resolve(), options
        self.folder = options.folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["git", "-C", self.checkout, "log", "-1", "--format=%h"], capture_output=True, text=True, check=False)
        self.commit = done.stdout.strip() or "unknown"

    def build(self):
        def compile_one(work):
            program, compiler, words = work
            target = self.folder / program
            if target.exists():
                return ""
            done = subprocess.run([compiler, "-w", *map(str, words), "-o", target], capture_output=True, text=True, check=False)
            return f"{program}: {done.stderr[-2000:]}" if done.returncode != 0 else ""

        for step in self.builds():
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                for why in filter(None, pool.map(compile_one, step)):
                    sys.exit(f"rma_suites.py: {why}")


class Osu(Suite):
    """OSU micro-benchmarks, one-sided. They do not look at what has arrived. Copies of the programs end at the largest size of the table."""
    name = "osu"
    TIMED = [("osu_put_latency", sync, "us") for sync in ("flush", "lock", "fence", "pscw")]
    TIMED += [(f"osu_{what}_latency", "flush", "us") for what in ("get", "acc", "get_acc", "fop", "cas")]
    TIMED += [(f"osu_{what}", sync, "MB/s") for what, sync in (("put_bw", "flush"), ("get_bw", "flush"), ("put_bibw", "fence"))]

    def builds(self):
        folder = self.checkout / "mpi/one-sided"
        step = []
        for name in sorted({name for name, _, _ in self.TIMED}):
            text = (folder / f"{name}.c").read_text()
            copy = self.folder / f"{name}.c"
            copy.write_text(re.sub(r"^#define MAX_SIZE .*$", f"#define MAX_SIZE {SIZES[-1]}", text, flags=re.MULTILINE))
            common = [folder / "osu_1sc.c"] if '"osu_1sc.h"' in text else []  # one of them has copies of these functions
            step.append((name, self.options.compiler, ["-O2", f"-I{folder}", copy, *common, "-lm"]))
        yield step

    @staticmethod
    def read(text):
        rows = re.findall(r"^(\d+)\s+([0-9.]+)\s*$", text, re.MULTILINE)
        return {int(size): float(value) for size, value in rows}

    def runs(self, check):
        if check:
            return
        for name, sync, unit in self.TIMED:
            yield f"{name} -s {sync}", unit, 2, [self.folder / name, "-x", "20", "-i", str(self.options.iterations), "-s", sync], self.values

    def values(self, text, name, unit):
        found = self.read(text)
        return {(name, size, unit): value for size, value in found.items() if size in SIZES} if found else None


class Imb(Suite):
    """Intel MPI Benchmarks, IMB-RMA. A second program, compiled with CHECK, counts the bytes that are wrong."""
    name = "imb"
    ROW = re.compile(r"^ +(\d+) +(\d+)((?: +[0-9.]+)+) *$", re.MULTILINE)

    def builds(self):
        source = self.checkout / "src_cpp"
        listed = (source / "RMA/Makefile.RMA.mk").read_text().split("ifdef GPU_ENABLE")[0]
        in_c = [self.checkout / "src_c" / name for name in re.findall(r"\$\(C_SRC_DIR\)/(\w+\.c)", listed)]
        names = ("imb", "args_parser", "args_parser_utests", "scope", "benchmark_suites_collection", "RMA/RMA_suite", "RMA/RMA_benchmark")
        include = ["-O2", "-DRMA", f"-I{source}", f"-I{source}/helpers", f"-I{self.checkout}/src_c"]
        objects = {}
        step = []
        for flag in ("", "-DCHECK"):
            for file in [*in_c, *(source / f"{name}.cpp" for name in names)]:
                compiler = self.options.compiler if file.suffix == ".c" else self.options.cxx_compiler
                target = f"{file.stem}{flag.lower()}.o"
                step.append((target, compiler, [*include, *filter(None, [flag]), "-c", file]))
                objects.setdefault(flag, []).append(self.folder / target)
        yield step
        yield [(f"IMB-RMA{flag}", self.options.cxx_compiler, objects[flag]) for flag in objects]

    def runs(self, check):
        sizes = self.folder / "sizes"
        sizes.write_text("".join(f"{size}\n" for size in SIZES))
        how = ["-msglen", sizes, "-iter_policy", "off", "-warm_up", "off" if check else "on"]
        iterations = 5 if check else self.options.iterations
        for ranks in (2, 4) if check else (2,):
            program = self.folder / ("IMB-RMA-DCHECK" if check else "IMB-RMA")
            yield f"IMB-RMA on {ranks}", "us", ranks, [program, "-npmin", ranks, "-iter", f"{iterations},40,{iterations}", *how], self.values

    def values(self, text, name, unit):
        """Of each benchmark without the mode in which several accesses share a flush, if there are two; None: something is wrong."""
        if "All processes entering MPI_Finalize" not in text:
            return None
        values = {}
        for part in re.split(r"^# Benchmarking ", text, flags=re.MULTILINE)[1:]:
            benchmark = part.split()[0]
            modes = re.split(r"^#\s+MODE: ", part, flags=re.MULTILINE)
            rows = [row for mode in modes if not mode.startswith("AGGREGATE") for row in self.ROW.findall(mode)]
            head = re.search(r"^\s+#bytes.*$", part, re.MULTILINE)
            if "defects" in (head[0] if head else "") and any(float(row[2].split()[-1]) > 0 for row in rows):
                return None
            values |= {(f"IMB {benchmark}", int(row[0]), unit): float(row[2].split()[0]) for row in rows if int(row[0]) in SIZES}
        return values or None


class Prk(Suite):
    """Parallel Research Kernels, MPIRMA. Each says "Solution validates"."""
    name = "prk"
    PROGRAMS = {"stencil": "Stencil", "p2p": "Synch_p2p", "transpose": "Transpose"}

    def builds(self):
        common = self.checkout / "common"
        define = ["-DMPI", "-DRADIUS=2", "-DSTAR=1", "-DDOUBLE=1", "-DLOOPGEN=0", "-DRESTRICT_KEYWORD=0", "-DVERBOSE=0"]
        yield [(name, self.options.compiler, ["-O3", *define, f"-I{self.checkout}/include", self.checkout / "MPIRMA" / folder / f"{name}.c",
                                              common / "MPI_bail_out.c", common / "wtime.c", "-lm"]) for name, folder in self.PROGRAMS.items()]

    def runs(self, check):
        for ranks in (2, 4) if check else (2,):
            # The last argument of transpose: fences, or flushes. Ranks that outnumber the cores need milliseconds for a step of p2p.
            for run in ("stencil 200 256", f"p2p {2 if check else 10} 400 {100 if check else 400}", "transpose 100 256 32 0", "transpose 100 256 32 1"):
                name, *words = run.split()
                yield run, "s", ranks, [self.folder / name, *words], self.values

    @staticmethod
    def values(text, name, unit):
        time = re.search(r"Avg time \(s\): ([0-9.]+)", text)
        return {(f"ParRes {name}", None, unit): float(time[1])} if "Solution validates" in text and time else None


def interval(values):
    """The widest values between which the median is with at least 95 %, by the binomial distribution; none for fewer than 6."""
    values, n = sorted(values), len(values)
    outside, skip = 0.0, -1
    while outside + 2 * math.comb(n, skip + 1) / 2**n <= 0.05:
        skip += 1
        outside += 2 * math.comb(n, skip) / 2**n
    return f"{values[skip]:.2f} to {values[n - 1 - skip]:.2f}" if skip >= 0 else "too few"


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "unknown processor"


def start(options, suite, column, run):
    """The values of one run, or None; its text is kept."""
    name, unit, ranks, command, values = run
    text, code, seconds = ranks_of(options, column, ranks, command)
    log = suite.folder / "log"
    log.mkdir(exist_ok=True)
    (log / f"{name.replace(' ', '_')}.{ranks}.{column}").write_text(text)
    found = values(text, name, unit) if code == 0 else None
    print(f"{suite.name}: {name}, {ranks} ranks, {column}: {'fine' if found else f'exit code {code}'} ({seconds:.1f} s)", flush=True)
    return found


def validated(options, suites):
    """Lines of the page: what is right on 2 and 4 ranks, and what is not."""
    lines = ["| benchmark | ranks | MPI alone | with Sluice |", "|---|---|---|---|"]
    wrong = 0
    for suite in suites:
        for run in suite.runs(True):
            cells = {column: "right" if start(options, suite, column, run) else "**not**" for column in options.columns}
            wrong += cells.get("sluice") == "**not**"
            lines.append(f"| {run[0]} | {run[2]} | {cells.get('mpi', '')} | {cells.get('sluice', '')} |")
    return lines, wrong


def measured(options, suites):
    """{(benchmark, size, unit): {column: [value of each round]}}"""
    times, wrong = {}, 0
    for number in range(options.rounds):
        for suite in suites:
            for run in suite.runs(False):
                for column in COLUMNS if number % 2 == 0 else COLUMNS[::-1]:
                    found = start(options, suite, column, run)
                    wrong += found is None and column == "sluice"
                    for key, value in (found or {}).items():
                        times.setdefault(key, {}).setdefault(column, {})[number] = value
    return times, wrong


def table(times):
    lines = ["| benchmark | bytes | | MPI alone | with Sluice | ratio | its interval |", "|---|---|---|---|---|---|---|"]
    for (name, size, unit), of in times.items():
        both = sorted(set(of.get("mpi", {})) & set(of.get("sluice", {})))
        pairs = [(of["mpi"][n], of["sluice"][n]) for n in both if of["mpi"][n] > 0 and of["sluice"][n] > 0]
        if not pairs:
            continue
        ratios = [mpi / ours if unit != "MB/s" else ours / mpi for mpi, ours in pairs]
        medians = [statistics.median(values) for values in zip(*pairs)]
        ratio = statistics.median(ratios)
        shown = f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"
        lines.append(f"| {name} | {'' if size is None else size} | {unit} | {medians[0]:.4g} | {medians[1]:.4g} | {shown} | {interval(ratios)} |")
    return lines


def main():
    suites = {suite.name: suite for suite in (Osu, Imb, Prk)}
    parser = argparse.ArgumentParser(description=__doc__)
    for name, suite in suites.items():
        parser.add_argument(f"--{name}", type=pathlib.Path, help=f"a checkout: {suite.__doc__.split('.')[0]}")
    parser.add_argument("--library", type=pathlib.Path, default=TREE / "build/release/libsluice_mpi_rma.so")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours/suites", help="for what is built, and the logs")
    parser.add_argument("--columns", nargs="*", default=COLUMNS, choices=COLUMNS, help="of the validation")
    parser.add_argument("--rounds", type=int, default=6, help="with each column once; 0: only validate")
    parser.add_argument("--no-validation", action="store_true")
    parser.add_argument("--iterations", type=int, default=1000, help="accesses of a size")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a program; more is a failure")
    parser.add_argument("--compiler", default="mpicc")
    parser.add_argument("--cxx-compiler", default="mpicxx")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours", help="for rma_suites.md and rma_suites.json")
    options = parser.parse_args()
    options.folder, options.library = options.folder.resolve(), options.library.resolve()
    if not options.library.exists():
        parser.error(f"{options.library} is not there: build the target sluice_mpi_rma")

    chosen = [suite(vars(options)[name], options) for name, suite in suites.items() if vars(options)[name]]
    for suite in chosen:
        suite.build()
    load = os.getloadavg()[0]
    right, wrong = ([], 0) if options.no_validation else validated(options, chosen)
    times, failed = measured(options, chosen)
    page = [f"{os.cpu_count()} cores of {processor()}, {datetime.date.today()}, a load of {load:.1f} at the begin and {os.getloadavg()[0]:.1f} at the end; "
            + "; ".join(f"{suite.name} {suite.commit}" for suite in chosen), "", *right, "", *(table(times) if times else [])]
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [{"benchmark": name, "bytes": size, "unit": unit, **{column: list(values.values()) for column, values in of.items()}}
            for (name, size, unit), of in times.items()]
    (options.out / "rma_suites.json").write_text(json.dumps(rows, indent=1) + "\n")
    (options.out / "rma_suites.md").write_text("\n".join(page) + "\n")
    print(options.out / "rma_suites.md")
    sys.exit(f"rma_suites.py: {wrong + failed} runs with Sluice failed" if wrong + failed else 0)


if __name__ == "__main__":
    main()
