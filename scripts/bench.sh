# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev bench and ./dev plots.

bin=build/apps/bin

# bench_rows NAME COMMAND...: runs it, with its rows in a file of that name.
bench_rows() {
  local json=build/bench/$1.json
  shift
  say "bench: $* --json $json"
  benched+=("$json")
  "$@" --json "$json"
}

# The verdicts of all goals in these files.
goals_of() {
  python3 - "$@" <<'PYTHON'
import collections, json, pathlib, sys
verdicts = collections.defaultdict(list)
for path in map(pathlib.Path, sys.argv[1:]):
    for row in json.loads(path.read_text()) if path.exists() else []:
        for name, rival in row["rivals"].items():
            size = "" if row["bytes"] is None else f", {row['bytes']} B"
            verdicts[rival["verdict"]].append(f"{path.stem}, {row['metric']}{size}: {rival['ratio']:.2f} of {name}, goal {rival['goal']}")
print("dev: bench: goals:", ", ".join(f"{len(verdicts[verdict])} {verdict}" for verdict in ("holds", "inconclusive", "fails")))
for verdict in ("inconclusive", "fails"):
    for line in verdicts[verdict]:
        print(f"  {verdict}: {line}")
PYTHON
}

# Whether this build can use a backend here.
has_backend() {
  "$bin/sluice-info" --json | python3 -c '
import json, sys
backends = json.load(sys.stdin)["backends"]
sys.exit(not any(b["name"] == sys.argv[1] and b["usable"] for b in backends))' "$1"
}

# bench_network PROVIDER: the MPI rivals too, where the mpiexec at hand starts an MPICH that has libfabric.
bench_network() {
  local provider=$1 launch=("$bin/sluice-run")
  has_backend "ofi:$provider" || return 0
  if command -v mpichversion >/dev/null && mpichversion | grep -q '^MPICH Device:.*ofi'; then
    launch=(env MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 FI_PROVIDER="$provider" mpiexec)
  fi
  for name in latency bandwidth rate; do
    bench_rows "$name-ofi-$provider" "${launch[@]}" -n 2 "$bin/sluice-bench" "$name" --backend "ofi:$provider" --rounds 10
  done
  bench_rows "rma-ofi-$provider" "${launch[@]}" -n 2 "$bin/sluice-bench" rma --backend "ofi:$provider" --rounds 10 --goal ofi_floor_access=0.8
  bench_rows "model-ofi-$provider" "$bin/sluice-run" -n 2 "$bin/sluice-bench" model --backend "ofi:$provider" --rounds 3
  bench_rows "progress-ofi-$provider" "$bin/sluice-run" -n 2 "$bin/sluice-bench" progress --backend "ofi:$provider"
}

