// SPDX-License-Identifier: Apache-2.0
// Halos whose neighbour leaves or dies, or that are used as they must not be.
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Numbers = Kokkos::View<int*, Kokkos::HostSpace>;

const Cartesian<1> kRing{.ranks = {2}, .periodic = {true}};

/// A failed halo stays failed.
template <class AnyHalo>
void expect_failure(AnyHalo& halo, Code code) {
  try {
    halo.exchange();
    ADD_FAILURE() << "an exchange with nobody";
  } catch (const Error& again) {
    EXPECT_EQ(name(again.code()), std::string(name(code))) << again.what();
  }
}

/// Exchanges until one fails, the host at most as far ahead as a stream's queue.
Code failure_of(Context& context, const Queue<Exec>& queue) {
  const Numbers view("view", 10);
  Halo halo(context, queue, kRing, 1, view);
  try {
    for (int step = 0; step < 1000; ++step) {
      halo.exchange();
      context.synchronize(queue.stream());
    }
  } catch (const Error& reason) {
    for (int again = 0; again < 4; ++again) expect_failure(halo, reason.code());
    return reason.code();
  }
  return Code::unsupported;
}

/// Rank 1 exchanges twice, then `ends`.
template <class End>
void end_of_one(Context& context, bool on_stream, Code expected, End ends) {
  HostStream stream;
  const Queue<Exec> queue = queue_of<Exec>(stream, on_stream);
  if (context.rank() == 0) {
    const Code code = failure_of(context, queue);
    // Of the ends to a peer that has closed, either may be asked first.
    EXPECT_EQ(name(expected == Code::closed && code == Code::misuse ? Code::closed : code),
              std::string(name(expected)));
    return;
  }
  const Numbers view("view", 10);
  Halo halo(context, queue, kRing, 1, view);
  halo.exchange();
  halo.exchange();
  context.synchronize(queue.stream());
  ends();
}

TEST(Faults, a_halo_of_a_peer_that_leaves_fails) {
  for (const bool on_stream : {false, true}) {
    run_peers({.processes = true, .keep_going = true},
              [on_stream](Context& context) { end_of_one(context, on_stream, Code::closed, [] {}); });
  }
}

void peer_dies(bool on_stream) {
  const Ended ended = end_of_peers({.processes = true, .keep_going = true}, [on_stream](Context& context) {
    end_of_one(context, on_stream, Code::peer_lost, [] { ::raise(SIGKILL); });
  });
  EXPECT_FALSE(ended.hung) << ended.text;
  EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.text;
  EXPECT_EQ(ended.text.find("_test.cpp"), std::string::npos) << "a failed assertion:\n" << ended.text;
}

TEST(Faults, a_halo_of_a_peer_that_dies_fails) { peer_dies(false); }
TEST(Faults, a_halo_on_a_stream_of_a_peer_that_dies_fails) { peer_dies(true); }

/// A start in place gives the ghosts back before it can fail, which must not be done again.
TEST(Faults, a_halo_in_place_of_a_late_peer_fails) {
  run_peers({.ranks = 2, .timeout = 4s}, [](Context& context) {
    const Cartesian<1> line{.ranks = {2}, .periodic = {false}};
    const Numbers view("view", 10);
    Halo halo(context, Exec(), line, 1, HaloOptions<1>{.depth = 1, .in_place = true}, view);
    halo.commit();
    halo.exchange();
    if (context.rank() == 1) {
      board().await(0, 1);
      EXPECT_THROW(halo.exchange(), Error);  // the peer has reported it
      return;
    }
    for (int again = 0; again < 3; ++again) expect_failure(halo, Code::timeout);
    board().set(0, 1);
  });
}

TEST(Faults, two_halos_of_one_name_are_refused) {
  run_peers({}, [](Context& context) {
    const Exec exec;
    const Numbers view("view", 10);
    const Numbers other("other", 10);
    Halo halo(context, exec, kRing, 1, view);
    try {
      const Halo twice(context, exec, kRing, 1, other);
      ADD_FAILURE() << "not refused";
    } catch (const Error& reason) {
      EXPECT_EQ(reason.code(), Code::misuse);
      const std::string text = reason.what();
      EXPECT_NE(text.find("the halo 'halo' cannot open its channels"), std::string::npos) << text;
      EXPECT_NE(text.find("names of their own"), std::string::npos) << text;
    }
    halo.exchange();
  });
}

/// A halo that could not be made releases its Views.
TEST(Faults, a_refused_halo_in_place_keeps_no_views) {
  run_peers({.ranks = 2}, [](Context& context) {
    const Numbers view("view", 10);
    const Numbers other("other", 10);
    const HaloOptions<1> options{.depth = 1, .in_place = true};
    const Halo halo(context, Exec(), kRing, 1, options, view);
    EXPECT_THROW(Halo(context, Exec(), kRing, 1, options, other), Error);
    EXPECT_EQ(other.use_count(), 1);
  });
}

/// Both ranks' halos fail, and say what is not alike: which View, and what of it.
template <class... Views>
void expect_mismatch(Context& context, const HaloOptions<1>& options, const std::string& here, const Views&... views) {
  const Cartesian<1> line{.ranks = {2}};
  Halo halo(context, Exec(), line, 1, options, views...);
  try {
    halo.exchange();
    ADD_FAILURE() << "ends that do not fit are connected";
  } catch (const Error& reason) {
    EXPECT_EQ(name(reason.code()), std::string(name(Code::mismatch))) << reason.what();
    EXPECT_NE(std::string(reason.what()).find("1/" + here + "\" a slot here"), std::string::npos) << reason.what();
  }
  board().meet(context);
}

