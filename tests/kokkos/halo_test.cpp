// SPDX-License-Identifier: Apache-2.0
// Halos over random grids, stencils, widths, layouts and types, against what the whole grid says.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Exec = Kokkos::DefaultHostExecutionSpace;

/// The random parameters of one case, equal in all ranks.
template <std::size_t D>
struct Drawn {
  Cartesian<D> grid;
  HaloOptions<D> options;
  int width = 1;
  std::array<Index, D> own{};  // elements of a block along each dimension

  Drawn(int ranks, std::uint64_t seed) {
    std::mt19937_64 dice(seed);
    const auto draw = [&](int least, int most) { return least + static_cast<int>(dice() % (most - least + 1)); };
    grid.ranks.fill(1);
    for (int left = ranks, prime = 2; left > 1;) {
      if (left % prime != 0) {
        ++prime;
        continue;
      }
      grid.ranks[draw(0, D - 1)] *= prime;
      left /= prime;
    }
    width = draw(1, 3);
    for (std::size_t k = 0; k < D; ++k) {
      grid.periodic[k] = draw(0, 1) == 1;
      own[k] = draw(width, width + 5);
    }
    options.stencil = draw(0, 1) == 1 ? full<D>() : faces<D>();
    options.depth = draw(1, 3);
  }
};

/// The value of an element of the whole grid.
template <class T, std::size_t D>
T value_of(const std::array<Index, D>& global, int view, Index step) {
  std::uint64_t mixed = static_cast<std::uint64_t>(step) * 977 + static_cast<std::uint64_t>(view) * 131 + 7;
  for (const Index index : global) mixed = mixed * 31 + static_cast<std::uint64_t>(index);
  return static_cast<T>(mixed % 100);
}

/// The block of a rank.
template <std::size_t D>
struct Block {
  const Drawn<D>& drawn;
  Rank rank;

  std::array<Index, D> extents() const {
    auto all = drawn.own;
    for (Index& extent : all) extent += 2 * drawn.width;
    return all;
  }
  /// In which direction of the block an element is: all 0, its own.
  Offset<D> side(const std::array<Index, D>& at) const {
    Offset<D> offset{};
    for (std::size_t k = 0; k < D; ++k)
      offset[k] = at[k] < drawn.width ? -1 : at[k] >= drawn.width + drawn.own[k] ? 1 : 0;
    return offset;
  }
  bool own(const std::array<Index, D>& at) const { return side(at) == Offset<D>{}; }
  /// True if an exchange fills this ghost.
  bool filled(const std::array<Index, D>& at) const {
    const auto& stencil = drawn.options.stencil;
    return std::find(stencil.begin(), stencil.end(), side(at)) != stencil.end() &&
           drawn.grid.neighbour(rank, side(at)).has_value();
  }
  /// The element of the whole grid that is there, or that a ghost mirrors.
  std::array<Index, D> global(const std::array<Index, D>& at) const {
    const auto block = drawn.grid.coordinates_of(rank);
    std::array<Index, D> all{};
    for (std::size_t k = 0; k < D; ++k) {
      const Index whole = drawn.own[k] * drawn.grid.ranks[k];
      all[k] = (block[k] * drawn.own[k] + at[k] - drawn.width + whole) % whole;
    }
    return all;
  }
};

template <class View, std::size_t D>
void fill_own(const View& view, const Block<D>& block, int number, Index step) {
  using Value = typename View::value_type;
  for_each_index(block.extents(), [&](const auto& at) {
    element(view, at) = block.own(at) ? value_of<Value>(block.global(at), number, step) : Value(111);
  });
}

template <class View, std::size_t D>
void expect_ghosts(const View& view, const Block<D>& block, int number, Index step) {
  using Value = typename View::value_type;
  int wrong = 0;
  for_each_index(block.extents(), [&](const auto& at) {
    const Value wanted =
        block.own(at) || block.filled(at) ? value_of<Value>(block.global(at), number, step) : Value(111);
    wrong += element(view, at) != wanted;
  });
  EXPECT_EQ(wrong, 0) << "elements of View " << number << " after exchange " << step;
}

