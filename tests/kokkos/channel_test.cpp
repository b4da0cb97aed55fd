// SPDX-License-Identifier: Apache-2.0
// Views of each rank, layout and way to one peer: in place, and packed.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
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
  const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream, exec);
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

/// Equal elements in the same order, with gaps at one end: packed there, in place at the other.
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

/// One rank may have nothing to send, in any layout: each epoch arrives all the same.
TEST_P(Views, without_elements_signal_each_epoch) {
  run_peers({.processes = GetParam().processes, .backend = GetParam().backend}, [](Context& context) {
    const auto send_all = [&]<std::size_t D>(Tag tag, const std::array<Index, D>& extents) {
      send(context, GetParam(), tag, make_view<double, Kokkos::LayoutRight>("right", extents), extents);
      send(context, GetParam(), tag + 1, make_view<double, Kokkos::LayoutLeft>("left", extents), extents);
      send(context, GetParam(), tag + 2, make_strided<double>("strided", extents), extents);
    };
    send_all(10, std::array<Index, 1>{0});
    send_all(20, std::array<Index, 2>{5, 0});
    send_all(30, std::array<Index, 2>{0, 5});
    send_all(40, std::array<Index, 3>{2, 0, 3});
    const std::array<Index, 3> extents{2, 0, 3};
    if (context.rank() == 0)
      send(context, GetParam(), 50, make_view<float, Kokkos::LayoutLeft>("left", extents), extents);
    else
      send(context, GetParam(), 50, make_view<float, Kokkos::LayoutRight>("right", extents), extents);
    const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> whole("whole", 5, 4);
    send(context, GetParam(), 60, Kokkos::subview(whole, std::pair(2, 2), Kokkos::ALL), std::array<Index, 2>{0, 4});
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

TEST(ViewChannels, of_no_slot_are_refused) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Kokkos::View<double**, Kokkos::HostSpace> view("view", 300, 200);
    for (const int depth : {0, -1}) {
      try {
        const auto out = kokkos::sender(context, Exec(), 0, 1, view, {.depth = depth});
        ADD_FAILURE() << "a depth of " << depth;
      } catch (const Error& reason) {
        EXPECT_EQ(name(reason.code()), std::string(name(Code::bad_argument))) << reason.what();
      }
    }
  });
}

/// A message from rank 0's View to rank 1's fails at both ends, and each names what its own View is.
template <class Sent, class Received>
void expect_unlike(Context& context, Tag tag, const Sent& sent, const std::string& there, const Received& received,
                   const std::string& here) {
  const bool first = context.rank() == 0;
  const auto exchange = [&] {
    if (first) {
      kokkos::sender(context, Exec(), 1, tag, sent).put();
    } else {
      kokkos::receiver(context, Exec(), 0, tag, received).wait();
    }
  };
  try {
    exchange();
    ADD_FAILURE() << "connected";
  } catch (const Error& reason) {
    const std::string text = reason.what();
    EXPECT_EQ(name(reason.code()), std::string(name(Code::mismatch))) << text;
    EXPECT_NE(text.find('"' + (first ? there : here) + "\" a slot here"), std::string::npos) << text;
  }
  board().meet(context);
}

/// Views of other extents; and of the same extents in another layout, which would arrive transposed.
TEST(ViewChannels, of_unlike_views_are_a_mismatch) {
  run_peers({.ranks = 2, .keep_going = true}, [](Context& context) {
    const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> view("view", 3, 4);
    const Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> turned("turned", 4, 3);
    expect_unlike(context, 1, view, "f8[dim1:4,dim0:3]", turned, "f8[dim0:4,dim1:3]");
    const Kokkos::View<double**, Kokkos::LayoutRight, Kokkos::HostSpace> right("right", 5, 5);
    const Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 5, 5);
    expect_unlike(context, 2, right, "f8[dim1:5,dim0:5]", left, "f8[dim0:5,dim1:5]");
    const std::array<Index, 2> square{5, 5};
    expect_unlike(context, 3, left, "f8[dim0:5,dim1:5]", make_strided<double>("gaps", square), "f8[dim1:5,dim0:5]");
  });
}

