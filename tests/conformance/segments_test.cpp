// SPDX-License-Identifier: Apache-2.0
// Segments: any range of a buffer is put, waited for and released.
#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/segments.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kSegmentBytes = 4096;

class Segments : public testing::TestWithParam<Case> {
 protected:
  /// `of_sender` on rank 0, `of_receiver` on rank 1; both close.
  template <class OfSender, class OfReceiver>
  static void run(OfSender of_sender, OfReceiver of_receiver, bool untold = false) {
    Peers peers = GetParam().peers();
    peers.untold = untold;
    run_peers(peers, [&](Context& context) {
      SegmentSide side(context, GetParam(), kSegmentBytes);
      if (context.rank() == 0) {
        of_sender(side);
        side.sender.close(15s);
      } else {
        of_receiver(side);
        side.receiver.close(15s);
      }
    });
  }
};

TEST_P(Segments, a_wait_for_bytes_of_several_puts_ends_with_the_last) {
  run(
      [](SegmentSide& side) {
        side.put(100, 50);
        side.put(200, 50);
        side.synchronize();
        board().meet(side.context);
        board().meet(side.context);
        side.put(150, 50);
        side.synchronize();
        board().meet(side.context);
      },
      [](SegmentSide& side) {
        board().meet(side.context);
        EXPECT_TRUE(side.receiver.wait_for(100, 50, 15s));
        EXPECT_TRUE(side.receiver.wait_for(200, 50, 15s));
        EXPECT_FALSE(side.receiver.test(100, 150));
        EXPECT_FALSE(side.receiver.wait_for(149, 2, 1ms));
        EXPECT_TRUE(side.receiver.test(120, 30));
        board().meet(side.context);
        side.next_puts(100, 150);
        side.wait(120, 100);
        side.wait(100, 150);
        side.release(110, 130);
        side.synchronize();
        EXPECT_FALSE(side.receiver.test(100, 11));
        EXPECT_TRUE(side.receiver.test(100, 10));
        EXPECT_TRUE(side.receiver.test(240, 10));
        board().meet(side.context);
      });
}

TEST_P(Segments, a_put_into_bytes_that_were_not_released_waits) {
  constexpr std::size_t kReleasedWord = 10;  // on the board
  run(
      [](SegmentSide& side) {
        EXPECT_NO_THROW(side.sender.wait_connected(15s));
        side.put(0, 64);
        side.put(64, 64);
        side.synchronize();
        EXPECT_FALSE(side.sender.try_put(0, 64));
        EXPECT_FALSE(side.sender.try_put(127, 2));
        expect_code(Code::timeout, [&] { side.sender.i_put(60, 8, 2ms); });
        board().meet(side.context);
        side.put(32, 64);
        side.synchronize();
        EXPECT_EQ(board().word(kReleasedWord).load(), 1U);
      },
      [](SegmentSide& side) {
        board().meet(side.context);
        side.next_puts(0, 128);
        side.wait(0, 128);
        side.release(32, 32);
        side.synchronize();
        std::this_thread::sleep_for(2ms);
        board().set(kReleasedWord, 1);
        side.release(64, 32);
        side.next_puts(32, 64);
        side.wait(32, 64);
        side.wait(0, 128);
        side.synchronize();
      });
}

TEST_P(Segments, what_is_wrong_is_refused_and_changes_nothing) {
  run(
      [](SegmentSide& side) {
        for (const auto& [offset, count] : {std::pair<std::size_t, std::size_t>{kSegmentBytes, 1},
                                            {0, kSegmentBytes + 1},
                                            {kSegmentBytes + 1, 0},
                                            {1, ~std::size_t{0}}}) {
          expect_code(Code::bad_argument, [&, at = offset, n = count] { side.sender.i_put(at, n); });
          expect_code(Code::bad_argument, [&, at = offset, n = count] { side.sender.i_put(side.stream(), at, n); });
          expect_code(Code::bad_argument, [&, at = offset, n = count] { side.sender.try_put(at, n); });
          expect_code(Code::bad_argument, [&, at = offset, n = count] { side.sender.wait(at, n); });
        }
        side.put(10, 0);
        side.put(kSegmentBytes, 0);
        side.put(10, 20);
        side.synchronize();
        board().meet(side.context);
        board().meet(side.context);
      },
      [](SegmentSide& side) {
        expect_code(Code::bad_argument, [&] { side.receiver.wait(0, kSegmentBytes + 1); });
        expect_code(Code::bad_argument, [&] { side.receiver.release(kSegmentBytes, 1); });
        expect_code(Code::misuse, [&] { side.receiver.release(0, 1); });
        side.receiver.release(0, 0);
        EXPECT_TRUE(side.receiver.test(kSegmentBytes, 0));
        board().meet(side.context);
        side.next_puts(10, 20);
        side.wait(10, 20);
        side.synchronize();
        expect_code(Code::misuse, [&] { side.receiver.release(9, 2); });
        expect_code(Code::misuse, [&] { side.receiver.release(10, 21); });
        side.wait(10, 20);
        side.release(10, 10);
        side.synchronize();
        const auto twice = expect_code(Code::misuse, [&] { side.receiver.release(10, 20); });
        EXPECT_EQ(twice->peer(), 0);
        EXPECT_EQ(twice->tag(), kSegmentsTag);
        side.wait(20, 10);
        side.release(20, 10);
        side.synchronize();
        board().meet(side.context);
      });
}

