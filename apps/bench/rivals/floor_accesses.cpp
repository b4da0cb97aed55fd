// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/accesses.hpp"
#include "apps/bench/harness/counter.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/harness/shared_pages.hpp"
#include "apps/bench/rivals/floor.hpp"

#include <atomic>
#include <cstring>

namespace bench {
namespace {

/// A Way (harness/accesses.hpp): memory that both ranks have mapped. In front of the window are the notices of the
/// peer, behind it the local memory.
class MappedWay {
 public:
  MappedWay(const Workload& workload, const AccessLayout& layout)
      : bytes_(layout.message), local_at_(kPage + layout.window),
        pages_(local_at_ + layout.payload,
               [&](const SharedPages::Place& mine) { return exchange(workload.context, workload.peer, mine); }) {}

  std::byte* window() const { return pages_.mine() + kPage; }
  std::byte* local() const { return pages_.mine() + local_at_; }

  void put() {
    std::memcpy(theirs() + kPayloadAt, local(), bytes_);
    flush();
  }
  void get(std::size_t at) {
    std::memcpy(local(), theirs() + kPayloadAt + at, bytes_);
    flush();
  }
  Word fetch_add(Word value) { return atomic(0).fetch_add(value); }
  Word compare_swap(Word expected, Word desired) {
    atomic(0).compare_exchange_strong(expected, desired);
    return expected;
  }
  void accumulate() {
    for (std::size_t at = 0; at < bytes_; at += sizeof(Word)) {
      Word operand = 0;
      std::memcpy(&operand, local() + at, sizeof operand);
      atomic(kPayloadAt + at).fetch_add(operand);
    }
  }
  /// The compiler may neither leave out nor merge the copies before.
  void flush() { std::atomic_signal_fence(std::memory_order_seq_cst); }

  void notify() { notices(pages_.theirs()).store(++sent_, std::memory_order_release); }
  void await_notice() { await_count(notices(pages_.mine()), ++received_); }
  void finish_run() {}

 private:
  static Counter& notices(std::byte* pages) { return *reinterpret_cast<Counter*>(pages); }
  std::byte* theirs() const { return pages_.theirs() + kPage; }
  std::atomic_ref<Word> atomic(std::size_t at) const {
    return std::atomic_ref<Word>(*reinterpret_cast<Word*>(theirs() + at));
  }

  const std::size_t bytes_;
  const std::size_t local_at_;
  SharedPages pages_;
  Word sent_ = 0;
  Word received_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_floor_accesses(const Workload& workload) {
  if (workload.access == Access::flush || is_of_epochs(workload.access)) return nullptr;
  return std::make_unique<AccessContender<MappedWay>>(workload);
}

}  // namespace bench
