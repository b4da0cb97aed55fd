// SPDX-License-Identifier: Apache-2.0
// Channels inside kernels of CUDA and HIP, and inside functions of the host, which stand for kernels there. Opt-in:
// sluice.hpp does not include it. It needs no vendor header. nvcc, clang for HIP and any C++20 compiler of the host
// compile it.
#pragma once

#include <sluice/device_verbs.hpp>
#include <sluice/device_words.hpp>

#include <cstddef>
#include <cstdint>

namespace sluice {

/// The result of a verb in a kernel. All threads of the group get the same one.
enum class DeviceResult : std::uint32_t {
  ok,
  timeout,  ///< `Polls::most` polls have not found what the verb waits for: nothing has changed, call it again
  closed,   ///< this end is closed, or the peer has closed its end and needs no more: nothing was moved
  failed,   ///< the channel has failed: nothing was moved. The host's next `synchronize` or `check` throws the reason
  refused   ///< kernels cannot do this on this channel (see `is_mapped`, `moves_parts`): nothing has changed
};

/// The limit of a wait in a kernel, in polls of the awaited word. Without one, a wait ends only when what it waits for
/// has happened or the channel fails.
struct Polls {
  std::uint64_t most = kernel::kUntilFailed;
};

namespace kernel {

SLUICE_DEVICE DeviceResult result_of(std::uint64_t epoch) {
  return epoch < kFailed ? DeviceResult::ok : static_cast<DeviceResult>(~epoch);
}

}  // namespace kernel

/// A sender inside kernels, made by `Sender::on_device`. Pass it by value. A kernel that still runs when the
/// Sender is closed gets `closed`; no kernel may use the handle later.
///
/// A group of threads makes each call: all threads of the group call it with the same arguments. `group` is a
/// kernel::Thread, kernel::Warp or kernel::Block, or of a type of yours with the same members. Only one group drives a
/// channel at a time. Epochs are counted in memory that kernels advance, so one kernel continues where the last ended.
///
/// A verb that waits polls, and its kernel keeps its multiprocessor meanwhile. The peer's work must be able to run
/// beside it.
class DeviceSender {
 public:
  explicit DeviceSender(const kernel::Out& out) : out_(out) {}

  SLUICE_DEVICE std::uint64_t slot_bytes() const { return out_.slot_bytes; }

  /// Waits until the source slot of the next put may be overwritten, then sets `slot` to it. With any result but `ok`,
  /// `slot` is unchanged.
  SLUICE_DEVICE DeviceResult acquire(const auto& group, std::byte*& slot, Polls polls = {}) const {
    const std::uint64_t next = group.from_first(group.index() == 0 ? kernel::await_source(out_, polls.most) : 0);
    if (kernel::result_of(next) == DeviceResult::ok) slot = out_.source + next % out_.source_slots * out_.slot_bytes;
    return kernel::result_of(next);
  }

  /// Puts the whole slot: waits until the receiver has released its slot, moves the bytes, raises the receiver's
  /// signal. The put includes everything that the group's threads have written to the slot before the call.
  SLUICE_DEVICE DeviceResult put(const auto& group, Polls polls = {}) const {
    return put(group, 0, out_.slot_bytes, polls);
  }

  /// Puts `bytes` bytes from `offset` in the slot; 0 bytes only raise the signal. The range must lie inside the slot,
  /// which is not checked. Returns `refused` for less than a slot unless `moves_parts`.
  SLUICE_DEVICE DeviceResult put(const auto& group, std::uint64_t offset, std::uint64_t bytes, Polls polls = {}) const {
    if (!moves_parts() && bytes != out_.slot_bytes) return DeviceResult::refused;
    const std::uint64_t epoch = begin(group, polls);
    if (kernel::result_of(epoch) != DeviceResult::ok) return kernel::result_of(epoch);
    if (is_mapped()) {
      const std::byte* const from = out_.source + epoch % out_.source_slots * out_.slot_bytes;
      kernel::copy(group, target_of(epoch) + offset, from + offset, bytes);
    }
    group.sync();
    if (group.index() == 0) kernel::end_put(out_, epoch, offset, bytes);
    return DeviceResult::ok;
  }

  /// The first half of a put without a source: waits until the receiver has released its slot, then sets `slot` to the
  /// receiver's own slot, which the group writes directly. After `ok`, `signal` must follow. Returns `refused` unless
  /// `is_mapped`.
  SLUICE_DEVICE DeviceResult begin_put(const auto& group, std::byte*& slot, Polls polls = {}) const {
    if (!is_mapped()) return DeviceResult::refused;
    const std::uint64_t epoch = begin(group, polls);
    if (kernel::result_of(epoch) == DeviceResult::ok) slot = target_of(epoch);
    return kernel::result_of(epoch);
  }

