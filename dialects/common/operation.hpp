// SPDX-License-Identifier: Apache-2.0
// Sends, receives and collectives: a stream starts them, and waits for them later.
#pragma once

#include <sluice/stream.hpp>
#include <sluice/types.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/words.hpp"

namespace sluice::device {
class Handshake;
}

namespace sluice::stream_mpi {

/// How many items of host streams have something. One thread at a time enqueues, and one runs, so no instruction is
/// locked.
class ItemCount {
 public:
  void enqueued() noexcept { ++enqueued_; }
  /// The last use by an item.
  void passed() noexcept { passed_.store(passed_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  bool in_use() const noexcept { return passed_.load(std::memory_order_acquire) != enqueued_; }

 private:
  std::uint64_t enqueued_ = 0;
  std::atomic<std::uint64_t> passed_{0};
};

/// A place in the order of a GPU's stream, to which the stream comes when it gives this signal.
struct Place {
  std::shared_ptr<device::Handshake> handshake;
  std::uint64_t number = 0;
};

/// Each start is followed by its completion before the next start. It is driven in program order, by the thread that
/// runs the items of a host stream, or by a GPU's stream, always by the same of the two.
///
/// On the host a start never blocks: what it cannot do yet, `advance` does later. So a stream that waits for several
/// operations waits for none of them first, and a send whose receiver is late holds nothing back.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  // By the thread of a host stream. @throws Error the failure of a channel
  virtual void start() = 0;
  /// Goes on without blocking. True: complete.
  virtual bool advance() = 0;
  /// Blocks until it is complete.
  virtual void finish() = 0;
  /// True if peers need nothing from this rank until it is complete: the thread may sleep in `finish`.
  virtual bool passive() const noexcept { return false; }
  /// True if `start` is short: the call that enqueues it may run it.
  virtual bool starts_shortly() const noexcept { return false; }
  /// Fails it, here and at its peers: its stream has stopped, or has waited for too long, or its request was freed.
  /// Does not block: the destructor waits until no peer uses the memory. Later starts throw.
  virtual void give_up() noexcept = 0;

  // Items of host streams that have it.
  void enqueued() noexcept { items_.enqueued(); }
  /// By the thread of an item, which looks at `ended()` behind a light fence.
  void passed() noexcept { items_.passed(); }

  /// By its request, which is freed: nobody enqueues it again. True: no item has it, so the caller closes it. False:
  /// the thread of its last item gives it up.
  bool end() noexcept {
    ended_.store(true, std::memory_order_release);
    if (!items_.in_use()) return take();
    base::heavy_fence();  // either this sees that the last item has passed, or its thread sees the end
    return !items_.in_use() && take();
  }
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// Called by the thread of an item, behind `passed`: gives the operation up if its request was freed and no other
  /// item has it.
  void give_up_if_last() noexcept {
    if (ended() && !items_.in_use() && take()) give_up();
  }

  // Enqueue their part on a GPU's stream, and return.
  /// True if `enqueue_start` does not wait for peers.
  virtual bool connected() { return true; }
  virtual void enqueue_start(Stream stream) = 0;
  /// True if the background can do what `enqueue_start` has left undone. Then `leave` permits that from `start` on.
  virtual bool incomplete() const noexcept { return false; }
  virtual void leave(const Place& /*start*/) {}
  /// Called first by a wait, and by the next start: the background does no more, once the step that it runs has ended.
  /// Returns the handshake whose own stream the background has given a put, which later work must wait for; or null.
  virtual std::shared_ptr<device::Handshake> take_back() noexcept { return nullptr; }
  // The puts of what is started and waited for together: those that have credit, then those that are left.
  /// @throws also what the background has met
  virtual void enqueue_credited(Stream /*stream*/) {}
  virtual void enqueue_move(Stream /*stream*/) {}
  virtual void enqueue_wait(Stream stream) = 0;

  /// Blocks until no peer uses the memory.
  virtual void close(std::optional<Timeout> timeout) = 0;

 private:
  bool take() noexcept { return !taken_.exchange(true, std::memory_order_acq_rel); }

  ItemCount items_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> taken_{false};  // by the thread that closes it or gives it up
};

using Operations = std::vector<std::shared_ptr<Operation>>;
/// Operations of requests: a line copies the pointers only if it has to keep them.
using OperationList = std::span<const std::shared_ptr<Operation>* const>;

}  // namespace sluice::stream_mpi
