#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev gpu` without a GPU: an nvidia-smi that answers, the emulated driver, and a build that is there.

    tests/gpu_command.py --build build/release --driver build/release/emucuda
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import gpu
import gpu_goals

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPU = '#!/bin/sh\necho "Emulated GPU, 1.0, 9.0, %s"\n'
NO_GPU = "#!/bin/sh\necho 'No devices were found'\nexit 6\n"
# Runs what it is to check. Its own first words are options, up to the program.
SANITIZER = '#!/bin/sh\nwhile [ "${1#*/}" = "$1" ]; do shift; done\n"$@"\n'
# Says what it was told, and of the parts of a build what a machine without them says; leaves a program that is not run.
CMAKE = """#!/bin/sh
mkdir -p build/cuda/bin && touch build/cuda/bin/conformance
echo "$@"
echo "-- Sluice: HIP: no (missing: hip/hip_runtime_api.h)"
echo "-- Sluice: rival-nvshmem: no (not found)"
echo "-- Sluice: MPI: no (missing: MPI)"
case "$*" in *rival-ucx*) echo "no compiler"; exit 1;; esac
"""
NVCC = '#!/bin/sh\necho "release 13.0, V13.0.88"\n'
# A sluice-run that leaves a row in the file that is named after --json, and ends with a code.
BENCH = """#!/bin/sh
echo "# nccl is left out: rival-nccl is not beside sluice-bench"
for word; do [ "$before" != --json ] || echo '%s' >"$word"; before=$word; done
exit %d
"""
ROW = {"bench": "failure", "bytes": 8, "metric": "failure noticed", "p50": 1500.0, "unit": "ms"}
CRASHED = """#!/bin/sh
echo "[ RUN      ] A.passes/$GTEST_SHARD_INDEX"
echo "[       OK ] A.passes/$GTEST_SHARD_INDEX (0 ms)"
[ "$GTEST_SHARD_INDEX" = 0 ] || exit 0
echo "[ RUN      ] A.%(does)s"
%(how)s
"""


# A build with HIP's part fails, and one without does not.
CMAKE_OF_OLD_HIP = """#!/bin/sh
mkdir -p build/cuda/bin
case "$*" in
  --build*) cat build/hip; grep -q off build/hip ;;
  *ENABLE_HIP=OFF*) echo "-- Sluice: HIP: no (switched off)" | tee build/hip ;;
  *) echo "-- Sluice: HIP: yes (clang)" | tee build/hip ;;
esac
"""
SKIPPING = """#!/bin/sh
echo "[ RUN      ] A.needs_two"
echo "SKIPPED-HERE: A.needs_two: there is only one"
echo "SKIPPED-HERE: A.needs_two: there is only one"
echo "[       OK ] A.needs_two (0 ms)"
"""
# As a build does, it begins what it begins in a process group of its own.
HANGING = """#!/bin/bash
set -m
sleep 100 >/dev/null 2>&1 &
echo $$ >>%(pids)s
echo $! >>%(jobs)s
wait
"""
# Tests on a GPU's memory or streams, with ranks that are threads or processes, which no stage runs, and why.
LEFT_OUT = {
    r"^Quick/(Accesses|Atomics|NoAtomics|LostOwner)\.": "the seam that channels do not use yet",
    r"^Quick/(Armed|ArmedKill|Budgets|Bursts)\.": "what NICs fire",
}


class Machine:
    """A folder of programs that stand in for what a GPU's machine has, and one for results."""

    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.tools = work / "tools"
        self.out = work / "out"
        self.add("compute-sanitizer", SANITIZER)
        self.add("nvidia-smi", GPU % "80000")

    def add(self, name, text, folder=None):
        path = (folder or self.tools) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, only, *arguments, tree=ROOT, environment=None):
        """Begins some stages."""
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.options.driver),
                       "EMUCUDA_KERNELS": str(self.options.driver / "libemukernels.so"), **(environment or {})}
        words = ["bash", tree / "dev", "gpu", "--out", self.out, "--brief", "--only", only, *arguments]
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=environment)

    def gpu(self, *arguments, **more):
        """Runs some stages; the exit code and what was said."""
        process = self.start(*arguments, **more)
        said = process.communicate()[0]
        return process.returncode, said

    def on_build(self, only):
        return self.gpu(only, "--build", self.options.build)

    def results(self):
        """What the stages left: results by name, and the page."""
        found = json.loads((self.out / "results.json").read_text())
        return {stage["name"]: stage for stage in found["stages"]}, (self.out / "results.md").read_text()


