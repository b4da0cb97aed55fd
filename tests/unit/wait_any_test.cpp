// SPDX-License-Identifier: Apache-2.0
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "peers/word_book.hpp"
#include "runtime/handles.hpp"
#include "runtime/wait_any.hpp"
#include "tests/unit/code_of.hpp"

namespace {

using namespace std::chrono_literals;
using sluice::Code;
using sluice::tests::code_of;

constexpr std::size_t kBytes = 64;

// All have messages all the time.
TEST(WaitAny, receivers_have_their_turn) {
  constexpr int kSenders = 3;
  constexpr int kDepth = 8;
  std::atomic<int> ready{0};
  const int code = sluice::run_threads(kSenders + 1, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(kSenders * kDepth * kBytes);
    if (context.rank() > 0) {
      sluice::Sender out = context.sender(0, 1, memory.slice(0, kBytes));
      for (int put = 0; put < kDepth; ++put) out.put({});
      out.drain();
      ++ready;
      return;
    }
    std::vector<sluice::Receiver> in;
    for (int rank = 1; rank <= kSenders; ++rank) {
      const auto at = static_cast<std::size_t>(rank - 1) * kDepth * kBytes;
      in.push_back(context.receiver(rank, 1, memory.slice(at, kDepth * kBytes), {.depth = kDepth}));
    }
    while (ready < kSenders) std::this_thread::yield();
    for (sluice::Receiver& one : in) one.wait_connected(10s);  // a put may arrive before this end connects
    sluice::WaitAny any(in);
    for (std::size_t turn = 0; turn < kSenders * kDepth; ++turn) {
      const auto got = any.wait(10s);
      ASSERT_TRUE(got && !got->closed());
      EXPECT_EQ(got->index, turn % kSenders);
    }
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAny, one_that_was_closed_here_is_left_out) {
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(2 * kBytes);
    if (context.rank() == 1) {
      sluice::Sender first = context.sender(0, 1, memory.slice(0, kBytes));
      sluice::Sender second = context.sender(0, 2, memory.slice(kBytes, kBytes));
      second.put({});
      return;
    }
    sluice::Receiver first = context.receiver(1, 1, memory.slice(0, kBytes));
    sluice::Receiver second = context.receiver(1, 2, memory.slice(kBytes, kBytes));
    sluice::WaitAny any;
    EXPECT_EQ(any.add(first), 0U);
    EXPECT_EQ(any.add(second), 1U);
    first.close();
    const auto got = any.wait(10s);
    ASSERT_TRUE(got && !got->closed());
    EXPECT_EQ(got->index, 1U);
    EXPECT_EQ(any.left(), 1U);
    { const sluice::Receiver dropped = std::move(second); }
    EXPECT_FALSE(any.wait(10s));
    EXPECT_EQ(any.left(), 0U);
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAny, takes_all_that_have_come) {
  constexpr std::size_t kChannels = 3;
  constexpr std::size_t kPuts = 2;
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(kChannels * (kPuts + 1) * kBytes);
    std::vector<sluice::Receiver> in;
    std::vector<sluice::Sender> out;
    for (std::size_t i = 0; i < kChannels; ++i) {
      const auto tag = static_cast<sluice::Tag>(i);
      const std::size_t at = i * (kPuts + 1) * kBytes;
      in.push_back(context.receiver(0, tag, memory.slice(at, kPuts * kBytes), {.depth = kPuts}));
      out.push_back(context.sender(0, tag, memory.slice(at + kPuts * kBytes, kBytes)));
    }
    sluice::WaitAny any(in);
    for (sluice::Sender& one : out) {
      for (std::size_t put = 0; put < kPuts; ++put) one.put({});
    }
    for (std::size_t put = 0; put < kPuts; ++put) {
      const auto some = any.wait_some(10s);
      ASSERT_EQ(some.size(), kChannels);
      for (std::size_t i = 0; i < kChannels; ++i) EXPECT_EQ(some[i].index, i);
    }
    EXPECT_TRUE(any.wait_some_for(0ns).empty());
    EXPECT_EQ(code_of([&] { any.wait_some(0ns); }), "timeout");
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAny, the_failure_of_the_last_one_is_thrown) {
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(2 * kBytes);
    if (context.rank() == 1) {
      sluice::Sender closes = context.sender(0, 1, memory.slice(0, kBytes));
      closes.close();
      const auto fails = [&] {
        sluice::Sender lost = context.sender(0, 2, memory.slice(kBytes, kBytes));
        lost.wait_connected(10s);
        throw std::runtime_error("on purpose");
      };
      EXPECT_THROW(fails(), std::runtime_error);
      return;
    }
    sluice::Receiver closed = context.receiver(1, 1, memory.slice(0, kBytes));
    sluice::Receiver failed = context.receiver(1, 2, memory.slice(kBytes, kBytes));
    EXPECT_EQ(code_of([&] { failed.wait_for(10s); }), "peer_lost");
    EXPECT_FALSE(closed.wait_for(10s));
    sluice::WaitAny any;
    any.add(closed);
    any.add(failed);
    const auto some = any.wait_some(10s);
    ASSERT_EQ(some.size(), 1U);
    EXPECT_TRUE(some.front().closed());
    EXPECT_EQ(any.left(), 1U);
    EXPECT_EQ(code_of([&] { any.wait_some(10s); }), "peer_lost");
    EXPECT_EQ(any.left(), 0U);
    EXPECT_TRUE(any.wait_some(10s).empty());
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAny, takes_what_a_host_may_wait_for) {
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(4 * kBytes);
    const auto slot = [&](std::size_t i) { return memory.slice(i * kBytes, kBytes); };
    sluice::Sender out = context.sender(0, 1, slot(0));
    sluice::Receiver in = context.receiver(0, 1, slot(1));
    sluice::Receiver closed = context.receiver(0, 2, slot(2));
    closed.close();
    sluice::Receiver empty;
    sluice::WaitAny any;
    EXPECT_EQ(code_of([&] { any.add(closed); }), "misuse");
    EXPECT_EQ(code_of([&] { any.add(empty); }), "misuse");
    any.add(in);
    EXPECT_EQ(code_of([&] { any.wait(0ns); }), "timeout");
    sluice::Plan plan = context.plan();
    plan.add(in).commit({});
    EXPECT_EQ(code_of([&] { any.wait(10s); }), "misuse");
    EXPECT_EQ(code_of([&] { sluice::WaitAny().add(in); }), "misuse");
  });
  EXPECT_EQ(code, 0);
}

