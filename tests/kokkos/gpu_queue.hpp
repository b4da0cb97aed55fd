// SPDX-License-Identifier: Apache-2.0
// A queue that is a stream of a GPU, an emulated one too: its kernels are the host's, which the stream calls in its
// order. Included before what uses queues.
#pragma once

#include <sluice/kokkos/queue.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include "tests/gpu_stream.hpp"

namespace sluice::test {

struct OnGpu : Kokkos::Serial {
  using execution_space = OnGpu;
  GpuStream* gpu = nullptr;

  bool operator==(const OnGpu& other) const { return gpu == other.gpu; }
};

}  // namespace sluice::test

namespace sluice::kokkos {

namespace detail {

template <class Functor>
void launch(const test::OnGpu& exec, const std::string& /*label*/, std::int64_t count, const Functor& functor) {
  exec.gpu->run([=] {
    for (std::int64_t i = 0; i < count; ++i) functor(i);
  });
}

}  // namespace detail

template <>
class Queue<test::OnGpu> {
 public:
  using execution_space = test::OnGpu;
  static constexpr bool kTakesHostStreams = false;

  explicit Queue(test::GpuStream& gpu) { exec_.gpu = &gpu; }

  const test::OnGpu& exec() const noexcept { return exec_; }
  Stream stream() const noexcept { return exec_.gpu->stream(); }
  bool in_program_order() const noexcept { return false; }
  bool on_host_stream() const noexcept { return false; }
  bool operator==(const Queue& other) const { return exec_ == other.exec_; }
  void fence(const std::string& /*label*/) const { exec_.gpu->synchronize(); }
  template <class F>
  void run(F work) const {
    exec_.gpu->run(std::move(work));
  }
  template <class Functor, class... Kept>
  void parallel_for(const std::string& /*label*/, std::int64_t count, const Functor& functor,
                    const Kept&... kept) const {
    run([=] {
      (static_cast<void>(kept), ...);
      for (std::int64_t i = 0; i < count; ++i) functor(i);
    });
  }
  template <class Functor, class... Kept>
  void move(const char* label, std::int64_t count, std::int64_t /*bytes*/, const Functor& functor,
            const Kept&... kept) const {
    parallel_for(label, count, functor, kept...);
  }

 private:
  test::OnGpu exec_;
};

}  // namespace sluice::kokkos
