// SPDX-License-Identifier: Apache-2.0
// Windows of a GPU's memory.
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/conformance/gpu_windows.hpp"
#include "tests/conformance/random_seed.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kGpuBytes = 100'000;

class GpuWindows : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWindows);

TEST_P(GpuWindows, move_bytes_and_rows) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuSide side(context, 2 * kGpuBytes, kGpuBytes);
    const auto own = static_cast<std::size_t>(context.rank()) * kGpuBytes;
    for (std::uint64_t round = 1; round <= 10; ++round) {
      const std::size_t bytes = std::min(kGpuBytes, std::size_t{1} << (round * 2 % 18));
      GpuSide::stamp(side.piece(0, bytes), {context.rank(), kTag, round});
      side.target.put(side.stream(), side.piece(0, bytes), own);
      side.meet();
      if (context.rank() == 0) {
        for (const Rank rank : {0, 1}) {
          const auto there = side.memory->slice().slice(static_cast<std::size_t>(rank) * kGpuBytes, bytes);
          EXPECT_EQ(difference(bytes_in_gpu(there), {rank, kTag, round}), "") << rank;
        }
      }
      side.target.get(side.stream(), side.piece(0, bytes), kGpuBytes - own);  // of the other rank
      side.flush();
      EXPECT_EQ(difference(bytes_in_gpu(side.piece(0, bytes)), {1 - context.rank(), kTag, round}), "");
      board().meet(context);
    }
    constexpr std::size_t kGpuRow = 24, kGpuRowsApart = 100, kGpuRowCount = 30;
    GpuSide::stamp(side.piece(0, kGpuRow * kGpuRowCount), {context.rank(), kTag, 99});
    side.target.put(side.stream(), side.piece(0, kGpuRow * kGpuRowCount),
                    strided(kGpuRowCount, kGpuRow, kGpuRow, kGpuRowsApart, own));
    side.meet();
    const Slice back = side.piece(kGpuRow * kGpuRowCount, kGpuRow * kGpuRowCount);
    side.target.get(side.stream(), back, strided(kGpuRowCount, kGpuRow, kGpuRow, kGpuRowsApart, kGpuBytes - own));
    side.flush();
    EXPECT_EQ(difference(bytes_in_gpu(back), {1 - context.rank(), kTag, 99}), "");
    side.meet();
  });
}

/// A stream of the owner waits for each count, and then reads; the host waits for nothing in between.
TEST_P(GpuWindows, count_what_is_there) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuCounted = 15;  // each a function of the host, of which a stream takes 48
    const std::size_t bytes = GetParam().bytes;
    GpuSide side(context, bytes, bytes * kGpuCounted);
    const Memory seen = context.allocate(bytes * kGpuCounted, Space::pinned);
    Memory go = context.allocate(kWord);  // the owner's window by which it says that it has read
    Window read;
    if (context.rank() == 1) read = context.window("read", go.all(), 1);
    Target reader;
    if (context.rank() == 0) reader = context.target(1, "read");
    // First: a copy of the host's may be held up by a stream that waits.
    for (std::uint64_t epoch = 1; epoch <= kGpuCounted; ++epoch)
      GpuSide::stamp(side.piece((epoch - 1) * bytes, bytes), {1, kTag, epoch});
    board().meet(context);
    for (std::uint64_t epoch = 1; epoch <= kGpuCounted; ++epoch) {
      const std::size_t at = (epoch - 1) * bytes;
      if (context.rank() == 1) {
        if (epoch > 1) read.wait(side.stream(), 0, epoch - 1);
        side.target.put_notify(side.stream(), side.piece(at, bytes), 0, 1);
      } else {
        side.window.wait(side.stream(), 1, epoch);
        const Slice copy = seen.slice(at, bytes);
        if (side.gpu == nullptr) {
          gpu_copy(copy.data(), side.memory->slice().data(), bytes);
        } else {
          side.gpu->copy(copy.data(), side.memory->slice().data(), bytes);
        }
        reader.notify(side.stream(), 0);
      }
    }
    context.synchronize(side.stream());
    if (context.rank() == 0) {
      for (std::uint64_t epoch = 1; epoch <= kGpuCounted; ++epoch)
        EXPECT_EQ(difference(bytes_of(seen.slice((epoch - 1) * bytes, bytes)), {1, kTag, epoch}), "") << epoch;
      EXPECT_EQ(side.window.count(1), kGpuCounted);
    }
    side.meet();
    if (context.rank() == 1) {
      side.target.get_notify(side.stream(), side.piece(0, bytes), 0, 0);
      side.flush();
      EXPECT_EQ(difference(bytes_in_gpu(side.piece(0, bytes)), {1, kTag, kGpuCounted}), "");
    } else {
      EXPECT_TRUE(side.window.wait_for(0, 1, 20s));
    }
    side.meet();
  });
}

