// SPDX-License-Identifier: Apache-2.0
// Accesses to the window of a peer.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/access.hpp"
#include "runtime/window.hpp"

namespace sluice::runtime {

/// Signal to the owner that an access has completed.
struct Notify {
  std::uint32_t number = backends::Request::kNone;  ///< of a counter; or a tag
  bool tagged = false;
};

/// Epoch n is access number n. It has completed when what it changes is changed and what it reads is here, so that
/// nothing has to settle.
class TargetCore final : public ChannelEnd {
 public:
  /// So many accesses are under way at a time, at most.
  static constexpr int kDepth = 64;

  /// `block`: nothing: the whole window, with what is attached to it.
  TargetCore(std::shared_ptr<const Services> services, Opening what, std::optional<Block> block)
      : ChannelEnd(std::move(services), std::move(what)), block_(block) {}

  // On a target that is `bound_to` the stream.
  using Kind = backends::Request::Kind;
  static constexpr std::uint32_t kNone = backends::Request::kNone;
  /// Enqueues a put or a get of the bytes at `offset` of the block.
  void move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset, Notify notify = {});
  /// Like `move` of each extent, unless one of them is refused.
  void move(Stream stream, Kind kind, const Slice& local, std::span<const Extent> extents);
  /// @throws Error{Code::bad_argument} if one of them is refused
  void check_extents(const Slice& local, std::span<const Extent> extents) const;
  /// Enqueues an accumulate of the numbers at `offset`, which then raises `counter`.
  void accumulate(Stream stream, Op op, Number number, const Slice& local, std::uint64_t offset,
                  std::uint32_t counter = kNone);
  /// Enqueues an atomic on the word at `offset`.
  void change(Stream stream, Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
              const Slice& old);
  // Accesses by the calling thread, in program order, to memory of the host that is mapped here, of a target that is
  // bound to program order, hence connected. Nothing is enqueued,
  // and no check is left but those of `moves_now` and `changes_now`.
  bool moves_now(Stream stream, const Slice& local, std::uint64_t offset) const noexcept {
    return stream.kind() == Stream::Kind::program_order && stores_ != nullptr && of_host(local) &&
           has(offset, local.bytes());
  }
  void move_now(Kind kind, const Slice& local, std::uint64_t offset, std::uint32_t counter = kNone);
  bool changes_now(Stream stream) const noexcept {
    return stream.kind() == Stream::Kind::program_order && words_ != nullptr;
  }
  bool changes_now(Stream stream, std::uint64_t offset) const noexcept {
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    return changes_now(stream) && has(offset, kWord) && in_window(offset) % kWord == 0;
  }
  /// Returns the old value. @throws Error{Code::timeout} if another rank has the window's turn for longer than `limit`
  std::uint64_t change_now(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                           Timeout limit);
  /// Its words as mapped here, if atomics of program order are instructions; else null. It is connected.
  std::byte* words() const noexcept {
    return words_ == nullptr || words_->in_turns() ? nullptr : words_->offered().data + in_window(0);
  }
  /// A change of `words` in program order, which a closing owner awaits. @throws Error the failure of the target
  class ChangeNow;
  /// Carries an atomic out in program order. The host waits until it has completed. Returns the old value.
  std::uint64_t change(Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                       std::optional<Timeout> timeout);
  /// True if `flush` has nothing to do but to check, unless pieces were used.
  bool is_flushed(Stream stream) const noexcept { return stream.kind() == Stream::Kind::program_order && idle(); }
  /// Later work on the stream runs only once all accesses have completed. `local`: only here.
  void flush(Stream stream, bool local);
  /// True if `drain_all` has nothing to do but to check.
  bool is_drained() const noexcept { return used_pieces_.empty() && idle() && notices_given() && enqueued_ == 0; }
  /// Blocks the host until all accesses have completed, with those to the pieces that were used.
  void drain_all(std::optional<Timeout> timeout);
  /// For streams of GPUs. @throws Error{Code::unsupported}
  void check_fired_by_stream() const;
  /// @throws Error{Code::bad_argument} if there is no such counter, as far as is known
  void check_counter(std::uint32_t counter) const;
  /// This target reaches the bytes, or refuses them itself: no piece that is attached has them.
  bool reaches(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return block_ || !connected() || (offset <= window_bytes_ && bytes <= window_bytes_ - offset);
  }
  /// The target of the piece that has the byte at `offset`, which is opened if need be; `offset` becomes that in the
  /// piece.
  /// @throws Error{Code::bad_argument} if no memory is attached there; Error{Code::closed} if it was detached meanwhile
  const std::shared_ptr<ChannelEnd>& reach_piece(std::size_t& offset);
  /// True if all these bytes are of the window, or attached: then their pieces are open. On a target that is connected.
  bool reaches_all(std::uint64_t offset, std::uint64_t bytes);
  /// Calls `each(end)` for the targets of pieces that may have accesses under way.
  template <class Each>
  void for_used_pieces(Each each);
  /// Size of the block, or of the window. Once connected.
  std::uint64_t bytes() const noexcept { return block_ ? block_->bytes : window_bytes_; }
  /// The memory of the target as mapped here; null: it is not mapped. Once connected. @throws Error the failure of the
  /// target
  std::shared_ptr<const detail::Block> mapped();

