#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `./dev gpu` does: builds, tests and measures on this machine's NVIDIA GPU, in stages.

    tests/gpu.py [--out DIR] [--build DIR] [--only REGEX] [--brief]

Each stage has a time limit, and leaves what it found in DIR at once: results.json, results.md, and a log. A stage that fails
does not stop the others. Exit code: 0 if nothing failed, 1 if something did, 2 if there is no GPU.
"""

import argparse
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALL_SECONDS = 530
# Cells along each side of a rank's block, and steps.
MESHES = [(128, 2000), (1024, 1000), (4096, 200)]
ROUNDS = 3
THREADS = ("-n", 2, "--threads")


class Skipped(Exception):
    """A stage that cannot be run here, and why."""


@dataclasses.dataclass
class Stage:
    """A row of the table: what it is called, what it does, its limit in seconds, and a function that does it.

    The function is given a Run, returns what it found (a dict with "what": a line for people), and raises Skipped, or
    subprocess.CalledProcessError or TimeoutExpired."""
    name: str
    about: str
    limit: int
    work: object


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


class Run:
    """What stages share: where things are, what is left of a stage's time, its log."""

    def __init__(self, options):
        self.options = options
        self.out = options.out
        self.build = options.build or ROOT / "build" / "cuda"
        self.bin = self.build / "bin"
        self.brief = options.brief
        self.ends = 0.0
        self.log = None

    def begin(self, stage, left):
        limit = min(stage.limit, left)
        self.ends = time.monotonic() + limit
        self.log = self.out / f"{stage.name}.log"
        self.log.write_text("")

    def program(self, name):
        """A program of the build. Raises Skipped if it is not there, with what the configuration said of it."""
        path = self.bin / name
        if path.is_file():
            return path
        part = {"conformance": "TESTS", "jacobi": "KOKKOS", "life": "KOKKOS"}.get(name, "APPS")
        said = self.configured("APPS") if "no (" in self.configured("APPS") else self.configured(part)
        raise Skipped(f"{name} was not built; {said or 'nothing was configured'}")

    def configured(self, part):
        """The line of the last configuration about a part of the build."""
        log = ROOT / "build" / "log" / f"configure-{self.build.name}.log"
        found = re.findall(rf"^-- (Sluice: {part}: .*)$", log.read_text(), re.MULTILINE) if log.is_file() else []
        return found[-1] if found else ""

    def command(self, *words, environment=None, code=0):
        """Runs a command that ends with this code, with its output in the stage's log too. All that it started ends with the stage's
        time."""
        line = [str(word) for word in words]
        # These are for ./dev; programs refuse variables that they do not know.
        keep = {name: value for name, value in os.environ.items()
                if line[0].endswith("/dev") or not name.startswith("SLUICE_SOURCE_")}
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(line)}\n")
            log.flush()
            start = log.tell()
            process = subprocess.Popen(line, cwd=ROOT, env={**keep, **(environment or {})}, stdout=log, stderr=log,
                                       start_new_session=True)
            try:
                process.wait(max(0.1, self.ends - time.monotonic()))
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        with self.log.open() as log:
            log.seek(start)
            output = log.read()
        if process.returncode != code:
            raise subprocess.CalledProcessError(process.returncode, line, output)
        return output


def tests_in(output):
    """What gtest said: how many tests passed and were skipped, and which failed."""
    passed = len(re.findall(r"^\[       OK \]", output, re.MULTILINE))
    skipped = len(re.findall(r"^\[  SKIPPED \] \S+ \(\d", output, re.MULTILINE))
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+\.[^\s,]+)", output, re.MULTILINE)))
    return {"passed": passed, "skipped": skipped, "failed": failed,
            "what": f"{passed} tests passed" + (f", {skipped} skipped themselves" if skipped else "")
                    + (f", {len(failed)} failed: {', '.join(failed[:5])}" if failed else "")}


def conformance(filter_text, brief_text, environment=None, before=()):
    """A stage of the conformance suite: the tests of a filter."""
    def work(run):
        words = [*before, run.program("conformance"), f"--gtest_filter={brief_text if run.brief else filter_text}"]
        found = tests_in(run.command(*words, environment=environment(run) if environment else None))
        if found["passed"] == 0:
            raise Skipped("no such tests in this build")
        return found
    return work


