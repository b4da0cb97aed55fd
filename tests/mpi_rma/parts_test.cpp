// SPDX-License-Identifier: Apache-2.0
// Parts of the library by themselves, where a program of MPI cannot bring about the case.
#include <sluice/run.hpp>
#include <sluice/window.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "rma/epochs.hpp"
#include "rma/mpi/attached.hpp"
#include "rma/mpi/behind.hpp"
#include "rma/mpi/call_mutex.hpp"
#include "rma/mpi/refused.hpp"

namespace {

using namespace sluice;

TEST(MpiCallMutex, lets_a_thread_that_polls_pass_others_so_often_only) {
  mpi_rma::CallMutex mutex(true);
  mutex.lock();
  std::atomic<bool> taken = false;
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    taken = true;
  });
  while (mutex.waiting() == 0) std::this_thread::yield();
  std::uint32_t passed = 0;
  for (;; ++passed) {
    mutex.unlock();
    mutex.lock();
    if (taken || passed > 2 * mpi_rma::CallMutex::kMostBefore) break;
  }
  EXPECT_TRUE(taken);
  EXPECT_LE(passed, mpi_rma::CallMutex::kMostBefore);
  mutex.unlock();
  other.join();
}

struct alignas(4096) FourPages {
  std::byte bytes[4][4096];
};

TEST(MpiAttached, what_fails_half_way_leaves_nothing_behind) {
  const int code = run_threads(1, [](Context& context) {
    const auto pages = std::make_unique<FourPages>();
    const Memory own = context.allocate(8);
    Window window = context.window("attached", own.all());
    const auto expect_pieces = [&](const std::string& text) {
      EXPECT_NE(window.describe().find(text), std::string::npos) << window.describe();
    };
    // The third page cannot be attached again; those before and behind it are taken first.
    const auto taken = reinterpret_cast<std::size_t>(pages->bytes[2]);
    window.attach(taken, context.region(pages->bytes[2], 4096).all());
    mpi_rma::Attached attached;
    std::byte* const begin = pages->bytes[0] + 100;
    const std::size_t bytes = 3 * 4096;
    EXPECT_THROW(attached.attach(context, window, begin, bytes), mpi_rma::Refused);
    expect_pieces(", 1 pieces attached");
    EXPECT_THROW(attached.detach(window, begin), mpi_rma::Refused) << "nothing is attached there";
    window.detach(taken);
    attached.attach(context, window, begin, bytes);
    expect_pieces(", 3 pieces attached");
    attached.attach(context, window, pages->bytes[0], 100);  // shares the first page
    expect_pieces(", 3 pieces attached");
    attached.detach(window, begin);
    expect_pieces(", 1 pieces attached");
    attached.detach(window, pages->bytes[0]);
    EXPECT_EQ(window.describe().find("attached,"), std::string::npos) << window.describe();
  });
  EXPECT_EQ(code, 0);
}

/// As a library has UCX that was loaded for it alone: its functions are not among those that follow ours.
TEST(MpiBehind, functions_of_a_library_that_few_see_are_found) {
  using Function = int();
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_answer", PLUGIN), nullptr) << "it is not loaded yet";
  void* const loaded = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_answer"), nullptr);
  auto* const answer = mpi_rma::find_behind<Function>("sluice_test_answer", PLUGIN);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer(), 42);
  EXPECT_EQ(mpi_rma::find_behind<Function>("sluice_test_question", PLUGIN), nullptr);
  dlclose(loaded);
}

/// A call of one rank of two, whose flushes fail; it notes what the peer waits for.
struct FailingCall {
  static constexpr bool kRepeats = false;
  static int size() { return 2; }
  static void reach(Rank) {}
  static bool maps(Rank) { return true; }
  std::uint64_t add(Rank, std::size_t offset, std::uint64_t value) {
    return std::exchange(words[offset], words[offset] + value);
  }
  void subtract_later(Rank rank, std::size_t offset, std::uint64_t lock) { add(rank, offset, 0 - lock); }
  static void await(Rank, const char*, auto) { throw std::runtime_error("it waits"); }
  static void flush(Rank) { throw std::runtime_error("a flush"); }
  static void flush_all() { flush(0); }
  void meet() { ++meetings; }
  static bool take_post(Rank) { return true; }
  static void met_target(Rank) {}
  std::atomic_ref<std::uint64_t> own(std::size_t offset) { return std::atomic_ref(words[offset]); }
  void signal_complete(Rank) { ++completed; }
  [[noreturn]] static void misuse(const std::string& what, Rank = -1) { throw std::logic_error(what); }

  std::map<std::size_t, std::uint64_t> words;
  int meetings = 0;
  int completed = 0;
};

TEST(MpiEpochs, whose_flushes_fail_end_for_the_peers) {
  FailingCall call;
  rma::Epochs epochs(0, 2);
  EXPECT_THROW(epochs.fence(call), std::runtime_error);
  EXPECT_EQ(call.meetings, 1);
  const std::array<Rank, 2> both{0, 1};
  epochs.start(call, both);
  EXPECT_THROW(epochs.complete(call), std::runtime_error);
  EXPECT_EQ(call.completed, 2);
  epochs.lock(call, 1, rma::Locks::Kind::shared);
  EXPECT_EQ(call.words[rma::at::kLock], rma::kShared);
  EXPECT_THROW(epochs.unlock(call, 1), std::runtime_error);
  EXPECT_EQ(call.words[rma::at::kLock], 0U);
  epochs.lock_all(call);
  EXPECT_EQ(rma::shared_of(call.words[rma::at::kAllLocks]), 1U);
  EXPECT_THROW(epochs.unlock_all(call), std::runtime_error);
  EXPECT_EQ(rma::shared_of(call.words[rma::at::kAllLocks]), 0U);
  EXPECT_EQ(epochs.open(true), nullptr);
}

/// A call of `post`, which finds no room in the lists of its origins until it has waited.
struct WaitingPost {
  static bool signal_post(Rank) { return false; }
  static void met_origin(Rank) {}
  void compare_swap(std::span<rma::Mark> marks, std::uint64_t, auto made) {
    if (!has_room) return;
    for (rma::Mark& mark : marks) made(mark);
    marked += marks.size();
  }
  void await(Rank, const char*, auto ready) {
    others();
    has_room = true;
    EXPECT_TRUE(ready());
  }
  [[noreturn]] static void misuse(const std::string& what) { throw std::logic_error(what); }

  std::function<void()> others = [] {};  // what other threads do meanwhile
  bool has_room = false;
  std::size_t marked = 0;
};

TEST(MpiEpochs, a_post_while_another_thread_waits_in_one_is_refused) {
  rma::Posts posts(0, 2);
  const std::array<Rank, 2> both{0, 1};
  WaitingPost first;
  WaitingPost second;
  first.others = [&] { EXPECT_THROW(posts.post(second, both), std::logic_error); };
  posts.post(first, both);
  EXPECT_TRUE(posts.posted());
  EXPECT_EQ(first.marked, both.size());
  EXPECT_EQ(second.marked, 0U);
}

}  // namespace