  /// The second half: raises the receiver's signal. The receiver then sees all that the group has written to the slot.
  SLUICE_DEVICE void signal(const auto& group) const {
    group.sync();
    if (group.index() == 0) kernel::end_put(out_, out_.count->begun, 0, out_.slot_bytes);
  }

  /// Like `put` of a whole slot, but only for channels whose bytes the engine or a NIC moves: waits until the receiver
  /// has released its slot, then rings the doorbell. Returns `refused` if `is_mapped`.
  SLUICE_DEVICE DeviceResult ring(const auto& group, Polls polls = {}) const {
    return is_mapped() ? DeviceResult::refused : put(group, polls);
  }

  /// True if kernels can write the receiver's slots. If false, the engine or a NIC moves the bytes after `put` has
  /// returned, so call `acquire` before you write the source slot again.
  SLUICE_DEVICE bool is_mapped() const { return !out_.rings; }

  /// True if a put may have less than a slot. False if a NIC fires the puts: they are armed ahead, for whole slots.
  SLUICE_DEVICE bool moves_parts() const { return !out_.armed; }

 private:
  SLUICE_DEVICE std::uint64_t begin(const auto& group, Polls polls) const {
    group.sync();  // all of the group's writes to the slot come before the put
    return group.from_first(group.index() == 0 ? kernel::begin_put(out_, polls.most) : 0);
  }
  SLUICE_DEVICE std::byte* target_of(std::uint64_t epoch) const {
    return out_.target + epoch % out_.target_slots * out_.target_stride;
  }

  kernel::Out out_;
};

/// A receiver inside kernels, made by `Receiver::on_device`. Pass it by value. It is valid until the Receiver is
/// closed; after that its verbs return `closed`. Groups of threads call it as they call a DeviceSender.
class DeviceReceiver {
 public:
  explicit DeviceReceiver(const kernel::In& in) : in_(in) {}

  SLUICE_DEVICE std::uint64_t slot_bytes() const { return in_.slot_bytes; }

  /// Waits for the next epoch, then sets `slot` to its bytes, which stay there until `release`. With any result but
  /// `ok`, `slot` is unchanged.
  SLUICE_DEVICE DeviceResult wait(const auto& group, const std::byte*& slot, Polls polls = {}) const {
    const std::uint64_t epoch = group.from_first(group.index() == 0 ? kernel::begin_wait(in_, polls.most) : 0);
    group.sync();
    if (kernel::result_of(epoch) == DeviceResult::ok) slot = in_.target + epoch % in_.slots * in_.slot_bytes;
    return kernel::result_of(epoch);
  }

  /// Gives back the oldest epoch that was waited for: the sender may overwrite its slot, which no thread of the group
  /// reads after this call. Returns `closed` also if only the peer has closed its end. A release without a wait returns
  /// `failed`, and the channel fails with Code::misuse.
  SLUICE_DEVICE DeviceResult release(const auto& group) const {
    group.sync();
    return kernel::result_of(group.from_first(group.index() == 0 ? kernel::give_back(in_) : 0));
  }

 private:
  kernel::In in_;
};

/// One of what a wait for any of several receivers has taken: WaitAny::Arrival, for kernels.
struct DeviceArrival {
  std::uint64_t index;  ///< of the receiver
  std::byte* data;      ///< the slot, or the range of a SegmentReceiver; null: the peer has closed, or it is a counter
  std::uint64_t bytes;
  std::uint64_t count;  ///< of a counter
};

/// The arrivals of a wait, inside kernels behind it; made by `WaitAny::Ticket::on_device`. Pass it by value. A kernel
/// that the stream runs before the wait has ended may find anything in it.
class DeviceArrivals {
 public:
  DeviceArrivals(const std::uint64_t* size, const DeviceArrival* first) : size_(size), first_(first) {}

  /// 0: no receiver was left, or the wait has failed.
  SLUICE_DEVICE std::uint64_t size() const { return *size_; }
  /// `i`: less than `size()`.
  SLUICE_DEVICE const DeviceArrival& operator[](std::uint64_t i) const { return first_[i]; }

 private:
  const std::uint64_t* size_;
  const DeviceArrival* first_;
};

}  // namespace sluice