def emucxi(run):
    """The environment in which libfabric finds the emulated NIC."""
    if not list((run.build / "providers").glob("*emucxi*")):
        raise Skipped(f"needs libfabric; {run.configured('OFI') or 'this build has none'}")
    return {"FI_PROVIDER_PATH": str(run.build / "providers")}


def hip_on_cuda(run):
    """The environment in which the library uses HIP's calls, which this machine's CUDA driver does."""
    if not list((run.build / "hip_on_cuda").glob("*")):
        raise Skipped(f"needs HIP's headers; {run.configured('HIP') or 'this build has none'}")
    paths = [str(run.build / "hip_on_cuda"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"SLUICE_GPUS": "hip", "LD_LIBRARY_PATH": ":".join(paths)}


def memcheck(run):
    tool = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    if not tool:
        raise Skipped("compute-sanitizer is not there")
    return conformance("Quick/OneWay.*/threads_cuda*_13B:Quick/GpuMemory.gets_*/threads_cuda*d1_13B:Quick/OneWay.*/shm_cuda*d1_13B",
                       "Quick/OneWay.*/threads_cuda*d1_13B",
                       before=(tool, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9"))(run)


def build_tests(run):
    if run.options.build:
        raise Skipped(f"{run.build} is used as it is")
    run.command(ROOT / "dev", "build", "--preset", "cuda", "build-gpu")
    return {"what": "; ".join(filter(None, (run.configured(part) for part in ("CUDA", "OFI", "APPS", "TESTS"))))}


def build_apps(run):
    if run.options.build:
        raise Skipped(f"{run.build} is used as it is")
    if ": no" in run.configured("APPS"):
        raise Skipped(run.configured("APPS"))
    run.command(ROOT / "dev", "build", "--preset", "cuda", "jacobi", "life")
    return {"what": run.configured("KOKKOS")}


def bench(name, *arguments, rounds=20, ranks=("-n", 2), code=0):
    """A stage of the benchmarks: rows of `sluice-bench`, between two processes on streams of one GPU, or two threads, which ends with
    this code."""
    def work(run):
        rows = run.out / f"{name}.json"
        rows.unlink(missing_ok=True)
        few = ("--iters", 20, "--rounds", 1) if run.brief else ("--rounds", rounds)
        run.command(run.program("sluice-run"), *ranks, run.program("sluice-bench"), *arguments, "--stream", "cuda", *few,
                    "--json", rows, code=code)
        found = json.loads(rows.read_text())
        return {"what": f"{len(found)} rows", "rows": found}
    return work


def crossover(run):
    """Small puts by the copy engine, and by a kernel: up to which size is a kernel quicker?"""
    file, times = run.out / "bench.small_puts.json", {}
    few = ("--iters", "20", "--rounds", "1") if run.brief else ()
    for way, most in (("copy_engine_us", "0"), ("kernel_us", "1m")):
        run.command(run.program("sluice-run"), "-n", 2, run.program("sluice-bench"), "latency", "--stream", "cuda", "--sizes",
                    "8:256k", "--against", "none", *few, "--json", file, environment={"SLUICE_KERNEL_PUT_MAX": most})
        for row in json.loads(file.read_text()):
            times.setdefault(row["bytes"], {})[way] = row["p50"]
    puts = [{"bytes": size, **of_size} for size, of_size in sorted(times.items())]
    quicker = list(itertools.takewhile(lambda put: put["kernel_us"] < put["copy_engine_us"], puts))
    return {"what": f"by a kernel quicker up to {quicker[-1]['bytes']} bytes" if quicker else "by a kernel not quicker", "puts": puts}


def app_command(run, app, cells, steps, *arguments):
    """Two ranks with a block of cells x cells each. Jacobi counts its boundary."""
    mesh = (("--nx", cells + 2, "--ny", 2 * cells + 2, "--niter", steps, "--nccheck", 0) if app == "jacobi"
            else ("--nx", cells, "--ny", 2 * cells, "--timesteps", steps))
    return [run.program("sluice-run"), "-n", 2, run.program(app), *mesh, "--stream", "cuda", *arguments]


def verify_app(app):
    """The whole field after some steps, moved in both ways, against the serial run, bit by bit."""
    def work(run):
        for comm in ("sluice", "copies"):
            output = run.command(*app_command(run, app, 256, 20 if run.brief else 200, "--comm", comm, "--verify"))
            if "VERIFICATION: PASSED" not in output:
                raise Skipped(f"not verified: {last_line(output)}")
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
                    run.command(*app_command(run, app, cells, steps, "--comm", comm, "--no-verify", "--json", file))
                    times[comm].append(json.loads(file.read_text())["step_us"])
            ours, copies = (statistics.median(times[comm]) for comm in ("sluice", "copies"))
            rows.append({"app": app, "cells_per_rank": [cells, cells], "steps": steps, "sluice_us": ours, "copies_us": copies,
                         "ratio": copies / ours})
        return {"what": "; ".join(f"{row['cells_per_rank'][0]}^2: {row['sluice_us']:.1f} us a step, copies {row['ratio']:.2f} times that"
                                  for row in rows), "steps": rows}
    return work


# In the order of their weight, so that a run that is cut short has the first ones.
STAGES = [
    Stage("build", "the library, its tests and benchmarks", 300, build_tests),
    Stage("conformance.threads", "same process, eager", 90,
          conformance("Quick*/threads_*cuda*:Wrapped*/threads_*cuda*:-*Graph*", "Quick/OneWay.*/threads_cuda*d1_13B")),
    Stage("conformance.processes", "two processes, eager", 120,
          conformance("Quick*/shm_cuda*:Quick*/shm_inline_cuda*:-*Graph*:*GpuK*:*Litmus*", "Quick/OneWay.*/shm_cuda*d1_13B")),
    Stage("conformance.graphs.threads", "same process, captured into graphs", 60,
          conformance("*Graph*:-*Graph*shm_*cuda*:*Graph*ofi*:*Graph*emucxi*:Full*", "*Graph*threads_*13B")),
    Stage("litmus", "two processes, 10^6 puts: no signal lost, none before its data", 60,
          conformance("Full/Litmus.*/shm_cuda_stream_8B:Full/Litmus.*/shm_cuda_stream_65536B", "Quick/Litmus.*/shm_cuda_stream_8B")),
    Stage("memcheck", "a subset under compute-sanitizer", 60, memcheck),
    Stage("bench.latency", "put and signal to wait, stream to stream", 30, bench("bench.latency", "latency")),
    Stage("bench.stream", "cost for the host", 30, bench("bench.stream", "stream")),
    Stage("bench.bandwidth", "large messages", 30, bench("bench.bandwidth", "bandwidth")),
    Stage("bench.rate", "small messages", 30, bench("bench.rate", "rate", "--sizes", "8:4k")),
    Stage("bench.halo", "26 messages of a plan", 30, bench("bench.halo", "halo", "--neighbours", "26")),
    Stage("build.apps", "jacobi and life on Kokkos for CUDA", 240, build_apps),
    Stage("verify.jacobi", "two ranks, one GPU: the whole field", 30, verify_app("jacobi")),
    Stage("verify.life", "two ranks, one GPU: the whole field", 30, verify_app("life")),
    Stage("apps.jacobi", "a step, against host-synchronised copies", 60, measure_app("jacobi")),
    Stage("apps.life", "a step, against host-synchronised copies", 60, measure_app("life")),
    Stage("conformance.cxi", "a stream rings an emulated NIC's page, whose signal a stream waits for", 60,
          conformance("Quick/OneWay.*emucxi_cuda*:Quick/Gpu*emucxi*cuda*d1_13B:Quick/Graphs*emucxi*cuda_hosts_to_hosts_d2*",
                      "Quick/OneWay.*emucxi_cuda*d1_13B", emucxi)),
    Stage("bench.small_puts", "by the copy engine, and by a kernel", 40, crossover),
    Stage("bench.replay", "captured into graphs and replayed, ranks as threads", 40,
          bench("bench.replay", "replay", "--neighbours", "26", rounds=5, ranks=THREADS)),
    Stage("bench.device", "puts by kernels, ranks as threads", 30, bench("bench.device", "device", rounds=5, ranks=THREADS)),
    # Kernels that wait for each other: two processes on one GPU take turns, each for a slice of time.
    Stage("conformance.graphs.processes", "two processes, captured into graphs, or by kernels that wait", 60,
          conformance("*Graph*shm_*cuda*:Quick/GpuK*shm_cuda*:-Full*", "*Graph*shm_*13B")),
    Stage("litmus.kernels", "two processes, whose graphs and kernels wait for each other", 60,
          conformance("Quick/Litmus.*/shm_cuda_graph_*:Quick/Litmus.*/shm_cuda_kernel_*", "Quick/Litmus.*/shm_cuda_kernel_8B")),
    Stage("bench.replay.processes", "captured and replayed, between processes", 20,
          bench("bench.replay.processes", "replay", "--sizes", "8", "--neighbours", "26", rounds=3)),
    Stage("bench.device.processes", "puts by kernels, between processes", 20,
          bench("bench.device.processes", "device", "--sizes", "8", rounds=3)),
    Stage("bench.failure", "from the death of a peer to the error of a stream that waits", 20,
          bench("bench.failure", "failure", code=128 + signal.SIGKILL)),
    Stage("conformance.hip", "HIP's calls, done by this GPU's CUDA driver: no test on AMD", 60,
          conformance("Quick/GpuMemory*/shm_cuda*:Quick/GpuStreams*/shm_cuda*:Quick/OneWay.*/shm_cuda*",
                      "Quick/OneWay.*/threads_cuda*d1_13B", hip_on_cuda)),
    Stage("conformance.engine", "puts that the engine or a doorbell fires", 90,
          conformance("Quick*/posted_*cuda*:Quick*/rung_*cuda*:Quick*/shm_between_threads_*cuda*:-*Graph*",
                      "Quick/OneWay.*/posted_cuda*d1_13B")),
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
        output = run.log.read_text()
        so_far, started = tests_in(output), re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
        found |= {"result": "failed", **so_far, "what": f"not finished after {ended.timeout:.0f} s; {so_far['what']}"
                  + (f"; the last that started: {started[-1]}" if started else "")}
    except subprocess.CalledProcessError as ended:
        tests = tests_in(ended.output)
        if tests["failed"]:
            found |= {"result": "failed", **tests}
        elif ended.returncode == 2:  # what the program cannot do here
            found |= {"result": "skipped", "what": last_line(ended.output)}
        else:
            found |= {"result": "failed", "what": f"exit code {ended.returncode}: {last_line(ended.output)}"}
    except (OSError, ValueError, KeyError) as error:
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
    line = said(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"], r"^(.+)\n")
    if line.count(",") != 2:
        return None
    gpu, driver, capability = (part.strip() for part in line.split(","))
    nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin") or "nvcc"
    return {"gpu": gpu, "driver": driver, "compute_capability": capability,
            "nvcc": said([nvcc, "--version"], r"V([\d.]+)"), "cmake": said(["cmake", "--version"], r"version (\S+)"),
            "compiler": said(["c++", "--version"], r"^(.+)\n")}


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
    lines += ["\n## Stages\n", "| stage | what | result | seconds | |\n|---|---|---|---|---|"]
    lines += [f"| {stage['name']} | {stage['about']} | {stage['result']} | {stage['seconds']} | {stage['what'].replace('|', '/')} |"
              for stage in results["stages"]]
    for part in (bench_lines, put_lines, app_lines):
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
    parser.add_argument("--only", default="", help="stages whose names match; what others left in DIR stays")
    parser.add_argument("--brief", action="store_true", help="little of each stage: does it run?")
    options = parser.parse_args()
    machine = this_machine()
    if not machine:
        print("dev: no NVIDIA GPU answers to nvidia-smi: on an emulated one the same tests run with ./dev test", file=sys.stderr)
        return 2
    options.out = options.out.resolve()
    options.build = options.build and options.build.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    run, start = Run(options), time.monotonic()
    done = stages_before(options.out, machine) if options.only else {}
    results = {"schema": 1, "date": now(), **machine, "stages": []}
    for stage in STAGES:
        if not re.search(options.only, stage.name):
            continue
        print(f"dev: gpu: {stage.name} ({stage.about})", flush=True)
        found = outcome(stage, run, ALL_SECONDS - (time.monotonic() - start))
        print(f"dev: gpu: {found['result']} after {found['seconds']} s: {found['what']}", flush=True)
        done[stage.name] = found
        results["stages"] = [done[known.name] for known in STAGES if known.name in done]
        write(results, options.out)
    print(f"dev: gpu: {options.out / 'results.md'}, results.json, and a log for each stage")
    return 1 if any(stage["result"] == "failed" for stage in results["stages"]) else 0


if __name__ == "__main__":
    sys.exit(main())