  bool passed() const noexcept override { return enqueued_ == 0 && written() && notices_given(); }
  void refuse_enqueued() override {}
  backends::Key open_landing(backends::Link&, std::vector<backends::Signal>) override { return {}; }
  base::EndCounts counts() const noexcept override;
  std::string state() const override;

 private:
  class AccessPut;

  std::uint64_t waits_for() const noexcept override { return 0; }
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t epoch) const noexcept override {
    return {base::Lack::completion, epoch};
  }
  void reach_own(device::Driver&) override {}
  std::unique_ptr<backends::Put> prepare(backends::Link& link, RemoteEnd& remote) override;
  void stop_posting() noexcept override;
  bool close_parts(base::Limit& limit) override;
  /// That nothing is attached at an offset, the access throws which asked for it.
  bool quiet() const noexcept override { return !connected() && is_scope_of_place(opening.key.scope); }
  backends::AfterTurn poll() override { return backends::AfterTurn::nothing; }

  /// A piece of the window. Its offset is that of its first byte.
  struct ReachedPiece {
    Target target;
    bool used = false;  ///< it is among `used_pieces_`
  };
  using ReachedPieces = std::map<std::uint64_t, ReachedPiece>;

  static TargetCore& core_of(const Target& piece);
  Target open_piece(std::uint64_t offset);
  ReachedPieces::iterator known_piece(std::uint64_t offset);
  ReachedPieces::iterator new_piece(std::uint64_t offset);
  /// Nothing is under way, so that `flush` has nothing to do.
  bool idle() const noexcept {
    return base::reached(done, epochs_.by_host()) && agent_.load(std::memory_order_acquire) == nullptr &&
           (!connected() || !posts_ || posted_->all_counted());
  }
  /// The owner has detached the piece, and what was enqueued before has completed.
  bool is_left() const noexcept { return shut() && !failed() && passed(); }
  /// Once connected.
  bool has(std::uint64_t offset, std::uint64_t size) const noexcept {
    return offset <= bytes() && size <= bytes() - offset;
  }
  void check_range(std::uint64_t offset, std::uint64_t bytes) const {
    if ((!connected() && !block_) || has(offset, bytes)) [[likely]]
      return;
    refuse_range(offset, bytes);
  }
  /// `size`: a power of 2.
  void check_aligned(std::uint64_t offset, std::size_t size) const {
    if ((in_window(offset) & (size - 1)) == 0) [[likely]]
      return;
    refuse_place(offset, size);
  }
  [[noreturn]] void refuse_range(std::uint64_t offset, std::uint64_t bytes) const;
  [[noreturn]] void refuse_place(std::uint64_t offset, std::size_t size) const;
  void enqueue_change(Stream stream, Kind kind, std::uint64_t offset, std::uint64_t operand, std::uint64_t compare,
                      std::byte* old);
  std::uint64_t in_window(std::uint64_t offset) const noexcept { return offset + (block_ ? block_->offset : 0); }
  /// Calls `work()`, unless the peer has closed the window.
  template <class Work>
  void carry_out_now(Work work);
  void enqueue_move(Stream stream, Kind kind, const Slice& local, std::uint64_t offset, Notify notify);
  void give_notice(device::Lane lane, std::uint64_t epoch, const backends::Request& request, Tag tag);
  void fire(device::Lane lane, std::uint64_t epoch, backends::Request request);
  bool needs_agent(const backends::Request& request) const noexcept;
  void refuse_counter(const backends::Request& request) noexcept;
  void fire_by_agent(device::Lane lane, std::uint64_t epoch, backends::Request request);
  /// Calls `work()`; an error of a channel fails the target.
  template <class Work>
  void with_agent(Work work) noexcept;
  void send(device::Lane lane, std::uint64_t epoch, const backends::Request& request);
  void await_accesses(device::Lane lane, std::uint64_t epoch);
  void await_counts(device::Lane lane, std::uint64_t epoch);
  void await_turn(device::Lane lane, std::uint64_t epoch, Kind kind, const void* order);
  void check_atomics(Stream stream) const {
    if (connected() && facts_.of_gpu) [[unlikely]]
      check_atomics_by_kernels(stream);
  }
  void check_atomics_by_kernels(Stream stream) const;
  void check_numbers(Stream stream, const Slice& local) const;
  void let_stream_reach(const Slice& local) const;
  void let_kernels_reach(const Slice& local) const;
  void let_stream_give_notices(Stream stream);
  /// None is left on a GPU's stream.
  bool notices_given() const noexcept {
    return notices_enqueued_.load(std::memory_order_acquire) == 0 || all_notices_left();
  }
  bool all_notices_left() const noexcept;
  void move_refused(Stream stream, std::uint64_t epoch, bool tagged) noexcept;
  void check_stream(Stream stream, bool atomic, std::uint32_t counter) const;
  void keep(const Slice& local);
  /// Like `issue`, of work whose last act is `ran`. If it throws, the last `epochs` epochs were never begun.
  template <class F, class Refused>
  void give(Stream stream, std::uint64_t epochs, F work, Refused refused) {
    if (stream.kind() != Stream::Kind::host) return issue(stream, std::move(work), std::move(refused));
    ++enqueued_;
    try {
      issue_later<false>(stream, std::move(work), std::move(refused), NeverBrief{});
    } catch (...) {
      --enqueued_;
      epochs_.withdraw(epoch(), epochs);
      throw;
    }
  }
  void ran(device::Lane lane) noexcept;
  bool collect(base::Limit& limit);
  void drain(base::Limit& limit);

  const std::optional<Block> block_;
  std::uint64_t window_bytes_ = 0;
  AccessPut* accesses_ = nullptr;             // `put_`; set before `connected`
  backends::EngineAccess* posted_ = nullptr;  // the same; null: the stream carries them out
  backends::MappedAccess* maps_ = nullptr;    // the same; null: not mapped here
  backends::MappedAccess* stores_ = nullptr;  // the same, if it is memory of the host
  backends::MappedAccess* words_ = nullptr;   // the same, if processors carry out the atomics
  // The mappings of the peer's memory. Other threads unmap it once the target is of no more use.
  std::vector<std::weak_ptr<const device::Mapping>> mappings_;
  WindowFacts facts_;  // set before `connected`
  // Notices that a GPU's stream was given, and their count, which it raises behind each.
  std::atomic<std::uint64_t> notices_enqueued_{0};
  OwnedProgress notices_done_;
  // On the lane. An atomic that the agent carries out is also an access that moves nothing, so that all have epochs.
  std::unique_ptr<NoticeSender> notices_;     // null: no notice with a tag was given yet
  std::unique_ptr<AgentClient> client_;       // null: no atomic was sent to the agent yet
  std::atomic<AgentClient*> agent_{nullptr};  // the same, for any thread
  std::atomic<std::uint64_t> enqueued_{0};    // work on HostStreams that has not run
  // Memory of ours that accesses under way may use, and the last such access. Many accesses in a row use the same.
  std::vector<std::pair<std::shared_ptr<const void>, std::uint64_t>> kept_;
  ReachedPieces pieces_;                    // as they were when they were opened
  std::vector<std::uint64_t> used_pieces_;  // offsets of those that were used since they were idle
  std::size_t pieces_at_tidying_ = 0;       // how many were left when those that were detached were closed
  device::Allocation olds_;                 // words of atomics that the host waits for: of epoch k at k mod kDepth
};

}  // namespace sluice::runtime