TEST_P(Segments, releases_are_never_lost_and_do_not_block) {
  constexpr std::size_t kSmall = 500;
  run(
      [](SegmentSide& side) {
        side.put(0, 2 * kSmall);
        side.synchronize();
        board().meet(side.context);  // all are released, and this rank has not looked
        side.put(0, 2 * kSmall);
        side.synchronize();
        board().meet(side.context);
      },
      [](SegmentSide& side) {
        side.next_puts(0, 2 * kSmall);
        side.wait(0, 2 * kSmall);
        // Bytes that do not adjoin, and then those between them.
        for (std::size_t i = 0; i < kSmall; ++i) side.release(2 * i, 1);
        for (std::size_t i = 0; i < kSmall; ++i) side.release(2 * i + 1, 1);
        side.synchronize();
        board().meet(side.context);
        board().meet(side.context);  // no call of this rank helps the sender
        side.next_puts(0, 2 * kSmall);
        side.wait(0, 2 * kSmall);
        side.synchronize();
      });
}

TEST_P(Segments, many_puts_are_under_way) {
  run(
      [](SegmentSide& side) {
        side.sender.wait_connected(15s);
        for (std::size_t i = 0; i < SegmentSender::kMostUnderWay; ++i) side.put(i * 8, 8);
        side.synchronize();
        EXPECT_FALSE(side.sender.try_put(4000, 1));
        board().meet(side.context);
        side.put(4000, 8);
        side.synchronize();
      },
      [](SegmentSide& side) {
        board().meet(side.context);
        side.next_puts(0, SegmentSender::kMostUnderWay * 8);
        side.next_puts(4000, 8);
        side.wait(4000, 8);  // takes note of the others
        for (std::size_t i = SegmentSender::kMostUnderWay; i-- > 0;) side.wait(i * 8, 8);
        side.synchronize();
      });
}

