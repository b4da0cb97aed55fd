// SPDX-License-Identifier: Apache-2.0
// Views in the memory of the default execution space, written and read by its kernels: a GPU's where Kokkos has one.
// The other tests are of host spaces.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Exec = Kokkos::DefaultExecutionSpace;
using Field = Kokkos::View<double**, Kokkos::LayoutRight, Exec>;
using Cells = Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>, Kokkos::IndexType<Index>>;
constexpr Index kOwn = 6;

/// Prints which space that is, so that a log shows whether it was a GPU's.
class Said final : public testing::Environment {
  void SetUp() override { std::printf("default execution space: %s\n", Exec::name()); }
};
[[maybe_unused]] const auto* const said = testing::AddGlobalTestEnvironment(new Said);

constexpr int kSteps = 20;

/// Blocks one below the other, periodic both ways: the first dimension is cut.
struct Column {
  Index ranks = 1;
  Index rank = 0;
  Index width = 1;

  /// The value that the owner of an element writes in a step.
  KOKKOS_FUNCTION double value(Index i, Index j, int step) const {
    const Index row = (rank * kOwn + i - width + ranks * kOwn) % (ranks * kOwn);
    const Index column = (j - width + kOwn) % kOwn;
    return static_cast<double>((row * 100 + column) * 100 + step);
  }
};

Field make_field(const Column& column) {
  Field field("field", kOwn + 2 * column.width, kOwn + 2 * column.width);
  return field;
}

/// Own elements get their values.
void fill(const Exec& exec, const Field& field, const Column& column, int step) {
  const Index begin = column.width, end = column.width + kOwn;
  Kokkos::parallel_for(
      "fill", Cells(exec, {begin, begin}, {end, end}),
      KOKKOS_LAMBDA(Index i, Index j) { field(i, j) = column.value(i, j, step); });
}

/// Counts, on the instance, what is not as it should be: own elements, and ghosts, at corners only where they are
/// exchanged.
void count_wrong(const Exec& exec, const Field& field, const Column& column, bool corners, int step,
                 const Kokkos::View<int, Exec>& wrong) {
  const Index begin = column.width, end = column.width + kOwn;
  Kokkos::parallel_for(
      "count", Cells(exec, {0, 0}, {field.extent_int(0), field.extent_int(1)}), KOKKOS_LAMBDA(Index i, Index j) {
        const bool corner = (i < begin || i >= end) && (j < begin || j >= end);
        if ((corners || !corner) && field(i, j) != column.value(i, j, step)) Kokkos::atomic_inc(&wrong());
      });
}

int on_host(const Exec& exec, const Kokkos::View<int, Exec>& number) {
  int value = 0;
  Kokkos::deep_copy(exec, value, number);
  exec.fence();
  return value;
}

/// A field, its halo, and steps that the host enqueues without waiting for one.
class Steps {
 public:
  Steps(Context& context, const Exec& exec, int width, HaloOptions<2> options)
      : exec_(exec), corners_(options.stencil.size() > 4), column_{context.size(), context.rank(), width},
        field_(make_field(column_)),
        halo_(context, exec, Cartesian<2>{.ranks = {context.size(), 1}, .periodic = {true, true}}, width,
              std::move(options), field_) {
    halo_.commit();
  }
  void enqueue(int step) {
    fill(exec_, field_, column_, step);
    halo_.exchange();
    count_wrong(exec_, field_, column_, corners_, step, wrong_);
  }
  int wrong() const { return on_host(exec_, wrong_); }
  std::string describe() const { return halo_.describe(); }

 private:
  Exec exec_;
  bool corners_;
  Column column_;
  Field field_;
  Kokkos::View<int, Exec> wrong_{"wrong"};
  Halo<Exec, 2, Field> halo_;
};

/// Ranks that are threads of one process would wait for each other's streams in what allocates on a GPU.
std::vector<Peers> some_peers() {
  std::vector<Peers> all;
  for (const int ranks : {1, 2, 3}) all.push_back({.ranks = ranks, .processes = true});
  return all;
}

TEST(Spaces, halos_are_filled_in_the_order_of_the_instance) {
  for (const Peers& peers : some_peers()) {
    run_peers(peers, [](Context& context) {
      for (const int width : {1, 2}) {
        Steps steps(context, Exec(), width, {.name = "halo " + std::to_string(width)});
        for (int step = 1; step <= kSteps; ++step) steps.enqueue(step);
        EXPECT_EQ(steps.wrong(), 0) << "ghosts of width " << width;
      }
    });
  }
}

