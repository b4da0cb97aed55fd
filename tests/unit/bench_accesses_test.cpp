// SPDX-License-Identifier: Apache-2.0
// The units of the bench `rma`, on a way that moves all bytes, or loses some.
#include "apps/bench/harness/accesses.hpp"

#include "apps/bench/harness/exchange.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr std::array kAccesses = {
    Access::put,        Access::get,   Access::fresh_get,      Access::fetch_add,  Access::compare_swap,
    Access::accumulate, Access::flush, Access::notice,         Access::put_notify, Access::get_notify,
    Access::fence,      Access::post,  Access::lock_exclusive, Access::lock_shared};
constexpr long kUnits = 70;  // more than an owner writes at once

/// The windows and the notices of two ranks of this process.
struct Shared {
  explicit Shared(std::size_t window_bytes) { windows.fill(std::vector<std::byte>(window_bytes)); }
  std::array<std::vector<std::byte>, 2> windows;
  std::array<std::atomic<std::uint64_t>, 2> notices{};
  std::atomic<bool> failed{false};
};

/// A Way that moves all bytes, or with `loses` all but the last word of each access.
class LosingWay {
 public:
  LosingWay(const Workload& workload, const AccessLayout& layout, Shared& shared, bool loses)
      : moved_(layout.message - (loses ? sizeof(Word) : 0)), loses_(loses), mine_(workload.first ? 0 : 1),
        shared_(shared), local_(layout.payload) {}

  std::byte* window() { return shared_.windows.at(mine_).data(); }
  std::byte* local() { return local_.data(); }

  void put() { put_at(0); }
  void get(std::size_t at) { std::memcpy(local(), theirs() + kPayloadAt + at, moved_); }
  Word fetch_add(Word value) { return change(loses_ ? 0 : value); }
  Word compare_swap(Word expected, Word desired) { return change(loses_ ? 0 : desired - expected); }
  void accumulate() {
    for (std::size_t at = 0; at < moved_; at += sizeof(Word)) word(kPayloadAt + at) += word_here(at);
  }
  void flush() {}

  void notify() { ++shared_.notices.at(1 - mine_); }
  void await_notice() {
    ++received_;
    while (shared_.notices.at(mine_) < received_) {
      if (shared_.failed) throw std::runtime_error("the peer has found wrong words");
      std::this_thread::yield();
    }
  }
  void finish_run() {}

  void put_and_fence(std::size_t at) {
    put_at(at);
    meet();
  }
  void put_exposed() {
    meet();
    put();
    meet();
  }
  void put_locked(bool) { put(); }

 private:
  void put_at(std::size_t at) { std::memcpy(theirs() + kPayloadAt + at, local(), moved_); }
  void meet() {
    notify();
    await_notice();
  }
  std::byte* theirs() { return shared_.windows.at(1 - mine_).data(); }
  Word& word(std::size_t at) { return *reinterpret_cast<Word*>(theirs() + at); }
  Word word_here(std::size_t at) { return *reinterpret_cast<Word*>(local() + at); }
  Word change(Word by) {
    const Word old = word(0);
    word(0) += by;
    return old;
  }

  const std::size_t moved_;
  const bool loses_;
  const std::size_t mine_;
  Shared& shared_;
  std::vector<std::byte> local_;
  std::uint64_t received_ = 0;
};

// The exit code of two ranks that run such units; a rank that finds wrong words throws.
int code_of(Access access, std::size_t bytes, bool loses) {
  Shared shared(AccessLayout(bytes).window);
  const Options options;
  return sluice::run_threads(2, [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.peer = 1 - context.rank();
    workload.first = context.rank() == 0;
    workload.bytes = bytes;
    workload.access = access;
    AccessContender<LosingWay> contender(workload, shared, loses);
    exchange(context, workload.peer, true);  // both are made
    try {
      for (int i = 0; i < 3; ++i) contender.run(kUnits);
    } catch (const std::runtime_error&) {
      shared.failed = true;
      throw;
    }
  });
}

// A fresh block begins with the place of the next one, and ends with its stamp. Epochs are
// measured with small messages.
bool measured(Access access, std::size_t bytes) {
  if (is_of_epochs(access)) return bytes <= 4096;
  return access != Access::fresh_get || bytes > sizeof(Word);
}

TEST(Accesses, that_move_every_byte_are_found_right) {
  for (const Access access : kAccesses) {
    for (const std::size_t bytes : {8, 64, 4096, 65536, 1 << 20}) {
      if (!measured(access, bytes)) continue;
      EXPECT_EQ(code_of(access, bytes, false), 0) << static_cast<int>(access) << " " << bytes;
    }
  }
}

TEST(Accesses, that_lose_a_word_are_found_wrong) {
  for (const Access access : kAccesses) {
    if (access == Access::flush) continue;
    for (const std::size_t bytes : {8, 64, 4096}) {
      if (!measured(access, bytes)) continue;
      EXPECT_NE(code_of(access, bytes, true), 0) << static_cast<int>(access) << " " << bytes;
    }
  }
}

TEST(Accesses, of_fresh_blocks_visit_all_of_them) {
  for (const std::size_t bytes : {64, 4096, 65536, 1 << 19, 1 << 20}) {
    const AccessLayout layout(bytes);
    const std::vector<std::size_t> next = cycle_of(layout.blocks);
    std::vector<bool> visited(layout.blocks);
    std::size_t at = 0;
    for (std::size_t i = 0; i < layout.blocks; ++i) {
      visited[at] = true;
      at = next[at];
    }
    EXPECT_EQ(at, 0U);
    EXPECT_EQ(std::count(visited.begin(), visited.end(), true), static_cast<long>(layout.blocks));
    EXPECT_LE(layout.blocks * layout.stride, layout.payload);
  }
}

}  // namespace
}  // namespace bench