/// No elements: one more dimension, of none.
template <class Value, class Layout = Kokkos::LayoutLeft, std::size_t D>
auto make_empty(const Block<D>& block) {
  const auto extents = block.extents();
  std::array<Index, D + 1> all{};
  std::copy(extents.begin(), extents.end(), all.begin());
  if constexpr (std::is_same_v<Layout, Kokkos::LayoutStride>)
    return make_strided<Value>("none", all);
  else
    return make_view<Value, Layout>("none", all);
}

struct Case {
  std::size_t dims;
  int ranks;
  bool processes;
  bool host_stream;
  std::uint64_t seed;
  std::string backend = {};
  int threads = 1;
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.dims << "d_" << one.ranks << (one.processes ? "_processes" : "_threads")
       << (one.host_stream ? "_host" : "_inline") << "_seed" << one.seed << (one.backend.empty() ? "" : "_ofi_tcp")
       << (one.threads > 1 ? "_of_threads" : "");
}

class Halos : public testing::TestWithParam<Case> {
 protected:
  Peers peers() const {
    // Else as many as the environment of the tests sets.
    std::vector<std::string> environment;
    if (GetParam().threads > 1)
      environment.push_back("SLUICE_USER_KOKKOS_THREADS=" + std::to_string(GetParam().threads));
    return {.ranks = GetParam().ranks,
            .processes = GetParam().processes,
            .backend = GetParam().backend,
            .environment = environment};
  }
};

template <std::size_t D>
void exchange_all(Context& context, const Case& one) {
  const Drawn<D> drawn(one.ranks, one.seed);
  const Block<D> block{drawn, context.rank()};
  const auto views = [&] {
    return std::tuple(make_view<double, Kokkos::LayoutRight>("a", block.extents()),
                      make_view<float, Kokkos::LayoutLeft>("b", block.extents()),
                      make_strided<std::int16_t>("c", block.extents()));
  };
  const auto none = make_empty<float>(block);
  const auto none_right = make_empty<double, Kokkos::LayoutRight>(block);
  const auto none_strided = make_empty<float, Kokkos::LayoutStride>(block);
  const std::array fields{views(), views()};  // which take turns
  HostStream stream;
  const Exec exec;
  const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream, exec);
  const auto& [a, b, c] = fields[1];
  Halo halo(context, queue, drawn.grid, drawn.width, drawn.options, a, none, b, none_right, c, none_strided);
  auto of_none = drawn.options;
  of_none.name = "of none";
  Halo idle(context, queue, drawn.grid, drawn.width, of_none, none_right);
  EXPECT_EQ(idle.describe(), "no neighbours\n");
  for (Index step = 1; step <= 5; ++step) {
    idle.exchange();
    queue.run([&, step] {
      const auto& [own_a, own_b, own_c] = fields[step % 2];
      fill_own(own_a, block, 0, step);
      fill_own(own_b, block, 1, step);
      fill_own(own_c, block, 2, step);
    });
    if (step == 1) {
      halo.exchange();
    } else {
      const auto& [next_a, next_b, next_c] = fields[step % 2];
      halo.exchange(next_a, none, next_b, none_right, next_c, none_strided);
    }
    queue.run([&, step] {
      for (Index seen = std::max<Index>(step - 1, 1); seen <= step;
           ++seen) {  // those of the step before stay as they are
        const auto& [seen_a, seen_b, seen_c] = fields[seen % 2];
        expect_ghosts(seen_a, block, 0, seen);
        expect_ghosts(seen_b, block, 1, seen);
        expect_ghosts(seen_c, block, 2, seen);
      }
    });
  }
  if (one.host_stream) stream.synchronize();
}

TEST_P(Halos, fill_ghosts_from_their_owners) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    if (one.dims == 1) exchange_all<1>(context, one);
    if (one.dims == 2) exchange_all<2>(context, one);
    if (one.dims == 3) exchange_all<3>(context, one);
  });
}

/// Every second rank has its block in the other layout. Ranges whose order is equal in both, as rows, arrive; a range
/// that would arrive transposed is a mismatch.
template <std::size_t D>
void exchange_transposed(Context& context, const Case& one) {
  const Drawn<D> drawn(one.ranks, one.seed);
  const Block<D> block{drawn, context.rank()};
  HostStream stream;
  const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream);
  const auto exchange = [&](const auto& view) {
    fill_own(view, block, 0, 1);
    try {
      Halo halo(context, queue, drawn.grid, drawn.width, drawn.options, view);
      halo.exchange();
      context.synchronize(queue.stream());
      expect_ghosts(view, block, 0, 1);
    } catch (const Error& reason) {
      EXPECT_GT(D, 1U) << reason.what();
      EXPECT_TRUE(reason.code() == Code::mismatch || reason.code() == Code::peer_lost) << reason.what();
    }
    board().meet(context);
  };
  if (context.rank() % 2 == 0)
    exchange(make_view<int, Kokkos::LayoutRight>("right", block.extents()));
  else
    exchange(make_view<int, Kokkos::LayoutLeft>("left", block.extents()));
}

