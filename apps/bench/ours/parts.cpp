// SPDX-License-Identifier: Apache-2.0
// The hash table and the sparse exchange, by a window of all ranks.
#include "apps/bench/harness/hash_table.hpp"
#include "apps/bench/harness/sparse_exchange.hpp"
#include "apps/bench/ours/ours.hpp"

#include <memory>
#include <vector>

namespace bench {
namespace {

/// Parts (harness/parts.hpp) of a CollectiveWindow, in program order.
class WindowParts {
 public:
  WindowParts(const Workload& workload, const PartBytes& bytes)
      : part_(workload.context.allocate(bytes.part)), local_(workload.context.allocate(bytes.local)),
        old_(workload.context.allocate(sizeof(Word))), word_(old_.all()),
        window_(workload.context, "sluice-bench parts", part_.all()) {
    for (sluice::Rank rank = 0; rank < workload.context.size(); ++rank) targets_.push_back(&window_.target(rank));
    peer_ = (workload.context.rank() + 1) % workload.context.size();
  }

  std::byte* part() const { return part_.data(); }
  std::byte* local() const { return local_.data(); }
  std::string describe() const { return to(peer_).describe(); }

  Word compare_swap(int rank, std::size_t at, Word expected, Word desired) {
    to(rank).compare_swap({}, at, expected, desired, word_);
    return old_of(rank);
  }
  Word fetch_add(int rank, std::size_t at, Word value) {
    to(rank).fetch_add({}, at, value, word_);
    return old_of(rank);
  }
  Word swap(int rank, std::size_t at, Word value) {
    to(rank).swap({}, at, value, word_);
    return old_of(rank);
  }
  void put(int rank, std::size_t from, std::size_t bytes, std::size_t at) {
    to(rank).put({}, local_.slice(from, bytes), at);
  }
  void meet() { window_.fence(); }

 private:
  sluice::Target& to(int rank) const { return *targets_[static_cast<std::size_t>(rank)]; }
  Word old_of(int rank) {
    to(rank).flush_local({});
    return word_.as<Word>().front();
  }

  sluice::Memory part_;
  sluice::Memory local_;
  sluice::Memory old_;
  sluice::Slice word_;
  sluice::CollectiveWindow window_;
  std::vector<sluice::Target*> targets_;
  int peer_ = 0;
};

}  // namespace

Ours make_hash_table(const Workload& workload) {
  return described(std::make_unique<HashTableContender<WindowParts>>(workload));
}
Ours make_sparse_exchange(const Workload& workload) {
  return described(std::make_unique<SparseContender<InboxExchange<WindowParts>>>(workload));
}

}  // namespace bench
