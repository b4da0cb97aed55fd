// SPDX-License-Identifier: Apache-2.0
// Queue: an execution space instance as the stream that kernels and channels share.
#pragma once

#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace sluice::kokkos {

/// A range of 64-bit indices on an instance, for kernels of up to 4 KiB whose launch never blocks the host. With other
/// policies Kokkos copies a kernel of more than 512 bytes into a buffer that each GPU has once: the launch blocks until
/// the last such kernel of the process has run.
template <class Exec>
using LightPolicy = decltype(Kokkos::Experimental::require(
    std::declval<const Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>&>(),
    Kokkos::Experimental::WorkItemProperty::HintLightWeight));

namespace detail {

/// True if an execution space runs patterns on the host, and each has run when its launch returns.
template <class Exec>
inline constexpr bool kOnHost = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;
#ifdef KOKKOS_ENABLE_HPX
template <>
inline constexpr bool kOnHost<Kokkos::Experimental::HPX> = false;
#endif

/// False for Kokkos' Threads: only the thread that initialised Kokkos may launch their patterns.
template <class Exec>
inline constexpr bool kOnAnyThread = true;
#ifdef KOKKOS_ENABLE_THREADS
template <>
inline constexpr bool kOnAnyThread<Kokkos::Threads> = false;
#endif

/// The stream and the GPU of an instance; a host's are program order and -1.
#ifdef KOKKOS_ENABLE_CUDA
inline Stream stream_of(const Kokkos::Cuda& exec) { return Stream::cuda(exec.cuda_stream()); }
inline int device_of(const Kokkos::Cuda& exec) { return exec.cuda_device(); }
#endif
#ifdef KOKKOS_ENABLE_HIP
inline Stream stream_of(const Kokkos::HIP& exec) { return Stream::hip(exec.hip_stream()); }
inline int device_of(const Kokkos::HIP& exec) { return exec.hip_device(); }
#endif
template <class Exec>
Stream stream_of(const Exec&) {
  static_assert(kOnHost<Exec>, "Sluice knows the streams of Kokkos' CUDA, HIP, Serial, OpenMP and Threads only");
  return Stream::program_order();
}
int device_of(const auto&) { return -1; }

/// Sluice's memory that kernels of this execution space access.
template <class Exec>
inline constexpr Space kSpaceOf = kOnHost<Exec> ? Space::host : Space::device;

/// Kokkos::parallel_for over [0, count) on an instance.
template <class Exec, class Functor>
void launch(const Exec& exec, const std::string& label, std::int64_t count, const Functor& functor) {
  Kokkos::parallel_for(label, LightPolicy<Exec>(exec, 0, count), functor);
}

/// A region for Kokkos' tools. Without a tool makes no string of the name.
inline std::optional<Kokkos::Profiling::ScopedRegion> tool_region(const char* name) {
  using Region = std::optional<Kokkos::Profiling::ScopedRegion>;
  return Kokkos::Tools::profileLibraryLoaded() ? Region(std::in_place, name) : Region();
}

/// On the host a plain loop moves up to this many bytes: the loop takes 0.2 us on a Xeon, where starting a pattern of
/// OpenMP takes 0.5 us with one thread and 1.2 us with two.
inline constexpr std::int64_t kFewBytes = 8192;

}  // namespace detail

/// An execution space instance as a stream, on which kernels and channels run in order. On a GPU the stream is the
/// instance's own. A space of the host runs in program order, or on a HostStream, whose thread then runs the patterns.
///
/// A handle: copies are cheap and share the instance. A HostStream must outlive its queues. Any thread may enqueue that
/// may launch kernels on the instance.
template <class Exec>
class Queue {
  static_assert(Kokkos::is_execution_space_v<Exec>, "a Queue is made from an instance of an execution space of Kokkos");

 public:
  using execution_space = Exec;
  /// True if the thread of a HostStream can run kernels of this space.
  static constexpr bool kTakesHostStreams = detail::kOnHost<Exec> && detail::kOnAnyThread<Exec>;

  /// The instance's own stream on a GPU; on the host, program order.
  Queue(const Exec& exec)  // NOLINT(google-explicit-constructor): an instance is a queue
      : exec_(exec), stream_(detail::stream_of(exec)) {}
  /// The host stream, whose thread runs the patterns of `exec`, a space of the host.
  Queue(const Exec& exec, HostStream& stream) : exec_(exec), stream_(Stream::host(stream)), host_(&stream) {
    static_assert(detail::kOnHost<Exec>, "an execution space of a GPU has a stream of its own: no HostStream");
    static_assert(detail::kOnAnyThread<Exec>, "Kokkos' Threads cannot run on the thread of a HostStream");
  }

  const Exec& exec() const noexcept { return exec_; }
  Stream stream() const noexcept { return stream_; }
  bool in_program_order() const noexcept { return stream_.kind() == Stream::Kind::program_order; }
  bool on_host_stream() const noexcept { return stream_.kind() == Stream::Kind::host; }
  /// True if both are the same instance on the same stream.
  bool operator==(const Queue& other) const { return exec_ == other.exec_ && stream_ == other.stream_; }

  /// Blocks the host until everything enqueued before has run. `label`: of the fence in Kokkos' tools.
  /// @throws on a host stream as HostStream::synchronize
  void fence(const std::string& label) const {
    if (host_ != nullptr) return host_->synchronize();
    exec_.fence(label);
  }

  /// Runs `work()` on the host, which may launch kernels on `exec()`: on a host stream the stream's thread runs it
  /// after everything enqueued before; else the calling thread runs it before this returns.
  void run(auto work) const {
    if (host_ != nullptr) return host_->run(std::move(work));
    work();
  }

  /// Enqueues Kokkos::parallel_for over [0, count), without a fence; does nothing for a count of 0. In program order
  /// the pattern has run at return. Copies of `kept` live until the host has launched the pattern.
  void parallel_for(const std::string& label, std::int64_t count, const auto& functor, const auto&... kept) const {
    if (count == 0) return;
    if (host_ == nullptr) return detail::launch(exec_, label, count, functor);
    host_->run([exec = exec_, label, count, functor, kept...] { detail::launch(exec, label, count, functor); });
  }
  /// Like parallel_for, for a kernel that moves `bytes` bytes in total. On the host a plain loop replaces the pattern
  /// up to `kFewBytes`, unless a tool of Kokkos is loaded, which shows patterns only.
  void move(const char* label, std::int64_t count, std::int64_t bytes, const auto& functor, const auto&... kept) const {
    if constexpr (detail::kOnHost<Exec>) {
      if (count == 0) return;
      if (bytes <= detail::kFewBytes && !Kokkos::Tools::profileLibraryLoaded()) {
        const auto loop = [](std::int64_t end, const auto& each) {
          for (std::int64_t i = 0; i < end; ++i) each(i);
        };
        if (host_ == nullptr) return loop(count, functor);
        return host_->run([loop, count, functor, kept...] { loop(count, functor); });
      }
    }
    parallel_for(label, count, functor, kept...);
  }

 private:
  Exec exec_;
  Stream stream_;
  HostStream* host_ = nullptr;
};

}  // namespace sluice::kokkos