TEST(ViewChannels, of_views_that_differ_in_dimensions_of_one_element_connect) {
  run_peers({.ranks = 2}, [](Context& context) {
    const Kokkos::View<int*, Kokkos::HostSpace> line("line", 5);
    const Kokkos::View<int**, Kokkos::LayoutLeft, Kokkos::HostSpace> column("column", 5, 1);
    const Kokkos::View<int**, Kokkos::LayoutRight, Kokkos::HostSpace> row("row", 1, 5);
    const auto flat = [](const auto& view) { return Kokkos::View<int*, Kokkos::HostSpace>(view.data(), 5); };
    const auto exchange = [&](Tag tag, const auto& sent, const auto& received) {
      const auto value = [&](int i) { return static_cast<int>(tag) * 10 + i; };
      if (context.rank() == 0) {
        for (int i = 0; i < 5; ++i) flat(sent)(i) = value(i);
        auto out = kokkos::sender(context, Exec(), 1, tag, sent);
        out.put();
        out.channel().drain();
      } else {
        auto in = kokkos::receiver(context, Exec(), 0, tag, received);
        in.wait();
        for (int i = 0; i < 5; ++i) EXPECT_EQ(flat(received)(i), value(i));
        in.release();
      }
    };
    exchange(1, line, column);
    exchange(2, column, row);
    exchange(3, row, line);
  });
}

/// On a GPU elements go in words, which must not be larger than what they are aligned to.
TEST(Boxes, are_moved_in_words_of_their_types_alignment) {
  struct Shorts {
    std::int16_t a, b;
  };
  struct Doubles {
    double x, y, z;
  };
  const auto word_of = [](const auto& view) {
    const auto box = kokkos::detail::box_of(view, kokkos::detail::whole_of(view));
    std::vector<std::byte> to(64);
    const std::vector<std::byte> from = [] {
      std::vector<std::byte> bytes(64);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + 1);
      return bytes;
    }();
    const auto at = static_cast<std::size_t>(box.word);  // aligned to no more than that
    kokkos::detail::copy_element(&to[at], &from[at], box.element, box.word);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool copied = i >= at && i < at + static_cast<std::size_t>(box.element);
      EXPECT_EQ(to[i], copied ? from[i] : std::byte{}) << "byte " << i << " of a word of " << at;
    }
    return box.word;
  };
  EXPECT_EQ(word_of(Kokkos::View<char*, Kokkos::HostSpace>("view", 3)), 1);
  EXPECT_EQ(word_of(Kokkos::View<Shorts*, Kokkos::HostSpace>("view", 3)), 2);
  EXPECT_EQ(word_of(Kokkos::View<float*, Kokkos::HostSpace>("view", 3)), 4);
  EXPECT_EQ(word_of(Kokkos::View<Doubles*, Kokkos::HostSpace>("view", 3)), 8);
  EXPECT_EQ(word_of(Kokkos::View<Kokkos::complex<double>*, Kokkos::HostSpace>("view", 3)), 16);
}

TEST(Boxes, are_described_by_type_and_numbered_extents_in_the_order_of_memory) {
  const auto text = [](const auto& view) { return kokkos::detail::contents_of(view, kokkos::detail::whole_of(view)); };
  EXPECT_EQ(text(Kokkos::View<double, Kokkos::HostSpace>("view")), "f8");
  EXPECT_EQ(text(Kokkos::View<const float*, Kokkos::HostSpace>(Kokkos::View<float*, Kokkos::HostSpace>("view", 5))),
            "f4[5]");
  EXPECT_EQ(text(Kokkos::View<std::int16_t***, Kokkos::LayoutLeft, Kokkos::HostSpace>("view", 2, 1, 3)),
            "i2[dim0:2,dim1:3]");
  EXPECT_EQ(text(Kokkos::View<std::uint64_t***, Kokkos::LayoutRight, Kokkos::HostSpace>("view", 2, 1, 3)),
            "u8[dim1:3,dim0:2]");
  EXPECT_EQ(text(Kokkos::View<Kokkos::complex<float>**, Kokkos::LayoutRight, Kokkos::HostSpace>("view", 2, 3)),
            "V8[dim1:3,dim0:2]");
}

std::vector<std::string> regions;

TEST(Regions, name_what_a_channel_of_a_view_does) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Kokkos::View<int*, Kokkos::HostSpace> sent("sent", 3);
    const Kokkos::View<int*, Kokkos::HostSpace> received("received", 3);
    auto out = kokkos::sender(context, Exec(), 0, 1, sent);
    auto in = kokkos::receiver(context, Exec(), 0, 1, received);
    regions.clear();
    Kokkos::Tools::Experimental::set_push_region_callback([](const char* name) { regions.emplace_back(name); });
    out.acquire();
    out.put();
    in.wait();
    in.release();
    Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
    const std::vector<std::string> all{"sluice: acquire", "sluice: put", "sluice: wait", "sluice: release"};
    EXPECT_EQ(regions, all);
  });
}

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
