# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev test and ./dev docs.

# What tests of googletest said that failed, from a log of ctest; of one that its program did not survive, the last lines.
failures() {
  awk '
    function end_program() {
      if (running != "") { print "  did not end: " running; for (i = 9; i >= 0; --i) if (n > i) print "    " last[(n - i) % 10] }
      running = ""; n = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#/ { end_program() }
    /^\[ RUN / { running = $4; n = told = said = 0; next }
    /^\[       OK / || /^\[  SKIPPED / { running = "" }
    /^\[  FAILED  .* ms\)$/ { sub(",", "", $4); print "  " $4; for (i = 0; i < said; ++i) print "    " lines[i]; running = ""; said = 0 }
    running != "" { last[++n % 10] = $0; if (/: Failure$/) told = 10; if (told-- > 0 && said < 40) lines[said++] = $0 }
    END { end_program() }' "$1"
}

# suite PRESET TARGET CTEST-ARGS...: builds TARGET, runs ctest, and adds to the summary. Fails if a test did.
suite() {
  local preset=$1 target=$2 log=$logs/test-$1.log status=0 start=$SECONDS built more=()
  shift 2
  [ "$preset" != release ] || [ $# -gt 0 ] || more=(plots)  # all tests, also of the figures
  { setup_preset "$preset" "${more[@]}" && build "$preset" "$target"; } || { printf '%-8s build failed\n' "$preset" >>"$logs/summary" && return 1; }
  built=$((SECONDS - start))
  [ -n "${SLUICE_USER_TEST_DRAW:-}" ] || SLUICE_USER_TEST_DRAW=$(git rev-parse --short=8 HEAD 2>/dev/null || echo 0)
  export SLUICE_USER_TEST_DRAW  # tests/chosen.hpp
  say "test: $preset: ctest $*"
  # Tests wait for each other's ranks more than they compute. Of one that failed, what passed is in the log alone.
  ctest --preset "$preset" --no-tests=error -j $((3 * jobs)) "$@" 2>&1 | tee "$log" |
    grep -v --line-buffered '^\[ RUN  \|^\[       OK \|^\[------' || status=1
  {
    printf '%-8s %s; set-up and build %s s, tests %s s; SLUICE_USER_TEST_DRAW=%s\n' "$preset" \
      "$(grep 'tests passed' "$log" || echo 'ctest did not finish')" "$built" $((SECONDS - start - built)) "$SLUICE_USER_TEST_DRAW"
    sed -n '/^The following tests FAILED/,/^Errors while/{/^\t/p}' "$log"
    failures "$log"
  } >>"$logs/summary"
  return $status
}

# Applications and tests on Kokkos for CUDA, and the rivals that need NCCL and NVSHMEM. To run them takes a GPU.
compile_for_gpus() {
  local programs=(jacobi faces heat life kokkos_spaces_test sluice-bench rival-nccl rival-nvshmem) outcome=compiled start=$SECONDS
  if [ "$(uname -sm)" != 'Linux x86_64' ]; then
    echo 'cuda     not compiled: this is not Linux on x86_64' >>"$logs/summary"
    return
  fi
  { setup_preset release && setup_rivals && NCCL_HOME=$rivals/nccl NVSHMEM_HOME=$rivals/nvshmem Kokkos_ROOT='' build cuda "${programs[@]}"; } || outcome='build failed'
  # Of kernels in constant memory the host waits at each launch until the last one has run.
  if [ "$outcome" = compiled ]; then
    local symbols=''
    symbols=$(nm -C build/cuda/bin/{jacobi,faces,heat,life,kokkos_spaces_test,sluice-bench}) &&
      [[ $symbols == *launch_local_memory* ]] || outcome='kernels not found'
    [[ $symbols != *launch_constant_memory* ]] || outcome='kernels in constant memory'
  fi
  printf '%-8s %s: %s; %s s\n' cuda "$outcome" "${programs[*]}" $((SECONDS - start)) >>"$logs/summary"
  [ "$outcome" = compiled ]
}

# The oldest Kokkos that we are for: what uses Kokkos is compiled with it, and its tests are run.
test_oldest_kokkos() {
  local folder=build/kokkos-oldest outcome=passed start=$SECONDS prefix=$cache/kokkos-$kokkos_oldest
  local tests='^(kokkos|kokkos.halo|kokkos.spaces|unit.jacobi|unit.faces|unit.heat|unit.life|unit.cells)$'
  {
    setup_preset release && setup_kokkos "$prefix" processors "$kokkos_oldest" &&
      quiet configure-kokkos-oldest cmake --preset release -B "$folder" -DKokkos_ROOT="$prefix" &&
      quiet build-kokkos-oldest cmake --build "$folder" -j "$jobs" --target jacobi faces heat life kokkos_test kokkos_halo_test \
        kokkos_spaces_test solvers_test cells_test &&
      ctest --test-dir "$folder" --no-tests=error --output-on-failure -j "$jobs" -R "$tests"
  } || outcome=FAILED
  printf '%-8s %s: with Kokkos %s; %s s\n' kokkos "$outcome" "$kokkos_oldest" $((SECONDS - start)) >>"$logs/summary"
  [ "$outcome" = passed ]
}

# What tests said they could not do here: lines "SKIPPED-HERE: name: reason".
list_skipped() {
  local lists=() preset
  for preset in "$@"; do
    [ ! -f "build/$preset/Testing/Temporary/LastTest.log" ] || lists+=("build/$preset/Testing/Temporary/LastTest.log")
  done
  [ ${#lists[@]} -gt 0 ] || return 0
  local skipped
  skipped=$(grep -ho 'SKIPPED-HERE: .*' "${lists[@]}" | sort -u | sed 's/^SKIPPED-HERE: /  /' || true)
  if [ -n "$skipped" ]; then
    printf 'not run, because this machine cannot:\n%s\n' "$skipped"
  else
    echo 'not run, because this machine cannot: none'
  fi
}

# test_part NAME: one part of the full test.
test_part() {
  case $1 in
    cuda) compile_for_gpus ;;
    kokkos) test_oldest_kokkos ;;
    release) suite "$1" all ;;
    asan | tsan) suite "$1" all -LE full ;;  # which takes several times as long there
  esac
}

cmd_test() {
  local presets=(release) target=all which=(-LE full) parts=() part status=0 only_built=''
  case ${1:-} in
    '') ;;
    --sanitizers)
      presets=(asan tsan) target=build-sanitized which=(-L conformance -LE 'full|slow') without_kokkos=yes && shift
      [ "${1:-}" != --only-built ] || { only_built=yes && shift; } ;;
    --preset)
      presets=("${2:-}") && is_preset "${presets[0]}" && shift 2
      [[ ! ${presets[0]} =~ ^(apps|install|install-tsan)$ ]] || bad_usage "the preset ${presets[0]} has no tests" ;;
    --full)
      shift
      parts=("$@")
      [ $# -gt 0 ] || parts=(release asan tsan cuda kokkos)
      for part in "${parts[@]}"; do
        [[ $part =~ ^(release|asan|tsan|cuda|kokkos)$ ]] || bad_usage "no part '$part' of the full test (release, asan, tsan, cuda, kokkos)"
      done
      presets=() && set --
      for part in "${parts[@]}"; do [[ ! $part =~ ^(release|asan|tsan)$ ]] || presets+=("$part"); done ;;
  esac
  [ $# = 0 ] || bad_usage "test does not know '$1'"
  mkdir -p "$logs"
  if [ -n "$only_built" ]; then
    for part in "${presets[@]}"; do setup_preset "$part" && build "$part" "$target" || return; done
    return
  fi
  : >"$logs/summary"
  if [ ${#parts[@]} -gt 0 ]; then
    for part in "${parts[@]}"; do (test_part "$part") || status=1; done
  else
    for part in "${presets[@]}"; do suite "$part" "$target" "${which[@]}" || status=1; done
  fi
  list_skipped "${presets[@]}" >>"$logs/summary"
  say "test: summary"
  cat "$logs/summary"
  return $status
}

cmd_docs() {
  [ $# = 0 ] || bad_usage "docs takes no arguments"
  setup_preset release
  build release all
  ctest --preset release -R '^docs$'
}
