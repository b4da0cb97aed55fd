// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/accesses.hpp"

#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/ours/ours.hpp"

#include <fmt/core.h>

#include <array>
#include <memory>
#include <optional>

namespace bench {
namespace {

/// A Way (harness/accesses.hpp): a window at each rank, a target of the peer's, and channels without bytes for notices;
/// in program order. The ranks make a CollectiveWindow of the same memory for epochs. `kBlocking`: words are changed by
/// the calls that block the host and return the value before.
template <bool kBlocking>
class WindowWay {
 public:
  WindowWay(const Workload& workload, const AccessLayout& layout)
      : memory_(workload.context.allocate(layout.window)), local_(workload.context.allocate(layout.payload)),
        empty_(workload.context.allocate(2)), message_(local_.slice(0, layout.message)),
        word_(local_.slice(0, sizeof(Word))),
        window_(workload.context.window(fmt::format("sluice-bench {}", workload.tag), memory_.all(), 1,
                                        atomics_of(workload.access))),
        target_(workload.context.target(exchange(workload.context, workload.peer, window_.handle()))),
        out_(workload.context.sender(workload.peer, workload.tag, empty_.slice(0, 1))),
        in_(workload.context.receiver(workload.peer, workload.tag, empty_.slice(1, 1))) {
    target_.wait_connected();
    out_.wait_connected();
    in_.wait_connected();
    if (!is_of_epochs(workload.access)) return;
    both_.emplace(workload.context, "sluice-bench", memory_.all());
    theirs_ = &both_->target(workload.peer);
    peer_[0] = workload.peer;
  }

  std::byte* window() const { return memory_.data(); }
  std::byte* local() const { return local_.data(); }
  std::string describe() const { return (theirs_ == nullptr ? target_ : *theirs_).describe(); }

  void put() {
    target_.put({}, message_, kPayloadAt);
    target_.flush({});
  }
  void get(std::size_t at) {
    target_.get({}, message_, kPayloadAt + at);
    target_.flush({});
  }
  Word fetch_add(Word value) {
    if constexpr (kBlocking) return target_.fetch_add(0, value);
    target_.fetch_add({}, 0, value, word_);
    target_.flush({});
    return word_.as<Word>().front();
  }
  Word compare_swap(Word expected, Word desired) {
    if constexpr (kBlocking) return target_.compare_swap(0, expected, desired);
    target_.compare_swap({}, 0, expected, desired, word_);
    target_.flush({});
    return word_.as<Word>().front();
  }
  void accumulate() {
    target_.accumulate({}, sluice::Op::sum, sluice::Number::uint64, message_, kPayloadAt);
    target_.flush({});
  }
  void flush() { target_.flush({}); }

  void notify() { out_.put({}, 0, 0); }
  void await_notice() {
    in_.wait({});
    in_.release({});
  }
  void finish_run() {}

  // The flush is for the memory on this side, which the next access uses again.
  void put_notify() {
    target_.put_notify({}, message_, kPayloadAt, 0);
    target_.flush_local({});
  }
  void get_notify(std::size_t at) {
    target_.get_notify({}, message_, kPayloadAt + at, 0);
    target_.flush_local({});
  }
  void await_count() { window_.wait({}, 0, ++counted_); }

  void put_and_fence(std::size_t at) {
    theirs_->put({}, message_, kPayloadAt + at);
    both_->fence();
  }
  void put_exposed() {
    both_->post(peer_);
    both_->start(peer_);
    theirs_->put({}, message_, kPayloadAt);
    both_->complete();
    both_->wait();
  }
  void put_locked(bool exclusive) {
    using Lock = sluice::CollectiveWindow::Lock;
    both_->lock(peer_[0], exclusive ? Lock::exclusive : Lock::shared);
    theirs_->put({}, message_, kPayloadAt);
    both_->unlock(peer_[0]);
  }

 private:
  /// Accumulates of MPI are atomic with accesses of MPI alone, so a window for targets alone is what compares.
  static sluice::AtomicsOf atomics_of(Access access) {
    return access == Access::accumulate ? sluice::AtomicsOf::targets : sluice::AtomicsOf::programs;
  }

  sluice::Memory memory_;
  sluice::Memory local_;
  sluice::Memory empty_;
  sluice::Slice message_;
  sluice::Slice word_;
  sluice::Window window_;
  sluice::Target target_;
  sluice::Sender out_;
  sluice::Receiver in_;
  std::uint64_t counted_ = 0;
  std::optional<sluice::CollectiveWindow> both_;
  sluice::Target* theirs_ = nullptr;
  std::array<sluice::Rank, 1> peer_{};
};

}  // namespace

Ours make_accesses(const Workload& workload) {
  return described(std::make_unique<AccessContender<WindowWay<false>>>(workload));
}
Ours make_blocking_accesses(const Workload& workload) {
  return described(std::make_unique<AccessContender<WindowWay<true>>>(workload));
}

}  // namespace bench