TEST_P(Halos, never_arrive_transposed) {
  Peers all = peers();
  all.keep_going = true;
  run_peers(with_untold(all), [](Context& context) {
    const Case& one = GetParam();
    if (one.dims == 1) exchange_transposed<1>(context, one);
    if (one.dims == 2) exchange_transposed<2>(context, one);
    if (one.dims == 3) exchange_transposed<3>(context, one);
  });
}

/// Some messages then go in place, where one row or plane has no gaps, and others are packed.
template <std::size_t D>
void exchange_in_place(Context& context, const Case& one) {
  Drawn<D> drawn(one.ranks, one.seed);
  drawn.options.depth = 1;
  drawn.options.in_place = true;
  const Block<D> block{drawn, context.rank()};
  const auto view = make_view<double, Kokkos::LayoutRight>("view", block.extents());
  HostStream stream;
  const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream);
  fill_own(view, block, 0, 1);  // once there is a halo, ghosts are the neighbours' until they have been waited for
  Halo halo(context, queue, drawn.grid, drawn.width, drawn.options, view);
  for (Index step = 1; step <= 5; ++step) {
    if (step > 1) queue.run([&, step] { fill_own(view, block, 0, step); });
    halo.start();
    queue.run([&, step] {
      for_each_index(block.extents(), [&](const auto& at) {
        const auto wanted = value_of<double>(block.global(at), 0, step);
        if (block.own(at) && element(view, at) != wanted) ADD_FAILURE() << "an own element in step " << step;
      });
    });
    halo.finish();
    queue.run([&, step] { expect_ghosts(view, block, 0, step); });
  }
  queue.fence("test");
  // A row of three ranks and more: each has a message to and from each neighbour, of one direction, without gaps.
  const auto packed = halo.describe().find("\n0 messages go");
  EXPECT_TRUE(D > 1 || context.size() < 3 || packed == std::string::npos) << halo.describe();
}

TEST_P(Halos, fill_ghosts_in_place) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    if (one.dims == 1) exchange_in_place<1>(context, one);
    if (one.dims == 2) exchange_in_place<2>(context, one);
    if (one.dims == 3) exchange_in_place<3>(context, one);
  });
}

/// The value of a ghost that `scatter` returns to its owner.
template <class T, std::size_t D>
T ghost_of(Rank rank, const std::array<Index, D>& at, Index step) {
  return value_of<T>(at, static_cast<int>(rank) + 10, step);
}

/// The whole grid after all ghosts that mirror an element were combined into it, in the order of the stencil.
template <class T, std::size_t D>
class Combined {
 public:
  template <class Operation>
  Combined(const Drawn<D>& drawn, Index step, Operation operation) {
    for (std::size_t k = 0; k < D; ++k) extents_[k] = drawn.own[k] * drawn.grid.ranks[k];
    for_each_index(extents_, [&](const auto& global) { values_.push_back(value_of<T>(global, 0, step)); });
    for (const Offset<D>& offset : drawn.options.stencil) {
      for (Rank rank = 0; rank < drawn.grid.size(); ++rank) {
        const Block<D> block{drawn, rank};
        for_each_index(block.extents(), [&](const auto& at) {
          if (block.side(at) != offset || !block.filled(at)) return;
          T& value = values_[number_of(block.global(at))];
          value = operation(value, ghost_of<T>(rank, at, step));
        });
      }
    }
  }
  T at(const std::array<Index, D>& global) const { return values_[number_of(global)]; }

 private:
  std::size_t number_of(const std::array<Index, D>& global) const {
    Index number = 0;
    for (std::size_t k = 0; k < D; ++k) number = number * extents_[k] + global[k];
    return static_cast<std::size_t>(number);
  }

  std::array<Index, D> extents_{};
  std::vector<T> values_;
};

