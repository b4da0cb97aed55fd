# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Presets, and how they are configured and built.

is_preset() {
  [[ $1 =~ ^(release|debug|asan|tsan|apps|install|install-tsan|cuda|hip)$ ]] ||
    bad_usage "no preset '$1' (release, debug, asan, tsan, apps, install, install-tsan, cuda, hip)"
}

# The folder of one of Python's packages, if it is there.
python_package() {
  python3 -c 'import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
print(spec.submodule_search_locations[0] if spec else "")' "$1" 2>/dev/null || true
}

# configure_for_gpus PRESET TARGET...: for a machine where maybe nothing can be installed. It uses what is there, and folders that variables
# name. Only Kokkos is built if need be, and only where TARGET is a program that uses it.
configure_for_gpus() {
  local preset=$1 root=${Kokkos_ROOT:-} parts=(-DSLUICE_ENABLE_KOKKOS=OFF) package name folder
  shift
  if [ "$preset" = cuda ]; then
    local nvcc
    nvcc=$(find_nvcc) || fail "cuda: nvcc 12.0 or newer must be there: in PATH, or named by CUDACXX"
    export PATH="${nvcc%/*}:$PATH"  # where Kokkos' compiler script looks for it
  fi
  if [[ " ${*:-all} " =~ ' '(all|jacobi|faces|heat|life|kokkos_spaces_test)' ' ]]; then
    if [ "$preset" = cuda ] && [ -z "$root" ]; then
      root=$kokkos-cuda-$(kokkos_gpu)-2  # a number more whenever `fit_kokkos_to_cuda` changes
      setup_kokkos "$root" cuda || return
    fi
    parts=(-DSLUICE_ENABLE_KOKKOS=ON -DKokkos_ROOT="${root:-$kokkos}")
  fi
  command -v ninja >/dev/null || parts+=(-G 'Unix Makefiles')
  for package in GTest CLI11 fmt nlohmann_json; do
    name=SLUICE_SOURCE_$package
    [ -z "${!name:-}" ] || parts+=("-D$name=${!name}")
  done
  [ -z "${SLUICE_ENABLE_HIP:-}" ] || parts+=("-DSLUICE_ENABLE_HIP=$SLUICE_ENABLE_HIP")
  [ -z "${LIBFABRIC_HOME:-}" ] || parts+=("-DSLUICE_LIBFABRIC_DIR=$LIBFABRIC_HOME")
  for package in NCCL NVSHMEM; do
    name=${package}_HOME
    folder=${!name:-$(python_package "nvidia.${package,,}")}
    [ -z "$folder" ] || parts+=("-DSLUICE_${package}_DIR=$folder")
  done
  quiet "configure-$preset" cmake --preset "$preset" "${parts[@]}"
}

build() {
  local preset=$1 start=$SECONDS
  shift
  say "build: $preset (${*:-everything})"
  case $preset in
    cuda | hip) configure_for_gpus "$preset" "$@" || return ;;
    *) quiet "configure-$preset" cmake --preset "$preset" ${without_kokkos:+-DSLUICE_ENABLE_KOKKOS=OFF} || return ;;
  esac
  quiet "build-$preset" cmake --build "build/$preset" -j "$jobs" ${@:+--target "$@"} || return
  say "build: $preset done in $((SECONDS - start)) s: build/$preset/bin"
}

cmd_build() {
  local preset=release
  if [ "${1:-}" = --preset ]; then
    preset=${2:-}
    is_preset "$preset"
    shift 2
  fi
  setup_preset "$preset"
  build "$preset" "$@"
}
