// SPDX-License-Identifier: Apache-2.0
// The space of the applications' kernels, with two threads of the host's default space, whichever that is.
#include "apps/common/space.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string_view>
#include <type_traits>
#include <utility>

namespace apps {
namespace {

struct Add {
  KOKKOS_FUNCTION void operator()(int i, int& part) const { part += i; }
};

struct Ranks {
  int computed = 0;
  int refused = 0;
};

// How many ranks, which are threads, have run a kernel where their work runs, and how many were not to.
Ranks run(int ranks, StreamKind kind) {
  static const Kokkos::ScopeGuard kokkos(kokkos_settings().set_num_threads(2));
  std::atomic<int> computed{0};
  std::atomic<int> refused{0};
  const int code = sluice::run_threads(ranks, [&](sluice::Context& context) {
    try {
      with_space(context, kind, [&](const auto& space) {
        using Space = std::decay_t<decltype(space)>;
        const AppQueue<Space> queue(kind, space);
        int sum = 0;
        queue.get().run([&] { Kokkos::parallel_reduce("sum", Kokkos::RangePolicy<Space>(space, 0, 100), Add{}, sum); });
        context.synchronize(queue.get().stream());
        if (sum == 4950) ++computed;
      });
    } catch (const UsageError&) {
      ++refused;
    }
  });
  EXPECT_EQ(code, 0);
  return {computed, refused};
}

bool launches_from_one_thread_alone() {
  return std::string_view(Kokkos::DefaultHostExecutionSpace::name()) == "Threads";
}

TEST(Space, runs_kernels_of_the_first_thread) { EXPECT_EQ(run(1, StreamKind::inline_).computed, 1); }

TEST(Space, runs_kernels_of_other_threads_or_refuses_on_all_ranks) {
  for (const auto& [ranks, kind] : {std::pair{1, StreamKind::host}, {2, StreamKind::inline_}, {3, StreamKind::host}}) {
    const Ranks ended = run(ranks, kind);
    EXPECT_EQ(launches_from_one_thread_alone() ? ended.refused : ended.computed, ranks) << name(kind);
  }
}

}  // namespace
}  // namespace apps