def faults_without_gpu(machine):
    machine.add("nvidia-smi", NO_GPU)
    code, said = machine.on_build(".")
    if code != 2 or said.count("\n") != 1 or "no NVIDIA GPU" not in said:
        yield f"without a GPU: exit code {code}, {said!r}"
    if machine.out.exists():
        yield "without a GPU: results were written"
    machine.add("nvidia-smi", GPU % "80000")


def faults_of_tests(name, stage, build):
    """Some parts of the suite need a part of the build, without which they say so."""
    needs, says = {"conformance.cxi": ("providers/*emucxi*", "needs"), "conformance.hip": ("hip_on_cuda/*", "needs"),
                   "conformance.mpi": ("bin/conformance_mpi", "was not built"), "stream_mpi": ("bin/mpis_gpu", "was not built"),
                   "stream_mpi.messages": ("bin/mpix_on_gpu", "was not built")}.get(name, (None, ""))
    if needs and not list(build.glob(needs)):
        if stage["result"] != "skipped" or says not in stage["what"]:
            yield f"{name}, which this build cannot run: {stage}"
    elif name.startswith("stream_mpi"):
        if (stage["result"], stage["what"]) != ("passed", "2 programs with 2 ranks"):
            yield f"{name}: {stage}"
    elif stage["result"] != "passed" or stage["passed"] == 0:
        yield f"{name}: {stage}"


def faults_of_stages(machine):
    code, said = machine.on_build("")
    stages, page = machine.results()
    if code != 0:
        yield f"exit code {code}:\n{said}"
    for name in ("threads", "processes", "graphs.first", "graphs.threads", "graphs.processes", "waits", "engine", "cxi", "hip",
                 "collectives", "unr", "segments", "mpi"):
        yield from faults_of_tests(f"conformance.{name}", stages[f"conformance.{name}"], machine.options.build)
    for name in ("litmus", "litmus.kernels", "memcheck", "memcheck.graphs", "released", "stream_mpi", "stream_mpi.messages"):
        yield from faults_of_tests(name, stages[name], machine.options.build)
    for name, beside in (("bench.latency", "raw"), ("bench.replay", "eager"), ("bench.device", "on_streams"),
                         ("bench.replay.processes", "raw"), ("bench.device.processes", "raw")):
        rows = stages[name].get("rows", [])
        if not rows or any(beside not in row["rivals"] for row in rows) or f", {beside} " not in page.replace("| ", ", "):
            yield f"{name}: no rows, or none with {beside}: {stages[name]}"
    for name, stage in stages.items():
        if f"| {name} | " not in page or not stage["what"] or not (machine.out / f"{name}.log").is_file():
            yield f"{name}: {stage} in the page, or without a log:\n{page}"
    if len(stages["released"]["times_ms"]) != 3:
        yield f"how long what waits took to be released: {stages['released']}"
    goals = {goal["goal"]: goal for goal in json.loads((machine.out / "results.json").read_text())["goals"]}
    measured = [goal for goal in goals.values() if goal["result"] in ("reached", "missed")]
    if len(goals) != len(gpu_goals.GOALS) or len(measured) != len(goals) - 1:  # little of each stage, and so no large message
        yield f"goals: {goals}"
    for name, goal in goals.items():
        if f"| {name} | {goal['result']} | " not in page:
            yield f"goal {name} is not in the page:\n{page}"
    small = stages["bench.small_puts"]
    if small["result"] == "passed" and (len(small["puts"]) != 16 or "| 262144 | " not in page):
        yield f"small puts: {small}, or not in the page:\n{page}"
    why_not = stages["verify.jacobi"]["what"]
    if stages["verify.jacobi"]["result"] != "skipped" or not ("Kokkos without CUDA" in why_not or "not built" in why_not):
        yield f"jacobi, without a Kokkos for GPUs: {stages['verify.jacobi']}"
    if "Emulated GPU" not in page:
        yield f"the page does not name the GPU:\n{page}"
    facts = stages["facts"]["facts"]
    wanted = {"compute_capability_major": 9, "writes_ordering": "all devices", "pool_handle_types": "file descriptor",
              "word_operations": True}
    if wanted.items() - facts.items() or "| writes ordering | all devices |" not in page:
        yield f"facts: {facts}, or not in the page:\n{page}"
    if "nccl" not in stages["bench.latency"]["left_out"] and "nccl" not in stages["bench.latency"]["rows"][0]["rivals"]:
        yield f"nccl is neither measured nor left out: {stages['bench.latency']}"


