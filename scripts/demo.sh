# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev demo.

bin=build/apps/bin

# demo_case RANKS OUTPUT-FLAGS PROGRAM ARGS...: the same program and flags with Sluice, and with MPI, for the halo.
demo_case() {
  local ranks=$1 outputs=$2 program=$3 out=build/demo/$3-$1
  shift 3
  say "demo: sluice-run -n $ranks $program $*"
  # shellcheck disable=SC2086  # several flags in one word
  "$bin/sluice-run" -n "$ranks" "$bin/$program" "$@" --comm sluice --json "$out-sluice.json" $outputs
  say "demo: mpiexec -n $ranks $program $* --comm mpi_persistent"
  mpiexec -n "$ranks" "$bin/$program" "$@" --comm mpi_persistent --json "$out-mpi.json"
}

demo_table() {
  python3 - build/demo "$(nproc)" "$@" <<'PY'
import json, pathlib, sys
folder, cores, cases = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
print(f"\n{cores} cores, one run each; a ratio above 1 means that Sluice is faster")
print(f"{'':8}{'ranks':>6}{'mesh':>15}{'steps':>7}{'Sluice us/step':>16}{'MPI us/step':>13}{'ratio':>7}  verification")
for case in cases:
    ours, mpi = (json.loads((folder / f"{case}-{comm}.json").read_text()) for comm in ("sluice", "mpi"))
    note = "  (more ranks than cores: MPI polls in turns)" if ours["ranks"] > cores else ""
    mesh = " x ".join(str(ours[side]) for side in ("nx", "ny", "nz") if side != "nz" or ours["nz"] > 1)
    print(f"{ours['app']:8}{ours['ranks']:>6}{mesh:>15}{ours['steps']:>7}{ours['step_us']:>16.1f}{mpi['step_us']:>13.1f}"
          f"{mpi['step_us'] / ours['step_us']:>7.2f}  {ours['verification']} / {mpi['verification']}{note}")
PY
}

cmd_demo() {
  [ $# = 0 ] || bad_usage "demo takes no arguments"
  setup_preset apps
  build apps jacobi heat life sluice-run
  mkdir -p build/demo
  local jacobi=(jacobi -nx 1024 -ny 1024 -niter 1000 -nccheck 100 --verify)
  local life=(life --pattern apps/life/patterns/acorn.rle --nx 1024 --ny 1024 --timesteps 1500 --verify)
  local heat=(heat --dims 3 -n 96 -t 400 --verify)
  local cases=(jacobi-4 heat-4 life-4) fit
  demo_case 4 "--image build/demo/jacobi.png" "${jacobi[@]}"
  demo_case 4 "--image build/demo/heat.png" "${heat[@]}"
  demo_case 4 "--image build/demo/life.png --rle build/demo/life.rle" "${life[@]}"
  fit=$(nproc)
  if [ "$fit" -gt 1 ] && [ "$fit" -lt 4 ]; then  # fair to who polls: no more ranks than cores
    demo_case "$fit" '' "${jacobi[@]}"
    demo_case "$fit" '' "${heat[@]}"
    demo_case "$fit" '' "${life[@]}"
    cases+=("jacobi-$fit" "heat-$fit" "life-$fit")
  fi
  demo_table "${cases[@]}"
  say "demo: pictures: build/demo/jacobi.png build/demo/heat.png build/demo/life.png; the last generation: build/demo/life.rle; JSON beside them"
}
