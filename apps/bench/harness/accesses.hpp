// SPDX-License-Identifier: Apache-2.0
// The units of the bench `rma`, for Sluice and its rivals. Rank 0 of a pair reaches the window of rank 1; only notices
// go both ways. After each run both ranks check every byte that it has moved.
//
// A Way carries the accesses out. Both ranks make one, from (Workload, AccessLayout), with
//
//     std::byte* window()                  memory that the peer reaches: a word, and from kPayloadAt on the payload
//     std::byte* local()                   memory for payloads of its own accesses, as large as the payload
//
// and these accesses, each of which has completed when it returns:
//
//     void put()                           the message from local() to the peer's payload
//     void get(std::size_t at)             a message from that place of the peer's payload to local()
//     uint64_t fetch_add(value)            of the peer's word; returns what it was
//     uint64_t compare_swap(expected, desired)
//     void accumulate()                    adds the integers of local() to those of the peer's payload
//     void flush()
//     void notify()                        an empty message to the peer
//     void await_notice()                  waits for one of the peer's, and serves the peer's accesses meanwhile
//     void finish_run()                    both ranks call it after each run, outside the measured time
//
// A Way that counts accesses has these too; for others a put or a get, and then a notice stand in:
//
//     void put_notify(), get_notify(at)    like put and get, and then raises a counter of the peer's
//     void await_count()                   waits for one more access that is counted
//
// And a Way that has epochs has these, which run in a window of both ranks:
//
//     void put_and_fence(std::size_t at)   the message to that place of the peer's payload; both ranks call it together
//     void put_exposed()                   post, start, put, complete and wait; both ranks call it together
//     void put_locked(bool exclusive)      lock, put and unlock
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/contender.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using Word = std::uint64_t;

inline constexpr std::size_t kPayloadAt = kPage;

/// Memory of each rank in the bench `rma`.
struct AccessLayout {
  explicit AccessLayout(std::size_t message_bytes)
      : message(std::max(message_bytes, sizeof(Word))),
        blocks(std::clamp<std::size_t>(kFreshBytes / message, 1, kMaxBlocks)), stride(std::max(message, kMinStride)),
        payload(whole_pages(blocks * stride)), window(kPayloadAt + payload) {}

  /// The bytes that an owner writes before the peer gets them: few enough to stay in the cache of its core.
  static constexpr std::size_t kFreshBytes = 512 << 10;
  static constexpr std::size_t kMaxBlocks = 64;
  static constexpr std::size_t kMinStride = 256;  // beyond the lines that processors fetch beside one another

  std::size_t message;  ///< bytes of an access: whole words
  std::size_t blocks;   ///< messages that an owner writes at once
  std::size_t stride;   ///< bytes from one of them to the next
  std::size_t payload;  ///< bytes of all of them
  std::size_t window;   ///< bytes of a window
};

/// For each block the next one, on one way through all of them; at random, since processors fetch ahead what lies at
/// equal distances (S. Sattolo: An algorithm to generate a random cyclic permutation, 1986).
inline std::vector<std::size_t> cycle_of(std::size_t blocks) {
  std::vector<std::size_t> next(blocks);
  std::iota(next.begin(), next.end(), 0);
  std::minstd_rand random(1);
  for (std::size_t i = blocks - 1; i > 0; --i) std::swap(next[i], next[random() % i]);
  return next;
}

template <class Way>
concept CountsAccesses = requires(Way way) {
  way.await_count();
};

template <class Way>
concept HasEpochs = requires(Way way) {
  way.put_exposed();
};

template <class Way>
class AccessContender : public Contender {
 public:
  template <class... More>
  explicit AccessContender(const Workload& workload, More&&... more)
      : workload_(workload), layout_(workload.bytes), way_(workload, layout_, std::forward<More>(more)...) {
    std::memset(way_.window(), 0, layout_.window);
    std::fill_n(words(way_.local()), layout_.payload / sizeof(Word), kStamp);
    if (workload.access == Access::get || workload.access == Access::get_notify)
      std::fill_n(payload(), message_words(), kStamp);
    if (workload.access == Access::get_notify) *payload() = 1;
  }

  std::string describe() const { return way_.describe(); }

  double run(long count) override {
    const double taken = run_units(count);
    way_.finish_run();
    if (wrong_ > 0) throw std::runtime_error("rma: " + std::to_string(wrong_) + " words are wrong");
    return taken;
  }

 private:
  double run_units(long count) {
    switch (workload_.access) {
      case Access::notice:
      case Access::put_notify: return exchange_puts(count);
      case Access::get_notify: return exchange_gets(count);
      case Access::fresh_get: return get_fresh(count);
      case Access::fence:
      case Access::post: return run_epochs(count);
      default: return workload_.first ? reach(count) : serve(count);
    }
  }

  static constexpr Word kStamp = 0x5a5a'0000'0000'0001;

  static Word* words(std::byte* at) { return reinterpret_cast<Word*>(at); }
  Word* payload() { return words(way_.window() + kPayloadAt); }
  std::size_t message_words() const { return layout_.message / sizeof(Word); }
  void expect(Word found, Word wanted) { wrong_ += static_cast<std::uint64_t>(found != wanted); }
  /// The words of a message from the one of this number on.
  void expect_all(const Word* message, std::size_t from, Word wanted) {
    for (std::size_t i = from; i < message_words(); ++i) expect(message[i], wanted);
  }