template <std::size_t D, class Operation>
void scatter_all(Context& context, const Case& one, Operation operation) {
  const Drawn<D> drawn(one.ranks, one.seed);
  const Block<D> block{drawn, context.rank()};
  const auto a = make_view<int, Kokkos::LayoutRight>("a", block.extents());
  const auto b = make_strided<float>("b", block.extents());
  const auto other_a = make_view<int, Kokkos::LayoutRight>("other a", block.extents());
  const auto other_b = make_strided<float>("other b", block.extents());
  HostStream stream;
  const Exec exec;
  const Queue<Exec> queue = queue_of<Exec>(stream, one.host_stream, exec);
  const auto none = make_empty<int>(block);
  Halo halo(context, queue, drawn.grid, drawn.width, drawn.options, a, none, b);
  const auto fill = [&](const auto& view, Index step) {
    using Value = typename std::decay_t<decltype(view)>::value_type;
    for_each_index(block.extents(), [&](const auto& at) {
      element(view, at) =
          block.own(at) ? value_of<Value>(block.global(at), 0, step) : ghost_of<Value>(context.rank(), at, step);
    });
  };
  const auto expect = [&](const auto& view, Index step) {
    using Value = typename std::decay_t<decltype(view)>::value_type;
    const Combined<Value, D> whole(drawn, step, operation);
    int wrong = 0;
    for_each_index(block.extents(), [&](const auto& at) {
      const Value wanted = block.own(at) ? whole.at(block.global(at)) : ghost_of<Value>(context.rank(), at, step);
      wrong += element(view, at) != wanted;
    });
    EXPECT_EQ(wrong, 0) << "elements after scatter " << step;
  };
  for (Index step = 1; step <= 3; ++step) {
    queue.run([&, step] {
      fill(a, step);
      fill(b, step);
    });
    halo.scatter(operation);
    queue.run([&, step] {
      expect(a, step);
      expect(b, step);
      fill(other_a, step + 10);
      fill(other_b, step + 10);
    });
    halo.scatter(operation, other_a, none, other_b);
    queue.run([&, step] {
      expect(a, step);
      expect(other_a, step + 10);
      expect(other_b, step + 10);
    });
  }
  if (one.host_stream) stream.synchronize();
}

template <std::size_t D>
void scatter_each(Context& context, const Case& one) {
  switch (one.seed % 4) {
    case 0: return scatter_all<D>(context, one, Sum{});
    case 1: return scatter_all<D>(context, one, Min{});
    case 2: return scatter_all<D>(context, one, Max{});
    default: return scatter_all<D>(context, one, Replace{});
  }
}

