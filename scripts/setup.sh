# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What a machine needs, and where it comes from: packages of Debian and PyPI. Each part is set up by those commands that use it.

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice
kokkos_version=4.7.0
kokkos_oldest=4.5.1
kokkos=$cache/kokkos-$kokkos_version
cuda=$cache/cuda-13.0
rivals=$cache/rivals-cuda-13
clang_tidy=$cache/clang-tidy-23.1.4

# Networks and package servers have bad moments.
twice() { "$@" || { sleep 5 && "$@"; }; }

# What each part takes of Debian's packages. `setup` installs what several parts take at once.
declare -A packages=(
  [compiler]='g++ cmake ninja-build pkg-config ca-certificates python3'
  [library]='libfabric-dev libhwloc-dev libjemalloc-dev mpich libmpich-dev'
  [programs]='libcli11-dev libfmt-dev nlohmann-json3-dev libpng-dev libgif-dev libfftw3-dev'
  [tests]='libgtest-dev iproute2 locales make'
  [wheels]='python3-pip'
  [plots]='python3-matplotlib'
  [lint]='clang-format shellcheck')

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

install_packages() { apt update && apt install -y --no-install-recommends "$@"; }

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"
  done
}

setup_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "setup: this is no Debian; these, or what your system calls them, must be there: $*"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || fail "setup: needs root or sudo to install: ${missing[*]}"
  say "setup: installing Debian packages: ${missing[*]}"
  quiet setup-packages twice install_packages "${missing[@]}"
}

# Debian 12 has Kokkos 3.4 and PyPI no package of Kokkos; source packages of others carry a whole Kokkos tree, each of one version.
declare -A kokkos_package=(
  [4.7.0]='pygenten==0.1.5 --hash=sha256:e620f05c742905e2db705d875f1cac92ef0ed453f9e6734e9beda26cc0f9cce7'
  [4.5.1]='pycompadre==1.7.6 --hash=sha256:c766ec4d445ce076069be4b8c51a23ffac4ee79ea949ca86446bfd8c299b154c')
declare -A kokkos_folder=([4.7.0]=pygenten-0.1.5/tpls/kokkos [4.5.1]=pycompadre-1.7.6/kokkos)

kokkos_archive() { echo "$cache/downloads/${kokkos_folder[$1]%%/*}.tar.gz"; }

download_kokkos() {
  local list package=${kokkos_package[$1]}
  list=$(mktemp)
  printf '%s\n' "$package" >"$list"
  python3 -m pip download -q --no-deps --no-binary "${package%%=*}" --require-hashes -r "$list" -d "$cache/downloads"
  local status=$?
  rm -f "$list"
  return $status
}

kokkos_archive_is_whole() {
  local archive
  archive=$(kokkos_archive "$1")
  [ -f "$archive" ] && printf '%s  %s\n' "${kokkos_package[$1]##*:}" "$archive" | sha256sum -c --status -
}

# unpack_kokkos FOLDER VERSION: as it is in its source package, or in a folder that somebody brought along.
unpack_kokkos() {
  local folder=${kokkos_folder[$2]}
  mkdir "$1"
  if [ -n "${SLUICE_SOURCE_Kokkos:-}" ] && [ "$2" = "$kokkos_version" ]; then
    cp -R "$SLUICE_SOURCE_Kokkos/." "$1"
  else
    tar -xzf "$(kokkos_archive "$2")" -C "$1" --strip-components "$(tr '/' '\n' <<<"$folder" | wc -l)" "$folder"
  fi
}

