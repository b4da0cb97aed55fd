// SPDX-License-Identifier: Apache-2.0
// Views of each rank, layout and way to one peer: in place, and packed.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using Exec = Kokkos::DefaultHostExecutionSpace;
using sluice::kokkos::Queue;

struct Case {
  bool processes;
  bool host_stream;
  int depth;
  std::string backend = {};
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << (one.processes ? "processes" : "threads") << (one.host_stream ? "_host" : "_inline") << "_d" << one.depth
       << (one.backend.empty() ? "" : "_ofi_tcp");
}

class Views : public testing::TestWithParam<Case> {};

template <class Value, std::size_t D>
Value value_of(const std::array<Index, D>& at, Index epoch) {
  Index mixed = epoch * 7 + 1;
  for (const Index index : at) mixed = mixed * 5 + index;
  return static_cast<Value>(mixed % 101);
}

/// Each epoch of rank 0's View reaches that of rank 1.
template <std::size_t D, class View>
void send(Context& context, const Case& one, Tag tag, const View& view, const std::array<Index, D>& extents) {
  using Value = typename View::value_type;
  HostStream stream;
  const Exec exec;
  const Queue<Exec> queue = one.host_stream ? Queue<Exec>(exec, stream) : Queue<Exec>(exec);
  constexpr Index kEpochs = 5;
  const ChannelOptions options{.depth = one.depth};
  if (context.rank() == 0) {
    auto out = kokkos::sender(context, queue, 1, tag, view, options);
    for (Index epoch = 1; epoch <= kEpochs; ++epoch) {
      out.acquire();
      queue.run([&, epoch] {
        for_each_index(extents, [&](const auto& at) { element(view, at) = value_of<Value>(at, epoch); });
      });
      out.put();
    }
    out.channel().drain();
  } else {
    auto in = kokkos::receiver(context, queue, 0, tag, view, options);
    for (Index epoch = 1; epoch <= kEpochs; ++epoch) {
      in.wait();
      queue.run([&, epoch] {
        int wrong = 0;
        for_each_index(extents, [&](const auto& at) { wrong += element(view, at) != value_of<Value>(at, epoch); });
        EXPECT_EQ(wrong, 0) << "elements of a View of rank " << D << " in epoch " << epoch;
      });
      in.release();
    }
    if (one.host_stream) stream.synchronize();
  }
}

/// The same elements in the same order, with gaps at one end: packed there, in place at the other.
template <std::size_t D>
void send_across_layouts(Context& context, const Case& one) {
  std::array<Index, D> extents{};
  extents.fill(3);
  const auto whole = make_view<double, Kokkos::LayoutRight>("whole", extents);
  const auto gaps = make_strided<double>("gaps", extents);
  if (context.rank() == 0) {
    send(context, one, 4, whole, extents);
    send(context, one, 5, gaps, extents);
  } else {
    send(context, one, 4, gaps, extents);
    send(context, one, 5, whole, extents);
  }
}

template <std::size_t D>
void send_each_layout(Context& context, const Case& one) {
  std::array<Index, D> extents{};
  for (std::size_t k = 0; k < D; ++k) extents[k] = 2 + static_cast<Index>(k % 2);
  send(context, one, 1, make_view<double, Kokkos::LayoutRight>("right", extents), extents);
  send(context, one, 2, make_view<float, Kokkos::LayoutLeft>("left", extents), extents);
  send(context, one, 3, make_strided<std::int16_t>("strided", extents), extents);
}

TEST_P(Views, of_every_rank_and_layout_reach_the_peer) {
  run_peers({.processes = GetParam().processes, .backend = GetParam().backend}, [](Context& context) {
    [&]<std::size_t... D>(std::index_sequence<D...>) { (send_each_layout<D>(context, GetParam()), ...); }
    (std::make_index_sequence<9>());
  });
}

TEST_P(Views, in_place_reach_packed_ones_and_are_reached_by_them) {
  run_peers({.processes = GetParam().processes, .backend = GetParam().backend}, [](Context& context) {
    send_across_layouts<1>(context, GetParam());
    send_across_layouts<3>(context, GetParam());
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool processes : {false, true}) {
    for (const bool host_stream : {false, true}) {
      for (const int depth : {1, 3}) all.push_back({processes, host_stream, depth});
    }
  }
#ifdef SLUICE_TESTS_OFI
  for (const int depth : {1, 3}) all.push_back({true, true, depth, "ofi:tcp"});
#endif
  return all;
}
INSTANTIATE_TEST_SUITE_P(Quick, Views, testing::ValuesIn(cases()), testing::PrintToStringParamName());

#ifdef KOKKOS_ENABLE_IMPL_MDSPAN

/// Every second column of a matrix that is in memory of the program's own.
struct Columns {
  std::vector<int> memory = std::vector<int>(4 * 6);

  auto all() { return Kokkos::mdspan<int, Kokkos::dextents<int, 2>>(memory.data(), 4, 6); }
  auto every_second() {
    using Extents = Kokkos::dextents<int, 2>;
    const Kokkos::layout_stride::mapping<Extents> mapping(Extents(4, 3), std::array{6, 2});
    return Kokkos::mdspan<int, Extents, Kokkos::layout_stride>(memory.data(), mapping);
  }
};

template <class Span>
void send_span(Context& context, Tag tag, const Span& span) {
  const auto view = kokkos::view_of(span);
  const auto value = [](int i, int j) { return i * 10 + j; };
  const auto each = [&](auto f) {
    for (int i = 0; i < span.extent(0); ++i) {
      for (int j = 0; j < span.extent(1); ++j) f(span.data_handle()[span.mapping()(i, j)], value(i, j));
    }
  };
  if (context.rank() == 0) {
    each([](int& element, int wanted) { element = wanted; });
    const Kokkos::mdspan<const int, typename Span::extents_type, typename Span::layout_type> read_only(span);
    auto out = kokkos::sender(context, Exec(), 1, tag, kokkos::view_of(read_only));
    out.put();
    out.channel().drain();
  } else {
    auto in = kokkos::receiver(context, Exec(), 0, tag, view);
    in.wait();
    each([](int element, int wanted) { EXPECT_EQ(element, wanted); });
    in.release();
  }
}

TEST(Mdspans, go_as_views) {
  run_peers({.processes = true}, [](Context& context) {
    Columns columns;
    send_span(context, 1, columns.all());
    columns.memory.assign(columns.memory.size(), -1);
    send_span(context, 2, columns.every_second());
    EXPECT_EQ(columns.memory[1], -1) << "between the columns";
  });
}

TEST(Mdspans, of_one_element_or_none_go_as_views) {
  int one = 3;
  const auto view = kokkos::view_of(Kokkos::mdspan<int, Kokkos::extents<int>>(&one));
  static_assert(view.rank() == 0);
  EXPECT_EQ(view.data(), &one);
  EXPECT_EQ(view.size(), 1);
  EXPECT_EQ(view(), 3);
  const auto none = kokkos::view_of(Kokkos::mdspan<int, Kokkos::dextents<int, 2>>(&one, 0, 4));
  EXPECT_EQ(none.extent(1), 4);
  EXPECT_EQ(none.size(), 0);
}

#endif

}  // namespace
