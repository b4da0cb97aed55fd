#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev gpu` without a GPU: an nvidia-smi that answers, the emulated driver, and a build that is there.

    tests/gpu_command.py --build build/release --driver build/release/emucuda
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPU = '#!/bin/sh\necho "Emulated GPU, 1.0, 9.0"\n'
NO_GPU = "#!/bin/sh\necho 'No devices were found'\nexit 6\n"
# Runs what it is to check. Its own first words are options, up to the program.
SANITIZER = '#!/bin/sh\nwhile [ "${1#*/}" = "$1" ]; do shift; done\n"$@"\n'


class Machine:
    """A folder of programs that stand in for what a GPU's machine has, and one for results."""

    def __init__(self, options, work):
        self.options = options
        self.tools = work / "tools"
        self.out = work / "out"
        self.tools.mkdir()
        self.add("compute-sanitizer", SANITIZER)

    def add(self, name, text):
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, only, *arguments):
        """Runs some stages; the exit code and what was said."""
        environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.options.driver),
                       "EMUCUDA_KERNELS": str(self.options.driver / "libemukernels.so")}
        words = ["bash", ROOT / "dev", "gpu", "--out", self.out, "--build", self.options.build, "--brief", "--only", only]
        done = subprocess.run([str(word) for word in [*words, *arguments]], capture_output=True, text=True, env=environment,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def results(self):
        """What the stages left: results by name, and the page."""
        found = json.loads((self.out / "results.json").read_text())
        return {stage["name"]: stage for stage in found["stages"]}, (self.out / "results.md").read_text()


def faults_without_gpu(machine):
    machine.add("nvidia-smi", NO_GPU)
    code, said = machine.gpu(".")
    if code != 2 or said.count("\n") != 1 or "no NVIDIA GPU" not in said:
        yield f"without a GPU: exit code {code}, {said!r}"
    if machine.out.exists():
        yield "without a GPU: results were written"


def faults_of_stages(machine):
    machine.add("nvidia-smi", GPU)
    code, said = machine.gpu(
        r"build$|conformance\.(threads|processes)$|memcheck|litmus|jacobi|bench\.(latency|small_puts|replay|device|failure)")
    stages, page = machine.results()
    if code != 0:
        yield f"exit code {code}:\n{said}"
    for name in ("conformance.threads", "conformance.processes", "litmus", "memcheck"):
        if stages[name]["result"] != "passed" or stages[name]["passed"] == 0:
            yield f"{name}: {stages[name]}"
    for name, beside in (("bench.latency", "raw"), ("bench.replay", "eager"), ("bench.device", "on_streams"),
                         ("bench.replay.processes", "raw"), ("bench.device.processes", "raw")):
        rows = stages[name].get("rows", [])
        if not rows or any(beside not in row["rivals"] for row in rows) or f", {beside} " not in page.replace("| ", ", "):
            yield f"{name}: no rows, or none with {beside}: {stages[name]}"
    for name, stage in stages.items():
        if f"| {name} | " not in page or not stage["what"] or not (machine.out / f"{name}.log").is_file():
            yield f"{name}: {stage} in the page, or without a log:\n{page}"
    small = stages["bench.small_puts"]
    if small["result"] == "passed" and (len(small["puts"]) != 16 or "| 262144 | " not in page):
        yield f"small puts: {small}, or not in the page:\n{page}"
    why_not = stages["verify.jacobi"]["what"]
    if stages["verify.jacobi"]["result"] != "skipped" or not ("Kokkos without CUDA" in why_not or "not built" in why_not):
        yield f"jacobi, without a Kokkos for GPUs: {stages['verify.jacobi']}"
    if "Emulated GPU" not in page:
        yield f"the page does not name the GPU:\n{page}"


def faults_of_failures(machine):
    """A stage that fails is a result, in an exit code too, and leaves what earlier runs found."""
    machine.add("compute-sanitizer", "#!/bin/sh\necho 'ERROR SUMMARY: 1 error'\nexit 9\n")
    code, _ = machine.gpu("memcheck")
    stages, page = machine.results()
    if code != 1 or stages["memcheck"]["result"] != "failed" or "1 error" not in page:
        yield f"a failure: exit code {code}, {stages['memcheck']}"
    if stages.get("conformance.threads", {}).get("result") != "passed":
        yield f"a run of some stages lost the others: {list(stages)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--driver", type=pathlib.Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        machine = Machine(options, pathlib.Path(work))
        faults = [fault for look in (faults_without_gpu, faults_of_stages, faults_of_failures) for fault in look(machine)]
    for fault in faults:
        print(fault)
    print(f"gpu command: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
