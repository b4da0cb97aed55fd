// SPDX-License-Identifier: Apache-2.0
// Orders that must hold: ghosts are read before they are unpacked again, slots are read before the next put, and sent
// before the next pack. Each has a mutant that makes its test fail (mutants.toml).
#include <sluice/kokkos.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "tests/kokkos/views.hpp"
#include "tests/peers.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;
using namespace sluice::kokkos;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Numbers = Kokkos::View<int*, Kokkos::HostSpace>;

constexpr std::uint64_t kSteps = 3;
/// Rank 0 sends to the low ghosts of rank 1, and gets nothing.
const Cartesian<1> kColumn{.ranks = {2}};
const Stencil<1> kFromBelow{{-1}};

/// Looks whether the peer gets ahead, which it must not: only then is it seen before the limit.
void give_the_peer_time(std::size_t word, std::uint64_t value) {
  const auto end = Clock::now() + 20ms;
  while (board().word(word) < value && Clock::now() < end) std::this_thread::yield();
}

TEST(Races, a_kernel_that_reads_ghosts_is_not_overtaken_by_the_next_exchange) {
  run_peers({}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    const Numbers view("view", 6);
    std::atomic<bool> go = false;
    const Cartesian<1> ring{.ranks = {2}, .periodic = {true}};
    Halo halo(context, queue, ring, 1, view);
    halo.commit();
    const int other = 1 - context.rank();
    for (int step = 1; step <= 5; ++step) {
      queue.run([&, step] { view(1) = view(4) = 10 * step + context.rank(); });
      halo.exchange();
      queue.run([&, step] {
        while (!go) std::this_thread::yield();
        EXPECT_EQ(view(0), 10 * step + other);
        EXPECT_EQ(view(5), 10 * step + other);
      });
    }
    go = true;
    stream.synchronize();
  });
}

TEST(Races, a_view_that_is_read_in_place_is_not_overwritten) {
  run_peers({}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    const Numbers view("view", 100);
    const auto fill = [&](std::uint64_t step) { Kokkos::deep_copy(view, static_cast<int>(step)); };
    if (context.rank() == 0) {
      auto out = kokkos::sender(context, queue, 1, 0, view);
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        out.acquire();
        queue.run([=] { fill(step); });
        out.put();
        queue.run([step] { board().set(0, step); });
      }
      out.channel().drain();
    } else {
      auto in = kokkos::receiver(context, queue, 0, 0, view);
      for (std::uint64_t step = 1; step <= kSteps; ++step) {
        in.wait();
        queue.run([&, step] {
          give_the_peer_time(0, step + 1);
          EXPECT_EQ(view(0), static_cast<int>(step));
          EXPECT_EQ(view(99), static_cast<int>(step));
        });
        in.release();
      }
      stream.synchronize();
    }
  });
}

/// The peer has time before each unpacking.
void before_kernel(const char* label, std::uint32_t, std::uint64_t*) {
  static std::uint64_t step = 0;
  if (std::string(label) == "sluice: unpack") give_the_peer_time(0, ++step + 1);
}

TEST(Races, a_message_is_not_overwritten_before_it_is_unpacked) {
  run_peers({.processes = true}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    const Numbers view("view", 3);
    Halo halo(context, queue, kColumn, 1, HaloOptions<1>{.stencil = kFromBelow, .depth = 1}, view);
    if (context.rank() == 1) Kokkos::Tools::Experimental::set_begin_parallel_for_callback(before_kernel);
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      queue.run([&, step] { view(1) = static_cast<int>(step); });
      halo.exchange();
      queue.run([&, step] {
        if (context.rank() == 0) return board().set(0, step);
        EXPECT_EQ(view(0), static_cast<int>(step));
      });
    }
    stream.synchronize();
  });
}

/// The peer has time while a kernel reads the ghosts.
TEST(Races, ghosts_that_are_filled_in_place_are_not_overwritten_before_they_were_read) {
  run_peers({.processes = true}, [](Context& context) {
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    const Numbers view("view", 3);
    Halo halo(context, queue, kColumn, 1, HaloOptions<1>{.stencil = kFromBelow, .depth = 1, .in_place = true}, view);
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      queue.run([&, step] { view(1) = static_cast<int>(step); });
      halo.exchange();
      queue.run([&, step] {
        if (context.rank() == 0) return board().set(0, step);
        give_the_peer_time(0, step + 1);
        EXPECT_EQ(view(0), static_cast<int>(step));
      });
    }
    stream.synchronize();
  });
}

#ifdef SLUICE_TESTS_OFI
/// A network reads the message, packed or in place, later than the stream has gone on.
void sends_what_there_was(bool in_place) {
  run_peers({.processes = true, .backend = "ofi:tcp"}, [in_place](Context& context) {
    constexpr int kWidth = 4 << 20;
    HostStream stream;
    const Queue<Exec> queue = queue_of<Exec>(stream, true);
    const Numbers view("view", 3 * kWidth);
    const HaloOptions<1> options{.stencil = kFromBelow, .depth = 1, .in_place = in_place};
    Halo halo(context, queue, kColumn, kWidth, options, view);
    halo.commit();
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
      queue.run([&, step] { view(2 * kWidth - 1) = static_cast<int>(step); });
      halo.exchange();
      queue.run([&, step] { EXPECT_EQ(view(kWidth - 1), context.rank() == 1 ? static_cast<int>(step) : 0); });
    }
    stream.synchronize();
  });
}
TEST(Races, a_message_is_not_packed_before_the_last_one_was_sent) { sends_what_there_was(false); }
TEST(Races, a_view_is_not_written_before_it_was_sent_in_place) { sends_what_there_was(true); }
#endif

/// One rank is its own neighbour. Its first stream is held up.
TEST(Races, an_exchange_on_another_instance_does_not_overtake) {
  run_peers({.ranks = 1}, [](Context& context) {
    HostStream first;
    HostStream second;
    const Numbers view("view", 8);
    const Cartesian<1> ring{.ranks = {1}, .periodic = {true}};
    Halo halo(context, queue_of<Exec>(first, true), ring, 1, view);
    first.run([&] {
      give_the_peer_time(0, 1);
      EXPECT_EQ(board().word(0), 0U) << "the second stream has overtaken the first";
    });
    halo.exchange();
    halo.exchange(queue_of<Exec>(second, true));
    second.run([] { board().set(0, 1); });
    first.synchronize();
    second.synchronize();
    EXPECT_THROW(halo.exchange(Exec()), Error) << "program order after a host stream";
    halo.start(queue_of<Exec>(first, true));
    halo.finish(queue_of<Exec>(second, true));
    second.synchronize();
  });
}

}  // namespace