/// A rank gets the bytes that it has put into its half of the window, whichever way the accesses were cut.
TEST_P(GpuWindows, agree_with_an_oracle) {
  const std::uint64_t seed = random_seed();
  run_peers(peers_of(GetParam()), [seed](Context& context) {
    constexpr std::size_t kGpuHalf = 5000;
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    GpuSide side(context, 2 * kGpuHalf, 2 * kGpuHalf);
    const auto own = static_cast<std::size_t>(context.rank()) * kGpuHalf;
    std::vector<std::byte> model(kGpuHalf);
    std::uint64_t counted = 0;
    for (std::uint64_t round = 0; round < 60 * random_rounds(); ++round) {
      const std::size_t bytes = random() % (std::size_t{2} << random() % 12) % kGpuHalf;
      const std::size_t at = random() % (kGpuHalf - bytes);
      const Slice from = side.piece(random() % (kGpuHalf - bytes), bytes);
      std::vector<std::byte> stamped(bytes);
      fill(stamped, {context.rank(), kTag, round + 1});
      if (round == 0) {
        GpuSide::store(side.piece(0, kGpuHalf), model);
        side.target.put(side.stream(), side.piece(0, kGpuHalf), own);
        side.flush();
      }
      GpuSide::store(from, stamped);
      if (random() % 2 == 0) {
        side.target.put(side.stream(), from, own + at);
      } else {
        side.target.put_notify(side.stream(), from, own + at, 0);
        ++counted;
      }
      std::ranges::copy(stamped, model.begin() + static_cast<std::ptrdiff_t>(at));
      side.flush();
      if (random() % 3 != 0) continue;
      const Slice back = side.piece(kGpuHalf, kGpuHalf);
      const std::size_t first = random() % kGpuHalf;
      side.target.get(side.stream(), back,
                      std::vector<Extent>{{0, own, first}, {first, own + first, kGpuHalf - first}});
      side.flush();
      ASSERT_EQ(bytes_in_gpu(back), model) << "seed " << seed << ", round " << round;
    }
    board().word(5).fetch_add(counted);
    side.meet();
    if (context.rank() == 0) {
      EXPECT_TRUE(side.window.wait_for(0, board().word(5).load(), 20s));
      EXPECT_EQ(side.window.count(0), board().word(5).load()) << "seed " << seed;
    }
    board().meet(context);
  });
}

/// Its memory is freed at once.
TEST_P(GpuWindows, that_are_closed_meanwhile_refuse_later_accesses) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    GpuSide side(context, kGpuBytes, kGpuBytes);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 0) {
      side.target.close();
      board().await(kGo, 3);
      side.window.close();
      side.memory.reset();
      board().set(kGo, 1'000'000'000);
    } else {
      expect_code(Code::closed, [&] {
        for (std::uint64_t i = 1;; ++i) {
          if (i % 3 == 0 && side.gpu != nullptr) {
            side.target.accumulate(side.stream(), Op::sum, Number::uint64, side.piece(0, kGpuBytes), 0);
          } else if (i % 2 == 0) {
            side.target.put(side.stream(), side.piece(0, kGpuBytes), 0);
          } else {
            side.target.get(side.stream(), side.piece(0, kGpuBytes), 0);
          }
          side.flush();
          if (board().word(kGo).load() < i) board().set(kGo, i);
        }
      });
      side.target.close();
      board().await(kGo, 1'000'000'000);
    }
    board().meet(context);
  });
}

/// In the order of the stream, which fills it, and reads what it has got.
TEST_P(GpuWindows, exchange_bytes_with_memory_of_the_program) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kGpuPart = 5001;
    GpuSide side(context, 2 * kGpuPart, 8);
    const auto own = static_cast<std::size_t>(context.rank()) * kGpuPart;
    std::vector<std::byte> here(2 * kGpuPart);
    const std::span<std::byte> filled = std::span(here).first(kGpuPart), got = std::span(here).subspan(kGpuPart);
    const Region region = context.region(here.data(), here.size());
    const auto in_order = [&](const std::function<void()>& work) {
      side.gpu == nullptr ? work() : side.gpu->run(work);
    };
    for (std::uint64_t round = 1; round <= 5; ++round) {
      in_order([=, rank = context.rank()] { fill(filled, {rank, kTag, round}); });
      side.target.put(side.stream(), region.slice(0, kGpuPart), own);
      side.target.flush(side.stream());
      side.target.get(side.stream(), region.slice(kGpuPart, kGpuPart), own);
      side.target.flush(side.stream());
      in_order([=, rank = context.rank()] { EXPECT_EQ(difference(got, {rank, kTag, round}), ""); });
    }
    side.meet();
    side.target.close();
  });
}

