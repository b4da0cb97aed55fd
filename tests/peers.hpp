// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: threads of a fork of the test, or what sluice-run starts. They are killed when they hang.
#pragma once

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace sluice::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

/// How the ranks of a test are started.
struct Peers {
  int ranks = 2;
  bool processes = false;                       ///< else threads of one process
  std::string backend = {};                     ///< Options::backends
  std::chrono::milliseconds limit{20'000};      ///< for all of it: about ten times what it needs
  std::optional<Timeout> timeout = {};          ///< Options::timeout
  std::optional<Timeout> connect_timeout = {};  ///< Options::connect_timeout
  bool keep_going = false;                      ///< sluice-run --keep-going
  std::vector<std::string> environment = {};    ///< "NAME=value"
  /// Failures that no call throws are no failure of the test, which is about others.
  bool untold = false;
  /// Sets the word kSaid of the board once it is true of all that the ranks and sluice-run have written so far.
  std::function<bool(const std::string& text)> said = {};
};

/// How they ended.
struct Ended {
  int code = 0;       ///< sluice-run's or run_threads'; failed assertions in a rank make it 1
  bool hung = false;  ///< and were killed
  std::string text;   ///< what they and sluice-run wrote
};

/// Runs `body` in each rank and waits for the end of all. A failed assertion, an exception or a crash of a rank fails
/// this test.
///
/// Ranks that are processes are this program again, started by sluice-run: they run the same test up to the same call.
/// Ranks that are threads call `sluice::run_threads` in a fork of the test, or are started by sluice-run too, if the
/// test has loaded a GPU's driver. So `body` may use what the test computed before, and changes nothing in the test
/// that goes on.
void run_peers(const Peers& peers, const Body& body);

/// Called in each process of ranks before they start, by a program that sets it; null: nothing is called.
inline void (*before_ranks)() = nullptr;

/// Runs ranks that are expected to end badly: the caller checks how they ended.
Ended end_of_peers(const Peers& peers, const Body& body);

/// These, for a test of failures that also reach ranks which do not look.
inline Peers with_untold(Peers peers) {
  peers.untold = true;
  return peers;
}

/// Shared by the ranks of one call besides channels: a barrier, and words. Works before any channel does.
class Board {
 public:
  static constexpr std::size_t kWords = 256;

  /// Returns when all ranks of `context` have called it as often.
  void meet(const Context& context);
  std::atomic<std::uint64_t>& word(std::size_t index) { return words_.at(index); }
  void set(std::size_t index, std::uint64_t value) { words_.at(index).store(value); }
  /// Returns when the word is at least `value`. @throws std::runtime_error if another rank failed.
  void await(std::size_t index, std::uint64_t value);

  /// For the harness: no more waiting for this rank.
  void give_up() { given_up_.store(1); }

 private:
  void until(const std::atomic<std::uint64_t>& word, std::uint64_t value) const;

  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<std::uint64_t> given_up_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

/// The word of a board with which one side tells the other that it may go on.
inline constexpr std::size_t kGo = 0;
/// The word that Peers::said sets.
inline constexpr std::size_t kSaid = Board::kWords - 1;

/// In a rank: the board of this call.
Board& board();

/// Prints the line that ./dev lists at the end: what this machine cannot run, and why.
void skipped_here(const std::string& reason);

/// Why a backend cannot be used on this machine; empty: it can.
std::string why_unusable(const std::string& backend);

/// True in a rank of a test of another suite than `suite`.
bool is_rank_of_other_suite(const std::string& suite);

/// Returns what `make` returns; no case in a rank of a test of another suite.
template <class Param, class Make>
testing::internal::ParamGenerator<Param> cases_of(const std::string& suite, Make make) {
  if (is_rank_of_other_suite(suite)) return testing::ValuesIn(std::vector<Param>());
  return make();
}

}  // namespace sluice::test

/// INSTANTIATE_TEST_SUITE_P for a program of thousands of cases. Its ranks are processes that run one test each, and
/// need the cases of one suite: under ThreadSanitizer a rank would take a second of the processor's time to name all of
/// them.
#define INSTANTIATE_IN_ITS_RANKS(prefix, suite, generator, ...)                                                      \
  INSTANTIATE_TEST_SUITE_P(prefix, suite,                                                                            \
                           ::sluice::test::cases_of<suite::ParamType>(#prefix "/" #suite, [] { return generator; }), \
                           __VA_ARGS__)
