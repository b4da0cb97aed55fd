// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/ours/packing_views.hpp"

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>

#include <stdexcept>

namespace bench {
namespace {

using Host = Kokkos::Serial;

class WithKokkos final : public testing::Environment {
 public:
  void SetUp() override { Kokkos::initialize(apps::kokkos_settings()); }
  void TearDown() override { Kokkos::finalize(); }
};
[[maybe_unused]] const auto* const with_kokkos = testing::AddGlobalTestEnvironment(new WithKokkos);

constexpr std::size_t kBytes = 36;

TEST(Columns, have_arrived_when_every_int_has_and_nothing_else) {
  const Host exec;
  const Columns<Host> columns(kBytes);
  EXPECT_EQ(columns.items(), 9);
  columns.stamp(exec, 3);
  EXPECT_FALSE(columns.arrived(exec, 3));
  Kokkos::deep_copy(columns.in, columns.out);
  EXPECT_TRUE(columns.arrived(exec, 3));
  EXPECT_FALSE(columns.arrived(exec, 2));
  for (int i = 0; i < columns.items(); ++i) {
    int& gap = *(&columns.in(i) + 1);
    ++gap;
    EXPECT_FALSE(columns.arrived(exec, 3)) << i;
    --gap;
    ++columns.in(i);
    EXPECT_FALSE(columns.arrived(exec, 3)) << i;
    --columns.in(i);
  }
  EXPECT_TRUE(columns.arrived(exec, 3));
}

TEST(Cube, has_faces_that_have_arrived_when_every_cell_has) {
  const Host exec;
  const Cube<Host> cube;
  cube.stamp(exec, 1);
  for (std::size_t k = 0; k < kCubeFaces; ++k) {
    EXPECT_FALSE(cube.arrived(exec, k, 1)) << k;
    Kokkos::deep_copy(cube.ghosts[k], cube.faces[k]);
    EXPECT_TRUE(cube.arrived(exec, k, 1)) << k;
    EXPECT_FALSE(cube.arrived(exec, k, 0)) << k;
    cube.ghosts[k](kCubeSide - 1, 7) += 1;
    EXPECT_FALSE(cube.arrived(exec, k, 1)) << k;
    Kokkos::deep_copy(cube.ghosts[k], cube.faces[(k + 2) % kCubeFaces]);
    EXPECT_FALSE(cube.arrived(exec, k, 1)) << k;
  }
}

TEST(Cube, has_two_faces_without_gaps) {
  const Cube<Host> cube;
  for (std::size_t k = 0; k < kCubeFaces; ++k) EXPECT_EQ(cube.faces[k].span_is_contiguous(), k < 2) << k;
}

Workload workload_of(sluice::Context& context, const Options& options, int depth) {
  Workload workload{context, options};
  workload.peer = 1 - context.rank();
  workload.first = context.rank() == 0;
  workload.bytes = kBytes;
  workload.depth = depth;
  return workload;
}

TEST(Packing, is_checked_before_it_is_measured) {
  for (const int depth : {1, 2, 3}) {
    const int code = sluice::run_threads(2, [&](sluice::Context& context) {
      const Options options;
      Workload workload = workload_of(context, options, depth);
      EXPECT_GT(make_column_ping_pong(workload).contender->run(10), 0.0);
      workload.tag = 1;
      EXPECT_GT(make_face_exchange(workload).contender->run(2), 0.0);
    });
    EXPECT_EQ(code, 0) << depth;
  }
}

template <class Exec>
class MovesNoColumn : public ColumnPingPong<Exec> {
 public:
  using ColumnPingPong<Exec>::ColumnPingPong;

 private:
  void send() override {}
  void receive() override {}
};

template <class Exec>
class MovesNoFace : public FaceExchange<Exec> {
 public:
  using FaceExchange<Exec>::FaceExchange;

 private:
  void move() override {}
};

TEST(Packing, of_who_moves_nothing_is_refused) {
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    const Options options;
    const Workload workload = workload_of(context, options, 1);
    EXPECT_THROW(make_checked<MovesNoColumn>(workload, Host()), std::runtime_error);
    EXPECT_THROW(make_checked<MovesNoFace>(workload, Host()), std::runtime_error);
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace bench