/// Rows have no gaps: with three ranks they go in place, and land there. With fewer there is one message to each rank.
TEST(Spaces, halos_in_place_are_filled_in_the_order_of_the_instance) {
  for (const Peers& peers : some_peers()) {
    run_peers(peers, [](Context& context) {
      Steps steps(context, Exec(), 1, {.stencil = faces<2>(), .depth = 1, .in_place = true});
      for (int step = 1; step <= kSteps; ++step) steps.enqueue(step);
      EXPECT_EQ(steps.wrong(), 0);
      const char* const by_three = context.size() == 3 ? "2 messages go from the View, 2 land in it" : "0 messages go";
      EXPECT_NE(steps.describe().find(by_three), std::string::npos) << steps.describe();
    });
  }
}

TEST(Spaces, instances_exchange_at_once) {
  // A part of OpenMP needs a thread.
  run_peers({.processes = true, .environment = {"SLUICE_USER_KOKKOS_THREADS=2"}}, [](Context& context) {
    const auto instances = Kokkos::Experimental::partition_space(Exec(), 1, 1);
    Steps first(context, instances[0], 1, {.name = "first"});
    Steps second(context, instances[1], 2, {.name = "second"});
    for (int step = 1; step <= kSteps; ++step) {
      first.enqueue(step);
      second.enqueue(step);
    }
    EXPECT_EQ(first.wrong(), 0);
    EXPECT_EQ(second.wrong(), 0);
  });
}

/// Each ghost has a one, each own element a one: an own element then has one and as many as mirror it.
void set_ones(const Exec& exec, const Field& field) { Kokkos::deep_copy(exec, field, 1.0); }

void count_wrong_sums(const Exec& exec, const Field& field, const Kokkos::View<int, Exec>& wrong) {
  Kokkos::parallel_for(
      "count", Cells(exec, {1, 1}, {kOwn + 1, kOwn + 1}), KOKKOS_LAMBDA(Index i, Index j) {
        const int at_edges = (i == 1 || i == kOwn ? 1 : 0) + (j == 1 || j == kOwn ? 1 : 0);
        if (field(i, j) != static_cast<double>(1 << at_edges)) Kokkos::atomic_inc(&wrong());
      });
}

TEST(Spaces, ghosts_are_summed_into_their_owners) {
  for (const Peers& peers : some_peers()) {
    run_peers(peers, [](Context& context) {
      const Exec exec;
      const Column column{context.size(), context.rank()};
      const Field field = make_field(column);
      const Kokkos::View<int, Exec> wrong("wrong");
      Halo halo(context, exec, Cartesian<2>{.ranks = {context.size(), 1}, .periodic = {true, true}}, 1, field);
      halo.commit_scatter(Sum{});
      for (int step = 0; step < kSteps; ++step) {
        set_ones(exec, field);
        halo.scatter(Sum{});
        count_wrong_sums(exec, field, wrong);
      }
      EXPECT_EQ(on_host(exec, wrong), 0);
    });
  }
}

/// Every third column, so that elements are packed on the instance.
void set_columns(const Exec& exec, const Field& field, int step) {
  Kokkos::parallel_for(
      "set", Cells(exec, {0, 0}, {field.extent_int(0), field.extent_int(1)}),
      KOKKOS_LAMBDA(Index i, Index j) { field(i, j) = j == 3 ? static_cast<double>(i * 1000 + step) : -1; });
}
void count_wrong_columns(const Exec& exec, const Field& field, int step, const Kokkos::View<int, Exec>& wrong) {
  Kokkos::parallel_for(
      "count", Cells(exec, {0, 0}, {field.extent_int(0), field.extent_int(1)}), KOKKOS_LAMBDA(Index i, Index j) {
        const double wanted = j == 5 ? static_cast<double>(i * 1000 + step) : 0;
        if (field(i, j) != wanted) Kokkos::atomic_inc(&wrong());
      });
}

TEST(Spaces, columns_go_through_channels) {
  run_peers({.processes = true}, [](Context& context) {
    const Exec exec;
    const Field field("field", 40, 9);
    const Kokkos::View<int, Exec> wrong("wrong");
    if (context.rank() == 0) {
      auto out = sluice::kokkos::sender(context, exec, 1, 7, Kokkos::subview(field, Kokkos::ALL, 3));
      out.channel().wait_connected();
      for (int step = 1; step <= kSteps; ++step) {
        set_columns(exec, field, step);
        out.put();
      }
      out.channel().drain();
    } else {
      auto in = sluice::kokkos::receiver(context, exec, 0, 7, Kokkos::subview(field, Kokkos::ALL, 5));
      in.channel().wait_connected();
      for (int step = 1; step <= kSteps; ++step) {
        in.wait();
        count_wrong_columns(exec, field, step, wrong);
        in.release();
      }
      EXPECT_EQ(on_host(exec, wrong), 0);
    }
  });
}

}  // namespace
