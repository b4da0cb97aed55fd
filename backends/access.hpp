// SPDX-License-Identifier: Apache-2.0
// The kinds of access that backends share. A MappedAccess is carried out by the stream itself; an EngineAccess is
// posted by the engine when its bell was rung.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backends/numbers.hpp"
#include "backends/put.hpp"
#include "backends/turns.hpp"
#include "base/copy.hpp"
#include "base/crossing_copy.hpp"

namespace sluice::backends {

/// How atomics on memory of a GPU are carried out: a GPU need not be atomic with processors.
inline constexpr const char* kByKernels = "by kernels on the streams of GPUs that map it, since it is memory of a GPU";
/// Why an atomic that is not on a GPU's stream is refused there.
inline constexpr const char* kNotByProcessors = "processors carry out no atomics there: kernels on streams of GPUs do";

/// @throws std::invalid_argument for memory whose words would not be aligned.
void check_offered(const device::Extent& memory);

/// Which requests an access takes.
struct Bounds {
  std::size_t offered = 0;         ///< bytes of the peer's memory
  std::size_t counters = 0;        ///< of the peer
  std::string no_atomics{};        ///< why processors carry out none; empty: they do
  std::string no_gpus{};           ///< why not from or to a GPU's memory
  device::Driver* gpus = nullptr;  ///< driver of the GPU whose memory is offered; null: the processor's
};

/// Bounds of a peer's memory that is mapped here.
Bounds mapped_bounds(const device::Extent& offered);

/// Bounds of `bytes` of a peer that are not mapped here.
Bounds unmapped_bounds(std::size_t bytes, std::size_t counters = 0);

/// An offer of memory that peers cannot reach: `offered`, and the reason as text behind it.
template <class Offered>
Offer unreachable(const Offered& offered, std::string why) {
  Key key{bytes_of(offered), {}, {}};
  const auto text = std::as_bytes(std::span(why));
  key.bytes.insert(key.bytes.end(), text.begin(), text.end());
  return {std::move(key), std::move(why), nullptr};
}

/// The offer in a peer's key. @throws std::runtime_error with the reason of an `unreachable` offer.
template <class Offered>
Offered offered_by(const Key& key) {
  const auto offered = value_in<Offered>(key.bytes);
  if (key.bytes.size() == sizeof offered) return offered;
  const auto* const why = reinterpret_cast<const char*>(key.bytes.data()) + sizeof offered;
  throw std::runtime_error(std::string(why, key.bytes.size() - sizeof offered));
}

/// Returns whether the request may be carried out; `on_gpu`: on a GPU's stream. If not, the watch has failed with the
/// reason.
bool taken(const Request& request, const Bounds& bounds, device::Watch& watch, bool on_gpu = false);

/// Changes the word in one step. Returns the value before.
inline std::uint64_t change_word(std::byte* at, Request::Kind kind, std::uint64_t operand,
                                 std::uint64_t compare) noexcept {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
  if (kind == Request::Kind::fetch_add) return word.fetch_add(operand);
  if (kind == Request::Kind::swap) return word.exchange(operand);
  std::uint64_t found = compare;
  word.compare_exchange_strong(found, operand);
  return found;
}

/// Carries out an atomic on memory that is mapped here: the word, or the numbers, at `at`.
void change(std::byte* at, const Request& request) noexcept;

/// Fails a watch that was shut before a request was carried out: the peer has closed the memory.
void fail_shut(device::Watch& watch) noexcept;

/// An array of counters, as mapped here.
using Counters = std::span<base::Progress>;
Counters counters_at(std::byte* data, std::size_t bytes) noexcept;

/// Carried out by the stream.
class StreamAccess : public Access {
 public:
  StreamAccess(Bounds bounds, Counters counters, device::Watch& watch, std::string text, MappedAccess* same = nullptr)
      : Access(Fired::by_stream, std::move(text), true, nullptr, same), watch_(watch), bounds_(std::move(bounds)),
        counters_(counters) {
    bounds_.counters = counters.size();
  }

  void enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) final;
  void reach_from(device::Driver&) override {}

 protected:
  /// Driver of the side that is a GPU's memory, if any.
  device::Driver* gpus_of(const Request& request) const noexcept {
    return request.gpus != nullptr ? request.gpus : bounds_.gpus;
  }

  device::Watch& watch_;
  Bounds bounds_;
  Counters counters_;

 private:
  /// In the lane's order; on a GPU's stream, only what reads or changes a GPU's memory.
  virtual void carry_out(device::Lane lane, const Request& request) = 0;
  void carry_out_and_count(device::Lane lane, const Request& request);
  void enqueue_on_gpu(device::Lane lane, const Request& request);
};

/// Copies, and the processor's own atomics, on memory that is mapped here. On memory of a GPU: copies, and atomics by
/// kernels, for callers that have checked that those of the stream's GPU reach it, and are atomic there.
class MappedAccess final : public StreamAccess {
 public:
  /// `offered` is the peer's, as mapped here.
  MappedAccess(const device::Extent& offered, Counters counters, device::Watch& watch, Mapped mapped, std::string text)
      : StreamAccess(mapped_bounds(offered), counters, watch, std::move(text), this), offered_(offered),
        mapped_(std::move(mapped)) {
    if (offered.driver == nullptr && offered.bytes >= base::CrossingCopy::kLeast)
      crossing_ = std::make_unique<base::CrossingCopy>();
  }

