// SPDX-License-Identifier: Apache-2.0
// The hash table and the sparse exchange of the benches, on parts that carry every access out, or leave some out.
#include "apps/bench/harness/hash_table.hpp"
#include "apps/bench/harness/sparse_exchange.hpp"

#include "apps/bench/ours/ours.hpp"

#include <sluice/run.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr int kRanks = 3;

enum class Lost { nothing, put, last_word, fetch_add, swap, compare_swap };

/// The parts of the ranks of this process.
struct Common {
  Lost lost = Lost::nothing;
  std::array<std::vector<Word>, kRanks> parts;
  std::atomic<int> met{0};
  std::atomic<bool> failed{false};
};

class LosingParts {
 public:
  LosingParts(const Workload& workload, const PartBytes& bytes, Common& common)
      : rank_(static_cast<std::size_t>(workload.context.rank())), common_(common), local_(bytes.local / sizeof(Word)) {
    common_.parts.at(rank_).assign(bytes.part / sizeof(Word), 0);
    meet();
  }

  std::byte* part() { return reinterpret_cast<std::byte*>(common_.parts.at(rank_).data()); }
  std::byte* local() { return reinterpret_cast<std::byte*>(local_.data()); }

  Word compare_swap(int rank, std::size_t at, Word expected, Word desired) {
    if (common_.lost == Lost::compare_swap) desired = expected;
    word(rank, at).compare_exchange_strong(expected, desired);
    return expected;
  }
  Word fetch_add(int rank, std::size_t at, Word value) {
    return word(rank, at).fetch_add(common_.lost == Lost::fetch_add ? 0 : value);
  }
  Word swap(int rank, std::size_t at, Word value) {
    return common_.lost == Lost::swap ? word(rank, at).load() : word(rank, at).exchange(value);
  }
  void put(int rank, std::size_t from, std::size_t bytes, std::size_t at) {
    if (common_.lost == Lost::put) return;
    if (common_.lost == Lost::last_word) bytes -= sizeof(Word);
    for (std::size_t i = 0; i < bytes; i += sizeof(Word)) word(rank, at + i) = local_.at((from + i) / sizeof(Word));
  }
  void meet() {
    const int mine = common_.met++;
    while (common_.met < (mine / kRanks + 1) * kRanks) {
      if (common_.failed) throw std::runtime_error("another rank has found a fault");
      std::this_thread::yield();
    }
  }

 private:
  std::atomic_ref<Word> word(int rank, std::size_t at) {
    return std::atomic_ref<Word>(common_.parts.at(static_cast<std::size_t>(rank)).at(at / sizeof(Word)));
  }

  const std::size_t rank_;
  Common& common_;
  std::vector<Word> local_;
};

/// The exit code of ranks that run such units; a rank that finds a fault throws.
template <class Made>
int code_of(Lost lost, std::size_t bytes, long units) {
  Common common;
  common.lost = lost;
  const Options options;
  return sluice::run_threads(kRanks, [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.bytes = bytes;
    try {
      Made contender(workload, common);
      for (int i = 0; i < 3; ++i) contender.run(units);
    } catch (const std::runtime_error&) {
      common.failed = true;
      throw;
    }
  });
}

constexpr long kKeys = 1100;  // more than a table takes
constexpr long kRounds = 30;

using Table = HashTableContender<LosingParts>;
using Inboxes = SparseContender<InboxExchange<LosingParts>>;

TEST(HashTable, that_has_every_key_is_found_right) { EXPECT_EQ(code_of<Table>(Lost::nothing, 8, kKeys), 0); }

TEST(HashTable, that_lacks_a_key_is_found_wrong) {
  for (const Lost lost : {Lost::put, Lost::last_word, Lost::fetch_add, Lost::swap, Lost::compare_swap})
    EXPECT_NE(code_of<Table>(lost, 8, kKeys), 0) << static_cast<int>(lost);
}

TEST(SparseExchange, of_every_message_is_found_right) {
  for (const std::size_t bytes : {8, 16, 512}) EXPECT_EQ(code_of<Inboxes>(Lost::nothing, bytes, kRounds), 0) << bytes;
}

TEST(SparseExchange, that_loses_a_word_is_found_wrong) {
  for (const Lost lost : {Lost::put, Lost::last_word, Lost::fetch_add}) {
    for (const std::size_t bytes : {8, 16, 512})
      EXPECT_NE(code_of<Inboxes>(lost, bytes, kRounds), 0) << static_cast<int>(lost) << " " << bytes;
  }
}

// Of any number of ranks, by windows.
TEST(SparseExchange, and_hash_table_by_windows_are_right) {
  const Options options;
  const int code = sluice::run_threads(kRanks, [&](sluice::Context& context) {
    Workload workload{context, options};
    workload.bytes = 64;
    for (const auto make : {make_hash_table, make_sparse_exchange}) {
      const Ours ours = make(workload);
      for (int i = 0; i < 2; ++i) ours.contender->run(100);
    }
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace bench