def faults_of_goals(_):
    """Each goal as rows reach it, miss it, and say nothing of it."""
    def row(metric, size, **ratios):
        return {"metric": metric, "bytes": size, "p50": 1.0, "rivals": {name: {"ratio": ratio} for name, ratio in ratios.items()}}

    def stages(enqueue, latency, bandwidth, nccl, halo, released):
        rows = {"bench.stream": [row("enqueue put", 8, raw=enqueue), row("enqueue wait", 8, raw=0.1)],
                "bench.latency": [row("latency", 8, raw=1.0, raw_host=0.1, nccl=2.0), row("latency", 65536, raw=latency, nccl=nccl),
                                  row("latency", 1 << 20, raw=1.0, nccl=0.5)],
                "bench.bandwidth": [row("bandwidth", 8, raw=0.1), row("bandwidth", 1 << 20, raw=bandwidth)],
                "bench.halo": [row("step, 26 neighbours", 8, synchronised=halo), row("step, 26 neighbours", 65536, synchronised=1.0)],
                "bench.failure": [row("failure noticed", 8)]}
        found = [{"name": name, "result": "passed", "what": "", "rows": of_stage} for name, of_stage in rows.items()]
        return [*found, {"name": "released", "result": "passed", "what": "", "times_ms": {"A.a": 3.0, "A.b": released}}]

    def wanted(of_stages, result, what):
        outcomes = gpu_goals.outcomes(of_stages)
        if [goal["result"] for goal in outcomes] != [result] * len(gpu_goals.GOALS):
            yield f"goals, of rows that {what}: {outcomes}"

    good, bad = (0.92, 0.92, 0.95, 1.01, 3.0, 999.0), (0.9, 0.9, 0.94, 1.0, 2.9, 1001.0)
    yield from wanted(stages(*good), "reached", "reach them")
    yield from wanted(stages(*bad), "missed", "miss them")
    yield from wanted([], "not measured", "are not there")
    for result in ("failed", "skipped"):
        of_stages = [{**stage, "result": result} for stage in stages(*good)]
        yield from wanted(of_stages, "not measured", f"are of stages that {result}")
    without = [stage for stage in stages(*good) if stage["name"] != "released"]
    failure = gpu_goals.outcomes(without)[-1]
    if failure["result"] != "not measured" or "released: not run" not in failure["where"]:
        yield f"a goal of two stages, of which one was not run: {failure}"
    lines = "\n".join(gpu_goals.lines(gpu_goals.outcomes(stages(*bad))))
    if "| missed | 1001 | at most 1000 ms | A.b |" not in lines:
        yield f"goals in the page: {lines}"


def faults_of_order(_):
    """Two processes and graphs come early: what is not reached in a run that is cut short was not seen at all."""
    names = [stage.name for stage in gpu.STAGES]
    for early, late in (("conformance.graphs.first", "conformance.processes"), ("released", "build.apps"),
                        ("bench.failure", "build.apps")):
        if names.index(early) > names.index(late):
            yield f"{early} comes after {late}"


def faults_of_releases(machine):
    """What waits, and is to be released in no time at all, fails each test that asks how long it took."""
    stage = next(stage for stage in gpu.STAGES if stage.name == "released")
    failed = {}
    for limit in ("0", "20000"):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(machine.options.driver), "SLUICE_USER_TEST_RELEASED_MS": limit,
                       "EMUCUDA_KERNELS": str(machine.options.driver / "libemukernels.so")}
        ended = subprocess.run([machine.options.build / "bin" / "conformance", f"--gtest_filter={stage.work.tests}"],
                               capture_output=True, text=True, env=environment, check=False)
        failed[limit] = gpu.tests_in(ended.stdout)
    if failed["0"]["passed"] or not failed["0"]["failed"] or failed["20000"]["failed"] or failed["20000"]["skipped"]:
        yield f"releases in no time, and in 20 s: {failed}"


