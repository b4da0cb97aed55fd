// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/host_collectives.hpp"
#include "apps/common/options.hpp"
#include "apps/common/usage_error.hpp"

#include <sluice/kokkos/queue.hpp>
#include <sluice/kokkos/trace.hpp>
#include <sluice/sluice.hpp>

#include <Kokkos_Core.hpp>

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace apps {

/// True if kernels of this execution space write memory that the host cannot read.
template <class Space>
inline constexpr bool kOnGpu = !Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Space::memory_space>::accessible;

/// Starts Kokkos, and its timeline, once for all ranks of this process, with one thread unless OMP_NUM_THREADS or
/// KOKKOS_NUM_THREADS says otherwise, because the ranks already occupy the cores.
inline Kokkos::InitializationSettings kokkos_settings() {
  sluice::kokkos::trace_kernels();
  Kokkos::InitializationSettings settings;
  settings.set_disable_warnings(true);  // about thread placement, which is the launcher's task
  if (std::getenv("OMP_NUM_THREADS") == nullptr && std::getenv("KOKKOS_NUM_THREADS") == nullptr)
    settings.set_num_threads(1);
#ifdef KOKKOS_ENABLE_CUDA
  // A kernel that is loaded at its first launch may wait for streams that wait for that launch.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
#endif
  return settings;
}

/// With Kokkos' Threads only the thread that has started Kokkos, the program's first, may launch kernels.
/// @throws UsageError on all ranks, if one would launch from another; only with more than one thread
inline void check_launches(sluice::Context& context, StreamKind kind) {
  using Default = Kokkos::DefaultHostExecutionSpace;
  if (std::string_view(Default::name()) != "Threads" || Default().concurrency() == 1) return;
  const bool from_another = kind == StreamKind::host || ::gettid() != ::getpid();
  if (make_sluice_collectives(context)->max(from_another ? 1 : 0) > 0)
    throw UsageError(
        "Kokkos' Threads run neither on --stream host nor for ranks that are threads: set KOKKOS_NUM_THREADS=1");
}

/// Calls `body` with an instance of the execution space for this rank alone: ranks that are threads would take turns on
/// a shared one. Kokkos' Threads has only one. A single thread gets Serial, which dispatches a kernel without a fork
/// and join.
template <class Body>
auto with_host_space(const Body& body) {
  using Default = Kokkos::DefaultHostExecutionSpace;
  if constexpr (!std::is_same_v<Default, Kokkos::Serial>) {
    const int threads = Default().concurrency();
    if (threads > 1) {
      if constexpr (std::is_constructible_v<Default, int>) return body(Default(threads));
      return body(Default());
    }
  }
  return body(Kokkos::Serial(Kokkos::NewInstance{}));
}

#ifdef KOKKOS_ENABLE_CUDA

/// A stream that does not wait for the legacy default stream, as other CUDA streams do: no other work of the program
/// may delay a wait.
class CudaStream {
 public:
  CudaStream() {
    const cudaError_t error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    if (error != cudaSuccess) throw std::runtime_error(std::string("no CUDA stream: ") + cudaGetErrorString(error));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Calls `body` with an instance of the execution space for this kind of stream; all ranks call it together.
template <class Body>
auto with_space(sluice::Context& context, StreamKind kind, const Body& body) {
  if (kind != StreamKind::cuda) {
    check_launches(context, kind);
    return with_host_space(body);
  }
  const CudaStream stream;
  return body(Kokkos::Cuda(stream.get()));
}

#else

template <class Body>
auto with_space(sluice::Context& context, StreamKind kind, const Body& body) {
  if (kind == StreamKind::cuda) throw UsageError("--stream cuda: this program was built with a Kokkos without CUDA");
  check_launches(context, kind);
  return with_host_space(body);
}

#endif

/// The order in which a program's work runs: in the calling thread, on a host stream, or on a GPU's stream. One source
/// serves all three.
template <class Space>
class AppQueue {
 public:
  AppQueue(StreamKind kind, const Space& space) : queue_(space) {
    if constexpr (Queue::kTakesHostStreams) {
      if (kind == StreamKind::host)
        queue_ = Queue(space, host_.emplace(sluice::HostStream::Options{.stop_after_failure = true}));
    }
  }
  AppQueue(const AppQueue&) = delete;
  AppQueue& operator=(const AppQueue&) = delete;

  const sluice::kokkos::Queue<Space>& get() const { return queue_; }
  /// Ends the host stream, as its destructor does: nothing runs on it any more.
  void end() noexcept {
    queue_ = Queue(queue_.exec());
    host_.reset();
  }

 private:
  using Queue = sluice::kokkos::Queue<Space>;

  std::optional<sluice::HostStream> host_;
  Queue queue_;
};

}  // namespace apps