cmd_bench() {
  local apps=''
  [ "${1:-}" != --apps ] || { apps=yes && shift; }
  [ $# = 0 ] || bad_usage "bench takes --apps alone"
  setup_preset apps
  build apps all
  mkdir -p build/bench
  local run=$bin/sluice-run measure=$bin/sluice-bench four name benched=()
  [ "$(nproc)" -ge 4 ] && four=mpiexec || four=$run  # ranks of MPI that share a core need milliseconds for a message
  bench_rows latency mpiexec -n 2 "$measure" latency --goal 'floor=0.97@64k:4m,mpi*=1'
  bench_rows latency-depth-2 "$run" -n 2 "$measure" latency --depth 2 --sizes 8:16k --goal protocol_floor=0.85
  bench_rows latency-depth-2-read mpiexec -n 2 "$measure" latency --depth 2 --touch --sizes 8:16k --goal 'protocol_floor=0.85,mpi*=1'
  bench_rows latency-user mpiexec -n 2 "$measure" latency --memory user \
    --goal 'mpi=1.5@8:4k,mpi=2@8k:256k,mpi*=1@512k:4m,shared_copy=0.8@512k:4m,two_copies=0.95'
  bench_rows latency-user-read mpiexec -n 2 "$measure" latency --memory user --touch --against mpi,shared_copy,two_copies \
    --goal 'mpi=1@8:4m,shared_copy=0.8@512k:4m,two_copies=0.95'
  bench_rows latency-user-heap mpiexec -n 2 env "LD_PRELOAD=$PWD/build/apps/libsluice_heap.so" "$measure" latency --memory user --against floor,mpi --rounds 10 \
    --goal 'mpi=1.5@8:4k,mpi=2@8k:256k,mpi*=1@512k:4m'
  bench_rows bandwidth mpiexec -n 2 "$measure" bandwidth --sizes 64:1m --goal 'mpi*=1'
  bench_rows bandwidth-user mpiexec -n 2 "$measure" bandwidth --sizes 64:1m --memory user --goal mpi=1,mpi_persistent=1
  bench_rows rate mpiexec -n 2 "$measure" rate --batch --goal 'floor=0.45@8,batches/floor=0.75@8'
  bench_rows stream mpiexec -n 2 "$measure" stream --goal enqueued/floor=0.85,synchronised/floor=0.55
  bench_rows pipeline mpiexec -n 2 "$measure" pipeline
  bench_rows pipeline-4 "$four" -n 4 "$measure" pipeline
  bench_rows halo mpiexec -n 2 "$measure" halo
  bench_rows rma mpiexec -n 2 "$measure" rma \
    --goal 'fetch_add/mpi_rma=1.5@8,flush/mpi_rma=1.5@0:8,notice/mpi_rma=3,notify/mpi_rma=3@8,fence/mpi_rma=1.5,post/mpi_rma=1.5,lock/mpi_rma=1.5,just written/floor=0.77@64,just written/floor=0.952@64k'
  bench_rows mpi_windows mpiexec -n 2 env "LD_PRELOAD=$PWD/build/apps/libsluice_mpi_rma.so" "$measure" mpi_windows --goal sluice_api=0.77
  bench_rows stream_mpi mpiexec -n 2 env "LD_PRELOAD=$PWD/build/apps/libsluice_mpis.so" "$measure" stream_mpi \
    --goal enqueued/mpi_persistent=1.5,synchronised/mpi_persistent=0.8
  bench_rows stream_mpi-user-heap mpiexec -n 2 env "LD_PRELOAD=$PWD/build/apps/libsluice_heap.so $PWD/build/apps/libsluice_mpis.so" "$measure" stream_mpi \
    --memory user --rounds 10 --goal enqueued/mpi_persistent=1.5,synchronised/mpi_persistent=0.8
  bench_rows hash_table mpiexec -n 2 "$measure" hash_table --goal mpi_rma=1.5
  bench_rows sparse_exchange mpiexec -n 2 "$measure" sparse_exchange --goal 'mpi*=1.5'
  bench_rows collectives mpiexec -n 2 "$measure" collectives --touch --goal 'mpi_collectives=1.3,mpi_win*=1.5'
  bench_rows slices mpiexec -n 2 "$measure" slices --goal 'mpi_collectives=1.3'
  bench_rows model "$run" -n 2 "$measure" model --rounds 4
  bench_rows model-threads "$run" -n 2 --threads "$measure" model --rounds 4
  bench_rows packing mpiexec -n 2 "$measure" packing --rounds 10
  bench_rows overlap mpiexec -n 2 "$measure" overlap
  bench_rows scale "$run" -n 8 "$measure" scale
  bench_rows setup "$run" -n 2 "$measure" setup
  bench_rows setup-256 "$run" -n 256 --threads "$measure" setup
  bench_rows copy "$measure" copy --offsets 0,1,16,4080
  bench_rows failure "$run" -n 4 "$measure" failure || [ $? = 137 ]  # its last rank kills itself
  bench_rows progress "$run" -n 2 "$measure" progress
  bench_network tcp
  [ -z "$apps" ] || bench_rows apps python3 apps/bench_apps.py "$bin/"{jacobi,faces,heat,life,cg,fft,channel_flow}
  "$run" -n 2 --trace build/bench/timeline.json "$bin/jacobi" --nx 512 --ny 512 --niter 40 --nccheck 0 --stream host --no-verify
  goals_of "${benched[@]}"
  say "bench: JSON in build/bench"
}

# The script for a file of rows is that of its bench: latency-user.json is drawn by docs/plots/latency.py.
figure_of() {
  local name=${1##*/}
  name=${name%.json}
  case ${name%%-*} in latency | bandwidth | rate | halo | model | rma | scale | apps | timeline) echo "docs/plots/${name%%-*}.py" ;; esac
}

cmd_plots() {
  local python out=build/plots file files measured=(build/bench/*.json)
  if [ "${1:-}" = --out ]; then
    out=${2:-}
    [ -n "$out" ] || bad_usage "plots: --out takes a folder"
    shift 2
  fi
  files=("$@")
  for file in "$@"; do
    [ -n "$(figure_of "$file")" ] || bad_usage "plots: no figure is drawn of '$file': its name begins with no bench that has one"
    [ -e "$file" ] || bad_usage "plots: '$file' is not there"
  done
  [ $# -gt 0 ] || files=("${measured[@]}")
  [ -e "${files[0]}" ] || fail "plots: ${files[0]} is not there; ./dev bench measures"
  setup plots
  python=$(plotting_python) || fail "plots: matplotlib 3.6 or newer is not installed"
  for file in "${files[@]}"; do
    [ -z "$(figure_of "$file")" ] || "$python" -B "$(figure_of "$file")" "$file" --out "$out"
  done
}