def faults_of_libfabric(machine):
    """A libfabric and a UCX that were brought along: which is built with, and found by what is run."""
    brought, ucx, build = machine.work / "libfabric", machine.work / "ucx", machine.work / "printing"
    for file in (brought / "lib" / "libfabric.so.1", ucx / "lib" / "libucp.so.0"):
        machine.add(file.name, "", file.parent)
    machine.add("ucx_perftest", "#!/bin/sh\n", ucx / "bin")
    machine.add("conformance", """#!/bin/sh
echo "[ RUN      ] A.tells $LD_LIBRARY_PATH $(command -v ucx_perftest) $LIBFABRIC_HOME"
echo "[       OK ] A.tells (0 ms)"
""", build / "bin")
    machine.gpu("^conformance.threads$", "--build", build, "--libfabric", brought, "--ucx", ucx)
    told = (machine.out / "conformance.threads.log").read_text()
    if any(part not in told for part in (f"{ucx}/lib:{brought}/lib:", f"{ucx}/bin/ucx_perftest", f" {brought}\n")):
        yield f"what was brought along: {told}"
    code, said = machine.gpu("^conformance.threads$", "--build", build, environment={"LIBFABRIC_HOME": str(ucx)})
    if code != 2 or f"LIBFABRIC_HOME: {ucx} has no lib/libfabric.so.1" not in said:
        yield f"a folder without libfabric: exit code {code}, {said}"

    (brought / "include" / "rdma").mkdir(parents=True)
    for version, wanted in (("FI_MAJOR_VERSION 1\n#define FI_MINOR_VERSION 16", "OFI: no (missing: libfabric)"),
                            ("FI_MAJOR_VERSION 2\n#define FI_MINOR_VERSION 3", f"OFI: yes (libfabric 2.3, {brought})")):
        (brought / "include" / "rdma" / "fabric.h").write_text(f"#define {version}\n")
        parts = [f"-DSLUICE_ENABLE_{part}=OFF" for part in ("APPS", "TESTS", "CUDA", "HIP", "KOKKOS", "MPI")]
        configured = subprocess.run(["cmake", "-S", ROOT, "-B", machine.work / "configured", f"-DSLUICE_LIBFABRIC_DIR={brought}", *parts,
                                     "-DSLUICE_ENABLE_OFI=AUTO"], capture_output=True, text=True, check=False)
        if configured.returncode != 0 or wanted not in configured.stdout:
            yield f"a configuration with another libfabric: {configured.stdout}{configured.stderr}"
        shutil.rmtree(machine.work / "configured")


def faults_of_failures(machine):
    """A stage that fails is a result, in an exit code too, and leaves what earlier runs found."""
    machine.add("compute-sanitizer", "#!/bin/sh\necho 'ERROR SUMMARY: 1 error'\nexit 9\n")
    code, _ = machine.on_build("^memcheck$")
    stages, page = machine.results()
    if code != 1 or stages["memcheck"]["result"] != "failed" or "1 error" not in page:
        yield f"a failure: exit code {code}, {stages['memcheck']}"
    if stages.get("conformance.threads", {}).get("result") != "passed":
        yield f"a run of some stages lost the others: {list(stages)}"


def faults_of_programs(machine):
    """What stages make of programs that crash, hang, are late, or are told what they do not know."""
    build = machine.work / "programs"
    machine.add("sluice-bench", "", build / "bin")

    def stage(name, program, text):
        machine.add(program, text, build / "bin")
        machine.gpu(f"^{name}$", "--build", build)
        stages, page = machine.results()
        return stages[name], page

    late, page = stage("bench.failure", "sluice-run", BENCH % (json.dumps([ROW]), 137))
    if late["result"] != "failed" or "1500" not in late["what"]:
        yield f"a stream that is released after 1.5 s: {late}"
    if late.get("left_out") != {"nccl": "rival-nccl is not beside sluice-bench"} or "| nccl | rival-nccl is not" not in page:
        yield f"a rival that is left out: {late}, or not in the page:\n{page}"
    soon, _ = stage("bench.failure", "sluice-run", BENCH % (json.dumps([ROW | {"p50": 15.0}]), 137))
    if soon["result"] != "passed":
        yield f"a stream that is released after 15 ms: {soon}"
    refused, _ = stage("bench.rate", "sluice-run", BENCH % ("[]", 2))
    if refused["result"] != "failed":
        yield f"a program that does not know its arguments: {refused}"
    skipping, _ = stage("conformance.threads", "conformance", SKIPPING)
    if skipping["result"] != "skipped" or "(there is only one)" not in skipping["what"]:
        yield f"tests that do nothing here: {skipping}"
    crashed, _ = stage("conformance.threads", "conformance", CRASHED % {"does": "crashes", "how": "kill -9 $$"})
    shares = min(8, len(os.sched_getaffinity(0)))
    if crashed["result"] != "failed" or crashed["passed"] != shares or "exit code -9 in A.crashes" not in crashed["what"]:
        yield f"a test that crashes: {crashed}"
    failed, _ = stage("conformance.threads", "conformance",
                      CRASHED % {"does": "fails", "how": 'echo "[  FAILED  ] A.fails (0 ms)"; exit 1'})
    if failed["result"] != "failed" or failed["failed"] != ["A.fails"] or failed["passed"] != shares:
        yield f"a test that fails: {failed}"