TEST_P(Halos, take_back_what_ghosts_have) {
  run_peers(peers(), [](Context& context) {
    const Case& one = GetParam();
    if (one.dims == 1) scatter_each<1>(context, one);
    if (one.dims == 2) scatter_each<2>(context, one);
    if (one.dims == 3) scatter_each<3>(context, one);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  std::uint64_t seed = 0;
  for (const std::size_t dims : {1, 2, 3}) {
    for (const int ranks : {1, 2, 4, 6}) {
      for (const bool processes : {false, true}) {
        for (const bool host_stream : {false, true}) all.push_back({dims, ranks, processes, host_stream, ++seed});
      }
    }
  }
  for (const std::size_t dims : {1, 2, 3}) {
    for (const bool host_stream : {false, true}) {
#ifdef SLUICE_TESTS_OFI
      all.push_back({dims, 2, true, host_stream, ++seed, "ofi:tcp"});
#endif
      all.push_back({dims, 2, true, host_stream, ++seed, "", 3});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Drawn, Halos, testing::ValuesIn(cases()), testing::PrintToStringParamName());

/// Planes along the first dimension, which a column of ranks has in turn.
struct Planes {
  std::array<Index, 3> extents;
  int width;
  Rank rank;
  int ranks;

  bool own(Index plane) const { return plane >= width && plane < extents[0] - width; }
  int value(const std::array<Index, 3>& at, Index step) const {
    const Index inside = extents[0] - 2 * width;
    const Index whole = (rank * inside + at[0] - width + ranks * inside) % (ranks * inside);
    return static_cast<int>(((whole * 13 + at[1]) * 13 + at[2]) * 7 + step);
  }
  template <class View>
  void fill(const View& view, Index step) const {
    for_each_index(extents, [&](const auto& at) {
      if (own(at[0])) element(view, at) = value(at, step);
    });
  }
  template <class View>
  void expect(const View& view, Index step) const {
    int wrong = 0;
    for_each_index(extents, [&](const auto& at) { wrong += element(view, at) != value(at, step); });
    EXPECT_EQ(wrong, 0) << "elements after exchange " << step;
  }
};

/// Returns what the halo says of itself.
template <class View>
std::string exchange_planes(Context& context, const View& view, int width, bool host_stream) {
  const Planes planes{
      {view.extent_int(0), view.extent_int(1), view.extent_int(2)}, width, context.rank(), context.size()};
  HostStream stream;
  const Queue<Exec> queue = queue_of<Exec>(stream, host_stream);
  const Cartesian<1> ring{.ranks = {context.size()}, .periodic = {true}};
  Halo halo(context, queue, ring, width, HaloOptions<1>{.depth = 1, .in_place = true}, view);
  for (Index step = 1; step <= 20; ++step) {
    queue.run([&, step] { planes.fill(view, step); });
    halo.exchange();
    queue.run([&, step] { planes.expect(view, step); });
  }
  queue.fence("test");
  return halo.describe();
}

constexpr const char* kInPlace = "2 messages go from the View, 2 land in it";
constexpr const char* kPacked = "0 messages go from the View, 0 land in it";

/// Planes without gaps on ranks of even number, with gaps on the others: in place here, packed there.
TEST(InPlace, halos_go_where_there_are_no_gaps) {
  std::vector<Peers> all{{.ranks = 4}, {.ranks = 4, .processes = true}};
#ifdef SLUICE_TESTS_OFI
  all.push_back({.ranks = 4, .processes = true, .backend = "ofi:tcp"});
#endif
  for (const Peers& peers : all) {
    for (const bool host_stream : {false, true}) {
      for (const int width : {1, 2}) {
        run_peers(peers, [=](Context& context) {
          const std::array<Index, 3> extents{3 * width + 2, 5, 7};
          if (context.rank() % 2 == 0) {
            const auto view = make_view<int, Kokkos::LayoutRight>("no gaps", extents);
            EXPECT_NE(exchange_planes(context, view, width, host_stream).find(kInPlace), std::string::npos);
          } else {
            const auto view = make_strided<int>("gaps", extents);
            EXPECT_NE(exchange_planes(context, view, width, host_stream).find(kPacked), std::string::npos);
          }
        });
      }
    }
  }
}

/// Ranges for both directions to one peer are one message of two pieces; a message of a rank to itself is packed as
/// well.
TEST(InPlace, halos_pack_what_is_not_alone) {
  for (const int ranks : {1, 2}) {
    run_peers({.ranks = ranks}, [](Context& context) {
      const auto view = make_view<int, Kokkos::LayoutRight, 3>("view", {5, 5, 7});
      EXPECT_NE(exchange_planes(context, view, 1, false).find(kPacked), std::string::npos);
    });
  }
}

TEST(InPlace, halos_have_one_slot_and_their_own_views) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Cartesian<1> ring{.ranks = {1}, .periodic = {true}};
    const auto view = make_view<int, Kokkos::LayoutRight, 1>("view", {6});
    EXPECT_THROW(Halo(context, Exec(), ring, 1, HaloOptions<1>{.depth = 2, .in_place = true}, view), Error);
    Halo halo(context, Exec(), ring, 1, HaloOptions<1>{.depth = 1, .in_place = true}, view);
    EXPECT_THROW(halo.exchange(view), Error);
    view(1) = 3;
    halo.exchange();
    EXPECT_EQ(view(5), 3);
    view(5) = 2;
    halo.scatter(Sum{});
    EXPECT_EQ(view(1), 5);
  });
}

/// Elements that a neighbour fills in place must not overlap those that another message reads.
TEST(InPlace, ranges_of_own_elements_and_ghosts_do_not_overlap) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Cartesian<2> grid{.ranks = {1, 1}, .periodic = {true, true}};
    const auto view = make_view<int, Kokkos::LayoutRight, 2>("view", {6, 6});
    // Planes with the ends of their rows, where the ghosts of the other dimension are.
    const Ranges<2> whole_rows = [](std::size_t, const Offset<2>& offset, Side side) {
      Range range{.begin = {0, 0}, .end = {6, 6}};
      for (std::size_t k = 0; k < 2; ++k) {
        if (offset[k] == 0) continue;
        range.begin[k] = side == Side::own ? (offset[k] < 0 ? 1 : 4) : (offset[k] < 0 ? 0 : 5);
        range.end[k] = range.begin[k] + 1;
      }
      return range;
    };
    HaloOptions<2> options{.stencil = faces<2>(), .depth = 1, .in_place = true, .ranges = whole_rows};
    const auto why_not = [&]() -> std::string {
      try {
        const Halo halo(context, Exec(), grid, 1, options, view);
        return "";
      } catch (const Error& reason) {
        return reason.what();
      }
    };
    EXPECT_NE(why_not().find("overlap"), std::string::npos) << why_not();
    options.stencil = {{-1, 0}, {1, 0}};
    EXPECT_EQ(why_not(), "");
    options.stencil = faces<2>();
    options.in_place = false;
    EXPECT_EQ(why_not(), "");

    // The ghosts of direction -1 get the own elements of direction 1; the own elements of -1 are not sent.
    options.in_place = true;
    options.stencil = {{-1, 0}};
    const auto own_of = [&](int used, int unused) {
      options.ranges = [=](std::size_t, const Offset<2>& offset, Side side) {
        const int row = side == Side::ghosts ? 0 : offset[0] == 1 ? used : unused;
        return Range{.begin = {row, 0}, .end = {row + 1, 6}};
      };
    };
    own_of(4, 0);
    EXPECT_EQ(why_not(), "");
    own_of(0, 4);
    EXPECT_NE(why_not().find("overlap"), std::string::npos);
    own_of(6, 4);
    EXPECT_NE(why_not().find("not in it"), std::string::npos);
  });
}