  // By the calling thread, without a request, on memory of the host: for callers that have checked what it reaches, and
  // that the watch is not shut. `lane`: program order, or the stream that the thread is.
  void put_now(std::uint64_t offset, const std::byte* from, std::size_t bytes) noexcept {
    if (bytes >= base::CrossingCopy::kLeast && crossing_ != nullptr)
      return (*crossing_)(offered_.data + offset, from, bytes);
    if (bytes != 0) base::copy_bytes(offered_.data + offset, from, bytes);
  }
  void get_now(std::uint64_t offset, std::byte* to, std::size_t bytes) noexcept {
    if (bytes != 0) base::copy_bytes(to, offered_.data + offset, bytes);
  }
  void count_now(std::uint32_t counter) noexcept {
    if (counter != Request::kNone) base::add_one(counters_[counter].word, counters_[counter].parking);
  }
  /// Returns the old value. None: in a window of turns it was not this rank's within `limit`, or the watch has failed.
  std::optional<std::uint64_t> change_now(device::Lane lane, Request::Kind kind, std::uint64_t offset,
                                          std::uint64_t operand, std::uint64_t compare, Timeout limit) noexcept {
    std::byte* const at = offered_.data + offset;
    if (turns_.exist()) [[unlikely]]
      return change_in_turn(lane, at, kind, operand, compare, limit);
    return change_word(at, kind, operand, compare);
  }
  void accumulate_now(device::Lane lane, Op op, Number number, std::uint64_t offset,
                      std::span<const std::byte> operands) noexcept {
    std::byte* const at = offered_.data + offset;
    if (turns_.exist()) return accumulate_in_turn(lane, at, op, number, operands);
    change_numbers(at, op, number, operands);
  }
  bool in_turns() const noexcept { return turns_.exist(); }
  /// Puts in program order, lately. Any thread.
  bool past_cache_lately() const noexcept { return crossing_ != nullptr && crossing_->past_cache_lately(); }
  /// The last counter is the lock of the window, which atomics take for rank `rank` of the job. Before any access.
  void take_turns(Rank rank) noexcept;

  void reach_from(device::Driver& driver) override;
  Held forget_peer() noexcept override { return {std::exchange(mapped_, {}), std::exchange(reached_, {})}; }

  /// The peer's memory, and what keeps it mapped.
  const device::Extent& offered() const noexcept { return offered_; }
  const Mapped& mappings() const noexcept { return mapped_; }

 private:
  void carry_out(device::Lane lane, const Request& request) override;
  void change(device::Lane lane, const Request& request) noexcept;
  std::optional<std::uint64_t> change_in_turn(device::Lane lane, std::byte* at, Request::Kind kind,
                                              std::uint64_t operand, std::uint64_t compare, Timeout limit) noexcept;
  void accumulate_in_turn(device::Lane lane, std::byte* at, Op op, Number number,
                          std::span<const std::byte> operands) noexcept;

  device::Extent offered_;
  Mapped mapped_;
  device::Reached reached_;
  Turns turns_;
  std::unique_ptr<base::CrossingCopy> crossing_;  // null: all puts are short, or the memory is a GPU's
};

/// Posted by the engine when its bell was rung.
class EngineAccess : public Access, public Posting {
 public:
  EngineAccess(Bounds bounds, int depth, device::Watch& watch, const std::string& text)
      : Access(Fired::by_engine, text, bounds.counters != 0, this), Posting(watch, depth, 1),
        bounds_(std::move(bounds)), requests_(static_cast<std::size_t>(depth)) {}

  // Words whose sleepers are those of `watch.done`.
  base::Word sent;  ///< the last epoch that was posted, or will not be
  base::Word
      counted;  ///< how many of the messages that count accesses, and that nothing answers, are known to be there

  /// How many such messages have left.
  std::uint64_t uncounted() const noexcept { return uncounted_.value.load(std::memory_order_acquire); }
  /// No count is on its way.
  bool all_counted() const noexcept { return base::reached(counted, uncounted()); }
  /// Lets `counted` rise to `uncounted()`, in turns to come. Returns whether there is nothing to wait for.
  bool settle_counts() {
    if (!all_counted()) ask_for_counts();
    return all_counted();
  }

  void enqueue(device::Lane lane, std::uint64_t epoch, const Request& request) final;
  void reach_from(device::Driver&) final {}
  Held forget_peer() noexcept final { return {}; }
  Doorbell& bell() noexcept { return bell_; }
  bool awaited() const noexcept final { return bell_.awaited(); }

 protected:
  /// An access that completes is counted by a message that nothing answers. One thread at a time.
  void counts_unawaited() noexcept { uncounted_.value.store(uncounted() + 1, std::memory_order_release); }

 private:
  /// Starts to carry the request out. False: busy, to be called again next turn. Ends with `over`, now or in `poll`.
  virtual bool post(std::uint64_t epoch, const Request& request) = 0;
  std::uint64_t rung() const noexcept final { return bell_.word.value.load(std::memory_order_acquire); }
  bool post_share(std::size_t, std::uint64_t epoch) final {
    if (!post(epoch, requests_[epoch % requests_.size()])) return false;
    base::raise(sent, epoch, watch_.done_parking);
    return true;
  }
  void left_out(std::uint64_t epoch) noexcept final;
  bool at_rest(std::size_t) override { return true; }
  virtual void ask_for_counts() {}

  Bounds bounds_;
  base::Word uncounted_;
  std::vector<Request> requests_;  // of the outstanding epochs: written before the ring, read after it
  Doorbell bell_;
};

}  // namespace sluice::backends
