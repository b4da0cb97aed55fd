// SPDX-License-Identifier: Apache-2.0
// The packing of a halo without a channel: messages are copied by hand.
#include "tests/kokkos/views.hpp"

#include <sluice/kokkos.hpp>
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace sluice::kokkos {
namespace {

using Exec = Kokkos::Serial;
constexpr int kDepth = 2;

/// Holds each rank's messages, for the others to take.
class Post {
 public:
  explicit Post(int ranks) : all_here_(ranks) {}

  void leave(Rank from, Rank to, const Slice& slots) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(left_.emplace(std::pair(from, to), slots).second) << "two messages from " << from << " to " << to;
  }
  const Slice& taken(Rank from, Rank to) const { return left_.at({from, to}); }
  std::size_t count() const { return left_.size(); }
  void meet() { all_here_.arrive_and_wait(); }

 private:
  std::map<std::pair<Rank, Rank>, Slice> left_;
  std::mutex mutex_;
  std::barrier<> all_here_;
};

/// An element that nothing but its place in the whole grid, and its View, gives.
template <class T>
T element(int view, std::int64_t row, std::int64_t column) {
  T value{};
  const std::int64_t number = (view * 1000 + row) * 1000 + column;
  std::memcpy(&value, &number, std::min(sizeof(T), sizeof(number)));
  return value;
}

template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), sizeof(T)) == 0;
}

struct Wide {
  std::int32_t parts[3];
};

/// A block of a grid that wraps around along its columns only.
struct Place {
  static constexpr std::int64_t kRows = 150;  // more than one item of work, in columns of small elements
  static constexpr std::int64_t kColumns = 41;
  static constexpr std::int64_t kWidth = 2;

  Cartesian<2> grid;
  std::array<int, 2> at;

  std::int64_t row(std::int64_t i) const { return at[0] * kRows + i - kWidth; }
  std::int64_t column(std::int64_t j) const {
    const std::int64_t all = grid.ranks[1] * kColumns;
    return (at[1] * kColumns + j - kWidth + all) % all;
  }
  bool own(std::int64_t i, std::int64_t j) const {
    return i >= kWidth && i < kRows + kWidth && j >= kWidth && j < kColumns + kWidth;
  }
  bool beyond(std::int64_t i) const { return row(i) < 0 || row(i) >= grid.ranks[0] * kRows; }
};

template <class View>
void fill(const View& view, const Place& place, int number) {
  using T = typename View::value_type;
  for (std::int64_t i = 0; i < place.kRows + 2 * place.kWidth; ++i)
    for (std::int64_t j = 0; j < place.kColumns + 2 * place.kWidth; ++j)
      view(i, j) = place.own(i, j) ? element<T>(number, place.row(i), place.column(j)) : T{};
}

template <class View>
void check(const View& view, const Place& place, int number) {
  using T = typename View::value_type;
  int wrong = 0;
  for (std::int64_t i = 0; i < place.kRows + 2 * place.kWidth; ++i)
    for (std::int64_t j = 0; j < place.kColumns + 2 * place.kWidth; ++j) {
      const T expected = place.beyond(i) ? T{} : element<T>(number, place.row(i), place.column(j));
      wrong += same(view(i, j), expected) ? 0 : 1;
    }
  EXPECT_EQ(wrong, 0) << "View " << number;
}

template <class T, class Layout>
using Plane = Kokkos::View<T**, Layout, Kokkos::HostSpace>;

template <class... Views>
std::tuple<Views...> planes() {
  return {Views("plane", Place::kRows + 2 * Place::kWidth, Place::kColumns + 2 * Place::kWidth)...};
}

template <class Views>
void each(const Views& views, auto f) {
  int number = 0;
  std::apply([&](const auto&... view) { (f(view, number++), ...); }, views);
}

template <class... Views>
void exchange(Context& context, Post& post, const Cartesian<2>& grid, OwnGhosts own) {
  const Exec exec;
  const Queue<Exec> queue(exec);
  const Place place{grid, grid.coordinates_of(context.rank())};
  const std::tuple<Views...> made = planes<Views...>();
  const std::tuple<Views...> others = planes<Views...>();
  const Packing<Exec, 2, Views...> packing(context, exec, {context.rank(), grid, Place::kWidth, full<2>()}, kDepth,
                                           made, Side::own, own);
  packing.for_each_sent([&](Rank peer, const Slice& slots, const std::string&) {
    EXPECT_EQ(slots.bytes() % (64 * kDepth), 0U) << "a slot does not end with a cache line";
    post.leave(context.rank(), peer, slots);
  });
  for (const auto& [slot, views, moved] :
       {std::tuple(0, made, packing.own()), std::tuple(1, others, packing.others(others))}) {
    each(views, [&](const auto& view, int number) { fill(view, place, number + slot); });
    packing.pack(queue, slot, moved);
    exec.fence();
    post.meet();
    packing.for_each_received([&, slot = slot](Rank peer, const Slice& slots, const std::string&) {
      const std::size_t bytes = slots.bytes() / kDepth;
      const Slice& there = post.taken(peer, context.rank());
      ASSERT_EQ(there.bytes(), slots.bytes());
      std::memcpy(slots.data() + slot * bytes, there.data() + slot * bytes, bytes);
    });
    packing.unpack(queue, slot, moved);
    exec.fence();
    each(views, [&](const auto& view, int number) { check(view, place, number + slot); });
    post.meet();
  }
}

class PackingOf : public testing::TestWithParam<std::tuple<std::array<int, 2>, OwnGhosts>> {};

TEST_P(PackingOf, puts_every_element_into_its_ghosts) {
  const auto& [blocks, own] = GetParam();
  const Cartesian<2> grid{blocks, {false, true}};
  Post post(grid.size());
  EXPECT_EQ(run_threads(grid.size(),
                        [&, own = own](Context& context) {
                          exchange<Plane<char, Kokkos::LayoutRight>, Plane<double, Kokkos::LayoutRight>,
                                   Plane<float, Kokkos::LayoutLeft>, Plane<Wide, Kokkos::LayoutRight>>(context, post,
                                                                                                       grid, own);
                        }),
            0);
  EXPECT_EQ(post.count(), static_cast<std::size_t>(grid.size() * (grid.size() - 1))) << "all are neighbours";
}

INSTANTIATE_TEST_SUITE_P(Grids, PackingOf,
                         testing::Combine(testing::Values(std::array{1, 1}, std::array{2, 1}, std::array{1, 2},
                                                          std::array{2, 3}),
                                          testing::Values(OwnGhosts::with_others, OwnGhosts::at_once)));

}  // namespace
}  // namespace sluice::kokkos