TEST_P(GpuWindows, have_pieces_of_a_gpu_and_of_the_host) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kGpuPart = 3000, kGpuAt = 1 << 20, kAtomic = 2000;
    const GpuCase& one = GetParam();
    std::unique_ptr<GpuStream> gpu;
    if (!one.inline_order) gpu = std::make_unique<GpuStream>();
    const Stream stream = gpu == nullptr ? Stream() : gpu->stream();
    const Memory words = context.allocate(kWord);
    std::unique_ptr<Piece> more;
    Window window;
    if (context.rank() == 0) {
      window = context.window(kWindow, words.all(), 1);
      more = std::make_unique<Piece>(context, one.target, kGpuPart);
      window.attach(kGpuAt, more->slice());
    }
    const Piece local(context, one.source, kGpuPart);
    const Memory old = context.allocate(kWord);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    board().meet(context);
    if (context.rank() == 1) {
      GpuSide::stamp(local.slice(), {1, kTag, 1});
      target.put_notify(stream, local.slice(), kGpuAt, 0);
      if (one.inline_order) {
        expect_code(Code::unsupported, [&] { target.fetch_add(stream, kGpuAt, 1, old.all()); });
      } else {
        target.fetch_add(stream, kGpuAt + kAtomic, 7, old.all());  // by a kernel, the next by the host
      }
      target.fetch_add(stream, 0, 7, old.all());
      target.flush(stream);
      context.synchronize(stream);
    } else {
      EXPECT_TRUE(window.wait_for(0, 1, 20s));
      EXPECT_EQ(difference(bytes_in_gpu(more->slice().slice(0, kAtomic)), {1, kTag, 1}), "");
    }
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_EQ(word_at(bytes_of(words.all()), 0), 7U);
      if (!one.inline_order) {
        std::vector<std::byte> before(kGpuPart);
        fill(before, {1, kTag, 1});
        EXPECT_EQ(word_at(bytes_in_gpu(more->slice()), kAtomic / kWord), word_at(before, kAtomic / kWord) + 7);
      }
      window.detach(kGpuAt);
      more.reset();
    }
    board().meet(context);
  });
}

TEST_P(GpuWindows, are_used_on_host_streams) {
  if (!GetParam().inline_order) return;
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuSide side(context, 2 * kGpuBytes, kGpuBytes);
    HostStream thread;
    const Stream stream = Stream::host(thread);
    const auto own = static_cast<std::size_t>(context.rank()) * kGpuBytes;
    GpuSide::stamp(side.piece(0, kGpuBytes), {context.rank(), kTag, 1});
    side.target.put_notify(stream, side.piece(0, kGpuBytes), own, 0);
    side.target.put_tagged(stream, side.piece(0, 100), own, 5);
    side.target.flush(stream);
    context.synchronize(stream);
    if (context.rank() == 0) {
      side.window.wait(stream, 0, 2);
      context.synchronize(stream);
      EXPECT_EQ(side.window.match(kAnySource, 5, 2, 20s), 2U);
      EXPECT_EQ(difference(bytes_in_gpu(side.memory->slice().slice(kGpuBytes, kGpuBytes)), {1, kTag, 1}), "");
    }
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_gpu_windows() {
  std::vector<GpuCase> all = gpu_window_cases(false, 4097);
  for (const GpuCase& one : gpu_window_cases(true, 4097)) all.push_back(one);
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuWindows, testing::ValuesIn(cases_of_gpu_windows()), GpuCaseName());

// ---- notices on the streams of GPUs

class GpuNotices : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuNotices);