TEST_P(Segments, several_threads_wait_and_release) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = kSegmentBytes / kThreads;
  const std::uint64_t rounds = quick_segments(GetParam()) ? 150 : 30;
  run(
      [=](SegmentSide& side) {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < 2; ++i) {
          threads.emplace_back([&, i] {
            for (std::uint32_t round = 1; round <= rounds; ++round) {
              for (std::size_t part = i; part < kThreads; part += 2) {
                side.sender.wait(part * kEach, kEach);
                for (std::size_t at = part * kEach; at < (part + 1) * kEach; ++at)
                  side.memory.bytes()[at] = segment_byte(at, round);
                side.sender.i_put(part * kEach, kEach / 2);
                side.sender.i_put(part * kEach + kEach / 2, kEach / 2);
              }
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
      },
      [=](SegmentSide& side) {
        std::vector<std::thread> threads;
        for (std::size_t part = 0; part < kThreads; ++part) {
          threads.emplace_back([&, part] {
            for (std::uint32_t round = 1; round <= rounds; ++round) {
              const Slice slice = side.receiver.wait(part * kEach, kEach, 15s);
              for (std::size_t i = 0; i < kEach; ++i) ASSERT_EQ(slice.data()[i], segment_byte(part * kEach + i, round));
              std::fill_n(slice.data(), kEach, kReleasedByte);
              side.receiver.release(part * kEach + kEach / 4, kEach - kEach / 4);
              side.receiver.release(part * kEach, kEach / 4);
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
      });
}

TEST_P(Segments, a_closed_sender_leaves_what_it_has_put) {
  run(
      [](SegmentSide& side) {
        side.put(0, 100);
        side.put(200, 100);
      },
      [](SegmentSide& side) {
        side.next_puts(0, 100);
        side.next_puts(200, 100);
        side.wait(0, 100);
        side.wait(200, 100);
        side.synchronize();
        expect_code(Code::closed, [&] { side.receiver.wait(99, 2); });
        side.wait(200, 100);
        side.release(0, 100);
        side.synchronize();
        expect_code(Code::closed, [&] { side.receiver.wait(0, 1); });
        side.receiver.close();
        side.receiver.close();
        expect_code(Code::misuse, [&] { side.receiver.test(0, 1); });
      });
}

TEST_P(Segments, a_closed_receiver_refuses_puts) {
  run(
      [](SegmentSide& side) {
        side.put(0, 100);
        side.synchronize();
        expect_code(Code::misuse, [&] { side.sender.i_put(0, 100); });
        expect_code(Code::misuse, [&] { side.sender.i_put(200, 100); });
      },
      [](SegmentSide& side) { side.receiver.wait(0, 100); });
}

TEST_P(Segments, bytes_that_have_left_leave_their_source_free_though_the_receiver_closes) {
  run(
      [](SegmentSide& side) {
        side.put(0, 100);
        side.synchronize();
        board().set(kGo, 1);
        expect_within(10s, [&] {
          try {
            (void)side.sender.try_put(200, 1);
            return false;
          } catch (const Error&) {  // the receiver has closed
            return true;
          }
        });
        expect_within(10s, [&] { return side.sender.test(0, 100); });
        side.sender.wait(side.stream(), 0, 100);
        side.synchronize();
      },
      [](SegmentSide&) { board().await(kGo, 1); });
}

/// The memory is malloc'ed: the driver may know memory of the library already, since its words lie there.
TEST_P(Segments, streams_of_gpus_may_use_the_buffer) {
  if (!GetParam().cuda) return;
  Case of_user = GetParam();
  of_user.user = true;
  run_peers(of_user.peers(), [&](Context& context) {
    SegmentSide side(context, of_user, kSegmentBytes);
    if (context.rank() == 0) {
      side.put(0, 100);
    } else {
      side.next_puts(0, 100);
      side.wait(0, 100);
    }
    EXPECT_TRUE(gpu_knows(side.memory.all().data()));
    side.synchronize();
    board().meet(context);
  });
}

TEST_P(Segments, what_a_stream_finds_wrong_fails_both_ends) {
  if (!GetParam().host) return;  // in program order the call itself throws
  run(
      [](SegmentSide& side) {
        side.sender.wait_connected(15s);
        board().meet(side.context);
        side.put(0, 100);
        side.put(50, 100);  // is released by the failure
        expect_code(Code::misuse, [&] { side.synchronize(); });
        expect_code(Code::misuse, [&] { side.sender.i_put(0, 1); });
      },
      [](SegmentSide& side) {
        side.receiver.wait_connected(15s);
        board().meet(side.context);
        side.receiver.wait(side.stream(), 0, 100);
        side.receiver.release(side.stream(), 0, 101);
        side.receiver.wait(side.stream(), 3000, 1);
        expect_code(Code::misuse, [&] { side.synchronize(); });
        expect_code(Code::misuse, [&] { side.receiver.test(0, 1); });
      },
      true);
}

TEST_P(Segments, a_full_stream_holds_up_no_call_on_another) {
  if (!GetParam().host) return;
  run([](SegmentSide& side) { side.sender.i_put(0, 16); },
      [](SegmentSide& side) {
        side.receiver.wait(0, 16, 15s);
        HostStream other;
        HostStream full(HostStream::Options{.capacity = 1});
        std::atomic<bool> fills{false};
        full.run([&] {
          while (!fills) std::this_thread::yield();
          std::this_thread::sleep_for(2ms);  // the loop below is likely to be blocked now
          side.receiver.release(Stream::host(other), 0, 8);
        });
        fills = true;
        for (int i = 0; i < 4; ++i) side.receiver.wait(Stream::host(full), 8, 8);
        full.synchronize();
        other.synchronize();
        side.receiver.close(15s);  // while the streams are there
      });
}

TEST_P(Segments, buffers_of_different_sizes_fail_both_ends) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    const bool sends = context.rank() == 0;
    Buffer memory(context, GetParam(), sends ? 100 : 200);
    if (sends) {
      SegmentSender sender(context, 1, 1, memory.all());
      expect_code(Code::mismatch, [&] { sender.i_put(0, 1, 15s); });
    } else {
      SegmentReceiver receiver(context, 0, 1, memory.all());
      expect_code(Code::mismatch, [&] { receiver.wait(0, 1, 15s); });
    }
  });
}

TEST_P(Segments, an_end_that_an_exception_destroys_is_lost_to_its_peer) {
  run_peers(with_untold(GetParam().peers()), [](Context& context) {
    SegmentSide side(context, GetParam(), kSegmentBytes);
    if (context.rank() == 0) {
      side.put(0, 10);
      side.synchronize();
      board().meet(context);
      const auto error = expect_code(Code::peer_lost, [&] {
        for (;;) side.sender.i_put(0, 10, 15s);
      });
      const std::string text = error->what();
      EXPECT_EQ(text.find("peer_lost: "), text.rfind("peer_lost: ")) << text;
      board().meet(context);
    } else {
      side.receiver.wait(0, 10, 15s);
      board().meet(context);
      WaitAny any;
      any.add(side.receiver, 0, 10);
      const auto fails = [&] {
        const SegmentReceiver gone = std::move(side.receiver);
        throw std::runtime_error("on purpose");
      };
      EXPECT_THROW(fails(), std::runtime_error);
      EXPECT_FALSE(any.wait(15s));
      board().meet(context);
    }
  });
}

/// Both ranks draw the same steps. Puts wait for releases, and waits for puts, so that the ranks need not meet but
/// where something must not succeed.
TEST_P(Segments, are_those_of_a_state_for_each_byte) {
  constexpr std::size_t kFew = 300;
  const Case& one = GetParam();
  const std::uint64_t seed = random_seed();
  const std::uint64_t steps = (quick_segments(one) ? 3000 : 300) * random_rounds();
  run_peers(one.peers(), [=](Context& context) {
    std::mt19937_64 random(seed);
    SegmentSide side(context, GetParam(), kFew);
    std::vector<bool> written(kFew);  // the reference: the bytes that are put and not released
    const bool sends = context.rank() == 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::size_t offset = random() % kFew;
      const std::size_t count = std::min<std::size_t>(kFew - offset, random() % (random() % 4 == 0 ? kFew : 20));
      const auto first = written.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto last = first + static_cast<std::ptrdiff_t>(count);
      const bool none = std::none_of(first, last, [](bool is) { return is; });
      const bool all = std::all_of(first, last, [](bool is) { return is; });
      if (none && (!all || random() % 2 == 0)) {
        if (sends) {
          side.put(offset, count);
        } else {
          side.next_puts(offset, count);
        }
        std::fill(first, last, true);
      } else if (all) {
        if (!sends) side.wait(offset, count);
        if (random() % 3 == 0) continue;
        if (!sends) side.release(offset, count);
        std::fill(first, last, false);
      } else if (random() % 8 == 0) {
        side.synchronize();
        if (sends) side.sender.wait(0, kFew);
        board().meet(context);
        if (sends) {
          ASSERT_FALSE(side.sender.try_put(offset, count));
        } else {
          ASSERT_FALSE(side.receiver.test(offset, count));
          expect_code(Code::misuse, [&] { side.receiver.release(offset, count); });
        }
        board().meet(context);
      }
      if (step % 100 == 99) side.synchronize();
    }
    side.synchronize();
    board().meet(context);  // a receiver that has closed refuses puts
  });
}

TEST_P(Segments, close_at_any_time) {
  const std::uint64_t seed = random_seed();
  run_peers(with_untold(GetParam().peers()), [=](Context& context) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    for (int round = 0; round < (GetParam().ground.network ? 3 : 10); ++round) {
      SegmentSide side(context, GetParam(), kSegmentBytes);
      try {
        for (std::uint64_t left = random() % 30; left > 0; --left) {
          const std::size_t offset = random() % (kSegmentBytes - 100);
          if (context.rank() == 0) {
            static_cast<void>(side.sender.try_put(offset, 100));
          } else if (side.receiver.wait_for(offset, 10, 100us)) {
            side.receiver.release(offset, 10);
          }
        }
      } catch (const Error& reason) {
        EXPECT_TRUE(reason.code() == Code::misuse || reason.code() == Code::closed) << reason.what();
      }
      context.rank() == 0 ? side.sender.close(15s) : side.receiver.close(15s);
      board().meet(context);
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Segments, testing::ValuesIn(of_segments()), CaseName());
INSTANTIATE_IN_ITS_RANKS(QuickUser, Segments,
                         testing::Values(Case{.ground = {"shm", "shm", true}, .host = true, .user = true}), CaseName());

}  // namespace
