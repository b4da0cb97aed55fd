# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev bench and ./dev plots.

bin=build/apps/bin

# bench_rows NAME COMMAND...: runs it, with its rows in a file of that name.
bench_rows() {
  local json=build/bench/$1.json
  shift
  say "bench: $* --json $json"
  "$@" --json "$json"
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
    bench_rows "$name-ofi-$provider" "${launch[@]}" -n 2 "$bin/sluice-bench" "$name" --backend "ofi:$provider" --pin
  done
  bench_rows "progress-ofi-$provider" "$bin/sluice-run" -n 2 "$bin/sluice-bench" progress --backend "ofi:$provider"
}

cmd_bench() {
  [ $# = 0 ] || bad_usage "bench takes no arguments"
  setup_preset apps
  build apps all
  mkdir -p build/bench
  local run=$bin/sluice-run measure=$bin/sluice-bench name
  for name in latency bandwidth; do
    bench_rows "$name" mpiexec -n 2 "$measure" "$name" --pin
    bench_rows "$name-user" mpiexec -n 2 "$measure" "$name" --memory user --pin
  done
  for name in rate stream halo packing; do
    bench_rows "$name" mpiexec -n 2 "$measure" "$name" --pin
  done
  bench_rows overlap mpiexec -n 2 "$measure" overlap  # its host stream may have a core of its own
  bench_rows scale "$run" -n 8 "$measure" scale --pin
  bench_rows setup "$run" -n 2 "$measure" setup --pin
  bench_rows setup-256 "$run" -n 256 --threads "$measure" setup
  bench_rows failure "$run" -n 4 "$measure" failure || [ $? = 137 ]  # its last rank kills itself
  bench_rows progress "$run" -n 2 "$measure" progress
  bench_network tcp
  bench_rows apps python3 apps/bench_apps.py "$bin/"{jacobi,faces,heat,life}
  "$run" -n 2 --trace build/bench/timeline.json "$bin/jacobi" --nx 512 --ny 512 --niter 40 --nccheck 0 --stream host --no-verify
  say "bench: JSON in build/bench"
}

# The script for a file of rows is that of its bench: latency-user.json is drawn by docs/plots/latency.py.
figure_of() {
  local name=${1##*/}
  name=${name%.json}
  case ${name%%-*} in latency | bandwidth | rate | halo | scale | apps | timeline) echo "docs/plots/${name%%-*}.py" ;; esac
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