/// A block with components: each has a value of its own.
template <class View>
auto components_of(const View& view) {
  std::array<Index, View::rank()> extents{};
  for (std::size_t k = 0; k < View::rank(); ++k) extents[k] = static_cast<Index>(view.extent(k));
  return extents;
}

/// Fills ghosts, sums them into their owners, and fills them again: an element at an edge of d dimensions then has what
/// 2^d ghosts and itself had.
template <class View>
class Components {
 public:
  using At = std::array<Index, View::rank()>;

  Components(const View& view, const Drawn<2>& drawn, Rank rank)
      : view_(view), block_{drawn, rank}, extents_(components_of(view)) {}

  void fill(Index step) const {
    for_each_index(extents_, [&](const At& at) {
      element(view_, at) = block_.own({at[0], at[1]}) ? value(at, step) : 0;
    });
  }
  void expect(Index step, bool summed, bool ghosts) const {
    int wrong = 0;
    for_each_index(extents_, [&](const At& at) {
      if (ghosts || block_.own({at[0], at[1]}))
        wrong += element(view_, at) != value(at, step) * (summed ? times(at) : 1);
    });
    EXPECT_EQ(wrong, 0) << "elements in step " << step << (summed ? ", summed" : "");
  }

 private:
  using Value = typename View::value_type;

  Value value(const At& at, Index step) const {
    Index number = 0;
    for (std::size_t k = 2; k < at.size(); ++k) number = number * 7 + at[k];
    return value_of<Value>(block_.global({at[0], at[1]}), static_cast<int>(number), step);
  }
  Value times(const At& at) const {
    Value all = 1;
    for (int k = 0; k < 2; ++k) {
      const Index own = block_.drawn.own[k];
      const Index in_block = (at[k] - 1 + own) % own;
      all *= in_block == 0 || in_block == own - 1 ? 2 : 1;
    }
    return all;
  }

  View view_;
  Block<2> block_;
  At extents_;
};