def faults_of_turns(machine):
    """Benchmarks between processes run beside a daemon of MPS, where there is one, which ends with the run; or they say that the
    processes take turns."""
    build, pids = machine.work / "turns", machine.work / "mps.pids"
    machine.add("sluice-bench", "", build / "bin")
    tells = BENCH.replace("sh\n", 'sh\necho "beside $CUDA_MPS_PIPE_DIRECTORY."\n')
    machine.add("sluice-run", tells % (json.dumps([ROW]), 0), build / "bin")

    def what():
        machine.gpu("^bench.rate$", "--build", build)
        return machine.results()[0]["bench.rate"]["what"], (machine.out / "bench.rate.log").read_text()

    said, log = what()
    if "take turns" not in said or "beside .\n" not in log:
        yield f"without MPS: {said}: {log}"
    machine.add("nvidia-cuda-mps-control", f"""#!/bin/sh
[ "$1" = -f ] && echo $$ >{pids} && touch "$CUDA_MPS_PIPE_DIRECTORY/control" && exec sleep 100
""")
    said, log = what()  # and it ends with the run
    if "turns" in said or f"beside {machine.out}/mps.\n" not in log or not pids.exists() or running(pids):
        yield f"with MPS: {said}, running {running(pids)}: {log}"
    for how in ("exit 1", "exec sleep 100"):
        machine.add("nvidia-cuda-mps-control", f"#!/bin/sh\n{how}\n")
        said, log = what()
        if "take turns" not in said or "beside .\n" not in log:
            yield f"with an MPS that does not come up ({how}): {said}: {log}"
    (machine.tools / "nvidia-cuda-mps-control").unlink()