# build_kokkos PREFIX processors|threads|cuda VERSION: installs beside the final place and renames, so that an interrupted setup leaves
# nothing that looks like a Kokkos.
build_kokkos() {
  local prefix=$1 work flags=()
  work=$(mktemp -d "$cache/kokkos-build.XXXXXX") || return
  case $2 in
    processors) flags=(-DKokkos_ENABLE_OPENMP=ON -DCMAKE_UNITY_BUILD=ON) ;;
    # Unlike OpenMP's, what Threads does is all in the open for ThreadSanitizer.
    threads) flags=(-DKokkos_ENABLE_THREADS=ON -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_FLAGS='-g1 -fsanitize=thread') ;;
    cuda) flags=(-DKokkos_ENABLE_CUDA=ON "-DKokkos_ARCH_$(kokkos_gpu)=ON" -DCMAKE_CXX_COMPILER="$work/kokkos/bin/nvcc_wrapper"
      -DCMAKE_PROJECT_Kokkos_INCLUDE="$PWD/cmake/SluiceKokkos.cmake") ;;
  esac
  ! command -v ninja >/dev/null || flags+=(-G Ninja)
  {
    unpack_kokkos "$work/kokkos" "$3" && "fit_kokkos_to_$2" "$work/kokkos" &&
      cmake -S "$work/kokkos" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
        -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DKokkos_ENABLE_SERIAL=ON "${flags[@]}" &&
      cmake --build "$work/build" -j "$jobs" &&
      DESTDIR="$work/root" cmake --install "$work/build" &&
      rm -rf "$prefix" && mv "$work/root$prefix" "$prefix"
  }
  local status=$?
  rm -rf "$work"
  return $status
}

# As Kokkos names what this machine's first GPU is; where there is none, as in an H100.
kokkos_gpu() {
  case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1) in
    7.5) echo TURING75 ;;
    8.0) echo AMPERE80 ;;
    8.6) echo AMPERE86 ;;
    8.9) echo ADA89 ;;
    10.0) echo BLACKWELL100 ;;
    12.0) echo BLACKWELL120 ;;
    *) echo HOPPER90 ;;
  esac
}

fit_kokkos_to_processors() { :; }
fit_kokkos_to_threads() { :; }

# Kokkos 4.7.0 is older than CUDA 13, which wants other arguments in two calls, and knows no longer the GPU that Kokkos' compiler
# script is for where nobody says. From 12.9 on nvcc does not lay members out as the host's compiler does that are [[no_unique_address]]
# (mdspan, pull requests 434 and 435): Kokkos 5 does without.
fit_kokkos_to_cuda() {
  local gpu
  gpu=$(kokkos_gpu)
  sed -i "s/^default_arch=.*/default_arch=sm_${gpu##*[A-Z]}/" "$1/bin/nvcc_wrapper"
  local attributes=$1/tpls/mdspan/include/experimental/__p0009_bits/config.hpp
  sed -i 's/(!defined(__NVCC__) || MDSPAN_HAS_CXX_20)/!defined(__NVCC__)/' "$attributes"
  grep -qF '!defined(__NVCC__) &&' "$attributes" || say 'setup: this Kokkos may write beside its Views with nvcc 12.9 or newer: docs/gpus.md'
  nvcc --version | grep -qE 'release (1[3-9]|[2-9][0-9])\.' || return 0
  sed -i -e 's/(graph, from, to, numDependencies)/(graph, from, to, nullptr, numDependencies)/' \
    -e 's/(devPtr, count, dstDevice, m_stream)/(devPtr, count, {cudaMemLocationTypeDevice, dstDevice}, 0, m_stream)/' \
    "$1/core/src/Cuda/Kokkos_Cuda_Instance.hpp"
}

kokkos_is_there() { compgen -G "$1/lib*/cmake/Kokkos/KokkosConfig.cmake" >/dev/null; }