/// Sizes that would fit into each other's slots, types of one size, orders of one shape, Views of one type.
TEST(Faults, halos_of_blocks_that_do_not_fit_are_a_mismatch) {
  run_peers({.keep_going = true}, [](Context& context) {
    const bool first = context.rank() == 0;
    const auto whole = [&](Index width) {
      HaloOptions<1> options;
      options.ranges = [width](std::size_t, const Offset<1>& offset, Side side) {
        const Index begin = offset[0] < 0 ? 0 : 30;
        return Range{{side == Side::own ? begin : begin + 10}, {(side == Side::own ? begin : begin + 10) + width}};
      };
      return options;
    };
    const Kokkos::View<double*, Kokkos::HostSpace> line("line", 60);
    expect_mismatch(context, whole(first ? 9 : 10), first ? "0:f8[9]" : "0:f8[10]", line);
    const Kokkos::View<float*, Kokkos::HostSpace> floats("floats", 60);
    const Kokkos::View<std::int32_t*, Kokkos::HostSpace> ints("ints", 60);
    first ? expect_mismatch(context, {}, "0:f4", floats) : expect_mismatch(context, {}, "0:i4", ints);
    const Kokkos::View<bool*, Kokkos::HostSpace> flags("flags", 60);
    const Kokkos::View<std::uint8_t*, Kokkos::HostSpace> bytes("bytes", 60);
    first ? expect_mismatch(context, {}, "0:b1", flags) : expect_mismatch(context, {}, "0:u1", bytes);
    for (const int last : {2, 3}) {  // of the same extents too: they would arrive transposed
      const Kokkos::View<int***, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 9, last, 3);
      const Kokkos::View<int***, Kokkos::LayoutRight, Kokkos::HostSpace> right("right", 9, last, 3);
      const std::string extent = std::to_string(last);
      first ? expect_mismatch(context, {}, "0:i4[dim0:" + extent + ",dim1:3]", left)
            : expect_mismatch(context, {}, "0:i4[dim1:3,dim0:" + extent + "]", right);
    }
    HaloOptions<1> one_view;
    one_view.ranges = [which = first ? 1U : 0U](std::size_t view, const Offset<1>&, Side) {
      return Range{{0}, {view == which ? 9 : 0}};
    };
    expect_mismatch(context, one_view, first ? "1:f8[9]" : "0:f8[9]", line, line);
  });
}

TEST(Faults, of_a_rank_that_is_its_own_neighbour_what_does_not_fit_is_a_mismatch) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Numbers view("view", 60);
    for (const Index sent : {0, 2}) {
      HaloOptions<1> options;
      options.ranges = [sent](std::size_t, const Offset<1>&, Side side) {
        return side == Side::own ? Range{{1}, {1 + sent}} : Range{{10}, {50}};
      };
      try {
        const Halo halo(context, Exec(), Cartesian<1>{.ranks = {1}, .periodic = {true}}, 1, options, view);
        ADD_FAILURE() << sent << " elements for 40 ghosts";
      } catch (const Error& reason) {
        EXPECT_EQ(reason.code(), Code::mismatch) << reason.what();
      }
    }
  });
}

TEST(Commit, waits_for_the_neighbours_no_longer_than_told) {
  run_peers({}, [](Context& context) {
    const Numbers view("view", 10);
    if (context.rank() == 1) board().await(0, 1);
    Halo halo(context, Exec(), kRing, 1, view);
    if (context.rank() == 0) {
      EXPECT_THROW(halo.commit(10ms), Error);
      board().set(0, 1);
    }
    halo.commit();
    halo.commit_scatter(Sum{});
    halo.exchange();
    halo.scatter(Sum{});
  });
}

int kernels_loaded = 0;

/// A GPU hangs if a kernel is loaded while streams wait for each other.
TEST(Commit, has_launched_each_kernel_once) {
  run_peers({.ranks = 1}, [](Context& context) {
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback([](const char* label, std::uint32_t, std::uint64_t*) {
      kernels_loaded += std::string(label) == "sluice: load" ? 1 : 0;
    });
    const Numbers view("view", 10);
    const Kokkos::View<float*, Kokkos::HostSpace> other("other", 10);
    Halo halo(context, Exec(), Cartesian<1>{.ranks = {1}, .periodic = {true}}, 1, view, other);
    EXPECT_EQ(kernels_loaded, 2) << "pack and unpack";
    halo.commit_scatter(Max{});
    EXPECT_EQ(kernels_loaded, 6) << "these of the way back, and one for each View";
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
  });
}

TEST(Description, has_a_line_for_a_rank_that_is_its_own_neighbour) {
  run_peers({.ranks = 1}, [](Context& context) {
    const Numbers view("view", 10);
    const Halo ring(context, Exec(), Cartesian<1>{.ranks = {1}, .periodic = {true}}, 1, view);
    EXPECT_EQ(ring.describe(), "rank 0 to itself: unpacked where it was packed\n");
    const Halo alone(context, Exec(), Cartesian<1>{.ranks = {1}}, 1, view);
    EXPECT_EQ(alone.describe(), "no neighbours\n");
  });
}

}  // namespace