// The half second is what is measured.
TEST(WaitAny, a_wait_for_nothing_uses_no_cpu) {
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(2 * kBytes);
    sluice::Receiver first = context.receiver(0, 1, memory.slice(0, kBytes));
    sluice::Receiver second = context.receiver(0, 2, memory.slice(kBytes, kBytes));
    sluice::WaitAny any;
    any.add(first);
    any.add(second);
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_THREAD, &before);
    EXPECT_FALSE(any.wait_for(500ms));
    getrusage(RUSAGE_THREAD, &after);
    const auto micros = [](const rusage& usage) {
      return 1'000'000 * (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + usage.ru_utime.tv_usec +
             usage.ru_stime.tv_usec;
    };
    EXPECT_LT(micros(after) - micros(before), 50'000);
  });
  EXPECT_EQ(code, 0);
}

// Else it would have to look now and then.
TEST(WaitAny, finds_one_place_to_sleep_for_all_peers) {
  using sluice::runtime::Standing;
  std::array<sluice::runtime::WordBook, 3> books;
  const sluice::base::Parking* common = nullptr;
  for (auto& book : books) {
    for (const auto standing : {Standing::together, Standing::alone}) {
      const auto word = book.take(standing);
      ASSERT_NE(word.parking->common(), nullptr);
      EXPECT_NE(word.parking->common(), word.parking);
      if (common == nullptr) common = word.parking->common();
      EXPECT_EQ(word.parking->common(), common);
    }
  }
}

/// Another thread takes each arrival first, until no limit of the test can be left.
class AlwaysTaken final : public sluice::detail::Awaited {
 public:
  explicit AlwaysTaken(sluice::runtime::ChannelEnd& end) : end_(end) {}
  sluice::runtime::ChannelEnd& end() const noexcept override { return end_; }
  bool ready() noexcept override { return ++looks_ % 2 == 1 || is_lost(); }
  void add_places(std::vector<sluice::base::Parking*>& places) const override { places.push_back(&end_.done_parking); }
  std::optional<sluice::WaitAny::Arrival> take(std::size_t index, const void*) override {
    if (!is_lost()) return std::nullopt;
    return sluice::WaitAny::Arrival{index, {}, {}};
  }
  void release(sluice::device::Lane, const void*) override {}
  void lend_to_kernels(sluice::device::Driver&, int) override {}

 private:
  bool is_lost() const { return std::chrono::steady_clock::now() > lost_; }

  sluice::runtime::ChannelEnd& end_;
  const std::chrono::steady_clock::time_point lost_ = std::chrono::steady_clock::now() + 5s;
  int looks_ = 0;
};

TEST(WaitAny, has_one_limit_however_often_it_goes_on) {
  const int code = sluice::run_threads(1, [&](sluice::Context& context) {
    sluice::Memory memory = context.allocate(kBytes);
    sluice::Receiver in = context.receiver(0, 1, memory.all());
    const auto core = std::make_shared<sluice::detail::WaitAnyCore>();
    core->add(std::make_unique<AlwaysTaken>(*sluice::detail::ChannelAccess::end(in)));
    EXPECT_FALSE(core->wait_for(20ms, nullptr));
    EXPECT_TRUE(core->wait_some(20ms, nullptr).empty());
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAny, of_none_returns_nothing_at_once) {
  sluice::WaitAny none;
  EXPECT_FALSE(none.wait());
  EXPECT_FALSE(none.wait_for(10s));
  EXPECT_EQ(none.left(), 0U);
}

}  // namespace
