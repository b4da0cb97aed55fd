// SPDX-License-Identifier: Apache-2.0
// The two ends of a channel as kernels see them, and the part of each verb that one thread does for its group. A
// program uses the classes of device.hpp.
#pragma once

#include <sluice/device_words.hpp>

#include <cstddef>
#include <cstdint>

namespace sluice::kernel {

/// The most polls of a wait that ends only when the channel fails.
inline constexpr std::uint64_t kUntilFailed = ~std::uint64_t{0};
inline constexpr std::uint64_t kPoison = std::uint64_t{1} << 62;  ///< see base/words.hpp

// The verbs return one of these where they have no epoch: the complement of a DeviceResult. Every epoch is less than
// kFailed.
inline constexpr std::uint64_t kTimedOut = ~std::uint64_t{1};
inline constexpr std::uint64_t kClosed = ~std::uint64_t{2};
inline constexpr std::uint64_t kFailed = ~std::uint64_t{3};

// Values of `Count::held`.
inline constexpr std::uint64_t kOpen = 0;           ///< kernels may touch the peer's memory
inline constexpr std::uint64_t kHeldByClosing = 1;  ///< they must not: the peer has closed its end and needs no more
inline constexpr std::uint64_t kHeldByFailure = 2;  ///< they must not: the channel has failed

/// Counters of epochs, in memory that the GPU and the host can access.
struct Count {
  // Written by the GPU.
  std::uint64_t begun;    ///< last epoch that a kernel began; reset to the one before if the end was closed
  std::uint64_t entered;  ///< last epoch that a kernel began while the end was open: it will complete
  std::uint64_t moves;    ///< in a put of several kernels: the epoch whose bytes may be copied; 0: none
  std::uint64_t eager;    ///< number of epochs begun outside of graphs
  std::uint64_t refused;  ///< last epoch that was begun but not rung, where a NIC has armed the puts
  // Written by the host.
  std::uint64_t launched;  ///< value that `eager` reaches when all enqueued work has begun
  std::uint64_t held;      ///< kOpen, or why the peer's memory must not be touched
  std::uint64_t closed;    ///< 1 once the end is closed: then no other counter here has a meaning
};

/// Members that both ends have. All pointers are as kernels see them.
struct End {
  bool rings;  ///< `raised` is a doorbell, whose listener (the engine or a NIC) moves the bytes
  bool armed;  ///< the listener is a NIC: it moves whole slots that were armed ahead, and cannot check anything
  std::uint64_t slot_bytes;
  std::uint64_t* counter;  ///< of a NIC, which adds each value that is stored here (1 for each ring); null: none
  std::uint64_t* raised;   ///< the peer's signal or credit, or a doorbell; null: the peer needs no more credits
  std::uint64_t ahead;     ///< added to each epoch that is stored in `raised`
  std::uint64_t* done;     ///< number of completed puts or releases; the listener of a doorbell raises it
  std::uint64_t* fault;    ///< raised if a kernel uses the channel wrongly
  std::uint64_t first;     ///< in a plan: the epoch before its first start or wait
};

/// A sender.
struct Out : End {
  Count* count;
  const std::uint64_t* credit;  ///< last epoch that the receiver has released
  std::uint64_t target_slots;
  std::byte* source;
  std::uint64_t source_slots;
  std::byte* target;  ///< the peer's slots; null if `rings`
  std::uint64_t target_stride;
  std::uint64_t* parts;  ///< offset and bytes of each of `kept` epochs, read by the listener of the doorbell; or null
  std::uint64_t kept;
};

/// A receiver.
struct In : End {
  static constexpr int kMostRails = 8;
  Count* waits;
  Count* releases;
  const std::uint64_t* signals[kMostRails];  ///< each of them rises with every epoch
  std::uint64_t rails;
  std::uint64_t* passed;  ///< number of completed waits
  std::byte* target;
  std::uint64_t slots;
};

struct alignas(16) [[gnu::may_alias]] Sixteen {
  std::uint64_t low, high;
};
using Eight [[gnu::may_alias]] = std::uint64_t;
using Four [[gnu::may_alias]] = std::uint32_t;

/// Four loads before the first store: a load takes far longer than the loop.
template <class Unit>
SLUICE_DEVICE void copy_units(const auto& group, Unit* to, const Unit* from, std::uint64_t count) {
  const std::uint64_t step = group.size();
  std::uint64_t i = group.index();
  for (; i + 3 * step < count; i += 4 * step) {
    const Unit a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

/// Copies by units where both pointers are aligned to them, and by bytes before and after. The distance between the
/// pointers is a multiple of the unit.
template <class Unit>
SLUICE_DEVICE void copy_by(const auto& group, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t to_aligned = (sizeof(Unit) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Unit)) % sizeof(Unit);
  const std::uint64_t head = to_aligned < bytes ? to_aligned : bytes;
  const std::uint64_t units = (bytes - head) / sizeof(Unit);
  const std::uint64_t tail = head + units * sizeof(Unit);
  copy_units(group, to, from, head);
  copy_units(group, reinterpret_cast<Unit*>(to + head), reinterpret_cast<const Unit*>(from + head), units);
  copy_units(group, to + tail, from + tail, bytes - tail);
}

/// Copies memory that does not overlap, of any alignment. Each thread copies a share; all of it is there after
/// `group.sync()`.
SLUICE_DEVICE void copy(const auto& group, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uintptr_t apart = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if (apart % 16 == 0) return copy_by<Sixteen>(group, to, from, bytes);
  if (apart % 8 == 0) return copy_by<Eight>(group, to, from, bytes);
  if (apart % 4 == 0) return copy_by<Four>(group, to, from, bytes);
  copy_units(group, to, from, bytes);
}

/// Polls until `reached()`, at most `polls` times. Returns the last result of `reached()`.
SLUICE_DEVICE bool poll(std::uint64_t polls, auto reached) {
  for (std::uint64_t i = 0; !reached(); ++i) {
    if (i >= polls && polls != kUntilFailed) return false;
    pause();
  }
  return true;
}

/// Counts the epoch as begun, and returns true, unless the end is closed.
///
/// A host that closes the end, or gives up the peer's memory, first stores that, and then reads `begun`. Both sides
/// store, then load, in one order for all, so one of the two sees the other's store. A host that closes also announces
/// the number of epochs to the peer, and `begun` is not enough for that: the kernel may have stored it and then find
/// the end closed. So the host waits until `is_decided`, and announces `entered`. That number is final: a kernel that
/// had not stored `begun` by then will find the end closed.
SLUICE_DEVICE bool begin(Count& count, std::uint64_t epoch) {
  if (store_then_load(count.begun, epoch, count.closed) == 0) {
    store_relaxed(count.entered, epoch);  // relaxed: no other data is published with it
    return true;
  }
  store_release(count.begun, epoch - 1);
  return false;
}

/// Called by the host after it has stored `closed`. True if each epoch that was begun has found the end either open or
/// closed.
inline bool is_decided(Count& count) {
  // `begun` first: a kernel that stores it later finds the end closed.
  const std::uint64_t begun = __atomic_load_n(&count.begun, __ATOMIC_SEQ_CST);
  return begun == __atomic_load_n(&count.entered, __ATOMIC_ACQUIRE);
}

/// Begins the next put. Returns its epoch once its slot at the receiver is free. Otherwise returns kTimedOut (nothing
/// has changed), or kClosed or kFailed (nothing must be moved).
SLUICE_DEVICE std::uint64_t begin_put(const Out& out, std::uint64_t polls) {
  const std::uint64_t epoch = out.count->begun + 1;
  std::uint64_t credit = 0;
  const auto is_free = [&] { return (credit = load_acquire(*out.credit)) + out.target_slots >= epoch; };
  // A put with a limit begins when it no longer has to wait.
  if (polls != kUntilFailed && !poll(polls, is_free)) return kTimedOut;
  if (!begin(*out.count, epoch)) return kClosed;
  poll(kUntilFailed, is_free);
  const std::uint64_t held = load_acquire(out.count->held);
  if (credit < kPoison && held == kOpen) return epoch;
  // The put completes and moves nothing. The engine's doorbell may be rung, since the engine checks the channel; a
  // NIC's must not.
  if (out.armed) {
    store_release(out.count->refused, epoch);
  } else {
    store_release(out.rings ? *out.raised : *out.done, out.rings ? epoch + out.ahead : epoch);
  }
  return credit < kPoison && held != kHeldByFailure ? kClosed : kFailed;
}

/// Raises the peer's word or rings the doorbell. The peer, or the doorbell's listener, then sees everything that
/// kernels and streams wrote before. So does a NIC that reads the source as soon as its counter has moved: every store
/// here releases at the scope of the system. The counter gets 1 for each ring, never a total: a NIC counts stores.
SLUICE_DEVICE void raise(const End& end, std::uint64_t epoch) {
  if (end.counter != nullptr) store_to_register(*end.counter, 1);
  store_release(*end.raised, epoch + end.ahead);
}

/// Completes a put whose bytes are written: raises the receiver's signal, or rings the doorbell.
SLUICE_DEVICE void end_put(const Out& out, std::uint64_t epoch, std::uint64_t offset, std::uint64_t bytes) {
  if (out.parts != nullptr) {
    out.parts[epoch % out.kept * 2] = offset;
    out.parts[epoch % out.kept * 2 + 1] = bytes;
  }
  raise(out, epoch);
  if (!out.rings) store_release(*out.done, epoch);
}

/// Waits until the source slot of the next put may be overwritten. Returns the epoch of that put; or kTimedOut, kClosed
/// or kFailed.
SLUICE_DEVICE std::uint64_t await_source(const Out& out, std::uint64_t polls) {
  if (load_acquire(out.count->closed) != 0) return kClosed;
  if (load_acquire(*out.credit) >= kPoison) return kFailed;
  const std::uint64_t next = out.count->begun + 1;
  if (!out.rings || next <= out.source_slots) return next;
  // Once the end is closed, the word `done` may be used for something else.
  const auto is_closed = [&] { return load_acquire(out.count->closed) != 0; };
  const auto is_free = [&] { return load_acquire(*out.done) + out.source_slots >= next || is_closed(); };
  if (!poll(polls, is_free)) return kTimedOut;
  return is_closed() ? kClosed : next;
}

/// Waits for the next epoch and returns it. Otherwise returns kTimedOut (nothing has changed), or kClosed or kFailed
/// (the epoch will never arrive).
SLUICE_DEVICE std::uint64_t begin_wait(const In& in, std::uint64_t polls) {
  const std::uint64_t epoch = in.waits->begun + 1;
  bool poisoned = false;
  const auto has_landed = [&](std::uint64_t most) {
    for (std::uint64_t rail = 0; rail < in.rails; ++rail) {
      std::uint64_t signal = 0;
      if (!poll(most, [&] { return (signal = load_acquire(*in.signals[rail])) >= epoch; })) return false;
      poisoned = poisoned || signal >= kPoison;
    }
    return true;
  };
  if (polls != kUntilFailed && !has_landed(polls)) return kTimedOut;
  if (!begin(*in.waits, epoch)) return kClosed;
  has_landed(kUntilFailed);
  store_release(*in.passed, *in.passed + 1);
  return poisoned ? kFailed : epoch;
}

/// Gives back the oldest epoch that was waited for, and returns it; or kClosed or kFailed.
SLUICE_DEVICE std::uint64_t give_back(const In& in) {
  Count& count = *in.releases;
  const std::uint64_t epoch = count.begun + 1;
  if (load_acquire(count.closed) == 0 && epoch > in.waits->begun) {
    store_release(*in.fault, 1);
    return kFailed;
  }
  if (!begin(count, epoch)) return kClosed;
  const std::uint64_t held = load_acquire(count.held);
  const bool reaches = held == kOpen && in.raised != nullptr;
  // The engine's doorbell is in our memory and may always be rung, since the engine checks the channel. A NIC's is only
  // for credits that may leave.
  if (reaches || (in.rings && !in.armed)) {
    raise(in, epoch);
  } else if (in.armed) {
    store_release(count.refused, epoch);
  }
  if (!in.rings) store_release(*in.done, epoch);
  if (reaches) return epoch;
  return held == kHeldByFailure || load_acquire(*in.signals[0]) >= kPoison ? kFailed : kClosed;
}

}  // namespace sluice::kernel
