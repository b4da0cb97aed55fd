#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the build tree as a person does, with good and bad input, and checks exit codes and what they say.

    tests/programs.py --bin build/release/bin --source . [--mpiexec mpiexec] [--only SUBSTRING] [--full]

Streams of GPUs are those of the emulated driver (tests/emucuda), in builds that have it.

Bad input, exit code 2, must give exactly one line on standard error, however many ranks were started.
"""

import argparse
import csv
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# name, how it is started, exit code, what standard output or error must match. {bin}, {source}, {out} are folders.
JACOBI = "{bin}/jacobi --nx 67 --ny 41 --niter 50"
LIFE = "{bin}/life --pattern {source}/apps/life/patterns/gosper_gun.rle --nx 101 --ny 67 --timesteps 70"
VOLUME = "{bin}/jacobi --dims 3 --nx 23 --ny 19 --nz 17 --niter 30"
HEAT = "{bin}/heat --nx 66 --ny 40 --timesteps 60"
HEAT_3D = "{bin}/heat --dims 3 --nx 22 --ny 18 --nz 14 --timesteps 40"
FACES = "{bin}/faces --nodes 7 --timesteps 40"
CG = "{bin}/cg --nx 61 --ny 40 --niter 60"
CG_3D = "{bin}/cg --dims 3 --nx 19 --ny 17 --nz 14 --niter 40"
CHANNEL_FLOW = "{bin}/channel_flow --nx 12 --ny 13 --nz 11 --timesteps 3"
FFT = "{bin}/fft --nx 15 --ny 12 --nz 14 --timesteps 3 --slabs 2"
LIFE_60 = LIFE.replace("--timesteps 70", "--timesteps 60")
RUN = "{bin}/sluice-run"
PASSED = r"^VERIFICATION: PASSED$"
EMUCUDA = "env LD_LIBRARY_PATH={emucuda} EMUCUDA_KERNELS={emucuda}/libemukernels.so"
FAKE_UCX = f"{EMUCUDA} PATH={{out}}:/usr/bin:/bin"
OUR_WINDOWS = "env LD_PRELOAD={bin}/../libsluice_mpi_rma.so"  # before MPI's
OUR_STREAM_MPI = "env LD_PRELOAD={bin}/../libsluice_mpis.so"
OPENMP = "env OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive"
RANKS = (1, 2, 4, 6)
SEVERAL = RANKS[1:]
COMMS = ("mpi", "mpi_persistent", "sluice")
MESHES = (("volume", VOLUME), ("faces", FACES), ("heat", HEAT), ("heat_3d", HEAT_3D), ("jacobi", JACOBI), ("life", LIFE),
          ("cg", CG), ("cg_3d", CG_3D), ("fft", FFT), ("channel_flow", CHANNEL_FLOW))
BACKENDS = ("threads", "shm", "ofi:tcp")
# Each example of windows and of plans of messages, and the line of one rank, which is printed if the result is that of a serial computation.
EXAMPLES = (("hash_table", r"^hash table: 1000 keys inserted"), ("sparse_exchange", r"^sparse exchange: rank 0 got \d+ messages"),
            ("pipeline", r"^pipeline: 10 sweeps, corner 2990$"), ("reduction_tree", r"^reduction tree: 100 sums of 4 ranks$"),
            ("cholesky", r"^Cholesky: 128 x 128 numbers"), ("ping_pong", r"^ping-pong: 2 balls, 100 hops each$"),
            ("two_sided_to_plan", r"^two-sided and plan: 100 equal messages$"))


def across(name, command, backend, n):
    threads = "--threads " if backend == "threads" else ""
    return f"{name}.{n}.{backend}", f"{RUN} -n {n} {threads}{command} --backend {backend} --verify", 0, PASSED


def example(name, pattern, backend):
    threads = "--threads " if backend == "threads" else ""
    return f"example.{name}.{backend}", f"env SLUICE_BACKENDS={backend} {RUN} -n 4 {threads}{{bin}}/example_{name}", 0, pattern


def beside_mpi(name, command, comm, n):
    return f"{name}.{comm}.{n}", f"mpiexec -n {n} {command} --comm {comm} --verify", 0, PASSED


ROWS = [
    *((f"jacobi.{n}.{stream}", f"{RUN} -n {n} {JACOBI} --stream {stream} --verify", 0, PASSED)
      for n in (1, 2, 4) for stream in ("program", "host")),
    *((f"life.{n}.{stream}", f"{RUN} -n {n} {LIFE} --stream {stream} --verify", 0, PASSED)
      for n in (1, 2, 4) for stream in ("program", "host")),
    *((f"{name}.{n}.{stream}", f"{RUN} -n {n} {command} --stream {stream} --verify", 0, PASSED)
      for name, command in (("cg", CG), ("fft", FFT), ("channel_flow", CHANNEL_FLOW)) for n in (1, 2, 3, 4) for stream in ("program", "host")),
    *((f"{name}.checked{threads.strip('-')}", f"env SLUICE_CHECK=1 {RUN} -n 3 {threads} {command} --stream {stream} --verify", 0, PASSED)
      for name, command, threads, stream in (("jacobi", JACOBI, "", "host"), ("life", LIFE, "--threads", "host"),
                                             ("heat", HEAT, "", "program"), ("faces", FACES, "--threads", "host"),
                                             ("cg", CG, "", "host"), ("fft", FFT, "--threads", "program"),
                                             ("channel_flow", CHANNEL_FLOW, "", "host"))),
    *((f"bench.checked.{name}.{stream}", f"env SLUICE_CHECK=1 {RUN} -n 2 {{bin}}/sluice-bench {name} --stream {stream} --sizes 64 --iters 10 --rounds 1", 0, r"^# ")
      for name, stream in (("latency", "program"), ("halo", "host"))),
    ("jacobi.threads", f"{RUN} --threads -n 3 {JACOBI} --verify", 0, PASSED),
    ("life.threads", f"{RUN} --threads -n 3 {LIFE} --verify", 0, PASSED),
    *((f"{name}.openmp.{how}", f"{OPENMP} {RUN} -n 2 {threads} {command} --stream {stream} --verify", 0, PASSED)
      for name, command in (("jacobi", JACOBI), ("life", LIFE))
      for how, threads, stream in (("processes", "", "inline"), ("threads", "--threads", "inline"), ("host", "", "host"))),
    # Each application on each backend, on another number of ranks each time; on all of RANKS in the full run.
    *(across(*mesh, backend, SEVERAL[(i + j) % len(SEVERAL)]) for i, mesh in enumerate(MESHES) for j, backend in enumerate(BACKENDS)),
    *((f"{name}.host_stream", f"{RUN} -n 4 {command} --stream host --verify", 0, PASSED)
      for name, command in MESHES[:4]),
    *(example(*program, backend) for program in EXAMPLES for backend in BACKENDS),
    # A tree of two levels.
    ("example.reduction_tree.20_ranks", f"{RUN} -n 20 --threads {{bin}}/example_reduction_tree", 0, r"^reduction tree: 100 sums of 20 ranks$"),
    ("example.ping_pong.3_ranks", f"{RUN} -n 3 {{bin}}/example_ping_pong", 0, r"^ping-pong: "),  # one has no partner
    *(beside_mpi(*mesh, comm, 2) for mesh in MESHES for comm in COMMS),
    ("faces.one_node", f"{RUN} -n 2 {{bin}}/faces -n 1", 2, r"^faces: --nodes: "),
    # Survivors end by themselves, though their streams are far ahead.
    *((f"{name}.killed", f"{RUN} -n 3 {{out}}/killed_as_rank_1 {command} {steps} 999999999 --stream host --no-verify", 128 + 9,
       r"\A(?![^\0]*killed rank)[^\0]*rank 1 was ended by signal 9")
      for name, command, steps in (("jacobi", "{bin}/jacobi -n 67 --nccheck 0", "--niter"), ("heat", "{bin}/heat -n 66", "--timesteps"),
                                    ("cg", "{bin}/cg -n 66 --nccheck 0", "--niter"), ("fft", "{bin}/fft -n 16", "--timesteps"), ("channel_flow", "{bin}/channel_flow -n 16", "--timesteps"))),
    *((f"{name}.killed_into_a_file", f"{{out}}/killed_into_a_file {RUN} -n 2 {command} 999999999 --no-verify", 0, wanted)
      for name, command, wanted in (("jacobi", "{bin}/jacobi -n 67 --niter", r"^Jacobi relaxation: "), ("heat", "{bin}/heat -n 66 --timesteps", r"^Heat: "),
                                    ("faces", "{bin}/faces -n 8 --timesteps", r"^Faces: "), ("life", "{bin}/life -n 66 --timesteps", r"^Life "))),
    ("heat.order", f"{RUN} -n 3 {HEAT_3D}", 0, r"^error against the exact solution: .* order [12]\.[0-9]+$"),
    ("heat.conservation", f"{RUN} -n 3 {HEAT} --start spots", 0, r"^CONSERVATION: PASSED$"),
    ("heat.no_communication", f"{RUN} -n 2 {HEAT} --comm none", 0, r"^CONSERVATION: skipped"),
    ("heat.no_heat", f"{RUN} -n 2 {{bin}}/heat --start spots -n 3 -t 9", 0, r"^CONSERVATION: PASSED$"),
    ("heat.order_of_rounding", f"{RUN} -n 2 {{bin}}/heat -n 32 -t 4000", 0, r"its order is not known \(errors as small as these are rounding\)$"),
    ("heat.unstable", f"{RUN} -n 2 {HEAT_3D} --fourier 0.2", 2, r"^heat: --fourier: .*1/6"),
    ("heat.no_z", f"{RUN} -n 2 {HEAT} --nz 8", 2, r"^heat: --nz: "),
    ("heat.too_many_ranks", f"{RUN} -n 7 {{bin}}/heat --dims 3 -n 4", 2, r"^heat: a mesh of 4 x 4 x 4 cells cannot"),
    ("heat.octal", f"{RUN} -n 2 {{bin}}/heat -n 010 -t 010", 0, r"^Heat: 10 steps of 0\.2 in a box of 10 x 10 cells"),
    ("heat.of_two_meshes", "mpiexec -n 1 {bin}/heat --nx 80 --ny 66 --no-verify : -n 1 {bin}/heat --nx 80 --ny 67 --no-verify", 1,
     r"the two ends disagree: .*f8\["),
    ("heat.nothing_to_write", f"{RUN} -n 2 {HEAT} -F 3", 2, r"^heat: --write-freq: "),
    ("cg.residual", f"{RUN} -n 3 {{bin}}/cg --nx 61 --ny 40 --tolerance 1e-6", 0, r"^residual: [0-9.]+e-07, [0-9.]+e-07 of the result itself$"),
    ("cg.no_communication", f"{RUN} -n 2 {CG} --comm none", 0, r"^VERIFICATION: skipped"),
    *((f"{name}.copies", f"{RUN} -n 3 {command} --comm copies --stream host --verify", 0, PASSED)
      for name, command in (("cg", CG), ("fft", FFT), ("channel_flow", CHANNEL_FLOW))),
    *((f"{name}.{comm}_on_a_stream", f"mpiexec -n 3 {command} --comm {comm} --stream host --verify", 0, PASSED)
      for name, command in (("cg", CG), ("fft", FFT), ("channel_flow", CHANNEL_FLOW)) for comm in ("mpi", "mpi_persistent")),
    *((f"{name}.on_a_gpu", f"{RUN} -n 2 {command} --stream cuda", 2, rf"^{name}: --stream cuda: ")
      for name, command in (("cg", CG), ("fft", FFT), ("channel_flow", CHANNEL_FLOW))),
    ("cg.no_z", f"{RUN} -n 2 {CG} --nz 8", 2, r"^cg: --nz: "),
    ("cg.nan", f"{RUN} -n 2 {CG} --tolerance nan", 2, r"^cg: --tolerance: nan is no residual"),
    ("cg.too_many_ranks", f"{RUN} -n 7 {{bin}}/cg --dims 3 -n 4", 2, r"^cg: a mesh of 4 x 4 x 4 cells cannot"),
    ("fft.too_many_ranks", f"{RUN} -n 7 {{bin}}/fft -n 4", 2, r"^fft: a box of 4 x 4 x 4 cells cannot be divided into pencils for 7 ranks$"),
    *((f"channel_flow.{comm}_in_rows", f"mpiexec -n 4 {CHANNEL_FLOW} --comm {comm} --verify", 0, PASSED) for comm in ("mpi", "mpi_persistent")),
    ("channel_flow.conservation", f"{RUN} -n 4 {CHANNEL_FLOW} --no-verify", 0, r"^CONSERVATION: PASSED"),
    ("channel_flow.no_communication", f"{RUN} -n 2 {CHANNEL_FLOW} --comm none", 0, r"^VERIFICATION: skipped"),
    ("channel_flow.flat", f"{RUN} -n 2 {CHANNEL_FLOW} --nz 1", 2, r"^channel_flow: --nz: "),
    ("channel_flow.too_many_ranks", f"{RUN} -n 7 {{bin}}/channel_flow -n 4", 2, r"^channel_flow: a box of 4 x 4 x 4 cells cannot"),
    ("fft.no_slabs", f"{RUN} -n 2 {{bin}}/fft --slabs 0", 2, r"^fft: --slabs: "),
    ("fft.no_communication", f"{RUN} -n 2 {FFT} --comm none", 0, r"^VERIFICATION: skipped"),
    ("fft.not_compared", f"{RUN} -n 2 {{bin}}/fft -n 12 --no-verify", 0, r"^VERIFICATION: skipped"),
    ("jacobi.periodic_volume", f"{RUN} -n 2 {VOLUME} --periodic x", 2, r"^jacobi: --periodic: "),
    ("jacobi.no_norm", f"{RUN} -n 4 {JACOBI} --nccheck 0 --stream host --periodic xy --verify", 0, PASSED),
    ("jacobi.copies", f"{RUN} -n 3 {JACOBI} --comm copies --stream host --verify", 0, PASSED),
    ("life.copies", f"{RUN} --threads -n 2 {LIFE} --comm copies --verify", 0, PASSED),
    ("jacobi.without_cuda", f"{RUN} -n 2 {JACOBI} --stream cuda", 2, r"^jacobi: --stream cuda: .* without CUDA$"),
    ("jacobi.phases_on_a_gpu", f"{RUN} -n 2 {JACOBI} --stream cuda --phases", 2, r"^jacobi: --"),
    ("jacobi.no_communication", f"{RUN} -n 2 {JACOBI} --comm none", 0, r"^VERIFICATION: skipped"),
    ("jacobi.nvidia_flags", f"{RUN} -n 2 {{bin}}/jacobi -nx 32 -ny 48 -niter 10 -nccheck 5 -csv", 0,
     r"^sluice, 32, 48, 10, 5, 2, 1, [0-9.]+, [0-9.]+$"),
    ("jacobi.backend.shm", f"{RUN} -n 2 {JACOBI} --backend shm --verify", 0, r"backend shm, "),
    ("jacobi.backend.threads", f"{RUN} --threads -n 2 {JACOBI} --backend threads,shm --verify", 0, r"backend threads, "),
    ("life.backend.shm", f"{RUN} --threads -n 2 {LIFE} --backend shm --verify", 0, r"backend shm, "),
    *((f"jacobi.mpi.periodic.{periodic}", f"mpiexec -n 4 {JACOBI} --comm mpi --periodic {periodic} --verify", 0, PASSED)
      for periodic in ("none", "x", "xy")),
    *((f"jacobi.mpi.one_wide.{nx}x{ny}",
       f"mpiexec -n 4 {{bin}}/jacobi --nx {nx} --ny {ny} --niter 20 --periodic xy --comm mpi --verify", 0, PASSED)
      for nx, ny in ((6, 3), (3, 6), (4, 4))),
    *((f"jacobi.{comm}_on_a_stream", f"mpiexec -n 2 {JACOBI} --comm {comm} --stream host --verify", 0, PASSED)
      for comm in ("mpi", "mpi_persistent")),
    ("life.mpi.one_wide", "mpiexec -n 4 {bin}/life --nx 2 --ny 2 --comm mpi --verify", 0, PASSED),
    ("jacobi.mpi_without_mpi", f"{RUN} -n 2 {JACOBI} --comm mpi", 2, r"^jacobi: --comm mpi "),
    ("jacobi.unknown_flag", f"{RUN} -n 2 {JACOBI} --no-such-flag", 2, r"^jacobi: unknown argument --no-such-flag"),
    ("jacobi.bad_number", f"{RUN} -n 1 {{bin}}/jacobi --nx many", 2, r"many|nx"),
    ("jacobi.negative_count", f"{RUN} -n 2 {{bin}}/jacobi --niter -3", 2, r"^jacobi: --niter: .{,80} \(--help lists the options\)$"),
    ("life.negative_count", f"{RUN} -n 2 {{bin}}/life -t -3", 2, r"^life: --timesteps: .{,80} \(--help lists the options\)$"),
    *((f"{name}.unknown_backend", f"{RUN} -n 4 {command} --backend shm,pigeon", 2, rf"^{program}: --backend: .*\"pigeon\"")
      for name, program, command in (("jacobi", "jacobi", JACOBI), ("life", "life", LIFE),
                                     ("bench", "sluice-bench", "{bin}/sluice-bench latency"))),
    ("run.unknown_backend", f"env SLUICE_BACKENDS=pigeon {RUN} -n 4 {JACOBI}", 2, r"^sluice-run: .*SLUICE_BACKENDS=pigeon"),
    ("run.unknown_variable", f"env SLUICE_TYPO=1 {RUN} -n 4 {JACOBI}", 2, r"^sluice-run: .*SLUICE_TYPO"),
    ("life.no_pattern", f"{RUN} -n 2 {{bin}}/life --pattern {{out}}/none.rle", 2, r"^life: cannot read .*none\.rle"),
    ("life.pattern_at_one_host", f"mpiexec -n 1 {{bin}}/life -n 32 -t 2 --no-verify : -n 1 {{bin}}/life -n 32 -t 2 --no-verify --pattern {{out}}/none.rle", 2,
     r"^life: cannot read .*none\.rle"),
    ("life.nan", f"{{bin}}/life --random nan", 2, r"^life: --random: nan is no part of the cells"),
    *((f"life.seed.{name}", f"{{bin}}/life --random 0.5 --seed {seed}", 2, r"^life: --seed: .* is no whole number from 0 to 18446744073709551615")
      for name, seed in (("negative", "-1"), ("too_large", "18446744073709551616"), ("hexadecimal", "0x10"))),
    ("jacobi.too_many_cells", f"{{bin}}/jacobi --dims 3 -nx 8185 -ny 16777216 -nz 16777216 -niter 1 --no-verify", 2,
     r"^jacobi: a mesh of 8183 x 16777214 x 16777214 cells is more than memory has addresses for"),
    ("life.bad_pattern", f"{RUN} -n 2 {{bin}}/life --pattern {{out}}/bad.rle", 2, r"^life: .*bad\.rle:2: unexpected"),
    ("life.unwritable", f"{RUN} -n 3 {LIFE} --csv {{out}}/refused.csv --rle {{out}}/none/life.rle", 2,
     r"^life: cannot write .*none/life\.rle"),
    ("trace.unwritable", f"{RUN} -n 3 {JACOBI} --trace {{out}}/none/x.json", 2, r"^jacobi: --trace: cannot write .*none/x\.json"),
    ("trace.unwritable_elsewhere", f"{RUN} -n 3 {{out}}/in_folder_of_rank_0 {{bin}}/jacobi --niter 5 --trace timelines/x.json", 2,
     r"^jacobi: --trace: cannot write timelines/x\.json"),
    ("trace.no_file", f"{RUN} -n 3 {JACOBI} --trace /dev/null", 2, r"^jacobi: --trace: cannot write /dev/null: it is no regular file$"),
    *((f"trace.{name}_on_a_gpu", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench {name} --stream cuda --trace {{out}}/x.json", 2,
       "^sluice-bench: --stream cuda: it holds too few functions") for name in ("bandwidth", "rate")),
    ("trace.twice", f"{RUN} -n 3 {JACOBI} --trace {{out}}/same.json --json {{out}}/same.json", 2, r"^jacobi: .*same\.json is asked for twice"),
    ("trace.twice_by_two_names", f"{RUN} -n 2 {{out}}/in_folder_of_rank_0 {{bin}}/jacobi --niter 5 --csv same.csv --json ./same.csv", 2,
     r"^jacobi: \./same\.csv is asked for twice"),
    ("trace.run_unwritable", f"{RUN} -n 3 --trace {{out}}/none/x.json {JACOBI}", 2, r"none/x\.json"),
    ("info.text", "{bin}/sluice-info", 0, r"SLUICE_CONNECT_TIMEOUT"),
    ("info.no_gpu", f"{EMUCUDA} EMUCUDA_DEVICES=0 {{bin}}/sluice-info", 0, r"cuda +not usable here: no NVIDIA GPU is here"),
    ("info.old_cuda", f"{EMUCUDA} EMUCUDA_VERSION=11080 {{bin}}/sluice-info", 0,
     r"cuda +not usable here: the CUDA driver is older than version 12.0"),
    ("info.cuda_that_does_not_start", f"{EMUCUDA} EMUCUDA_INIT=803 {{bin}}/sluice-info", 0,
     r"cuda +not usable here: cuInit failed with error 803"),
    # Tests of two GPUs leave alone those that do not reach each other.
    ("conformance.gpus_apart", f"{EMUCUDA} EMUCUDA_PEERS=0 {{bin}}/conformance --gtest_filter=Quick/GpuPairs.get*/shm_cuda_users*_d1_13B",
     0, r"^SKIPPED-HERE: .*: ranks on two GPUs: these have no peer access$"),
    ("info.unknown_variable", "env SLUICE_TYPO=1 {bin}/sluice-info", 2, r"^sluice-info: .*SLUICE_TYPO"),
    ("info.bad_variable", "env SLUICE_WARN=soon {bin}/sluice-info --json", 2, r"^sluice-info: .*SLUICE_WARN=soon"),
    ("run.no_program", f"{RUN} -n 2 {{out}}/no_such_program", 2, r"no_such_program"),
    ("run.no_count", f"{RUN} {JACOBI}", 2, r"-n"),
    ("run.help", f"{RUN} --help", 0, r"--threads"),
    *((f"{name}.into_a_full_device", f"{{out}}/into_a_full_device {command}", 1, rf"{program}: cannot write to standard output: No space left")
      for name, program, command in (("info", "sluice-info", "{bin}/sluice-info"), ("info.json", "sluice-info", "{bin}/sluice-info --json"),
                                     ("info.help", "sluice-info", "{bin}/sluice-info --help"), ("run.help", "sluice-run", f"{RUN} --help"),
                                     ("jacobi.help", "jacobi", "{bin}/jacobi --help"), ("jacobi", "jacobi", f"{RUN} -n 2 {JACOBI}"),
                                     ("life", "life", LIFE), ("heat.threads", "heat", f"{RUN} -n 2 --threads {HEAT}"),
                                     ("bench.help", "sluice-bench", "{bin}/sluice-bench --help"),
                                     ("bench", "rank 0", f"{RUN} -n 2 {{bin}}/sluice-bench latency --sizes 8:16 --iters 10 --rounds 1"))),
    ("bench.unknown_name", f"{RUN} -n 2 {{bin}}/sluice-bench no_such_bench", 2, r"no_such_bench"),
    ("bench.no_rival_of_that_name", f"{RUN} -n 2 {{bin}}/sluice-bench latency --against flor", 2, r"flor"),
    ("bench.rival_without_mpi", f"{RUN} -n 2 {{bin}}/sluice-bench stream --against floor,mpi", 2, r"mpiexec"),
    ("bench.stream_without_rival", f"{RUN} -n 2 {{bin}}/sluice-bench halo --against floor", 2, r"not comparable"),
    ("bench.pipeline_without_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench pipeline --stream program", 2, r"pipeline measures a stream"),
    ("bench.goal_without_a_ratio", f"{RUN} -n 2 {{bin}}/sluice-bench latency --goal floor", 2, r"--goal.*floor"),
    ("bench.setup_elsewhere", f"{RUN} -n 2 {{bin}}/sluice-bench setup --memory user", 2, r"--memory user"),
    ("bench.setup_on_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench setup --stream host", 2, r"--stream host"),
    ("bench.copy_of_two_ranks", f"{RUN} -n 2 {{bin}}/sluice-bench copy", 2, r"copy needs exactly 1 rank, not 2"),
    ("bench.copy_beyond_a_page", "{bin}/sluice-bench copy --offsets 16,4k", 2, r"--offsets: offsets are below 4096, not 4k"),
    ("bench.progress_on_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench progress --stream host", 2, r"--stream host"),
    ("bench.progress_pinned", f"{RUN} -n 2 {{bin}}/sluice-bench progress --pin", 2, r"--pin"),
    *((f"bench.batches.{stream}", f"{RUN} -n 2 {{bin}}/sluice-bench rate --batch --sizes 8 --against none --touch --stream {stream} "
       "--iters 20 --rounds 3", 0, r"message rate by batches.*sluice_each") for stream in ("program", "host")),
    *((f"bench.no_batches.{name.split()[0]}", f"{RUN} -n 2 {{bin}}/sluice-bench {name} --batch", 2, wanted)
      for name, wanted in (("latency", "--batch is for rate"), ("rate --depth 1", "needs slots for several messages"))),
    ("bench.too_many_rails", f"{RUN} -n 2 {{bin}}/sluice-bench latency --rails 9", 2, r"rails"),
    ("bench.network_rival_of_memory", f"{RUN} -n 2 {{bin}}/sluice-bench latency --backend shm --against ofi_floor", 2,
     r"ofi_floor: .*--backend ofi:"),
    ("bench.memory_rival_of_network", f"{RUN} -n 2 {{bin}}/sluice-bench latency --backend ofi:tcp --against floor", 2,
     r"floor: .*threads and shm"),
    ("bench.no_gpu", f"{EMUCUDA} EMUCUDA_DEVICES=0 {RUN} -n 2 {{bin}}/sluice-bench latency --stream cuda", 2,
     r"^sluice-bench: --stream cuda: there is no GPU"),
    ("bench.no_gpu_of_amd", f"env HIP_VISIBLE_DEVICES=-1 {RUN} -n 2 {{bin}}/sluice-bench latency --stream hip", 2,
     r"^sluice-bench: --stream hip: there is no GPU"),
    *((f"bench.not_on_gpus.{name.split()[0]}", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench {name} --stream cuda", 2, wanted)
      for name, wanted in (("overlap", "overlap is not measured"), ("setup", "setup is not measured"),
                           ("latency --memory user", "--memory user"), ("halo --touch", "--touch"),
                           ("rate --window 65", "at most 64"), ("bandwidth --against floor", "memory of the host"))),
    *((f"bench.only_on_gpus.{name}", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench {name} --stream host", 2,
       rf"{name} is measured on a GPU's stream: --stream cuda or hip") for name in ("replay", "device")),
    *((f"bench.{name}_over_a_nic_that_fires", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench {name} --backend ofi:sockets --stream cuda "
       "--sizes 8 --iters 2 --rounds 1", 0, r"fired by engine") for name in ("latency", "replay")),
    ("bench.gpu_rival_elsewhere", f"{RUN} -n 2 {{bin}}/sluice-bench latency --against raw", 2, r"raw: is for --stream cuda"),
    ("bench.gpu_rival_of_more", f"{EMUCUDA} {RUN} -n 4 {{bin}}/sluice-bench halo --stream cuda --against raw", 2,
     r"raw: is a pair of processes"),
    ("bench.gpu_rival_of_messages", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench rate --stream cuda --against synchronised", 2,
     r"synchronised: not comparable"),
    *((f"bench.packing.{name}", f"{RUN} -n {ranks} {{bin}}/sluice-bench packing {how}", 2, rf"^sluice-bench: (packing .*)?{wanted}")
      for name, ranks, how, wanted in (
          ("on_a_stream", 2, "--stream host", "--stream host"), ("elsewhere", 2, "--memory user", "--memory user"),
          ("read_twice", 2, "--touch", "--touch"), ("of_half_an_int", 2, "--sizes 2:8", "--sizes begin at 4"),
          ("of_three", 3, "", "exactly 2 ranks"), ("without_mpi", 2, "--against mpi_packed", "--against mpi_packed: .*mpiexec"))),
    *((f"bench.rma.{name}", f"{RUN} -n {ranks} {{bin}}/sluice-bench rma {how}", 2, rf"^sluice-bench: rma {wanted}")
      for name, ranks, how, wanted in (
          ("on_a_stream", 2, "--stream host", ".*--stream host"), ("elsewhere", 2, "--memory user", ".*--memory user"),
          ("deep", 2, "--depth 2", ".*--depth"), ("read", 2, "--touch", ".*--touch"), ("of_half_a_word", 2, "--sizes 4:8", "moves words: --sizes begin at 8"),
          ("of_three", 3, "", "needs exactly 2 ranks"))),
    *((f"bench.{name}.on_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench {name} --stream host", 2, rf"^sluice-bench: {name} .*--stream host")
      for name in ("hash_table", "sparse_exchange", "slices")),
    ("bench.collectives.read_on_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench collectives --touch --stream host", 2,
     r"^sluice-bench: collectives has --touch in program order alone"),
    ("bench.slices_over_a_network", f"{RUN} -n 2 {{bin}}/sluice-bench slices --backend ofi:tcp", 2,
     r"^sluice-bench: slices needs memory that all ranks map"),
    ("bench.mpi_windows.without_ours", f"{RUN} -n 2 {{bin}}/sluice-bench mpi_windows", 2, r"^sluice-bench: mpi_windows needs libsluice_mpi_rma"),
    ("bench.stream_mpi.without_ours", f"{RUN} -n 2 {{bin}}/sluice-bench stream_mpi", 2, r"^sluice-bench: stream_mpi (needs libsluice_mpis|is not in this)"),
    ("bench.stream_mpi.without_a_stream", f"{RUN} -n 2 {{bin}}/sluice-bench stream_mpi --stream program", 2, r"^sluice-bench: stream_mpi is measured on a stream"),
    ("bench.packing_without_kokkos", f"{RUN} -n 2 {{bin}}/sluice-bench packing", 2,
     r"^sluice-bench: packing is not in this sluice-bench: it was built without Kokkos$"),
    *((f"bench.columns.{name}", f"{RUN} -n 2 {{bin}}/sluice-bench {how} --columns cup-ecs", 2, rf"^sluice-bench: --columns cup-ecs {wanted}")
      for name, how, wanted in (("of_no_round_trip", "rate --csv {out}/none.csv", "is for latency and packing"),
                                ("of_no_file", "latency", "needs a --csv"), ("of_bytes", "latency --sizes 0:8 --csv {out}/none.csv", "counts ints"))),
    ("bench.failure_of_threads", f"{RUN} -n 2 --threads {{bin}}/sluice-bench failure", 2, r"without --threads"),
]

# What takes long.
FULL_ROWS = [
    ("life.acorn", f"{RUN} -n 2 {{bin}}/life --pattern {{source}}/apps/life/patterns/acorn.rle -n 3072 -t 5206 --no-verify", 0,
     r"^population: 633$"),
    *(across(*mesh, backend, n) for mesh in MESHES for backend in BACKENDS for n in RANKS),
    *(beside_mpi(*mesh, comm, 4) for mesh in MESHES for comm in COMMS),
]

# Every bench once: name, how it is started, exit code, rivals of its rows in any order. Not pinned: other tests run at the same time.
BENCH = "{bin}/sluice-bench --rounds 1 --iters 10 --no-pin"
PINNED = "{bin}/sluice-bench --rounds 6 --iters 10"
APPS = "python3 {source}/apps/bench_apps.py --brief --mpiexec mpiexec"
GPU_RIVALS = "raw,raw_host,synchronised"
ONE_SIDED = "mpi_put_flush mpi_put_flush_user"
FLOORS = "floor protocol_floor"
PAIRS = f"{FLOORS} mpi mpi_persistent"
PARTS = "moving_alone computing_alone"
BENCHES = [
    ("latency", f"{RUN} -n 2 {BENCH} latency --sizes 8:16", 0, FLOORS),
    ("latency.user", f"{RUN} -n 2 {BENCH} latency --memory user --sizes 64k --touch", 0, f"{FLOORS} shared_copy two_copies"),
    ("latency.pinned", f"{RUN} -n 2 {PINNED} latency --sizes 8 --goal floor=1e-9,protocol_floor=999999999@8", 0, FLOORS),
    ("latency.bound", f"{RUN} -n 2 --bind core {PINNED} latency --sizes 8 --against none", 0, ""),
    ("latency.host", f"{RUN} -n 2 {BENCH} latency --stream host --sizes 0:1 --against none", 0, ""),
    ("latency.threads", f"{RUN} -n 2 --threads {BENCH} latency --sizes 8 --depth 2 --csv {{out}}/latency.csv --columns cup-ecs", 0, FLOORS),
    ("bandwidth", f"{RUN} -n 2 {BENCH} bandwidth --sizes 4k", 0, FLOORS),
    ("bandwidth.host", f"{RUN} -n 2 {BENCH} bandwidth --sizes 64 --stream host --window 4096 --touch", 0, FLOORS),
    ("rate", f"{RUN} -n 2 {BENCH} rate --sizes 8", 0, FLOORS),
    ("rate.host", f"{RUN} -n 2 {BENCH} rate --sizes 8 --stream host --window 500", 0, FLOORS),
    ("stream", f"{RUN} -n 2 {BENCH} stream --sizes 8 --against floor", 0, "floor"),
    ("pipeline", f"{RUN} -n 4 {BENCH} pipeline --touch", 0, "program_order"),
    ("pipeline.mpi", f"mpiexec -n 2 {BENCH} pipeline --sizes 8,64k --depth 3 --touch", 0, "program_order mpi"),
    ("halo", f"{RUN} -n 4 {BENCH} halo --sizes 8 --neighbours 26", 0, ""),
    ("halo.host", f"{RUN} -n 2 {BENCH} halo --sizes 8 --stream host --touch --neighbours 26", 0, ""),
    ("overlap", f"{RUN} -n 2 {BENCH} overlap --sizes 4k", 0, PARTS),
    ("overlap.inline", f"{RUN} -n 2 {BENCH} overlap --sizes 4k --stream inline --touch", 0, PARTS),
    ("scale", f"{RUN} -n 4 {BENCH} scale --sizes 8 --against floor", 0, "one_pair floor"),
    ("scale.channels", f"{RUN} -n 4 --threads {BENCH} scale --channels 64", 0, ""),
    ("rma", f"{RUN} -n 2 {BENCH} rma --sizes 8,64,64k", 0, "floor sluice_call"),
    ("rma.threads", f"{RUN} -n 2 --threads {BENCH} rma --sizes 512", 0, "floor sluice_call"),
    ("hash_table", f"{RUN} -n 3 {BENCH} hash_table", 0, ""),
    ("segments", f"{RUN} -n 2 {BENCH} segments --sizes 8,64k", 0, "channel"),
    ("messages", f"{RUN} -n 2 {BENCH} messages --sizes 8,1k", 0, "alone"),
    ("sparse_exchange", f"{RUN} -n 3 --threads {BENCH} sparse_exchange --sizes 8,64k", 0, ""),
    *((f"{name}.ofi", f"{RUN} -n 2 {BENCH} {name} --backend ofi:tcp", 0, "") for name in ("hash_table", "sparse_exchange")),
    ("collectives", f"{RUN} -n 3 {BENCH} collectives --sizes 8,16k", 0, ""),
    ("slices", f"{RUN} -n 2 {BENCH} slices --sizes 8k,64k", 0, "allreduce"),
    ("slices.threads", f"{RUN} -n 4 --threads {BENCH} slices --sizes 8k", 0, "allreduce owners"),
    ("model", f"{RUN} -n 2 {BENCH} model --sizes 8,512,16k --write-model {{out}}/costs", 0, "predicted"),
    ("model.threads", f"{RUN} -n 4 --threads {BENCH} model --sizes 8,512", 0, "predicted"),
    ("setup", f"{RUN} -n 2 {BENCH} setup", 0, ""),
    ("setup.threads", f"{RUN} -n 8 --threads {BENCH} setup --sizes 4k", 0, ""),
    ("copy", f"{BENCH} copy --sizes 8,64k --offsets 0,16", 0, "shipped tuned"),
    ("failure", f"{RUN} -n 3 {BENCH} failure", 137, ""),
    ("failure.host", f"{RUN} -n 2 {BENCH} failure --stream host", 137, ""),
    ("failure.cuda", f"{EMUCUDA} {RUN} -n 2 {BENCH} failure --stream cuda", 137, ""),
    ("progress", f"{RUN} -n 2 {BENCH} progress --busy 2", 0, ""),
    ("packing", f"{RUN} -n 2 {BENCH} packing --sizes 4:8", 0, ""),
    ("packing.deep", f"{RUN} -n 2 --threads {BENCH} packing --sizes 64k --depth 3", 0, ""),
    ("packing.ofi", f"{RUN} -n 2 {BENCH} packing --sizes 4k --backend ofi:tcp", 0, ""),
    ("packing.openmp", f"{OPENMP} {RUN} -n 2 {BENCH} packing --sizes 64", 0, ""),
    ("progress.threads", f"{RUN} -n 2 --threads {BENCH} progress --busy 1 --sizes 8", 0, ""),
    *((f"{name}.ofi", f"{RUN} -n 2 {BENCH} {name} --sizes {size} --backend ofi:tcp --rails 1", 0, "ofi_floor ofi_floor_wait ofi_floor_data")
      for name, size in (("latency", "8:16"), ("bandwidth", "4k"), ("rate", "8"))),
    ("rma.ofi", f"{RUN} -n 2 {BENCH} rma --sizes 8,4k --backend ofi:tcp", 0, "ofi_floor_access ofi_floor_access_wait sluice_call"),
    # All streams share hardware queues: copies are held up by kernels that wait.
    ("replay.ofi.shared_queues", f"{EMUCUDA} EMUCUDA_PRIORITIES=0 {RUN} -n 2 {BENCH} replay --sizes 8 --stream cuda --backend ofi:sockets", 0,
     "eager"),
    ("progress.ofi", f"{RUN} -n 2 {BENCH} progress --busy 2 --backend ofi:tcp", 0, ""),
    *((f"{name}.cuda{how}", f"{EMUCUDA} {settings} {RUN} -n {ranks} {BENCH} {name} --sizes {size} --stream cuda --against {against}",
       0, against.replace(",", " ").replace("none", ""))
      for name, how, settings, ranks, size, against in (
          ("latency", "", "", 2, "0:8", GPU_RIVALS), ("latency", ".one_gpu", "EMUCUDA_DEVICES=1", 2, "64k", GPU_RIVALS),
          ("latency", ".threads", "", "2 --threads", "8", GPU_RIVALS), ("bandwidth", "", "", 2, "4k", GPU_RIVALS),
          ("bandwidth", ".deep", "", 2, "8 --depth 5 --window 7", GPU_RIVALS), ("rate", "", "", 2, "8", "raw,raw_host"),
          ("stream", "", "", 2, "8", GPU_RIVALS), ("halo", "", "", 2, "8 --neighbours 26", GPU_RIVALS),
          ("halo", ".ring", "", 4, "8", "none"))),
    *((f"{name}.cuda{how}", f"{EMUCUDA} {settings} {RUN} -n 2 {threads} {BENCH} {name} --sizes {size} --stream cuda --against raw,raw_host",
       0, found)
      for name, how, settings, threads, size, found in (
          ("replay", "", "", "", "0:1", "eager raw raw_host"), ("replay", ".one_gpu", "EMUCUDA_DEVICES=1", "", "64k --depth 3", "eager raw raw_host"),
          ("replay", ".threads", "", "--threads", "8 --neighbours 26", "eager raw raw_host"), ("device", "", "", "", "0:8", "on_streams raw raw_host"),
          ("device", ".one_gpu", "EMUCUDA_DEVICES=1", "", "64k --depth 3", "on_streams"),
          ("device", ".threads", "", "--threads", "64k", "on_streams raw raw_host"))),
    ("latency.cuda.ucx", f"{FAKE_UCX} {RUN} -n 2 {BENCH} latency --sizes 8 --stream cuda --against raw,ucx", 0, "raw ucx"),
    ("latency.cuda.no_ucx", f"{FAKE_UCX} {RUN} -n 2 {BENCH} latency --sizes 0:1 --stream cuda --against raw,ucx", 0, "raw"),
    ("latency.mpi", f"mpiexec -n 2 {BENCH} latency --sizes 0:1", 0, f"{PAIRS} {ONE_SIDED} mpi_pscw mpi_fence"),
    ("latency.ofi.mpi", f"mpiexec -n 2 {BENCH} latency --sizes 8 --backend ofi:tcp", 0,
     f"ofi_floor ofi_floor_wait ofi_floor_data mpi mpi_persistent {ONE_SIDED} mpi_pscw mpi_fence"),
    ("bandwidth.mpi", f"mpiexec -n 2 {BENCH} bandwidth --sizes 64", 0, f"{PAIRS} {ONE_SIDED}"),
    ("rate.mpi", f"mpiexec -n 2 {BENCH} rate --sizes 8 --window 9", 0, PAIRS),
    ("stream.mpi", f"mpiexec -n 2 {BENCH} stream --sizes 8", 0, "floor mpi_persistent"),
    ("halo.mpi", f"mpiexec -n 2 {BENCH} halo --sizes 8", 0, "mpi_persistent"),
    ("overlap.mpi", f"mpiexec -n 2 {BENCH} overlap --sizes 4k", 0, f"{PARTS} mpi"),
    ("scale.mpi", f"mpiexec -n 2 {BENCH} scale --sizes 8 --against all", 0, "floor mpi mpi_persistent"),
    ("rma.mpi", f"mpiexec -n 2 {BENCH} rma --sizes 8,64", 0, "floor mpi_rma sluice_call"),
    ("hash_table.mpi", f"mpiexec -n 2 {BENCH} hash_table", 0, "mpi_rma"),
    ("sparse_exchange.mpi", f"mpiexec -n 2 {BENCH} sparse_exchange --sizes 8,4k", 0, "mpi_rma mpi_nbx mpi_rsx"),
    ("collectives.mpi", f"mpiexec -n 2 {BENCH} collectives --sizes 8 --touch", 0, "mpi_collectives mpi_winfence mpi_winlock"),
    ("slices.mpi", f"mpiexec -n 4 {BENCH} slices --sizes 8k", 0, "allreduce owners mpi_collectives"),
    ("mpi_windows", f"mpiexec -n 2 {OUR_WINDOWS} {BENCH} mpi_windows", 0, "sluice_api"),
    ("stream_mpi", f"mpiexec -n 2 {OUR_STREAM_MPI} {BENCH} stream_mpi --sizes 8,4k", 0, "sluice_api floor mpi_persistent"),
    ("stream_mpi.user", f"mpiexec -n 2 {OUR_STREAM_MPI} {PINNED} stream_mpi --sizes 0,64k --neighbours 26 --memory user --against mpi_persistent", 0,
     "sluice_api mpi_persistent"),
    ("packing.mpi", f"mpiexec -n 2 {BENCH} packing --sizes 4:8 --csv {{out}}/packing.csv --columns cup-ecs", 0, "mpi_packed mpi_datatype"),
    ("setup.mpi", f"mpiexec -n 2 {BENCH} setup", 0, ""),
    *((name, f"{APPS} {{bin}}/{name}", 0, "mpi mpi_persistent none") for name in ("jacobi", "heat", "life", "cg", "fft", "channel_flow")),
    ("faces", f"{APPS} {{bin}}/faces --phases --csv {{out}}/runs.csv", 0, "mpi mpi_persistent none"),
    *((f"{name}.{sweep}", f"{APPS} --sweep {sweep} {{bin}}/{name}", 0, "one_rank mpi_persistent")
      for name, sweep in (("heat", "strong"), ("life", "weak"))),
]
BENCH_KEYS = {"schema", "bench", "backend", "stream", "memory", "touch", "fired_by", "ranks", "pairs", "channels",
              "exponent", "launch", "cores", "line_ns", "bytes", "offset", "depth", "window", "rails", "metric", "unit", "p50",
              "p10", "p99", "low", "high", "samples", "sample", "rounds", "settings", "floor_drift", "drifted_rounds", "version", "cpu", "gpu",
              "driver", "date", "rivals"}


def read_back(text, value):
    """A field of a CSV file as what it is in JSON, where that is `value`: nothing stands for null."""
    if value is None:
        return text or None
    return text if isinstance(value, str) else float(text or "nan")


def check_results(app, work):
    """The results of one program as JSON and CSV: the keys that scripts rely on, with the same values in both."""
    keys = {"app", "comm", "backend", "stream", "nx", "ny", "nz", "ranks", "steps", "create_s", "solve_s", "step_us", "phases",
            "verification", "max_error"}
    results = json.loads((work / f"{app}.json").read_text())
    lines = list(csv.DictReader((work / f"{app}.csv").read_text().splitlines()))
    faults = [f"{app}.json lacks {sorted(keys - results.keys())}"] if keys - results.keys() else []
    phases = results.pop("phases") or {}
    if app == "skipped":
        wanted = {"verification": "skipped", "max_error": None}
        if {name: results[name] for name in wanted} != wanted:
            faults.append(f"{app}.json says {results}, not {wanted}")
    if set(phases) != {"pack", "put", "interior", "wait", "unpack", "boundary"} or not 0 < sum(phases.values()):
        faults.append(f"{app}.json: --phases gave {phases}")
    results |= {f"{name}_s": seconds for name, seconds in phases.items()}
    shown = {name: text for line in lines for name, text in line.items()}
    if len(lines) != 1 or shown.keys() != results.keys():
        return [*faults, f"{app}.csv has {sorted(shown)}, {app}.json {sorted(results)}"]
    differ = [name for name, value in results.items() if read_back(shown[name], value) != value]
    return [*faults, f"{app}.csv and {app}.json differ in {differ}"] if differ else faults


def frames_of(gif):
    """The frames of a GIF file, by the blocks that it is made of; 0: it is none."""
    data = gif.read_bytes()
    if not data.startswith(b"GIF89a"):
        return 0
    frames, at = 0, 13 + (3 << ((data[10] & 7) + 1) if data[10] & 128 else 0)
    while data[at] != 0x3B:
        frames += data[at] == 0x2C
        at += 11 if data[at] == 0x2C else 2  # an image's place and size, and the least size of its codes; or an extension
        while data[at] != 0:
            at += 1 + data[at]
        at += 1
    return frames


def check_outputs(work):
    """Files that the programs of `output_rows` wrote, and that a refused one did not: results, pictures and patterns."""
    faults = [fault for name in ("jacobi", "faces", "heat", "life", "skipped") for fault in check_results(name, work)]
    for app in ("jacobi", "faces", "heat", "life"):
        if not (work / f"{app}.png").read_bytes().startswith(b"\x89PNG\r\n"):
            faults.append(f"{app}.png is no PNG")
    if not re.search(r"^x = ", (work / "life.rle").read_text(), re.MULTILINE):
        faults.append("life.rle has no header")
    if (work / "every_000060.rle").read_text() != (work / "at_60.rle").read_text():
        faults.append("life -F 30 wrote another generation 60")
    for movie, frames in (("each.gif", 61), ("each_30.gif", 3), ("heat.gif", 5)):
        if frames_of(work / movie) != frames:
            faults.append(f"{movie} has {frames_of(work / movie)} frames")
    if len(list(work.glob("heat_at_*.png"))) != 4:
        faults.append(f"heat -F 10 wrote {sorted(path.name for path in work.glob('heat_at*'))}")
    written = sorted(path.name for path in work.glob("every*"))
    if written != [f"every{generation}.{end}" for generation in ("", "_000030", "_000060") for end in ("png", "rle")]:
        faults.append(f"life -F 30 wrote {written}")
    if (work / "refused.csv").exists():
        faults.append("a run that was refused left refused.csv behind")
    return faults


def output_rows():
    """Programs that write every kind of file they can."""
    for app, command in (("jacobi", VOLUME), ("faces", FACES), ("heat", HEAT), ("life", LIFE + " --rle {out}/life.rle")):
        files = " ".join(f"--{kind} {{out}}/{app}.{end}" for kind, end in (("json", "json"), ("csv", "csv"), ("image", "png")))
        yield f"{app}.files", f"{RUN} -n 2 {command} --phases {files}", 0, r"^  interior +[0-9.]+ s$"
    yield ("skipped.files", f"{RUN} -n 2 {JACOBI} --no-verify --phases --json {{out}}/skipped.json --csv {{out}}/skipped.csv", 0,
           r"^VERIFICATION: skipped")
    yield "life.write_freq", f"{RUN} -n 3 {LIFE} -F 30 --image {{out}}/every.png --rle {{out}}/every.rle", 0, PASSED
    yield "heat.movie", f"{RUN} -n 2 {HEAT_3D} -F 10 --image {{out}}/heat_at.png --movie {{out}}/heat.gif", 0, PASSED
    yield "life.movie", f"{RUN} -n 3 {LIFE_60} --movie {{out}}/each.gif", 0, PASSED
    yield "life.movie_30", f"{RUN} -n 2 {LIFE_60} -F 30 --movie {{out}}/each_30.gif", 0, PASSED
    yield "life.generation_60", f"{RUN} -n 1 {LIFE_60} --rle {{out}}/at_60.rle", 0, PASSED


def trace_rows():
    """Programs that write a timeline, by every way to ask for it."""
    for name, ranks, command, backend in (("jacobi", 2, JACOBI, "shm"), ("volume", 2, VOLUME, "ofi:tcp"), ("heat", 4, HEAT, "shm"),
                                          ("faces", 2, FACES, "shm"), ("life", 3, LIFE, "threads"), ("cg", 3, CG, "shm"),
                                          ("fft", 4, FFT, "threads"), ("channel_flow", 4, CHANNEL_FLOW, "shm")):
        threads = "--threads" if backend == "threads" else ""
        yield (f"trace.{name}", f"{RUN} -n {ranks} {threads} {command} --backend {backend} --stream host --verify --trace {{out}}/{name}.trace",
               0, PASSED)
    yield "trace.run", f"{RUN} -n 2 --trace {{out}}/run.trace {JACOBI} --verify", 0, PASSED
    yield "trace.mpi_start", f"mpiexec -n 2 {JACOBI} --verify --trace {{out}}/mpi_start.trace", 0, PASSED
    yield "trace.bench", f"{RUN} -n 2 {{bin}}/sluice-bench halo --sizes 64k --rounds 1 --trace {{out}}/bench.trace", 0, r"^# "
    yield ("trace.cuda", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench replay --stream cuda --sizes 64 --iters 5 --rounds 1 "
           "--trace {out}/cuda.trace", 0, r"^# ")
    for name, arguments in (("latency", ""), ("stream", ""), ("halo", "--neighbours 26")):
        yield (f"trace.cuda_{name}", f"{EMUCUDA} {RUN} -n 2 {{bin}}/sluice-bench {name} --stream cuda {arguments} --sizes 64 --iters 30 --rounds 1 "
               f"--trace {{out}}/cuda_{name}.trace", 0, r"^# ")


TRACED = {row[0] for row in trace_rows()}


def nested(slices):
    """Whether slices of one track lie one in another, or apart."""
    open_until = []
    for piece in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
        end = piece["ts"] + piece["dur"]
        while open_until and open_until[-1] <= piece["ts"] + 0.002:
            open_until.pop()
        if open_until and end > open_until[-1] + 0.002:
            return False
        open_until.append(end)
    return True


def check_trace(path):
    """What is wrong with a timeline."""
    events = json.loads(path.read_text())["traceEvents"]
    tracks, slices = {}, {}
    for event in events:
        if event.get("name") == "thread_name":
            tracks[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            slices.setdefault((event["pid"], event["tid"]), []).append(event)
    arrows = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "stf"}
    names = {piece["name"] for some in slices.values() for piece in some}
    if not arrows["s"] or arrows["s"].keys() != arrows["f"].keys() or not arrows["t"].keys() <= arrows["s"].keys():
        yield f"of {len(arrows['s'])} messages that are put {len(arrows['f'])} are waited for"
    if any(arrows["f"][name]["ts"] < begin["ts"] for name, begin in arrows["s"].items() if name in arrows["f"]):
        yield "a message is there before it was put"
    if not slices.keys() <= tracks.keys() or not any("host" in name for name in tracks.values()):
        yield f"its tracks are {tracks}"
    if not all(nested(some) for some in slices.values()):
        yield "slices of one track overlap"
    if path.stem == "volume" and (not arrows["t"] or "engine" not in tracks.values()):
        yield "no engine posts"
    if path.stem == "cuda" and not {"GPU stream", "host"} <= set(tracks.values()):
        yield f"no GPU's stream among {tracks}"
    if path.stem in ("jacobi", "life") and not {"interior", "sluice: pack", "wait", "put", "release", "synchronize"} <= names:
        yield f"it has {sorted(names)}"
    if any("Tool Fence" in name for name in names):
        yield "Kokkos fences for its sake"


def check_traces(work, ran):
    """Timelines that the programs of `trace_rows` wrote; `ran`: the names of rows that did."""
    absent = [f"{name} wrote no timeline" for name in ran if name in TRACED and not (work / f"{name.split('.')[1]}.trace").exists()]
    return absent + [f"{path.name}: {fault}" for path in sorted(work.glob("*.trace")) for fault in check_trace(path)]


def bench_rows():
    """Benches that write JSON."""
    for name, command, code, _ in BENCHES:
        yield f"bench.{name}", f"{command} --json {{out}}/bench.{name}.json", code, r"^# "


def placement_faults(name, row):
    """Where ranks ran, and what became of the goals of rows that have some."""
    cores = row["cores"]
    if name in ("latency.pinned", "latency.bound") and len(os.sched_getaffinity(0)) >= 2 and len(set(cores or [])) != row["ranks"]:
        yield f"its ranks are on the cores {cores}"
    if not row["line_ns"] and row["ranks"] > 1:
        yield "it does not say how long a line takes"
    if name == "copy" and (row["offset"] is None or {one["goal"] for one in row["rivals"].values()} != {0.95}):
        yield "it has a copy without its offset, or another goal than 0.95"
    verdicts = {rival: one["verdict"] for rival, one in row["rivals"].items()}
    if name == "latency.pinned" and verdicts != {"floor": "holds", "protocol_floor": "fails"}:
        yield f"its goals: {verdicts}"


def check_benches(work):
    """Files that the programs of `bench_rows` wrote."""
    faults = []
    for name, _, _, rivals in BENCHES:
        file = work / f"bench.{name}.json"
        if not file.exists():  # it did not run, which is said elsewhere
            continue
        rows = json.loads(file.read_text() or "[]")
        found = {rival for row in rows for rival in row["rivals"]}
        if not rows or any(row.keys() != BENCH_KEYS or row["bench"].removesuffix("_3d") != name.split(".")[0] for row in rows):
            faults.append(f"{file.name} has no rows, or rows of other keys than {sorted(BENCH_KEYS)}")
        faults += [f"{file.name}: {fault}" for row in rows for fault in placement_faults(name, row)]
        if any((row["stream"] == "cuda") != all(row[key] for key in ("gpu", "driver")) for row in rows):
            faults.append(f"{file.name} does not say which GPU and driver it is of, or should not")
        if found != set(rivals.split()):
            faults.append(f"{file.name} has the rivals {sorted(found)}, not {rivals}")
        values = [value for row in rows for value in (row, *row["rivals"].values()) if row["unit"] != "bytes"]  # a growth may be 0
        if not all((value["p50"] or 0) > 0 and (value.get("ratio", 1) or 0) > 0 for value in values):  # null: no number
            faults.append(f"{file.name} has a result that is not above 0")
    return faults


PING_PONGS = ["GPU", "Backend", "Buffering", "Iters", "Items", "Time"]
RUNS = ["nodes", "ntasks", "backend", "solver_creation", "solver_time", "system", "size", "memory_type", "send_type", "cycles", "app",
        "start-up", "pre-comm", "post-send", "wait-recv", "post-comm", "bench-comm"]


def lines_of(file, columns, faults):
    """The lines of a CSV file, if it is there; their columns are those that scripts of others know."""
    if not file.exists():  # what writes it did not run, which is said elsewhere
        return []
    lines = list(csv.DictReader(file.read_text().splitlines()))
    if not lines or any(list(line) != columns for line in lines):
        faults.append(f"{file.name} has no lines, or other columns than {columns}")
        return []
    return lines


def check_columns(work):
    """CSV files that the programs of `bench_rows` wrote in the columns of CUP-ECS and Comb, beside JSON that says the same."""
    faults = []
    for name, json_of, wanted in (("latency", "bench.latency.threads.json", {("sluice-threads", "db", "2"), ("floor", "db", "2"), ("protocol_floor", "db", "2")}),
                                  ("packing", "bench.packing.mpi.json", {(one, "sb", items) for one in ("sluice-shm", "mpi_packed", "mpi_datatype") for items in "12"})):
        lines = lines_of(work / f"{name}.csv", PING_PONGS, faults)
        found = {(line["Backend"], line["Buffering"], line["Items"]) for line in lines}
        if lines and (found != wanted or len(lines) != len(wanted)):
            faults.append(f"{name}.csv has {sorted(found)}, not {sorted(wanted)}")
        rows = {str(row["bytes"] // 4): row for row in json.loads((work / json_of).read_text()) if row["bytes"] < 100} if lines else {}
        for line in lines:
            row, one_way_us = rows[line["Items"]], 1e6 * float(line["Time"]) / int(line["Iters"]) / 2
            if line["Backend"].startswith("sluice") and not row["p10"] / 2 <= one_way_us <= 2 * row["p99"]:
                faults.append(f"{name}.csv: {line} is not what {json_of} says: {row['p10']} to {row['p99']} us one way")
        if any(line["GPU"] != "none" or int(line["Iters"]) < 10 or not 0 < float(line["Time"]) < 10 for line in lines):
            faults.append(f"{name}.csv: {lines}")
    runs = lines_of(work / "runs.csv", RUNS, faults)
    rows = json.loads((work / "bench.faces.json").read_text()) if runs else []
    times = {backend: sorted(1e6 * float(run["solver_time"]) / float(run["cycles"]) for run in runs if run["backend"] == backend)
             for backend in ("sluice-shm", "mpi", "mpi_persistent", "none")}
    shown = {"sluice-shm": [row["p50"] for row in rows], **{name: [row["rivals"][name]["p50"] for row in rows] for name in list(times)[1:]}}
    for backend, values in times.items():
        if [f"{value:.5g}" for value in values] != [f"{value:.5g}" for value in sorted(shown[backend])]:
            faults.append(f"runs.csv and bench.faces.json differ in {backend}: {values}, {shown[backend]}")
    for run_of in runs:
        parts = {phase: float(run_of[phase]) for phase in RUNS[12:16]}
        alike = run_of["start-up"] == run_of["solver_creation"] and run_of["bench-comm"] == run_of["solver_time"]
        known = (run_of["nodes"], run_of["ntasks"], run_of["memory_type"], run_of["app"]) == ("1", "2", "host", "faces")
        if not alike or not known or not 0 < parts["pre-comm"] or max(parts.values()) > 1.01 * float(run_of["bench-comm"]):
            faults.append(f"runs.csv: {run_of}")
    return faults


def run(row, folders, mpiexec, limit_s):
    """Returns what was wrong with a row, or None."""
    name, command, code, pattern = row
    words = [mpiexec if word == "mpiexec" else word.format(**folders) for word in command.split()]
    environment = dict(os.environ)
    if EMUCUDA in command and "ASAN_OPTIONS" in environment:
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"  # LeakSanitizer crashes at memory that the processor cannot read
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return f"{name}: still running after {limit_s} s: {' '.join(words)}"
    text = done.stdout + done.stderr
    if done.returncode != code or not re.search(pattern, text, re.MULTILINE):
        return f"{name}: exit {done.returncode} (not {code}?), wanted /{pattern}/: {' '.join(words)}\n{text}"
    if code == 2 and len(done.stderr.splitlines()) != 1:
        return f"{name}: bad input gets one clear line, not:\n{done.stderr}"
    return None


@functools.cache
def info_of(binary):
    """What sluice-info says as JSON."""
    return json.loads(subprocess.run([binary, "--json"], capture_output=True, text=True, check=True).stdout)


def missing_backend(row, binary):
    """Why a row cannot run here because of the network that it names, or None."""
    named = re.search(r"(?:--backend |SLUICE_BACKENDS=)(ofi:\w+)", row[1])
    if not named:
        return None
    for backend in info_of(binary)["backends"]:
        if backend["name"] == named[1]:
            return None if backend["usable"] else backend["why_not"]
    return f"this build has no backend {named[1]}"


def check_info(binary, work):
    """sluice-info --json has the shape that scripts rely on."""
    info = info_of(binary)
    rows = {key for backend in info["backends"] for key in backend}
    names = {backend["name"] for backend in info["backends"]}
    if not {"version", "backends", "gpus", "providers", "variables"} <= info.keys() or not {"threads", "shm"} <= names:
        return ["sluice-info --json lacks a key or a backend"]
    if not {"name", "usable", "why_not", "level"} <= rows:
        return ["sluice-info --json: backends lack a key"]
    if not info["providers"]:
        return []
    (work / "broken").mkdir()
    (work / "broken" / "libfabric.so.1").write_text("this is no library\n")
    emulation = {"FI_PROVIDER_PATH": str(binary.resolve().parent.parent / "providers"), "EMUCXI_TLES": "no number"}
    return [
        *check_why_not(binary, "libfabric", "cannot be loaded", {"LD_LIBRARY_PATH": str(work / "broken")}),
        *check_why_not(binary, "emucxi", "no device", emulation),
    ]


def check_why_not(binary, name, why_not, variables):
    """sluice-info goes on where a network cannot be used, and says why."""
    done = subprocess.run([binary, "--json"], capture_output=True, text=True, check=False, env={**os.environ, **variables})
    rows = {row["name"]: row for row in json.loads(done.stdout)["providers"]} if done.returncode == 0 else {}
    if why_not not in rows.get(name, {}).get("why_not", ""):
        return [f"sluice-info does not say why it cannot use {name}: exit {done.returncode}, {rows}\n{done.stderr}"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--mpiexec", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--full", action="store_true", help="run what takes long, and nothing else")
    options = parser.parse_args()
    faults, ran, ran_rows = [], 0, []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "bad.rle").write_text("x = 3, y = 3\nbob$2?o!\n")
        (work / "ucx_perftest").write_text("#!/bin/sh\necho 10000,1.0,1.5,2.5,3.0,3.0,400000,400000\n")
        (work / "ucx_perftest").chmod(0o755)
        # Runs a program, for rank 0 in a folder that the others have not.
        (work / "timelines").mkdir()
        (work / "in_folder_of_rank_0").write_text(f'#!/bin/sh\nprogram=$(realpath "$1")\nshift\n[ "$SLUICE_RANK" != 0 ] || cd {work}\nexec "$program" "$@"\n')
        (work / "in_folder_of_rank_0").chmod(0o755)
        (work / "killed_as_rank_1").write_text('#!/bin/sh\n[ "$SLUICE_RANK" != 1 ] || (sleep 1; kill -9 $$) &\nexec "$@"\n')
        (work / "killed_as_rank_1").chmod(0o755)
        # Kills the program once there is a line, or after 20 s.
        (work / "killed_into_a_file").write_text(
            f'#!/bin/sh\n: >{work}/killed.txt\n"$@" >>{work}/killed.txt 2>/dev/null &\n'
            f'for i in $(seq 200); do grep -q . {work}/killed.txt && break; sleep 0.1; done\nkill -9 $!\ncat {work}/killed.txt\n')
        (work / "killed_into_a_file").chmod(0o755)
        (work / "into_a_full_device").write_text('#!/bin/sh\nexec "$@" >/dev/full\n')
        (work / "into_a_full_device").chmod(0o755)
        emucuda = options.bin.resolve().parent / "emucuda"
        folders = {"bin": options.bin, "source": options.source, "out": work, "emucuda": emucuda}
        all_rows = FULL_ROWS if options.full else [*ROWS, *output_rows(), *trace_rows(), *bench_rows()]
        rows = [row for row in all_rows if options.only in row[0]]
        with_kokkos = (options.bin / "jacobi").exists()
        for row in rows:
            needs = row[1].split()
            programs = [pathlib.Path(word.format(**folders)) for word in needs if word.startswith("{bin}")]
            absent = [program.name for program in programs if not program.exists()]
            if " packing" in row[1] and with_kokkos == row[0].endswith("without_kokkos"):
                absent.append("build without Kokkos" if with_kokkos else "Kokkos")
            absent += [] if emucuda.exists() or EMUCUDA not in row[1] else ["emulated GPU"]
            # A sanitizer has to be the first library of a program.
            for before_mpi in (OUR_WINDOWS, OUR_STREAM_MPI):
                library = pathlib.Path(before_mpi.split("=")[1].format(**folders))
                absent += [] if before_mpi not in row[1] or ("ASAN_OPTIONS" not in os.environ and library.exists()) else ["library before MPI"]
            if absent or ("mpiexec" in needs and not options.mpiexec):
                print(f"not in this build: {row[0]} (no {absent[0] if absent else 'MPI'})")
                continue
            why_not = missing_backend(row, options.bin / "sluice-info")
            if why_not:
                print(f"SKIPPED-HERE: programs.{row[0]}: {why_not}")
                continue
            fault = run(row, folders, options.mpiexec, 800 if options.full else 100)
            faults += [fault] if fault else []
            ran += 1
            ran_rows.append(row[0])
        if not options.full:
            faults += check_benches(work) + check_traces(work, ran_rows) + check_columns(work)
        if not options.only and not options.full:
            faults += check_info(options.bin / "sluice-info", work)
            if (options.bin / "jacobi").exists():
                faults += check_outputs(work)
    for fault in faults:
        print(fault)
    print(f"programs: {ran} runs, {len(faults)} faults")
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