# setup_kokkos PREFIX processors|threads|cuda [VERSION]
setup_kokkos() {
  local version=${3:-$kokkos_version}
  ! kokkos_is_there "$1" || return 0
  mkdir -p "$cache/downloads"
  exec 9>"$cache/setup.lock"
  flock 9  # another ./dev may be at it
  if ! kokkos_is_there "$1"; then
    if ! { [ -n "${SLUICE_SOURCE_Kokkos:-}" ] && [ "$version" = "$kokkos_version" ]; } && ! kokkos_archive_is_whole "$version"; then
      say "setup: downloading the sources of Kokkos $version from PyPI (17 MB)"
      quiet setup-kokkos-download twice download_kokkos "$version" ||
        fail "setup: the sources of Kokkos cannot be downloaded; SLUICE_SOURCE_Kokkos or Kokkos_ROOT may name what is there"
      kokkos_archive_is_whole "$version" || fail "setup: $(kokkos_archive "$version") is not what was expected"
    fi
    say "setup: building Kokkos $version for $2 into $1 (half a minute on 2 cores; for GPUs three minutes)"
    quiet setup-kokkos-build build_kokkos "$1" "$2" "$version" || return
  fi
  exec 9>&-
}

# Debian 12 has nvcc 11.8, which does not know C++20; PyPI has the compiler in wheels. Its parts must be of one release: ptxas
# refuses what a newer cicc writes.
cuda_requirements='nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-nvtx==13.0.85 --hash=sha256:4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4'

# The places where CMake looks, too (cmake/SluiceKernels.cmake).
find_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-nvcc}" nvcc "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" \
    /usr/local/cuda/bin/nvcc "$cuda/bin/nvcc"; do
    [ -n "$nvcc" ] && "$nvcc" --version 2>/dev/null | grep -qE 'release (1[2-9]|[2-9][0-9])\.' &&
      command -v "$nvcc" && return
  done
  return 1
}

# Kokkos looks for what the wheels leave out: names without a version, and the driver's library, to link programs with. It has all names
# that are in cuda.h, and does nothing.
finish_cuda() {
  bin/nvcc --version && ln -s lib lib64 && ln -s libcudart.so.13 lib/libcudart.so && mkdir lib/stubs &&
    grep -oE '\<cu[A-Z]\w+' include/cuda.h | sort -u | sed 's/.*/void &(void) {}/' |
    g++ -x c -shared -fPIC -Wl,-soname,libcuda.so.1 - -o lib/stubs/libcuda.so
}

# That of our cache may be older than this script.
cuda_is_there() {
  local nvcc
  nvcc=$(find_nvcc) &&
    { [ "$nvcc" != "$cuda/bin/nvcc" ] || { [ -f "$cuda/lib/stubs/libcuda.so" ] && [ -d "$cuda/include/nvtx3" ]; }; }
}

# install_wheels REQUIREMENTS FOLDER FINAL CHECK...: a folder of what the wheels hold becomes FINAL, if CHECK succeeds in there.
# Leaves the final place alone until all is there.
install_wheels() {
  local work folder final=$3
  work=$(mktemp -d "$cache/wheels.XXXXXX") || return
  folder=$work/site/$2
  {
    printf '%s\n' "$1" >"$work/list" &&
      python3 -m pip install -q --no-deps --no-compile --only-binary :all: --require-hashes -r "$work/list" \
        --target "$work/site" &&
      (cd "$folder" && "${@:4}") &&
      rm -rf "$final" && mv "$folder" "$final"
  }
  local status=$?
  rm -rf "$work"
  return $status
}

setup_cuda() {
  ! cuda_is_there || return 0
  if [ "$(uname -sm)" != 'Linux x86_64' ]; then
    say "setup: for CUDA kernels, nvcc 12.0 or newer must be there: in PATH, or named by CUDACXX"
    return
  fi
  mkdir -p "$cache"
  exec 9>"$cache/setup.lock"
  flock 9  # another ./dev may be at it
  if ! cuda_is_there; then
    say "setup: downloading nvcc 13.0 from PyPI (105 MB) into $cuda (271 MB)"
    quiet setup-cuda twice install_wheels "$cuda_requirements" nvidia/cu13 "$cuda" finish_cuda || return
  fi
  exec 9>&-
}

# The first NCCL with ncclPutSignal.
rivals_requirements='nvidia-nccl-cu13==2.29.7 --hash=sha256:edd81538446786ec3b73972543e53bb43bcaf0bfc8ef76cb679fcc390ffe136d
nvidia-nvshmem-cu13==3.4.5 --hash=sha256:290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80'