TEST_P(GpuNotices, bring_the_bytes_in_order) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuAll = 150;  // more than are kept
    constexpr std::size_t kGpuSlot = 300;
    GpuSide side(context, kGpuAll * kGpuSlot, kGpuAll * kGpuSlot);
    const Memory seen = context.allocate(kGpuAll * kGpuSlot, Space::pinned);
    for (std::uint64_t i = 1; i <= kGpuAll; ++i) GpuSide::stamp(side.piece((i - 1) * kGpuSlot, kGpuSlot), {1, kTag, i});
    board().meet(context);
    if (context.rank() == 1) {
      for (std::uint64_t i = 1; i <= kGpuAll; ++i) {
        const std::size_t at = (i - 1) * kGpuSlot, bytes = i * 2;
        side.target.put_tagged(side.stream(), side.piece(at, bytes), at, static_cast<Tag>(i));
      }
      side.target.get_tagged(side.stream(), side.piece(0, 8), 8, 7);
    } else {
      for (std::uint64_t i = 1; i <= kGpuAll; ++i) {
        const auto notice = side.window.match(1, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        EXPECT_EQ(notice->tag, i);
        EXPECT_EQ(notice->offset, (i - 1) * kGpuSlot);
        EXPECT_EQ(notice->bytes, i * 2);
        const std::size_t at = notice->offset;  // and what is there now, by a stream that no other holds up
        side.gpu->copy(seen.data() + at, side.memory->slice().data() + at, notice->bytes);
      }
      side.gpu->synchronize();
      for (std::uint64_t i = 1; i <= kGpuAll; ++i) {
        const Slice bytes = seen.slice((i - 1) * kGpuSlot, i * 2);
        EXPECT_EQ(difference(bytes_of(bytes), {1, kTag, i}), "") << i;
      }
      const auto last = side.window.match(1, 7, 20s);
      ASSERT_TRUE(last);
      EXPECT_EQ(last->offset, 8U);
    }
    side.meet();
  });
}

TEST_P(GpuNotices, are_kept_and_bounded) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuAll = 80, kGpuKept = 64;
    GpuSide side(context, 64, 64);
    if (context.rank() == 1) {
      for (std::uint64_t i = 1; i <= kGpuAll; ++i) {
        side.target.put_tagged(side.stream(), {}, 0, static_cast<Tag>(i));
        side.gpu->run([i] { board().set(kGo, i); });
      }
    } else {
      board().await(kGo, kGpuKept);
      EXPECT_FALSE(side.window.match(1, kGpuAll + 1, 20ms));  // sees them, and takes none
      EXPECT_EQ(board().word(kGo).load(), kGpuKept);
      for (std::uint64_t i = 1; i <= kGpuAll; ++i) {
        const auto notice = side.window.match(1, kAnyTag, 20s);
        ASSERT_TRUE(notice);
        EXPECT_EQ(notice->tag, i);
        EXPECT_LE(board().word(kGo).load(), i + kGpuKept);
      }
    }
    side.meet();
  });
}

TEST_P(GpuNotices, are_given_before_their_target_is_closed) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kGpuKept = 64;
    GpuSide side(context, 64, 64);
    if (context.rank() == 1) {
      for (std::uint64_t i = 0; i <= kGpuKept; ++i) side.target.put_tagged(side.stream(), {}, 0, 1);
      expect_code(Code::timeout, [&] { side.target.close(20ms); });
      board().set(kGo, 1);
    } else {
      board().await(kGo, 1);
      for (std::uint64_t i = 0; i <= kGpuKept; ++i) EXPECT_TRUE(side.window.match(1, 1, 20s)) << i;
    }
    side.target.close();
    board().meet(context);
  });
}

