// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sluice/memory.hpp>
#include <sluice/stream.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace sluice::kokkos {

namespace detail {

template <class Exec>
inline constexpr bool kOnHost = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace>;
#ifdef KOKKOS_ENABLE_HPX
/// Its patterns have not ended when they return.
template <>
inline constexpr bool kOnHost<Kokkos::Experimental::HPX> = false;
#endif

/// Kokkos' Threads let no thread but the one that has started Kokkos launch a pattern.
#ifdef KOKKOS_ENABLE_THREADS
template <class Exec>
inline constexpr bool kOnAnyThread = !std::is_same_v<Exec, Kokkos::Threads>;
#else
template <class Exec>
inline constexpr bool kOnAnyThread = true;
#endif

#ifdef KOKKOS_ENABLE_CUDA
inline Stream stream_of(const Kokkos::Cuda& exec) { return Stream::cuda(exec.cuda_stream()); }
#endif
#ifdef KOKKOS_ENABLE_HIP
inline Stream stream_of(const Kokkos::HIP& exec) { return Stream::hip(exec.hip_stream()); }
#endif
template <class Exec>
Stream stream_of(const Exec&) {
  static_assert(kOnHost<Exec>, "Sluice knows the streams of Kokkos' CUDA, HIP, Serial, OpenMP and Threads only");
  return Stream::program_order();
}

/// Memory of ours that its kernels reach.
template <class Exec>
inline constexpr Space kSpaceOf = kOnHost<Exec> ? Space::host : Space::device;

/// The GPU of an instance; -1: none.
template <class Exec>
int device_of(const Exec& exec) {
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return exec.cuda_device();
#endif
#ifdef KOKKOS_ENABLE_HIP
  if constexpr (std::is_same_v<Exec, Kokkos::HIP>) return exec.hip_device();
#endif
  static_cast<void>(exec);
  return -1;
}

}  // namespace detail

/// A range of 64-bit indices on an instance, for kernels of up to 4 KiB that the host never waits for. With other
/// policies Kokkos keeps a kernel of more than 512 bytes in a place that a GPU has once: its launch waits until the
/// last such kernel of the process has run.
template <class Exec>
using LightPolicy = decltype(Kokkos::Experimental::require(
    std::declval<const Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>&>(),
    Kokkos::Experimental::WorkItemProperty::HintLightWeight));

namespace detail {

/// Kokkos::parallel_for over [0, count) on that instance.
template <class Exec, class Functor>
void launch(const Exec& exec, const std::string& label, std::int64_t count, const Functor& functor) {
  Kokkos::parallel_for(label, LightPolicy<Exec>(exec, 0, count), functor);
}

/// A region for Kokkos' tools. Without a tool the name is never made a string.
class ToolRegion {
 public:
  explicit ToolRegion(const char* name) : told_(Kokkos::Tools::profileLibraryLoaded()) {
    if (told_) Kokkos::Tools::pushRegion(name);
  }
  ~ToolRegion() {
    if (told_) Kokkos::Tools::popRegion();
  }
  ToolRegion(const ToolRegion&) = delete;
  ToolRegion& operator=(const ToolRegion&) = delete;

 private:
  bool told_;
};

/// On the host a plain loop moves up to this many bytes: 0.2 us on a Xeon, where starting a pattern of OpenMP takes 0.5
/// us with one thread and 1.2 us with two.
inline constexpr std::int64_t kFewBytes = 8192;

}  // namespace detail

/// Where kernels and channels meet in order: an execution space instance, as the stream that it is. A space of the host
/// runs in program order, or on a HostStream, in whose thread its patterns then run. A handle: copies are cheap. The
/// instance is shared, the host stream must outlive it.
template <class Exec>
class Queue {
  static_assert(Kokkos::is_execution_space_v<Exec>, "a Queue is made from an instance of an execution space of Kokkos");

 public:
  using execution_space = Exec;
  /// Whether its kernels can run in the thread of a HostStream.
  static constexpr bool kTakesHostStreams = detail::kOnHost<Exec> && detail::kOnAnyThread<Exec>;

  Queue(const Exec& exec)  // NOLINT(google-explicit-constructor): an instance is a queue
      : exec_(exec), stream_(detail::stream_of(exec)) {}
  Queue(const Exec& exec, HostStream& stream) : exec_(exec), stream_(Stream::host(stream)), host_(&stream) {
    static_assert(detail::kOnHost<Exec>, "an execution space of a GPU has a stream of its own: no HostStream");
    static_assert(detail::kOnAnyThread<Exec>, "Kokkos' Threads cannot run on the thread of a HostStream");
  }

  const Exec& exec() const noexcept { return exec_; }
  Stream stream() const noexcept { return stream_; }
  bool operator==(const Queue& other) const { return exec_ == other.exec_ && stream_ == other.stream_; }

  /// Blocks the host until all that was enqueued before has run. @throws on a host stream as HostStream::synchronize
  void fence(const std::string& label) const {
    if (host_ != nullptr) return host_->synchronize();
    exec_.fence(label);
  }

  /// Runs `work` of the host, which may launch kernels on `exec()`, after all that was enqueued before: on a host
  /// stream in its thread, else at once.
  template <class F>
  void run(F work) const {
    if (host_ != nullptr) {
      host_->run(std::move(work));
    } else {
      work();
    }
  }

  /// Kokkos::parallel_for over [0, count), in this order. No fence: patterns of host spaces have ended when they
  /// return.
  /// Copies of `kept` stay until the host has launched it.
  template <class Functor, class... Kept>
  void parallel_for(const std::string& label, std::int64_t count, const Functor& functor, const Kept&... kept) const {
    if (count == 0) return;
    if (host_ == nullptr) return detail::launch(exec_, label, count, functor);
    host_->run([exec = exec_, label, count, functor, kept...] { detail::launch(exec, label, count, functor); });
  }
  /// Like parallel_for, for a kernel that moves `bytes` bytes in all. On the host a plain loop moves up to `kFewBytes`,
  /// unless a tool of Kokkos is loaded, which shows patterns only.
  template <class Functor, class... Kept>
  void move(const char* label, std::int64_t count, std::int64_t bytes, const Functor& functor,
            const Kept&... kept) const {
    if constexpr (detail::kOnHost<Exec>) {
      if (count == 0) return;
      if (bytes <= detail::kFewBytes && !Kokkos::Tools::profileLibraryLoaded()) {
        const auto loop = [](std::int64_t end, const Functor& each) {
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
