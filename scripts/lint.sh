# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# ./dev lint.

# Of every folder but the build's and hidden ones.
sources() { find . \( -path ./build -o -path './.?*' \) -prune -o \( -name '*.[ch]pp' -o -name '*.[ch]' -o -name '*.cu' \) -print | sort; }

# The sources that are compiled, each with the flags of one of its compilations: clang-tidy would check a source of several programs
# once for each. Headers are checked where included, and so are the sources that the build compiles together.
compiled_sources() {
  python3 - "$PWD" <<'PY'
import json, os, sys
root = sys.argv[1]
once = {}
for entry in json.load(open("build/lint/compile_commands.json")):
    file = os.path.relpath(entry["file"], root)
    if not file.lower().endswith(".f90") and ("/Unity/" in file or not file.startswith(("build/", ".."))):
        once.setdefault(file, entry)
os.makedirs("build/lint/once", exist_ok=True)
json.dump(list(once.values()), open("build/lint/once/compile_commands.json", "w"))
print("\n".join(sorted(once)))
PY
}

lint_step() {
  local name=$1 start=$SECONDS
  shift
  if quiet "lint-$name" "$@"; then
    printf '  %-12s passed (%s s)\n' "$name" "$((SECONDS - start))" | tee -a "$logs/lint-summary"
  else
    printf '  %-12s FAILED (%s s)\n' "$name" "$((SECONDS - start))" | tee -a "$logs/lint-summary"
    return 1
  fi
}

lint_format() { sources | xargs clang-format --dry-run -Werror; }

# lint_tidy CHECKS: those of .clang-tidy, but for these. The omp.h that Kokkos includes is found last of all headers, beside gcc's own,
# which clang must not see before its own. Clang does not have all of gcc's options.
lint_tidy() {
  compiled_sources | xargs -P "$jobs" -n 1 "$clang_tidy/bin/clang-tidy" -p build/lint/once --quiet --checks="$1" \
    --extra-arg="-idirafter$(g++ -print-file-name=include)" --extra-arg=-Wno-unused-command-line-argument
}

cmd_lint() {
  # The first two took 45 of the 120 CPU seconds of all checks that this leaves, parsing aside.
  local checks='-bugprone-forward-declaration-namespace,-bugprone-throw-keyword-missing' together=ON status=0
  checks+=',-cppcoreguidelines-*,-google-*,-misc-*,-modernize-*,-readability-*'
  if [ "${1:-}" = --full ]; then
    checks='' together=OFF && shift  # each source by itself, so that it includes what it uses
  fi
  [ $together = OFF ] || checks+=',-bugprone-suspicious-include'  # of sources
  [ $# = 0 ] || bad_usage "lint does not know '$1'"
  setup_preset release lint clang-tidy
  mkdir -p "$logs"
  : >"$logs/lint-summary"
  say "lint: format, house, shell, clang-tidy"
  local steps=() step
  lint_step format lint_format & steps+=($!)
  lint_step house python3 tests/house.py & steps+=($!)
  lint_step shell shellcheck -x -a dev .ci/run & steps+=($!)
  lint_step configure cmake --preset lint -DCMAKE_UNITY_BUILD=$together -DSLUICE_UNITY_BUILD=$together \
    -DCMAKE_UNITY_BUILD_BATCH_SIZE=40 || status=1
  for step in "${steps[@]}"; do wait "$step" || status=1; done
  lint_step clang-tidy lint_tidy "$checks" || status=1
  return $status
}
