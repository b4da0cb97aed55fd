#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs MPICH's tests of one-sided communication with MPI alone, and with libsluice_mpi_rma in front of it: see README.md."""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
# What MPICH's configure would find out, as far as these tests ask.
CONFIGURATION = "\n".join(f"#define {name} 1" for name in (
    "HAVE_STDARG_H", "HAVE_STDLIB_H", "HAVE_STRING_H", "HAVE_UNISTD_H", "HAVE_SYS_TIME_H", "HAVE_SYS_RESOURCE_H", "HAVE_GETRUSAGE",
    "HAVE_MPI_WIN_CREATE", "HAVE_LONG_DOUBLE", "HAVE_LONG_LONG_INT", "HAVE_MPI_INIT_THREAD", "THREAD_PACKAGE_NAME")) + """
#define THREAD_PACKAGE_NONE 0
#define THREAD_PACKAGE_POSIX 1
#undef THREAD_PACKAGE_NAME
#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX
#define MTEST_THREAD_RETURN_TYPE void *
"""
COLUMNS = ("mpi", "sluice")


def variants(makefile):
    """Of each program of the Makefile.am that is not built from NAME.c alone: {name: (sources, definitions)}"""
    text = makefile.read_text()
    sources = dict(re.findall(r"^(\w+)_SOURCES\s*=\s*(.+)$", text, re.MULTILINE))
    flags = dict(re.findall(r"^(\w+)_CPPFLAGS\s*=\s*(.+)$", text, re.MULTILINE))
    return {name: ([word for word in sources.get(name, name + ".c").split() if word.endswith(".c")],
                   [word for word in flags.get(name, "").split() if word.startswith("-D")]) for name in {*sources, *flags}}


def lines_of(testlist):
    """[(program, ranks, arguments)]"""
    found = []
    for line in testlist.read_text().splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            found.append((words[0], int(words[1]), [word.removeprefix("arg=") for word in words[2:] if word.startswith("arg=")]))
    return found


class Builder:
    def __init__(self, checkout, folder, compiler):
        self.mpi, self.folder, self.compiler = checkout / "test/mpi", folder, compiler
        include = folder / "include"
        include.mkdir(parents=True, exist_ok=True)
        (include / "mpitestconf.h").write_text(CONFIGURATION)
        (include / "mtest_mpix.h").write_text("")
        # dtpools includes "../dtpoolsconf.h" from its folder, which is found from any folder of the list.
        (include / "dtpoolsconf.h").write_text("#define HAVE_LONG_DOUBLE 1\n")
        (include / "dtpools").mkdir(exist_ok=True)
        self.flags = ["-w", "-O1", f"-I{include}/dtpools", f"-I{include}", f"-I{self.mpi}/include", f"-I{self.mpi}/dtpools/include"]
        self.variants = variants(self.mpi / "rma/Makefile.am")

    def compile(self, *words):
        done = subprocess.run([self.compiler, *self.flags, *map(str, words)], capture_output=True, text=True, check=False)
        return done.stderr if done.returncode != 0 else ""

    def common(self):
        """Objects that all tests use."""
        objects = []
        sources = [self.mpi / "util" / name for name in ("mtest.c", "mtest_common.c", "mtest_single.c", "dtypes.c")]
        for source in [*sources, *sorted((self.mpi / "dtpools/src").glob("*.c"))]:
            target = self.folder / (source.stem + ".o")
            objects.append(target)
            if target.exists():
                continue
            if why := self.compile("-c", source, "-o", target):
                sys.exit(f"mpich_rma.py: {source}: {why[-2000:]}")
        return objects

    def program(self, name, objects):
        """Why it could not be built."""
        if (self.folder / name).exists():
            return ""
        sources, definitions = self.variants.get(name, ([name + ".c"], []))
        return self.compile(*definitions, *(self.mpi / "rma" / source for source in sources), *objects, "-o", self.folder / name, "-lm")