def running(file):
    """Those of the processes, whose numbers are in a file, that have not ended."""
    def is_running(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False
    return [int(pid) for pid in (file.read_text().split() if file.exists() else []) if is_running(pid)]


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def faults_of_limits(machine):
    """A stage that is cut short is a result, of which nothing goes on; so is one that fails to begin."""
    build, pids, jobs = machine.work / "hanging", machine.work / "pids", machine.work / "jobs"
    machine.add("conformance", HANGING % {"pids": pids, "jobs": jobs}, build / "bin")
    shares = min(gpu.MOST_SHARES, len(os.sched_getaffinity(0)))
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = machine.start("^conformance.threads$", "--build", build)
        begun = wait_until(lambda: len(running(pids)) == len(running(jobs)) == shares)
        process.send_signal(number)
        process.communicate()
        ended = wait_until(lambda: not running(pids))
        if number == signal.SIGKILL:  # who begins something has to see to its end
            for job in running(jobs):
                os.kill(job, signal.SIGKILL)
            wait_until(lambda: not running(jobs))
        cut = machine.results()[0]["conformance.threads"]
        if not begun or not ended or running(jobs) or (cut["result"], cut["what"]) != ("failed", "was cut short"):
            yield f"a run that is ended by {number}: {running(pids) + running(jobs)} go on, or not all had begun ({begun}); {cut}"

    options = argparse.Namespace(out=machine.out, build=build, brief=True, limit=gpu.ALL_SECONDS)
    stage = gpu.Stage("conformance.threads", "", 100, gpu.conformance("", ""))
    run = gpu.Run(options, {"memory_free_mib": str(2 * gpu.MIB_OF_SHARE - 1)})
    for left, options.limit in ((1.5, gpu.ALL_SECONDS), (60, 1.5)):
        pids.unlink()
        over = gpu.outcome(stage, run, left)
        if over["result"] != "failed" or "time of 2 s is over" not in over["what"] or not 1 < over["seconds"] < 10:
            yield f"a stage whose time is over: {over}"
        if running(pids) or running(jobs):
            yield f"a stage whose time is over: {running(pids) + running(jobs)} go on"
        if len(pids.read_text().split()) != 1:
            yield f"{len(pids.read_text().split())} shares where the GPU has memory for one"
    none = gpu.outcome(stage, run, 0.5)
    if (none["result"], none["what"]) != ("skipped", "no time was left"):
        yield f"a stage without time: {none}"

    class Failing(gpu.Run):
        def start(self, *arguments):
            if pids.exists():
                raise OSError("no process can be started")
            begun = super().start(*arguments)
            wait_until(pids.exists)
            return begun

    pids.unlink()
    failing = Failing(options, {})
    failing.begin(stage, 20)
    try:
        failing.shares([build / "bin" / "conformance"], 2, {})
        yield "a share that cannot be started: nothing was said"
    except OSError:
        if running(pids) or running(jobs):
            yield f"a share that cannot be started: {running(pids) + running(jobs)} go on"


def faults_of_filters(machine):
    """Each test of the quick suite on a GPU with ranks that are threads or processes is in a stage, or left out for a reason."""
    program = machine.options.build / "bin" / "conformance"
    environment = {**os.environ, "FI_PROVIDER_PATH": str(machine.options.build / "providers"),
                   "LD_LIBRARY_PATH": str(machine.options.driver)}

    def listed(filter_text):
        output = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={filter_text}"], capture_output=True, text=True,
                                env=environment, check=True).stdout
        suite = ""
        for line in output.splitlines():
            words = line.split()
            if not line.startswith(" "):
                suite = words[0] if words and words[0].endswith(".") else ""
            elif suite:
                yield suite + words[0]

    taken = set()
    for stage in gpu.STAGES:
        if tests := getattr(stage.work, "tests", ""):
            of_stage = set(listed(tests))
            if not of_stage and (stage.name != "conformance.cxi" or list((machine.options.build / "providers").glob("*emucxi*"))):
                yield f"{stage.name}: its filter names no test"
            taken |= of_stage
    every = {test for test in listed("Quick*cuda*") if re.search(r"/(threads|shm)_(inline_)?cuda", test)}
    lost = {test for test in every - taken if not any(re.search(pattern, test) for pattern in LEFT_OUT)}
    # Of a promise that is tried with many parameters some will do, but for suites of pairs of GPUs.
    kept = {test.rsplit("/", 1)[0] for test in every & taken}
    missing = sorted(test for test in lost if test.rsplit("/", 1)[0] not in kept or "Pairs" in test)
    if missing or not every:
        yield f"{len(missing)} of {len(every)} tests are in no stage: {', '.join(missing[:20])}"


def faults_of_stream_mpi(machine):
    """The programs are those of the tests. Ranks that say nothing have not passed; without mpiexec there are none."""
    text = (ROOT / "tests" / "mpis" / "CMakeLists.txt").read_text()
    lists = [names.split() for names in re.findall(r"(?:set\(|list\(APPEND )names ([^)]*)\)", text)]
    every, of_two = set(lists[0]), set(lists[0]) | set(lists[1])
    programs = {ranks: set(names) for ranks, names in gpu.STREAM_MPI.items()}
    if programs != {1: every, 2: of_two, 3: every}:
        yield f"programs of MPI Advance's: {programs}, and tests/mpis has {lists}"
    known = re.findall(r'\{"(\w+)", run_', (ROOT / "tests" / "mpix" / "programs.cpp").read_text())
    if unknown := {name for names in gpu.STREAM_MESSAGES.values() for name in names} - set(known):
        yield f"programs of Cray's and MPICH's that tests/mpix has not: {unknown}"

    build = machine.work / "mpis"
    machine.add("mpis_gpu", "", build / "bin")
    cache = "MPIEXEC_EXECUTABLE:FILEPATH=%s\nMPIEXEC_NUMPROC_FLAG:STRING=-np\n"
    starts = machine.tools / "starts_ranks"
    for path, says, result, what in ((starts, 'echo "$1 $2"; echo passed', "passed", "2 programs with 2 ranks"),
                                     (starts, "echo nothing", "failed", "none said that they passed: nothing"),
                                     (starts, "echo passed; exit 3", "failed", "exit code 3"),
                                     (machine.tools / "nowhere", "", "skipped", "mpiexec is not there")):
        machine.add("starts_ranks", f"#!/bin/sh\n{says}\n")
        (build / "CMakeCache.txt").write_text(cache % path)
        machine.gpu("^stream_mpi$", "--build", build)
        stage = machine.results()[0]["stream_mpi"]
        if stage["result"] != result or what not in stage["what"]:
            yield f"ranks that say {says!r}: {stage}"
        if result == "passed" and "-np 2\n" not in (machine.out / "stream_mpi.log").read_text():
            yield "ranks are not started with MPI's own option"