/// A stream that waits for room for a notice goes on.
TEST_P(GpuNotices, that_have_no_room_end_when_the_window_closes) {
  run_peers(with_untold(peers_of(GetParam())), [](Context& context) {
    constexpr std::uint64_t kGpuKept = 64;
    GpuSide side(context, 64, 64);
    side.target.wait_connected();
    board().meet(context);
    if (context.rank() == 1) {
      for (std::uint64_t i = 0; i <= kGpuKept; ++i) side.target.put_tagged(side.stream(), side.piece(0, 8), 0, 1);
      board().set(kGo, 1);
      side.gpu->synchronize();
      expect_code(Code::closed, [&] {
        for (;;) {
          side.target.put_tagged(side.stream(), {}, 0, 1);
          side.gpu->synchronize();
        }
      });
      side.target.close();
    } else {
      side.target.close();
      board().await(kGo, 1);
      side.window.close();
    }
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_gpu_notices() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "threads" && ground.name != "shm") continue;
    for (const auto& [source, target] : {std::pair(Whose::hosts, Whose::hosts), std::pair(Whose::ours, Whose::ours)})
      all.push_back({ground, false, source, target, 1, 64});
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuNotices, testing::ValuesIn(cases_of_gpu_notices()), GpuCaseName());

// ---- lost owners and peers

class LostGpuWindows : public testing::TestWithParam<GpuCase> {
 protected:
  static Peers peers() {
    Peers peers = peers_of(GetParam());
    peers.keep_going = peers.untold = true;
    peers.limit = 60s;
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LostGpuWindows);

TEST_P(LostGpuWindows, release_all_who_access_them) {
  expect_only_rank_1_killed(end_of_peers(peers(), [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece memory(context, one.target, kGpuBytes);
    if (context.rank() == 1) {
      const Window window = context.window(kWindow, memory.slice(), 1);
      die_when_ready();
    }
    const GpuStream gpu;
    const Stream stream = one.inline_order ? Stream() : gpu.stream();
    Target target = context.target(1, kWindow);
    target.wait_connected();
    expect_loss_of_rank_1(
        context,
        [&] {
          for (std::uint64_t i = 0;; ++i) {
            target.put_notify(stream, memory.slice(), 0, 0);
            target.get(stream, memory.slice(), 0);
            if (!one.inline_order) {
              target.accumulate_notify(stream, Op::max, Number::float32, memory.slice(), 0, 0);
              target.fetch_add(stream, 0, 1, memory.slice().slice(0, kWord));
            }
            target.flush(stream);
            context.synchronize(stream);
            if (i == 10) board().set(kReady, 1);
          }
        },
        stream);
    target.close();
  }));
}

/// Also the stream of the owner that waits for a count.
TEST_P(LostGpuWindows, of_a_live_owner_stay_for_the_others) {
  expect_only_rank_1_killed(end_of_peers(peers(), [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece memory(context, one.target, kGpuBytes);
    GpuStream gpu;
    const Stream stream = one.inline_order ? Stream() : gpu.stream();
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.slice(), 1);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    if (context.rank() == 1) {
      target.put(stream, memory.slice(), 0);
      target.flush(stream);
      context.synchronize(stream);
      die_when_ready();
    }
    board().set(kReady, 1);
    expect_released([&] {
      expect_code(Code::peer_lost, [&] {
        window.wait(stream, 0, 1);
        context.synchronize(stream);
      });
    });
    target.put(stream, memory.slice().slice(0, 1000), 1000);
    target.drain();
    target.close();
    window.close();
  }));
}

std::vector<GpuCase> cases_of_lost_gpu_windows() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "shm" || !why_not_kill(ground).empty()) continue;
    for (const bool inline_order : {false, true}) {
      for (const Whose whose : {Whose::ours, Whose::users}) all.push_back({ground, inline_order, whose, whose});
    }
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, LostGpuWindows, testing::ValuesIn(cases_of_lost_gpu_windows()), GpuCaseName());

// ---- memory that the peer does not reach

class GpuWindowsRefused : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWindowsRefused);

/// Memory that the driver does not share, or the peer's does not import, and by a network that reaches no memory of
/// GPUs. The owner's counters go on.
TEST_P(GpuWindowsRefused, say_why_when_the_target_connects) {
  Peers peers = with_untold(peers_of(GetParam()));
  if (GetParam().target == Whose::ours && !GetParam().ground.network) {
    if (!gpu_is_emulated()) return;
    peers.environment = {"EMUCUDA_IMPORTS=0"};
  }
  run_peers(peers, [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece memory(context, one.target, 4096);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.slice(), 1);
    if (context.rank() == 1) {
      Target target = context.target(0, kWindow);
      const auto why = expect_code(Code::unsupported, [&] { target.wait_connected(); });
      ASSERT_TRUE(why);
      expect_told(why->what(), "memory of a GPU cannot be reached");
      const Memory local = context.allocate(64);
      expect_code(Code::unsupported, [&] { target.put({}, local.all(), 0); });
      target.close();
    }
    board().meet(context);
    if (context.rank() == 0) {
      EXPECT_FALSE(window.wait_for(0, 1, 1ms));
      window.close();
    }
    board().meet(context);
  });
}

std::vector<GpuCase> cases_of_refused_gpu_windows() {
  std::vector<GpuCase> all;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name == "shm") all.push_back({ground, true, Whose::hosts, Whose::unshared});
    if (ground.name == "shm" || ground.network) all.push_back({ground, true, Whose::hosts, Whose::ours});
  }
  return all;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuWindowsRefused, testing::ValuesIn(cases_of_refused_gpu_windows()), GpuCaseName());

}  // namespace
