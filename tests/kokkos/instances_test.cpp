// SPDX-License-Identifier: Apache-2.0
// Several instances of an execution space, and one of several threads.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Numbers = Kokkos::View<int*, Kokkos::HostSpace>;

constexpr int kOwn = 1000;
constexpr int kSteps = 20;

/// A field in a ring of ranks, filled and looked at by kernels.
template <class Exec>
struct Field {
  Exec exec;
  Numbers view{"field", kOwn + 2};
  Numbers wrong{"wrong", 1};

  void fill(int value) const {
    Kokkos::parallel_for(Kokkos::RangePolicy<Exec>(exec, 1, kOwn + 1),
                         [view = view, value](int i) { view(i) = value + i; });
  }
  void expect(int value_below, int value_above) const {
    Kokkos::parallel_for(Kokkos::RangePolicy<Exec>(exec, 0, 1),
                         [view = view, wrong = wrong, value_below, value_above](int) {
                           wrong(0) += (view(0) != value_below + kOwn) + (view(kOwn + 1) != value_above + 1);
                         });
  }
};

int value_of(int rank, int step, int field) { return 100'000 * rank + 10 * kOwn * step + field; }

/// Two fields, on an instance and a stream each. Ranks enqueue them in different order.
template <class Exec>
void exchange_two(Context& context) {
  const auto parts = Kokkos::Experimental::partition_space(Exec(), 1, 1);
  std::array<HostStream, 2> streams;
  const Cartesian<1> ring{.ranks = {context.size()}, .periodic = {true}};
  const Field<Exec> fields[2] = {{parts[0]}, {parts[1]}};
  const Queue<Exec> queues[2] = {{parts[0], streams[0]}, {parts[1], streams[1]}};
  Halo first(context, queues[0], ring, 1, HaloOptions<1>{.name = "first"}, fields[0].view);
  Halo second(context, queues[1], ring, 1, HaloOptions<1>{.name = "second"}, fields[1].view);
  first.commit();
  second.commit();
  const Rank below = *ring.neighbour(context.rank(), {-1});
  const Rank above = *ring.neighbour(context.rank(), {1});
  for (int step = 1; step <= kSteps; ++step) {
    for (const int i : {context.rank() % 2, 1 - context.rank() % 2}) {
      queues[i].run([=, field = fields[i], mine = value_of(context.rank(), step, i)] { field.fill(mine); });
      (i == 0 ? first : second).exchange();
      queues[i].run([=, field = fields[i]] { field.expect(value_of(below, step, i), value_of(above, step, i)); });
    }
  }
  for (int i = 0; i < 2; ++i) {
    streams[i].synchronize();
    fields[i].exec.fence("looked");
    EXPECT_EQ(fields[i].wrong(0), 0) << "ghosts of field " << i;
  }
}

TEST(Instances, of_one_thread_exchange_at_once) {
  run_peers({.ranks = 3, .processes = true}, exchange_two<Kokkos::Serial>);
}

/// Each of a thread of its own.
TEST(Instances, of_a_space_of_threads_exchange_at_once) {
  run_peers({.processes = true, .environment = {"SLUICE_USER_KOKKOS_THREADS=2"}}, [](Context& context) {
    ASSERT_GE(Kokkos::DefaultHostExecutionSpace().concurrency(), 2);
    exchange_two<Kokkos::DefaultHostExecutionSpace>(context);
  });
}

/// In program order, where each kernel has ended when its call returns.
TEST(Instances, take_turns_in_one_halo) {
  run_peers({.ranks = 2}, [](Context& context) {
    const Kokkos::Serial instances[2] = {Kokkos::Serial(Kokkos::NewInstance{}), Kokkos::Serial(Kokkos::NewInstance{})};
    const Cartesian<1> ring{.ranks = {context.size()}, .periodic = {true}};
    Field<Kokkos::Serial> field{instances[0]};
    Halo halo(context, instances[0], ring, 1, field.view);
    const Rank other = 1 - context.rank();
    for (int step = 1; step <= kSteps; ++step) {
      field.exec = instances[step % 2];
      field.fill(value_of(context.rank(), step, 0));
      halo.exchange(field.exec);
      field.expect(value_of(other, step, 0), value_of(other, step, 0));
    }
    EXPECT_EQ(field.wrong(0), 0);
  });
}

}  // namespace