def faults_of_hip(machine):
    """HIP's headers are there, but its part does not compile."""
    tree = machine.work / "with_hip"
    for name in ("dev", "scripts/setup.sh", "scripts/build.sh", "tests/gpu.py", "tests/gpu_goals.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for name, text in (("cmake", CMAKE_OF_OLD_HIP), ("nvcc", NVCC)):
        machine.add(name, text)
    machine.gpu("^build", tree=tree, environment={"Kokkos_ROOT": "/nowhere"})
    stages, _ = machine.results()
    build, apps = stages["build"], stages["build.apps"]
    if build["result"] != "passed" or "built again without HIP" not in build["what"] or "no (switched off)" not in build["what"]:
        yield f"HIP that does not compile: {build}"
    if apps["result"] != "passed":
        yield f"HIP that does not compile, later: {apps}"


def faults_without_much(machine):
    """On a machine where nothing can be installed: a tree of its own, whose build is said to be done."""
    tree, packages = machine.work / "tree", machine.work / "packages"
    for name in ("dev", "scripts/setup.sh", "scripts/build.sh", "tests/gpu.py", "tests/gpu_goals.py", "tests/gpu_attributes.py"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    (packages / "nvidia" / "nccl").mkdir(parents=True)
    for name, text in (("cmake", CMAKE), ("nvcc", NVCC), ("sleep", "#!/bin/sh\n")):
        machine.add(name, text)
    fabric = machine.work / "libfabric"
    machine.add("libfabric.so.1", "", fabric / "lib64")
    environment = {"PYTHONPATH": str(packages), "PIP_NO_INDEX": "1", "XDG_CACHE_HOME": str(machine.work / "cache"),
                   "LIBFABRIC_HOME": str(fabric)}
    for name in ("NCCL_HOME", "NVSHMEM_HOME", "Kokkos_ROOT", "SLUICE_SOURCE_Kokkos"):
        environment[name] = ""
    machine.gpu("build|conformance.hip|verify.jacobi|stream_mpi", tree=tree, environment=environment)
    stages, page = machine.results()
    configured = (tree / "build" / "log" / "configure-cuda.log").read_text()
    if stages["build"]["result"] != "passed" or f"-DSLUICE_NCCL_DIR={packages}/nvidia/nccl" not in configured:
        yield f"NCCL of Python's packages: {stages['build']}\n{configured}"
    if f"-DSLUICE_LIBFABRIC_DIR={fabric}" not in configured:
        yield f"a libfabric that was brought along: {configured}"
    rivals = stages["build.rivals"]
    if rivals["result"] != "failed" or any(part not in rivals["what"] for part in (
            "rival-ucx: dev: build-cuda failed", "rival-nccl: built", "Sluice: rival-nvshmem: no (not found)")):
        yield f"rivals, one of which cannot be compiled: {rivals}"
    if stages["build.apps"]["result"] != "skipped" or "cannot be downloaded" not in stages["build.apps"]["what"]:
        yield f"applications, without Kokkos: {stages['build.apps']}"
    for name, why in (("conformance.hip", "HIP: no (missing: hip"), ("verify.jacobi", "not built"),
                      ("stream_mpi", "mpis_gpu was not built; Sluice: MPI: no (missing: MPI)")):
        if stages[name]["result"] != "skipped" or why not in stages[name]["what"]:
            yield f"{name} without what it needs: {stages[name]}"


LOOKS = (faults_without_gpu, faults_of_filters, faults_of_goals, faults_of_order, faults_of_releases, faults_of_libfabric,
         faults_of_stages, faults_of_failures, faults_of_programs, faults_of_turns, faults_of_limits, faults_of_hip,
         faults_of_stream_mpi, faults_without_much)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--driver", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        machine = Machine(options, pathlib.Path(work))
        faults = [fault for look in LOOKS for fault in look(machine)]
    for fault in faults:
        print(fault)
    print(f"gpu command: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
