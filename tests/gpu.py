#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `./dev gpu` does: builds, tests and measures on this machine's NVIDIA GPU, in stages.

    tests/gpu.py [--out DIR] [--build DIR] [--libfabric DIR] [--ucx DIR] [--only REGEX] [--brief] [--limit SECONDS]

Each stage has a time limit, and leaves what it found in DIR at once: results.json, results.md, and a log. A stage that fails
does not stop the others. Exit code: 0 if nothing failed, 1 if something did, 2 if there is no GPU.
"""

import argparse
import atexit
import contextlib
import ctypes
import dataclasses
import datetime
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import gpu_goals

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALL_SECONDS = 530
# Cells along each side of a rank's block, and steps.
MESHES = [(128, 2000), (1024, 1000), (4096, 200)]
ROUNDS = 3
THREADS = ("-n", 2, "--threads")
# A test waits for its ranks, which wait for a context on the GPU; each of up to 4 takes 600 MiB of it and more.
MOST_SHARES = 8
MIB_OF_SHARE = 3072
# The promise about what waits on a GPU when a peer has died, a limit of time is over, or the context was aborted.
MOST_MS_TO_NOTICE = 1000

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
ENDING = {signal.SIGTERM, signal.SIGINT}


class Skipped(Exception):
    """A stage that cannot be run here, and why."""


@dataclasses.dataclass
class Stage:
    """A row of the table: what it is called, what it does, its limit in seconds, and a function that does it.

    The function is given a Run, returns what it found (a dict with "what": a line for people, and "result" if it is not
    passed), and raises Skipped, or subprocess.CalledProcessError or TimeoutExpired. No exit code means Skipped: a command that
    cannot be run here is known beforehand, or says so in words that the stage looks for."""
    name: str
    about: str
    limit: int
    work: object


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def members_of(session):
    """The processes of a session, but for its leader."""
    members = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, number = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            if int(number) == session and state != "Z" and int(folder.name) != session:
                members.append(int(folder.name))
    return members


class Run:
    """What stages share: where things are, what is left of a stage's time, its log."""

    def __init__(self, options, machine):
        self.options = options
        free = re.match(r"\d+", machine.get("memory_free_mib", ""))  # some GPUs share the host's and do not say
        self.most_shares = max(1, int(free.group()) // MIB_OF_SHARE) if free else MOST_SHARES
        self.out = options.out
        self.build = options.build or ROOT / "build" / "cuda"
        self.bin = self.build / "bin"
        self.brief = options.brief
        self.limit = 0.0
        self.ends = 0.0
        self.log = None
        self.started = []
        self.mps = None
        atexit.register(self.kill_all)

    def kill_all(self):
        if self.mps:  # its server is none of our processes
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=5, check=False, capture_output=True,
                               env={**os.environ, **self.mps})
        for process in self.started:
            self.kill(process)

    def begin(self, stage, left):
        self.limit = min(stage.limit, left, self.options.limit)
        self.ends = time.monotonic() + self.limit
        self.log = self.out / f"{stage.name}.log"
        self.log.write_text("")

    def program(self, name):
        """A program of the build. Raises Skipped if it is not there, with what the configuration said of it."""
        path = self.bin / name
        if path.is_file():
            return path
        kokkos = ("kokkos_spaces_test", "jacobi", "heat", "life", "faces")
        of_mpi = ("conformance_mpi", "mpis_gpu", "mpix_on_gpu")
        part = "TESTS" if name == "conformance" else "MPI" if name in of_mpi else "KOKKOS" if name in kokkos else "APPS"
        first = "TESTS" if name in of_mpi else "APPS"
        said = self.configured(first) if "no (" in self.configured(first) else self.configured(part)
        if part == "KOKKOS" and "switched off" in said:
            said = "build.apps says why"
        raise Skipped(f"{name} was not built; {said or 'nothing was configured'}")

    def configured(self, part):
        """The line of the last configuration about a part of the build."""
        log = ROOT / "build" / "log" / f"configure-{self.build.name}.log"
        found = re.findall(rf"^-- (Sluice: {part}: .*)$", log.read_text(), re.MULTILINE) if log.is_file() else []
        return found[-1] if found else ""

    def start(self, words, environment, log):
        """Starts a command; where in this log its output begins, and its process."""
        line = [str(word) for word in words]
        # These are for ./dev; programs refuse variables that they do not know.
        keep = {name: value for name, value in os.environ.items()
                if line[0].endswith("/dev") or not name.startswith(("SLUICE_SOURCE_", "SLUICE_ENABLE_"))}
        with log.open("a") as output:
            output.write(f"$ {' '.join(line)}\n")
            output.flush()
            begin = output.tell()
            # A signal that ends this process comes before the start, or when the process is known. It ends with this one,
            # as ranks do with who started them.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

            def prepare():
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

            try:
                process = subprocess.Popen(line, cwd=ROOT, env={**keep, **environment}, stdout=output, stderr=output,
                                           start_new_session=True, preexec_fn=prepare)
                self.started.append(process)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return begin, process

    def end(self, process):
        """Waits for a command. All that it started ends with the stage's time: then, it has not finished."""
        try:
            process.wait(max(0.1, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill(process)
        return True

    @staticmethod
    def kill(process):
        """And all of its session: a build gives each compiler a process group of its own."""
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)  # it begins nothing more
        until = time.monotonic() + 5  # what is inside a driver may take its time
        while (others := members_of(process.pid)) and time.monotonic() < until:
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        process.kill()
        process.wait()

    def command(self, *words, environment=None, code=0, cannot=None):
        """Runs a command that ends with this code; what it said. Raises Skipped if it does not, and a line of what it said has the
        words `cannot`."""
        start, process = self.start(words, environment or {}, self.log)
        if not self.end(process):
            raise subprocess.TimeoutExpired(process.args, self.limit)
        with self.log.open(errors="replace") as log:
            log.seek(start)
            output = log.read()
        if process.returncode != code:
            why = [line.strip() for line in output.splitlines() if cannot and cannot in line]
            if why:
                raise Skipped(why[-1])
            raise subprocess.CalledProcessError(process.returncode, process.args, output)
        return output

    def at_once(self):
        """The environment in which processes use the GPU at once: that of an MPS daemon, which is started here. Empty where there is
        none: processes take turns then, each for a slice of time, and that is what is measured."""
        if self.mps is None:
            self.mps = {}
            control, folder = shutil.which("nvidia-cuda-mps-control"), self.out / "mps"
            if control:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                environment = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
                _, daemon = self.start([control, "-f"], environment, self.out / "mps.log")
                until = time.monotonic() + 5
                while not (folder / "control").exists() and daemon.poll() is None and time.monotonic() < until:
                    time.sleep(0.01)
                if (folder / "control").exists() and daemon.poll() is None:
                    self.mps = environment
                else:
                    self.kill(daemon)
        return self.mps

    def dev_build(self, *targets, hip=None, cannot=None):
        """Builds for this GPU. hip: AUTO or OFF; by default as the last configuration."""
        last = "OFF" if "switched off" in self.configured("HIP") else "AUTO"
        self.command(ROOT / "dev", "build", "--preset", "cuda", *targets, environment={"SLUICE_ENABLE_HIP": hip or last}, cannot=cannot)

    def shares(self, words, count, environment):
        """Runs googletest `count` times at once, each time with a share of the tests. The exit code of each, None if it has not
        finished, and what it said; in the log they are one after the other. None is left running, whatever happens."""
        logs = [self.log.with_suffix(f".{number}.log") for number in range(count)]
        for log in logs:
            log.write_text("")
        processes = []
        try:
            for number, log in enumerate(logs):
                share = {"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(number)}
                processes.append(self.start(words, {**environment, **share}, log)[1])
            finished = [self.end(process) for process in processes]
        finally:
            for process in processes:
                self.kill(process)
        outputs = [log.read_text(errors="replace") for log in logs]
        self.log.write_text("".join(outputs))
        for log in logs:
            log.unlink()
        return [(process.returncode if done else None, output)
                for process, done, output in zip(processes, finished, outputs)]


def tests_in(output):
    """What gtest said: how many tests passed and were skipped, which failed, and why some did nothing here."""
    here = dict(re.findall(r"^SKIPPED-HERE: (\S+): (.*)$", output, re.MULTILINE))
    passed = set(re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)) - set(here)
    skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(\d", output, re.MULTILINE)) + len(here)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)))
    reasons = "; ".join(sorted(set(here.values())))
    return {"passed": len(passed), "skipped": skipped, "failed": failed,
            "what": f"{len(passed)} tests passed" + (f", {skipped} skipped themselves" if skipped else "")
                    + (f" ({reasons})" if reasons else "")
                    + (f", {len(failed)} failed: {', '.join(failed[:5])}" if failed else "")}


def fault_of(code, output):
    """What is wrong with a share of the tests other than that some failed."""
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    during = begun and not re.search(rf"^\[ +(OK|FAILED|SKIPPED) +\] {re.escape(begun[-1])}\b", output, re.MULTILINE)
    where = f" in {begun[-1]}" if during else ""
    if code is None:
        return f"not finished{where}"
    if code == 0 or (code == 1 and tests_in(output)["failed"]):
        return ""
    return f"exit code {code}{where}: {last_line(output)}"


def conformance(filter_text, brief_text, environment=None, before=(), most=MOST_SHARES, program="conformance"):
    """A stage of the conformance suite: the tests of a filter, in at most so many processes at once."""
    def work(run):
        words = [*before, run.program(program), f"--gtest_filter={brief_text if run.brief else filter_text}"]
        count = min(most, run.most_shares, len(os.sched_getaffinity(0)))
        ends = run.shares(words, count, environment(run) if environment else {})
        found = tests_in("".join(output for _, output in ends))
        faults = [fault for fault in (fault_of(*end) for end in ends) if fault]
        if any(code is None for code, _ in ends):
            faults.insert(0, f"the time of {run.limit:.0f} s is over")
        if not (found["passed"] or found["skipped"] or found["failed"]):
            faults.append("no such tests")
        if faults or found["failed"]:
            return found | {"result": "failed", "what": "; ".join([found["what"], *faults])}
        return found | ({} if found["passed"] else {"result": "skipped"})
    work.tests = filter_text
    return work


def kernel_waits(_):
    """The environment in which kernels do what streams' own operations do."""
    return {"SLUICE_GPU_WAITS": "kernel"}


def emucxi(run):
    """The environment in which libfabric finds the emulated NIC."""
    if not list((run.build / "providers").glob("*emucxi*")):
        raise Skipped(f"needs libfabric; {run.configured('OFI') or 'this build has none'}")
    return {"FI_PROVIDER_PATH": str(run.build / "providers")}


def released(filter_text, brief_text):
    """A stage of the conformance suite that asks what is promised of failures in a time that counts on a GPU, one test at a time,
    and not where little of each stage is run to see whether it runs."""
    def environment(run):
        limit = MOST_MS_TO_NOTICE * (10 if run.brief else 1)
        return {"SLUICE_USER_TEST_RELEASED_MS": str(limit), "SLUICE_USER_TEST_RELEASED_FILE": str(run.out / "released.times")}

    def work(run):
        file, times = run.out / "released.times", {}
        file.unlink(missing_ok=True)
        found = conformance(filter_text, brief_text, environment, most=1)(run)
        for line in file.read_text().splitlines() if file.is_file() else ():
            test, took = line.split()
            times[test] = max(times.get(test, 0.0), float(took))  # of its ranks
        if not times and found["passed"]:
            return found | {"result": "failed", "what": f"{found['what']}; none said how long it took"}
        longest = f"; released after {max(times.values()):.0f} ms at most" if times else ""
        return found | {"what": found["what"] + longest, "times_ms": times}
    work.tests = filter_text
    return work


def hip_on_cuda(run):
    """The environment in which the library uses HIP's calls, which this machine's CUDA driver does."""
    if not list((run.build / "hip_on_cuda").glob("*")):
        raise Skipped(f"needs clang and HIP's headers; {run.configured('HIP') or 'this build has none'}")
    paths = [str(run.build / "hip_on_cuda"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"SLUICE_GPUS": "hip", "LD_LIBRARY_PATH": ":".join(paths)}


def memcheck(filter_text, brief_text):
    """A stage of the conformance suite under compute-sanitizer, whose part of each process takes memory of the GPU too."""
    def work(run):
        tool = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
        if not tool:
            raise Skipped("compute-sanitizer is not there")
        before = (tool, "--tool", "memcheck", "--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", "9")
        return conformance(filter_text, brief_text, before=before, most=MOST_SHARES // 2)(run)
    work.tests = filter_text
    return work


def build_tests(run):
    if run.options.build:
        raise Skipped(f"{run.build} is used as it is")
    without = ""
    try:
        run.dev_build("build-gpu", hip="AUTO")
    except subprocess.CalledProcessError as ended:
        if ": yes" not in run.configured("HIP"):
            raise
        without = f"built again without HIP: with it, {last_line(ended.output)}"
        run.dev_build("build-gpu", hip="OFF")
    parts = (run.configured(part) for part in ("CUDA", "HIP", "OFI", "APPS", "TESTS"))
    return {"what": "; ".join(filter(None, (*parts, without)))}


def build_rivals(run):
    """One after the other: one that cannot be compiled with what is here takes no other with it."""
    if run.options.build:
        raise Skipped(f"{run.build} is used as it is")
    failed, lines = [], []
    for rival in ("ucx", "nccl", "nvshmem"):
        why_not = run.configured(f"rival-{rival}")
        try:
            if not why_not:
                run.dev_build(f"rival-{rival}")
            lines.append(why_not or f"rival-{rival}: built")
        except subprocess.CalledProcessError as ended:
            failed.append(rival)
            lines.append(f"rival-{rival}: {last_line(ended.output)}")
    return {"what": "; ".join(lines)} | ({"result": "failed"} if failed else {})


def build_apps(run):
    if run.options.build:
        raise Skipped(f"{run.build} is used as it is")
    if ": no" in run.configured("APPS"):
        raise Skipped(run.configured("APPS"))
    run.dev_build("jacobi", "heat", "life", "faces", cannot="cannot be downloaded")
    return {"what": run.configured("KOKKOS")}


def kokkos(run):
    """Channels and halos of Views in the GPU's memory, by kernels of Kokkos alone."""
    if not run.options.build and ": yes" in run.configured("TESTS"):
        run.dev_build("kokkos_spaces_test", cannot="cannot be downloaded")
    words = [run.program("kokkos_spaces_test"), f"--gtest_filter={'*columns*' if run.brief else '*'}"]
    (code, output), = run.shares(words, 1, {})
    if "default execution space: Cuda" not in output and code == 0:
        raise Skipped("built with a Kokkos without CUDA")
    found, fault = tests_in(output), fault_of(code, output)
    if fault or found["failed"] or not found["passed"]:
        return found | {"result": "failed", "what": "; ".join(filter(None, [found["what"], fault]))}
    return found


# Programs of tests/mpis and of tests/mpix on a GPU's streams, by the number of ranks; the first two are a little of them.
STREAM_MPI = {
    2: ("ring", "halo", "queues", "together", "device", "ping_pong", "crossed", "doubles", "ready", "sends_first", "many_requests", "beside_mpi",
        "nobody", "empty", "statuses", "imatch", "states", "sizes", "gaps", "allreduce"),
    1: ("ring", "halo", "queues", "together", "device"),
    3: ("ring", "halo", "queues", "together", "device"),
}
STREAM_MESSAGES = {
    2: ("halo", "gpu_memory", "sizes", "requests", "truncation", "m_pair", "m_halo", "m_statuses", "gpu_requests", "gpu_order", "gpu_meanwhile",
        "gpu_captures"),
    3: ("ring", "halo", "m_halo", "m_allreduce", "gpu_requests"),
}


def mpiexec_of(build):
    """What starts ranks of the MPI that this build found."""
    cache = build / "CMakeCache.txt"
    said = dict(re.findall(r"^(MPIEXEC_\w+):\w+=(.+)$", cache.read_text(), re.MULTILINE)) if cache.is_file() else {}
    program = shutil.which(said.get("MPIEXEC_EXECUTABLE", "mpiexec"))
    if not program:
        raise Skipped("mpiexec is not there")
    return [program, said.get("MPIEXEC_NUMPROC_FLAG", "-n")]


def stream_mpi(name, variables, programs):
    """Programs in the words of a dialect, whose ranks are processes of an MPI."""
    environment = variables | {"SLUICE_TIMEOUT": "30s", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                               "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def work(run):
        program = run.program(name)
        start = mpiexec_of(run.build)
        passed = []
        for ranks, names in itertools.islice(programs.items(), 1 if run.brief else None):
            names = names[:2] if run.brief else names
            output = run.command(*start, ranks, program, *names, environment=environment)
            if "passed" not in output.splitlines():
                raise ValueError(f"with {ranks} ranks none said that they passed: {last_line(output)}")
            passed.append(f"{len(names)} programs with {ranks} rank{'' if ranks == 1 else 's'}")
        return {"what": ", ".join(passed)}
    return work


def facts(run):
    """Of the first GPU, which the benchmarks use: what its driver says, and what the library makes of it."""
    found = json.loads(run.command(sys.executable, ROOT / "tests" / "gpu_attributes.py"))
    info = json.loads(run.command(run.program("sluice-info"), "--json"))
    found |= info["gpus"][0]
    found["backends"] = ", ".join(backend["name"] for backend in info["backends"] if backend["usable"])
    return {"what": f"{len(found)} facts", "facts": found}


def left_out(run, output):
    """Rivals that a benchmark could not measure, and why."""
    why = dict(re.findall(r"^# (\S+) is left out: (.*)$", output, re.MULTILINE))
    for rival, text in why.items():
        program = re.match(r"(rival-\S+) is not beside", text)
        why[rival] = program and run.configured(program.group(1)) or text
    return why


def bench(name, *arguments, rounds=20, ranks=("-n", 2), code=0, check=None, at_once=True):
    """A stage of the benchmarks: rows of `sluice-bench`, between two processes on streams of one GPU, or two threads, which ends with
    this code. check: what is wrong with the rows. at_once: the processes use the GPU at once, if they can."""
    def work(run):
        rows = run.out / f"{name}.json"
        rows.unlink(missing_ok=True)
        few = ("--iters", 20, "--rounds", 1) if run.brief else ("--rounds", rounds)
        if run.brief and "--sizes" not in arguments:
            few += ("--sizes", "8")
        output = run.command(run.program("sluice-run"), *ranks, run.program("sluice-bench"), *arguments, "--stream", "cuda", *few,
                             "--json", rows, code=code, environment=run.at_once() if at_once and ranks != THREADS else None)
        found = json.loads(rows.read_text())
        fault = check(found) if check else ""
        turns = "" if ranks == THREADS or at_once and run.mps else ", of processes that take turns on the GPU"
        return ({"what": fault or f"{len(found)} rows{turns}", "rows": found, "left_out": left_out(run, output)}
                | ({"result": "failed"} if fault else {}))
    return work


def late_notice(rows):
    times = [row["p50"] for row in rows]
    return "" if times and max(times) <= MOST_MS_TO_NOTICE else f"a parked stream was released after {times} ms, not within 1 s"


def crossover(run):
    """Small puts by the copy engine, and by a kernel: up to which size is a kernel quicker?"""
    times = {}
    few = ("--iters", "20", "--rounds", "1") if run.brief else ()
    for way, most in (("copy_engine_us", "0"), ("kernel_us", "1m")):
        file = run.out / f"bench.small_puts.{way.removesuffix('_us')}.json"
        run.command(run.program("sluice-run"), "-n", 2, run.program("sluice-bench"), "latency", "--stream", "cuda", "--sizes",
                    "8:256k", "--against", "none", *few, "--json", file, environment={**run.at_once(), "SLUICE_KERNEL_PUT_MAX": most})
        for row in json.loads(file.read_text()):
            times.setdefault(row["bytes"], {})[way] = row["p50"]
    puts = [{"bytes": size, **of_size} for size, of_size in sorted(times.items())]
    quicker = list(itertools.takewhile(lambda put: put["kernel_us"] < put["copy_engine_us"], puts))
    return {"what": f"by a kernel quicker up to {quicker[-1]['bytes']} bytes" if quicker else "by a kernel not quicker", "puts": puts}


def run_app(run, app, cells, steps, *arguments):
    """Two ranks with a block of cells x cells each, or as many in a cube; what they said. Jacobi counts its boundary."""
    mesh = {"jacobi": ("--nx", cells + 2, "--ny", 2 * cells + 2, "--niter", steps, "--nccheck", 0),
            "faces": ("--nodes", round(cells ** (2 / 3)), "--timesteps", steps)}.get(
        app, ("--nx", cells, "--ny", 2 * cells, "--timesteps", steps))
    return run.command(run.program("sluice-run"), "-n", 2, run.program(app), *mesh, "--stream", "cuda", *arguments,
                       environment=run.at_once(), cannot="built with a Kokkos without CUDA")


def verify_app(app):
    """The whole field after some steps, moved in both ways, against the serial run: bit by bit, but for heat."""
    def work(run):
        for comm in ("sluice", "copies"):
            output = run_app(run, app, 256, 20 if run.brief else 200, "--comm", comm, "--verify")
            if "VERIFICATION: PASSED" not in output:
                raise ValueError(f"not verified: {last_line(output)}")
        return {"what": "VERIFICATION: PASSED with --comm sluice and --comm copies"}
    return work


def measure_app(app):
    """A step with channels on the stream, against one with host-synchronised copies, in turns."""
    def work(run):
        file, rows = run.out / f"{app}.json", []
        for cells, steps in MESHES[:1] if run.brief else MESHES:
            times = {"sluice": [], "copies": []}
            for number in range(1 if run.brief else ROUNDS):
                for comm in sorted(times, reverse=number % 2 == 0):
                    run_app(run, app, cells, steps, "--comm", comm, "--no-verify", "--json", file)
                    times[comm].append(json.loads(file.read_text())["step_us"])
            ours, copies = (statistics.median(times[comm]) for comm in ("sluice", "copies"))
            rows.append({"app": app, "cells_per_rank": [cells, cells], "steps": steps, "sluice_us": ours, "copies_us": copies,
                         "ratio": copies / ours})
        return {"what": "; ".join(f"{row['cells_per_rank'][0]}^2: {row['sluice_us']:.1f} us a step, copies {row['ratio']:.2f} times that"
                                  for row in rows), "steps": rows}
    return work


# Of the suites on streams of a GPU: those of graphs and kernels, and those that are about networks and other processors.
NOT_EAGER = ("*Graph*:*GpuK*:*cuda_graph*:*cuda_kernel*:*inline_cuda*_d3_*:*/Accesses.*:*/Atomics.*:*NoAtomics*:*Armed*:*Budgets*:*Bursts*:"
             "*GpuWindows*:*GpuNotices*:*GpuTargets*:*GpuAtomics*")

# In the order of their weight, so that a run that is cut short has the first ones.
STAGES = [
    Stage("build", "the library, its tests and benchmarks", 300, build_tests),
    Stage("facts", "what the driver and the library say of the GPU", 20, facts),
    Stage("conformance.threads", "same process, eager", 90,
          conformance(f"Quick*/threads_*cuda*:-{NOT_EAGER}", "Quick/OneWay.*/threads_cuda*d1_13B")),
    Stage("conformance.graphs.first", "two processes, a little of graphs and kernels", 30,
          conformance("Quick/Graphs.are_replayed*/shm_cuda_ours_to_ours_d1_13B:Quick/GpuKernels.drive_*/shm_cuda_ours_to_ours_d1_13B",
                      "Quick/Graphs.are_replayed*/shm_cuda_ours_to_ours_d1_13B", most=1)),
    Stage("conformance.processes", "two processes, eager", 200,
          conformance(f"Quick*/shm_cuda*:Quick*/shm_inline_cuda*:-{NOT_EAGER}:*Litmus*:*LostOwner*",
                      "Quick/OneWay.*/shm_cuda*d1_13B")),
    Stage("conformance.graphs.threads", "same process, captured into graphs, or by kernels", 60,
          conformance("Quick/Graphs*/threads_cuda*:Quick/GpuK*/threads_cuda*",
                      "Quick/Graphs.are_replayed*/threads_cuda*d1_13B:Quick/GpuKernels.drive*/threads_cuda*d1_13B")),
    Stage("litmus", "two processes, 10^6 puts: no signal lost, none before its data", 60,
          conformance("Full/Litmus.*/shm_cuda_stream_8B:Full/Litmus.*/shm_cuda_stream_65536B", "Quick/Litmus.*/shm_cuda_stream_8B",
                      most=1)),
    Stage("memcheck", "a subset under compute-sanitizer", 60,
          memcheck("Quick/OneWay.*/shm_cuda*_13B:Quick/GpuMemory*.gets_*/shm_cuda*d1_13B", "Quick/OneWay.*/shm_cuda*d1_13B")),
    Stage("build.rivals", "NCCL, NVSHMEM and UCX, to compare with", 90, build_rivals),
    # These two measure UCX too, where there is one, whose program takes seconds to start, for each row.
    Stage("bench.latency", "put and signal to wait, stream to stream", 80, bench("bench.latency", "latency", rounds=10)),
    Stage("bench.stream", "cost for the host", 30, bench("bench.stream", "stream")),
    Stage("bench.bandwidth", "large messages", 80, bench("bench.bandwidth", "bandwidth", rounds=10)),
    Stage("bench.rate", "small messages", 60, bench("bench.rate", "rate", "--sizes", "8:4k", rounds=5)),
    Stage("bench.halo", "26 messages of a plan", 30, bench("bench.halo", "halo", "--neighbours", "26")),
    Stage("released", "what waits is released: a timeout, an abort, a peer's death; streams, graphs, kernels", 60,
          released(":".join([f"Quick/{suite}.that_wait*/{ground}_cuda_ours_to_ours_d1_13B" for ground in ("threads", "shm")
                             for suite in ("GpuStreams", "Graphs", "GpuKernelsOfOneSlot")] + ["Quick/GpuKill.*/shm_cuda_ours_to_ours_d2_64B"]),
                   "Quick/GpuStreams.that_wait_too*/shm_cuda_ours_to_ours_d1_13B:"
                   "Quick/Graphs.that_wait_are*/threads_cuda_ours_to_ours_d1_13B:"
                   "Quick/GpuKill.releases_a_kernel_that_waits_for_a_signal/shm_cuda_ours_to_ours_d2_64B")),
    Stage("bench.failure", "from the death of a peer to the error of a stream that waits", 20,
          bench("bench.failure", "failure", code=128 + signal.SIGKILL, check=late_notice, at_once=False)),
    Stage("build.apps", "jacobi, heat, life and faces on Kokkos for CUDA", 240, build_apps),
    Stage("verify.jacobi", "two ranks, one GPU: the whole field", 30, verify_app("jacobi")),
    Stage("verify.heat", "two ranks, one GPU: the whole field, within rounding", 30, verify_app("heat")),
    Stage("verify.life", "two ranks, one GPU: the whole field", 30, verify_app("life")),
    Stage("verify.faces", "two ranks, one GPU: the whole field", 30, verify_app("faces")),
    Stage("kokkos", "channels and halos of Views on the GPU, with their build", 80, kokkos),
    Stage("apps.jacobi", "a step, against host-synchronised copies", 60, measure_app("jacobi")),
    Stage("apps.life", "a step, against host-synchronised copies", 60, measure_app("life")),
    Stage("conformance.cxi", "a stream rings an emulated NIC's page, whose signal a stream waits for", 60,
          conformance("Quick/OneWay.*emucxi_cuda*:Quick/Gpu*emucxi*cuda*d1_13B:Quick/Graphs*emucxi*cuda_hosts_to_hosts_d2*",
                      "Quick/OneWay.*emucxi_cuda*d1_13B", emucxi)),
    Stage("bench.small_puts", "by the copy engine, and by a kernel", 40, crossover),
    Stage("bench.replay", "captured into graphs and replayed, ranks as threads", 40,
          bench("bench.replay", "replay", "--neighbours", "26", rounds=5, ranks=THREADS)),
    Stage("bench.device", "puts by kernels, ranks as threads", 30, bench("bench.device", "device", rounds=5, ranks=THREADS)),
    # Kernels that wait for each other: processes on one GPU take turns, each for a slice of time, so that fewer go at once.
    Stage("conformance.graphs.processes", "two processes, captured into graphs, or by kernels that wait", 60,
          conformance("Quick/Graphs*/shm_cuda*:Quick/GpuK*/shm_cuda*:-Quick/Graphs.*_d3_*:Quick/GraphsOfSlots.*_d3_*:"
                      "Quick/GraphsInOurMemory.*_d3_*:Quick/GpuKernels.*_d3_*",
                      "Quick/Graphs.are_replayed*/shm_cuda*d1_13B:Quick/GpuKernels.drive*/shm_cuda*d1_13B", most=4)),
    Stage("litmus.kernels", "two processes, whose graphs and kernels wait for each other", 60,
          conformance("Quick/Litmus.*/shm_cuda_graph_*:Quick/Litmus.*/shm_cuda_kernel_*", "Quick/Litmus.*/shm_cuda_kernel_8B",
                      most=1)),
    Stage("bench.replay.processes", "captured and replayed, between processes", 20,
          bench("bench.replay.processes", "replay", "--sizes", "8", "--neighbours", "26", rounds=3)),
    Stage("bench.device.processes", "puts by kernels, between processes", 20,
          bench("bench.device.processes", "device", "--sizes", "8", rounds=3)),
    Stage("conformance.windows", "windows of a GPU's memory, and windows from its streams", 60,
          conformance("Quick/GpuWindows*cuda*:Quick/GpuNotices*cuda*:Quick/LostGpuWindows*cuda*:Quick/GpuTargets*cuda*",
                      "Quick/GpuWindows.move*/shm_cuda_ours*:Quick/GpuNotices.bring*/threads_cuda_ours*")),
    Stage("conformance.atomics", "atomics on a window of a GPU's memory, by kernels of its streams", 60,
          conformance("Quick/GpuAtomics*cuda*", "Quick/GpuAtomics.give*/shm_cuda_ours*:Quick/GpuAtomics.change*/threads_cuda_ours*")),
    Stage("conformance.waits", "kernels wait in place of streams' own operations", 45,
          conformance("Quick/GpuWaits.*/threads_cuda*:Quick/OneWay.*/threads_cuda*_13B:Quick/GpuMemory*.gets_*/threads_cuda*d1_13B:"
                      "Quick/GpuPlans*.*/threads_cuda*d1_13B:Quick/GpuWaits.*/shm_cuda*:Quick/OneWay.*/shm_cuda*d1_13B",
                      "Quick/OneWay.*/threads_cuda*d1_13B", kernel_waits, most=4)),
    Stage("conformance.hip", "HIP's calls, done by this GPU's CUDA driver: no test on AMD", 60,
          conformance("Quick/GpuMemory*/shm_cuda*:Quick/GpuStreams*/shm_cuda*:Quick/OneWay.*/shm_cuda*",
                      "Quick/OneWay.*/threads_cuda*d1_13B", hip_on_cuda)),
    Stage("conformance.engine", "puts that the engine or a doorbell fires", 90,
          conformance("Quick/Gpu*/posted_cuda*:Quick/Gpu*/rung_cuda*:Wrapped/OneWay.*/posted_cuda*:Wrapped/OneWay.*/rung_cuda*:"
                      "Quick/Graphs.are_replayed*/posted_cuda*:Quick/Graphs.are_replayed*/rung_cuda*:-*GpuK*",
                      "Wrapped/OneWay.*/posted_cuda*d1_0B:Wrapped/OneWay.*/rung_cuda*d1_0B")),
    Stage("conformance.collectives", "collectives on a GPU's stream, sums by a kernel", 60,
          conformance("Quick/GpuCombining.*/shm_cuda_allocated_d1_64B:Quick/GpuCombining.*/threads_cuda_allocated_d1_64B:"
                      "Quick/Exchanges.*/threads_cuda_allocated_d1_64B:"
                      "Quick/GpuSlices.*cuda*:Quick/LostGpuMembers.*cuda*:Quick/GpuCollectiveGraphs.*cuda*:Quick/LostGraphMembers.*cuda*",
                      "Quick/GpuCombining.gives*/threads_cuda_allocated_d1_64B")),
    Stage("conformance.unr", "plans of messages on a GPU's stream, which packs and unpacks", 30,
          conformance("Quick/UnrPlans.*/shm_cuda_allocated_d1_64B:Quick/UnrPlans.*/threads_cuda_allocated_d1_64B:"
                      "Quick/UnrMistakes.*/threads_cuda_allocated_d1_64B:Quick/UnrEarlyPuts.*/threads_cuda_allocated_d1_64B",
                      "Quick/UnrPlans.bring*/threads_cuda_allocated_d1_64B")),
    Stage("conformance.segments", "ranges of a buffer in the order of a GPU's stream", 30,
          conformance("Quick/Segments.*/threads_cuda*:Quick/Segments.*/shm_cuda*:Quick/MixedAny.*/shm_cuda*",
                      "Quick/Segments.are_those*/shm_cuda*")),
    Stage("conformance.mpi", "streams of a GPU over the backend of MPI's messages, ranks as threads", 30,
          conformance("Quick/OneWay.*/threads_mpi_cuda*:Quick/GpuMemory*.*/threads_mpi_cuda*d1_*:Quick/GpuStreams.*/threads_mpi_cuda*d1_13B",
                      "Quick/OneWay.*/threads_mpi_cuda*d1_13B", program="conformance_mpi")),
    Stage("stream_mpi", "programs of MPI Advance's stream MPI, ranks started by MPI", 60,
          stream_mpi("mpis_gpu", {"MPIS_TEST_STREAM": "cuda"}, STREAM_MPI)),
    Stage("stream_mpi.messages", "programs of Cray's and MPICH's stream MPI, ranks started by MPI", 60,
          stream_mpi("mpix_on_gpu", {"MPIX_TEST_STREAM": "cuda", "MPIX_TEST_THREADS": "1"}, STREAM_MESSAGES)),
    Stage("memcheck.graphs", "graphs and kernels under compute-sanitizer", 60,
          # One thread of a GPU that copies 200,000 bytes takes longer under it than a test may.
          memcheck("Quick/Graphs.are_replayed*/shm_cuda*_to_ours_d*:Quick/GpuKernels.*drive*/shm_cuda*_to_ours_d*:"
                   "-Quick/GpuKernels.of_a_thread*_200000B",
                   "Quick/GpuKernels.drive*/shm_cuda_ours_to_ours_d1_13B")),
]


def outcome(stage, run, left):
    """Runs a stage; what it found, as results.json has it."""
    start = time.monotonic()
    found = {"name": stage.name, "about": stage.about, "date": now()}
    try:
        if left < 1:
            raise Skipped("no time was left")
        run.begin(stage, left)
        found |= {"result": "passed", **stage.work(run)}
    except Skipped as why:
        found |= {"result": "skipped", "what": str(why)}
    except subprocess.TimeoutExpired as ended:
        found |= {"result": "failed", "what": f"not finished after {ended.timeout:.0f} s"}
    except subprocess.CalledProcessError as ended:
        found |= {"result": "failed", "what": f"exit code {ended.returncode}: {last_line(ended.output)}"}
    except (OSError, ValueError, LookupError) as error:
        found |= {"result": "failed", "what": f"{type(error).__name__}: {error}"}
    return found | {"seconds": round(time.monotonic() - start, 1)}


def said(command, pattern):
    """What a program says about itself; empty if it is not there."""
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(pattern, output)
    return found.group(1).strip() if found else ""


def this_machine():
    """GPU, driver, toolkit. None if no GPU answers."""
    line = said(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.free", "--format=csv,noheader,nounits"], r"^(.+)\n")
    if line.count(",") != 3:
        return None
    gpu, driver, capability, free = (part.strip() for part in line.split(","))
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin") or "nvcc"
    return {"gpu": gpu, "driver": driver, "compute_capability": capability, "memory_free_mib": free,
            "nvcc": said([nvcc, "--version"], r"V([\d.]+)"), "cmake": said(["cmake", "--version"], r"version (\S+)"),
            "compiler": said(["c++", "--version"], r"^(.+)\n")}


def first_in(folder, variable):
    os.environ[variable] = ":".join(filter(None, [str(folder), os.environ.get(variable)]))


def bring_along(name, folder, library, program=None):
    """What was installed in a folder and brought along, as the option or the variable of this name says: for all that is run."""
    folder = folder or (os.environ.get(name) and pathlib.Path(os.environ[name]))
    if not folder:
        return
    folder = folder.resolve()
    libraries = [folder / part for part in ("lib", "lib64") if (folder / part / library).is_file()]
    if not libraries or (program and not (folder / "bin" / program).is_file()):
        raise FileNotFoundError(f"{name}: {folder} has no lib/{library}" + (f" or no bin/{program}" if program else ""))
    os.environ[name] = str(folder)
    first_in(libraries[0], "LD_LIBRARY_PATH")
    if program:
        first_in(folder / "bin", "PATH")


def fact_lines(stages):
    said = {name: value for stage in stages for name, value in stage.get("facts", {}).items()}
    if said:
        yield "\n## Facts\n\n| | |\n|---|---|"
    for name, value in said.items():
        yield f"| {name.replace('_', ' ')} | {value} |"


def left_out_lines(stages):
    rivals = {}
    for stage in stages:
        for rival, why in stage.get("left_out", {}).items():
            rivals.setdefault((rival, why), []).append(stage["name"])
    if rivals:
        yield "\n## Rivals left out\n\n| rival | why | stages |\n|---|---|---|"
    for (rival, why), names in rivals.items():
        yield f"| {rival} | {why.replace('|', '/')} | {', '.join(names)} |"


def bench_lines(stages):
    rows = [row for stage in stages for row in stage.get("rows", [])]
    if rows:
        yield "\n## Benchmarks\n\nA ratio above 1 means that Sluice is better.\n"
        yield "| | bytes | metric | median | fired by | rivals (ratio) |\n|---|---|---|---|---|---|"
    for row in rows:
        rivals = ", ".join(f"{name} {rival['ratio']:.2f}" for name, rival in (row.get("rivals") or {}).items() if rival.get("ratio"))
        size = "" if row.get("bytes") is None else row["bytes"]
        yield (f"| {row['bench']} | {size} | {row['metric']} | {row['p50']:.4g} {row['unit']} | {row.get('fired_by') or ''} "
               f"| {rivals} |")


def put_lines(stages):
    puts = [put for stage in stages for put in stage.get("puts", [])]
    if puts:
        yield "\n## Small puts\n\n`latency`, one way, with `SLUICE_KERNEL_PUT_MAX=0` and with `1m`.\n"
        yield "| bytes | copy engine us | kernel us |\n|---|---|---|"
    for put in puts:
        yield f"| {put['bytes']} | {put['copy_engine_us']:.2f} | {put['kernel_us']:.2f} |"


def app_lines(stages):
    rows = [row for stage in stages for row in stage.get("steps", [])]
    if rows:
        yield "\n## Applications\n\nTwo ranks on one GPU; `copies`: the host waits for the stream, copies to its memory, exchanges"
        yield "there, and has the stream copy back.\n"
        yield "| | cells per rank | Sluice us/step | copies us/step | ratio |\n|---|---|---|---|---|"
    for row in rows:
        cells = " x ".join(str(side) for side in row["cells_per_rank"])
        yield f"| {row['app']} | {cells} | {row['sluice_us']:.1f} | {row['copies_us']:.1f} | {row['ratio']:.2f} |"


def page(results):
    """results.md."""
    lines = [f"# Sluice on {results['gpu']}\n", "| | |\n|---|---|"]
    lines += [f"| {name.replace('_', ' ')} | {value} |" for name, value in results.items()
              if isinstance(value, (str, float)) and name != "schema"]
    lines += gpu_goals.lines(results["goals"])
    lines += ["\n## Stages\n", "| stage | what | result | seconds | |\n|---|---|---|---|---|"]
    lines += [f"| {stage['name']} | {stage['about']} | {stage['result']} | {stage['seconds']} | {stage['what'].replace('|', '/')} |"
              for stage in results["stages"]]
    for part in (fact_lines, bench_lines, left_out_lines, put_lines, app_lines):
        lines += part(results["stages"])
    return "\n".join(lines) + "\n"


def write(results, out):
    for name, text in (("results.json", json.dumps(results, indent=2) + "\n"), ("results.md", page(results))):
        (out / f"{name}.new").write_text(text)
        (out / f"{name}.new").replace(out / name)


def stages_before(out, machine):
    """What an earlier run left here on the same GPU, for a run of some stages only."""
    file = out / "results.json"
    if not file.is_file():
        return {}
    old = json.loads(file.read_text())
    return {stage["name"]: stage for stage in old["stages"]} if old["gpu"] == machine["gpu"] else {}


def main():
    parser = argparse.ArgumentParser(prog="./dev gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "gpu", help="where results go; default: build/gpu")
    parser.add_argument("--build", type=pathlib.Path, help="use this build as it is; default: make build/cuda")
    parser.add_argument("--libfabric", type=pathlib.Path, help="an installed libfabric, to build and run with; default: LIBFABRIC_HOME")
    parser.add_argument("--ucx", type=pathlib.Path, help="an installed UCX, to compare with; default: UCX_HOME")
    parser.add_argument("--only", default="", help="stages whose names match; what others left in DIR stays")
    parser.add_argument("--brief", action="store_true", help="little of each stage: does it run?")
    parser.add_argument("--limit", type=float, default=ALL_SECONDS, metavar="SECONDS", help="of each stage, at most")
    options, start = parser.parse_args(), time.monotonic()
    machine = this_machine()
    if not machine:
        print("dev: no NVIDIA GPU answers to nvidia-smi: on an emulated one the same tests run with ./dev test", file=sys.stderr)
        return 2
    options.out = options.out.resolve()
    options.build = options.build and options.build.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        bring_along("LIBFABRIC_HOME", options.libfabric, "libfabric.so.1")
        bring_along("UCX_HOME", options.ucx, "libucp.so.0", "ucx_perftest")
    except FileNotFoundError as missing:
        parser.error(str(missing))
    # So that all that was started is ended, compilers too: by `kill_all`.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run = Run(options, machine)
    done = stages_before(options.out, machine) if options.only else {}
    results = {"schema": 2, "date": now(), **machine, "goals": [], "stages": []}

    def leave(found):
        done[found["name"]] = found
        results["stages"] = [done[known.name] for known in STAGES if known.name in done]
        results["goals"] = gpu_goals.outcomes(results["stages"])
        write(results, options.out)

    for stage in STAGES:
        if not re.search(options.only, stage.name):
            continue
        print(f"dev: gpu: {stage.name} ({stage.about})", flush=True)
        leave({"name": stage.name, "about": stage.about, "date": now(), "result": "failed", "what": "was cut short", "seconds": 0.0})
        found = outcome(stage, run, ALL_SECONDS - (time.monotonic() - start))
        print(f"dev: gpu: {found['result']} after {found['seconds']} s: {found['what']}", flush=True)
        leave(found)
    print(f"dev: gpu: {options.out / 'results.md'}, results.json, and a log for each stage")
    return 1 if any(stage["result"] == "failed" for stage in results["stages"]) else 0


if __name__ == "__main__":
    sys.exit(main())