setup_rivals() {
  local found=nccl/include/nccl.h
  [ ! -f "$rivals/$found" ] || return 0
  mkdir -p "$cache"
  exec 9>"$cache/setup.lock"
  flock 9  # another ./dev may be at it
  if [ ! -f "$rivals/$found" ]; then
    say "setup: downloading NCCL and NVSHMEM from PyPI (266 MB) into $rivals"
    quiet setup-rivals twice install_wheels "$rivals_requirements" nvidia "$rivals" test -f "$found" || return
  fi
  exec 9>&-
}

# That of Debian 12 takes two to three times as long: it also matches what is in the system's headers. For x86_64 and aarch64.
clang_tidy_requirement='clang-tidy==23.1.4 \
  --hash=sha256:6bb31e4f319ecbe14acb75f23c3050d0f1d4b1d92ea1c66091bc76e4eac2c1ac \
  --hash=sha256:87596cd77dedfdea23ced1d13e57e869dcaee99745bfe942796196da3c197671'

clang_tidy_is_there() { [ -x "$clang_tidy/bin/clang-tidy" ]; }

setup_clang_tidy() {
  ! clang_tidy_is_there || return 0
  mkdir -p "$cache"
  exec 9>"$cache/setup.lock"
  flock 9  # another ./dev may be at it
  if ! clang_tidy_is_there; then
    say "setup: downloading clang-tidy 23.1.4 from PyPI (46 MB) into $clang_tidy (155 MB)"
    quiet setup-clang-tidy twice install_wheels "$clang_tidy_requirement" clang_tidy/data "$clang_tidy" bin/clang-tidy --version || return
  fi
  exec 9>&-
}

# Not hipcc: that of Debian 12 calls clang 15, which does not know gfx942.
hip_packages=(clang-19 lld-19 clang-tools-19 llvm-19 libamdhip64-dev)

setup_hip() {
  local rocm=${ROCM_PATH:-/opt/rocm}
  [ ! -x "$rocm/llvm/bin/clang++" ] || [ ! -f "$rocm/include/hip/hip_runtime_api.h" ] || return 0
  [ -z "$(missing_packages "${hip_packages[@]}")" ] ||
    say "setup: HIP kernels need clang 19 and HIP's headers (95 MB to download, 460 MB installed)"
  setup_packages "${hip_packages[@]}"
}

# setup PART...: those of `packages`, and kokkos, kokkos-threads, cuda, hip and clang-tidy, which are more than packages.
setup() {
  local part more names=()
  for part in "$@"; do
    read -ra more <<<"${packages[$part]:-}"
    names+=("${more[@]}")
  done
  setup_packages "${names[@]}" || return
  for part in "$@"; do
    case $part in
      kokkos) setup_kokkos "$kokkos" processors ;;
      kokkos-threads) setup_kokkos "$kokkos-threads-tsan" threads ;;
      cuda) setup_cuda ;;
      hip) setup_hip ;;
      clang-tidy) setup_clang_tidy ;;
    esac || return
  done
}

# The Python that has matplotlib: Debian's packages are for Debian's own.
plotting_python() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c 'import matplotlib' 2>/dev/null && echo "$python" && return
  done
  return 1
}

# setup_preset PRESET [PART ...]: what building a preset takes, and more.
setup_preset() {
  local parts=(compiler library "${@:2}")
  case $1 in
    apps) parts+=(programs wheels kokkos) ;;
    release | debug | asan) parts+=(programs tests wheels kokkos cuda hip) ;;
    tsan) parts+=(programs tests wheels kokkos-threads cuda hip) ;;
    cuda | hip) return ;;
  esac
  [ -z "$without_kokkos" ] || parts=("${parts[@]/#kokkos*/compiler}")
  setup "${parts[@]}"
}

cmd_setup() {
  [ $# = 0 ] || bad_usage "setup takes no arguments"
  setup "${!packages[@]}" kokkos kokkos-threads cuda hip clang-tidy
  say "setup: done"
}