def ranks_of(options, column, ranks, command):
    """Runs a program of MPI, in the column "sluice" with Sluice's windows: (its text, its exit code, seconds)."""
    environment = dict(os.environ, MPIEXEC_TIMEOUT=str(options.limit))
    preload = ["env", f"LD_PRELOAD={options.library}"] if column == "sluice" else []
    begin = time.monotonic()
    try:
        done = subprocess.run([options.mpiexec, "-n", str(ranks), *preload, *map(str, command)], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", check=False, timeout=options.limit + 15)
        text, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        text, code = str(late.stdout), -1
    return text, code, time.monotonic() - begin


def run(options, column, test):
    """(whether it passed, seconds, why not)"""
    name, ranks, arguments = test
    text, code, seconds = ranks_of(options, column, ranks, [options.folder / name, *arguments])
    (options.folder / "log").mkdir(exist_ok=True)
    (options.folder / "log" / f"{name}.{ranks}.{'_'.join(arguments)}.{column}").write_text(text)
    if "No Errors" in text and code == 0 and seconds <= options.limit:
        return True, seconds, ""
    if seconds >= options.limit:
        return False, seconds, f"not ended after {options.limit} s"
    told = [line.strip() for line in text.splitlines() if line.strip() and "BAD TERMINATION" not in line and set(line.strip()) != {"="}]
    return False, seconds, f"exit code {code}: {told[0][:100] if told else 'no text'}"


def table(tests, results):
    """Lines of the page: the sums, and every test that failed in a column."""
    passed = {column: sum(row[column][0] for row in results if column in row) for column in COLUMNS}
    lines = [f"Of {len(tests)} lines of `testlist.in`, {passed['mpi']} pass with MPI alone, and {passed['sluice']} with Sluice in front of it.", "",
             "| test | ranks | MPI alone | with Sluice |", "|---|---|---|---|"]
    for (name, ranks, arguments), row in zip(tests, results):
        if all(row[column][0] for column in row):
            continue
        cells = [f"passed, {row[c][1]:.1f} s" if row[c][0] else row[c][2].replace("|", "/") for c in COLUMNS if c in row]
        lines.append(f"| `{' '.join([name, *arguments])}` | {ranks} | {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpich", type=pathlib.Path, required=True, help="a checkout of MPICH")
    parser.add_argument("--library", type=pathlib.Path, default=TREE / "build/release/libsluice_mpi_rma.so")
    parser.add_argument("--folder", type=pathlib.Path, default=TREE / "build/neighbours/mpich", help="for what is built, and the logs")
    parser.add_argument("--columns", nargs="*", default=COLUMNS, choices=COLUMNS)
    parser.add_argument("--only", nargs="*", help="programs, instead of the whole list")
    parser.add_argument("--again", type=pathlib.Path, help="a JSON file of an earlier run, whose other columns are taken over")
    parser.add_argument("--failed", action="store_true", help="with --again: only tests that failed in the columns that are run")
    parser.add_argument("--limit", type=int, default=30, help="seconds for a test")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time")
    parser.add_argument("--compiler", default="mpicc")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build/neighbours", help="for mpich_rma.md and mpich_rma.json")
    options = parser.parse_args()
    options.folder, options.library = options.folder.resolve(), options.library.resolve()

    earlier = json.loads(options.again.read_text()) if options.again else {}
    tests = [test for test in lines_of(options.mpich / "test/mpi/rma/testlist.in") if not options.only or test[0] in options.only]
    key = lambda test: " ".join([test[0], str(test[1]), *test[2]])
    builder = Builder(options.mpich.resolve(), options.folder, options.compiler)
    objects = builder.common()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        names = sorted({name for name, _, _ in tests})
        unbuilt = {name: why for name, why in zip(names, pool.map(lambda name: builder.program(name, objects), names)) if why}
    for name, why in unbuilt.items():
        print(f"{name} was not built:\n{why[-1000:]}")

    def judge(test):
        row = dict(earlier.get(key(test), {}))
        for column in options.columns:
            if options.failed and column in row and row[column][0]:
                continue
            row[column] = run(options, column, test) if test[0] not in unbuilt else (False, 0.0, "not built")
            print(f"{column}: {key(test)}: {'passed' if row[column][0] else row[column][2]} ({row[column][1]:.1f} s)", flush=True)
        return row

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(judge, tests))
    options.out.mkdir(parents=True, exist_ok=True)
    earlier |= {key(test): row for test, row in zip(tests, results)}
    (options.out / "mpich_rma.json").write_text(json.dumps(earlier, indent=1) + "\n")
    page = [f"{os.cpu_count()} cores, {datetime.date.today()}, {options.limit} s a test.", "", *table(tests, results)]
    (options.out / "mpich_rma.md").write_text("\n".join(page) + "\n")
    print(options.out / "mpich_rma.md")


if __name__ == "__main__":
    main()