TEST(MoreDimensions, than_the_grid_are_moved_whole_both_ways) {
  for (const bool host_stream : {false, true}) {
    run_peers({.ranks = 2, .processes = host_stream}, [host_stream](Context& context) {
      Drawn<2> drawn(2, 1);
      drawn.grid = {.ranks = {2, 1}, .periodic = {true, true}};
      drawn.options = {.stencil = full<2>(), .depth = 2};
      drawn.width = 1;
      drawn.own = {4, 5};
      const auto a = make_view<int, Kokkos::LayoutRight, 3>("a", {6, 7, 3});
      const auto b = make_view<float, Kokkos::LayoutLeft, 4>("b", {6, 7, 2, 3});
      const Components in_a(a, drawn, context.rank());
      const Components in_b(b, drawn, context.rank());
      HostStream stream;
      const Queue<Exec> queue = queue_of<Exec>(stream, host_stream);
      Halo halo(context, queue, drawn.grid, 1, drawn.options, a, b);
      const auto run = [&](auto work) {
        queue.run([&, work] {
          work(in_a);
          work(in_b);
        });
      };
      for (Index step = 1; step <= 4; ++step) {
        run([step](const auto& all) { all.fill(step); });
        halo.exchange();
        run([step](const auto& all) { all.expect(step, false, true); });
        halo.scatter(Sum{});
        run([step](const auto& all) { all.expect(step, true, false); });
        halo.exchange();
        run([step](const auto& all) { all.expect(step, true, true); });
      }
      if (host_stream) stream.synchronize();
    });
  }
}

/// One rank is its own neighbour and waits for no peer.
TEST(OneRank, may_go_before_their_work_has_run) {
  run_peers({.ranks = 1}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    std::atomic<bool> go = false;
    const Kokkos::View<int*, Kokkos::HostSpace> view("view", 1002);
    {
      const Kokkos::View<int*, Kokkos::HostSpace> other("other", 1002);
      const Cartesian<1> ring{.ranks = {1}, .periodic = {true}};
      Halo halo(context, queue, ring, 1, view, other);
      queue.run([&] {
        while (!go) std::this_thread::yield();
        view(1000) = 7;
      });
      halo.exchange();
    }
    go = true;
    stream.synchronize();
    EXPECT_EQ(view(0), 7);
  });
}

TEST(OneRank, are_started_as_often_as_they_are_deep) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Kokkos::View<int*, Kokkos::HostSpace> view("view", 8);
    const Cartesian<1> ring{.ranks = {1}, .periodic = {true}};
    Halo halo(context, Exec(), ring, 1, HaloOptions<1>{.depth = 2}, view);
    EXPECT_THROW(halo.finish(), Error);
    view(1) = 1;
    halo.start();
    view(1) = 2;
    halo.start();
    EXPECT_THROW(halo.start(), Error);
    halo.finish();
    EXPECT_EQ(view(7), 1);
    halo.finish();
    EXPECT_EQ(view(7), 2);
  });
}

template <class F>
void expect_refused(F make, const std::string& part) {
  try {
    make();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& reason) {
    EXPECT_EQ(reason.code(), Code::bad_argument);
    EXPECT_NE(std::string(reason.what()).find(part), std::string::npos) << reason.what();
  }
}

TEST(WrongHalos, are_refused_with_a_reason) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Exec exec;
    const Kokkos::View<double**, Kokkos::HostSpace> view("temperature", 8, 5);
    const Cartesian<2> one{.ranks = {1, 1}};
    const Cartesian<2> two{.ranks = {2, 1}};
    expect_refused([&] { Halo(context, exec, two, 1, view); }, "the halo's grid has 2 blocks, the context 1 ranks");
    expect_refused([&] { Halo(context, exec, one, 0, view); }, "a width of 1 or more");
    expect_refused([&] { Halo(context, exec, one, 2, view); },
                   "View 'temperature' has 5 elements along dimension 1: less than three times the halo's width of 2");
    const HaloOptions<2> flat{.depth = 0};
    expect_refused([&] { Halo(context, exec, one, 1, flat, view); }, "a halo has a depth of 1 or more");
    const HaloOptions<2> twice{.stencil = {{1, 0}, {0, 1}, {1, 0}}};
    expect_refused([&] { Halo(context, exec, one, 1, twice, view); }, "an offset is in the stencil twice");
    Halo halo(context, exec, one, 1, view);
    const Kokkos::View<double**, Kokkos::HostSpace> larger("larger", 8, 6);
    expect_refused(
        [&] { halo.exchange(larger); },
        "View 'larger' is not of the extents and strides of 'temperature', which the halo 'halo' was made with");
    halo.exchange();
    const HaloOptions<2> far{.stencil = {{2, 0}}};
    expect_refused([&] { Halo(context, exec, one, 1, far, view); }, "an offset of a stencil is made of -1, 0 and 1");
  });
}

}  // namespace
