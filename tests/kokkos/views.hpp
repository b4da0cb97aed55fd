// SPDX-License-Identifier: Apache-2.0
// Views for tests, element by element, and Kokkos started.
#pragma once

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <sluice/kokkos/queue.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace sluice::test {

using Index = std::int64_t;

/// In each process of the tests, ranks too, which leave by `exit`: otherwise the destructor of Kokkos' Threads
/// uses objects that are destroyed already. With one thread, or as many as SLUICE_USER_KOKKOS_THREADS sets.
class WithKokkos final : public testing::Environment {
 public:
  void SetUp() override {
    const char* const threads = std::getenv("SLUICE_USER_KOKKOS_THREADS");
    Kokkos::initialize(Kokkos::InitializationSettings().set_num_threads(threads == nullptr ? 1 : std::atoi(threads)));
    std::atexit([] {
      if (Kokkos::is_initialized()) Kokkos::finalize();
    });
  }
  void TearDown() override { Kokkos::finalize(); }
};
[[maybe_unused]] inline const auto* const with_kokkos = testing::AddGlobalTestEnvironment(new WithKokkos);

/// An instance, on a host stream or in program order. Threads know no host streams: with them no such test is run.
template <class Exec>
kokkos::Queue<Exec> queue_of(HostStream& stream, bool on_stream, const Exec& exec = Exec()) {
  if constexpr (kokkos::Queue<Exec>::kTakesHostStreams) {
    if (on_stream) return {exec, stream};
  } else if (on_stream) {
    throw std::logic_error("a test on a host stream, with Kokkos' Threads");
  }
  return exec;
}

/// The indices of a box of D dimensions, one after the other.
template <std::size_t D, class F>
void for_each_index(const std::array<Index, D>& extents, F f) {
  Index count = 1;
  for (const Index extent : extents) count *= extent;
  for (Index i = 0; i < count; ++i) {
    std::array<Index, D> at{};
    Index rest = i;
    for (std::size_t k = D; k-- > 0; rest /= extents[k]) at[k] = rest % extents[k];
    f(at);
  }
}

template <class View, std::size_t D>
typename View::value_type& element(const View& view, const std::array<Index, D>& at) {
  Index offset = 0;
  for (std::size_t k = 0; k < D; ++k) offset += at[k] * static_cast<Index>(view.stride(k));
  return view.data()[offset];
}

template <std::size_t D, class T>
struct Pointer {
  using type = typename Pointer<D - 1, T>::type*;
};
template <class T>
struct Pointer<0, T> {
  using type = T;
};

/// A View of D dimensions, which lie in memory as `Layout` says.
template <class T, class Layout, std::size_t D>
auto make_view(const std::string& label, const std::array<Index, D>& extents) {
  Layout layout;
  for (std::size_t k = 0; k < D; ++k) layout.dimension[k] = static_cast<std::size_t>(extents[k]);
  return Kokkos::View<typename Pointer<D, T>::type, Layout, Kokkos::HostSpace>(label, layout);
}

/// A View with gaps: every second element along each dimension.
template <class T, std::size_t D>
auto make_strided(const std::string& label, const std::array<Index, D>& extents) {
  Kokkos::LayoutStride layout;
  std::size_t stride = 2;
  for (std::size_t k = D; k-- > 0;) {
    layout.dimension[k] = static_cast<std::size_t>(extents[k]);
    layout.stride[k] = stride;
    stride *= static_cast<std::size_t>(extents[k]) + 1;
  }
  return Kokkos::View<typename Pointer<D, T>::type, Kokkos::LayoutStride, Kokkos::HostSpace>(label, layout);
}

}  // namespace sluice::test