  // Rank 0 of a pair. The peer may use its window again once it has the notice.
  double reach(long count) {
    if (workload_.access == Access::get) std::memset(way_.local(), 0, layout_.message);
    // The kind is chosen outside of the loop, which is measured.
    const auto timed_each = [&](auto step) { return timed_steps(count, step); };
    double taken = 0;
    switch (workload_.access) {
      case Access::put: taken = timed_each([this] { put(); }); break;
      case Access::get: taken = timed_each([this] { way_.get(0); }); break;
      case Access::fetch_add: taken = timed_each([this] { fetch_add(); }); break;
      case Access::compare_swap: taken = timed_each([this] { compare_swap(); }); break;
      case Access::accumulate: taken = timed_each([this] { way_.accumulate(); }); break;
      case Access::lock_exclusive: taken = timed_each([this] { put_locked(true); }); break;
      case Access::lock_shared: taken = timed_each([this] { put_locked(false); }); break;
      default: taken = timed_each([this] { way_.flush(); });
    }
    if (workload_.access == Access::get) expect_all(words(way_.local()), 0, kStamp);
    way_.notify();
    way_.await_notice();
    return taken;
  }

  // Rank 1 of a pair.
  double serve(long count) {
    way_.await_notice();
    done_ += static_cast<Word>(count);
    switch (workload_.access) {
      case Access::put:
      case Access::lock_exclusive:
      case Access::lock_shared: expect_put(); break;
      case Access::fetch_add:
      case Access::compare_swap: expect(*words(way_.window()), done_); break;
      case Access::accumulate: expect_all(payload(), 0, done_ * kStamp); break;
      default: break;
    }
    way_.notify();
    return 0;
  }

  void fetch_add() {
    expect(way_.fetch_add(1), done_);
    ++done_;
  }
  void compare_swap() {
    expect(way_.compare_swap(done_, done_ + 1), done_);
    ++done_;
  }
  // Each message begins with its number.
  void number_message() { *words(way_.local()) = ++done_; }
  void put() {
    number_message();
    way_.put();
  }
  void put_locked(bool exclusive) {
    number_message();
    if constexpr (HasEpochs<Way>) way_.put_locked(exclusive);
  }
  void expect_put() {
    expect(*payload(), done_);
    expect_all(payload(), 1, kStamp);
  }

  bool counted() const { return CountsAccesses<Way> && workload_.access != Access::notice; }
  void await_one() {
    if constexpr (CountsAccesses<Way>) {
      if (counted()) return way_.await_count();
    }
    way_.await_notice();
  }

  double exchange_puts(long count) {
    const double taken = timed_ping_pong(
        workload_, count,
        [this] {
          number_message();
          if constexpr (CountsAccesses<Way>) {
            if (counted()) return way_.put_notify();
          }
          way_.put();
          way_.notify();
        },
        [this] {
          await_one();
          expect(*payload(), ++noticed_);
        });
    expect_all(payload(), 1, kStamp);
    return taken;
  }

  // After the count the owner changes the bytes, so that the next get finds the next number.
  double exchange_gets(long count) {
    std::memset(way_.local(), 0, layout_.message);
    const double taken = timed_ping_pong(
        workload_, count,
        [this] {
          if constexpr (CountsAccesses<Way>) {
            way_.get_notify(0);
          } else {
            way_.get(0);
            way_.notify();
          }
          expect(*words(way_.local()), ++done_);
        },
        [this] {
          await_one();
          ++*payload();
        });
    expect_all(words(way_.local()), 1, kStamp);
    return taken;
  }

  // Puts of two epochs of fences that follow one another go to two blocks: the peer may put the next message while the
  // one before is read.
  double run_epochs(long count) {
    const bool fences = workload_.access == Access::fence;
    const Word* landed = payload();
    const double taken = timed_steps(count, [&] {
      number_message();
      const std::size_t at = fences ? done_ % 2 * layout_.stride : 0;
      if constexpr (HasEpochs<Way>) {
        if (fences)
          way_.put_and_fence(at);
        else
          way_.put_exposed();
      }
      landed = words(way_.window() + kPayloadAt + at);
      expect(*landed, done_);
    });
    expect_all(landed, 1, kStamp);
    return taken;
  }

  // Rank 1 writes blocks, then rank 0 gets them. Each block begins with the place of the next one, so that no two gets
  // overlap, and all of its other words are the number of this turn.
  double get_fresh(long count) {
    double taken = 0;
    while (count > 0) {
      const auto blocks = static_cast<std::size_t>(std::min(count, static_cast<long>(layout_.blocks)));
      ++done_;
      if (workload_.first) {
        way_.await_notice();
        taken += timed([&] { get_blocks(blocks); });
        expect_all(words(way_.local()), 1, done_);
        way_.notify();
      } else {
        write_blocks();
        way_.notify();
        way_.await_notice();
      }
      count -= static_cast<long>(blocks);
    }
    return taken;
  }
  void get_blocks(std::size_t count) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      way_.get(at);
      at = static_cast<std::size_t>(*words(way_.local()));
      expect(words(way_.local())[message_words() - 1], done_);
    }
  }
  void write_blocks() {
    for (std::size_t i = 0; i < layout_.blocks; ++i) {
      Word* const block = words(way_.window() + kPayloadAt + i * layout_.stride);
      std::fill_n(block, message_words(), done_);
      *block = next_[i] * layout_.stride;
    }
  }

  const Workload workload_;
  const AccessLayout layout_;
  const std::vector<std::size_t> next_ = cycle_of(layout_.blocks);
  Way way_;
  Word done_ = 0;     // accesses, or turns of fresh blocks
  Word noticed_ = 0;  // messages of the peer
  std::uint64_t wrong_ = 0;
};

}  // namespace bench
