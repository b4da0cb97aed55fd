// SPDX-License-Identifier: Apache-2.0
// Channels inside kernels, of CUDA and HIP, or of the host, where a kernel is any function. Opt-in: sluice.hpp does not
// include it. It needs no vendor header, and is compiled by any compiler of the three.
//
// A channel that kernels drive is driven by them alone, one group of threads at a time: its epochs are counted in
// memory that the kernel advances. Every thread of the group makes the same call. A kernel that waits holds its
// multiprocessor meanwhile, so whoever it waits for must be able to run.
#pragma once

#include <sluice/device_words.hpp>

#include <cstddef>
#include <cstdint>

namespace sluice {

/// What became of a verb in a kernel.
enum class DeviceResult : std::uint32_t {
  ok,
  timeout,  ///< the peer has not come so far in so many polls: nothing has changed, and it can be tried again
  closed,   ///< this end is closed, or the peer's is and needs no more: nothing was moved
  failed,   ///< the channel has failed: nothing was moved. The host's next call says why
  refused   ///< no kernel can do this on this channel: nothing has changed
};

/// How often a verb looks whether the peer has come so far; unless it is said, until the channel has failed.
struct Polls {
  std::uint64_t most = ~std::uint64_t{0};
};

namespace kernel {

inline constexpr std::uint64_t kUntilFailed = Polls().most;
inline constexpr std::uint64_t kPoison = std::uint64_t{1} << 62;  ///< see base/words.hpp
inline constexpr std::uint64_t kTimedOut = ~std::uint64_t{0};     ///< in place of an epoch
inline constexpr std::uint64_t kFailed = kTimedOut - 1;
inline constexpr std::uint64_t kClosed = kTimedOut - 2;  ///< less than this is an epoch

// What `Count::held` is: whether anything of the peer may be touched, and why not.
inline constexpr std::uint64_t kOpen = 0;
inline constexpr std::uint64_t kHeldByClosing = 1;  ///< the peer needs no more
inline constexpr std::uint64_t kHeldByFailure = 2;

/// Where epochs are counted: in memory that the GPU and the host reach.
struct Count {
  // The GPU's.
  std::uint64_t begun;    ///< the last epoch that was begun, if its end was open then; else this is taken back
  std::uint64_t entered;  ///< the last epoch that was begun while its end was open: it will be over some day
  std::uint64_t moves;    ///< of a put in several kernels: the epoch that may be moved; 0: it may not
  std::uint64_t eager;    ///< of the epochs begun, those that no graph replays
  std::uint64_t refused;  ///< of what a NIC has armed: the last epoch that was begun and not rung for
  // The host's.
  std::uint64_t launched;  ///< what `eager` comes to once all that was enqueued has begun
  std::uint64_t held;      ///< kOpen until nothing of the peer may be touched any more
  std::uint64_t closed;    ///< 1 once the end is closed, and nothing here means anything any more
};

/// A sender, as kernels drive it. Pointers are those that the GPU uses.
struct Out {
  Count* count;
  const std::uint64_t* credit;  ///< the last epoch that the receiver has released
  std::uint64_t target_slots;
  std::uint64_t slot_bytes;
  std::byte* source;
  std::uint64_t source_slots;
  std::byte* target;  ///< the peer's slots
  std::uint64_t target_stride;
  bool rings;              ///< whoever hears the doorbell moves the bytes; there is no target
  bool armed;              ///< a NIC does: whole slots, each armed before its ring, whatever has happened meanwhile
  std::uint64_t* counter;  ///< of a NIC, which adds what is stored there, 1 a ring; null: the doorbell is all
  std::uint64_t* raised;   ///< the peer's signal, or the doorbell
  std::uint64_t ahead;     ///< added to the epoch that is stored there
  std::uint64_t* done;     ///< puts that are over; whoever hears the doorbell raises it
  std::uint64_t* parts;    ///< offset and bytes of each of `kept` epochs, for whoever hears the doorbell; or null
  std::uint64_t kept;
  std::uint64_t* fault;  ///< raised if the channel is used wrongly
  std::uint64_t first;   ///< of a plan: the epoch before its first start
};

/// A receiver, as kernels drive it.
struct In {
  static constexpr int kMostRails = 8;
  Count* waits;
  Count* releases;
  const std::uint64_t* signals[kMostRails];  ///< all of them rise with every epoch
  std::uint64_t rails;
  std::uint64_t* passed;  ///< how many waits have passed
  std::byte* target;
  std::uint64_t slots;
  std::uint64_t slot_bytes;
  bool rings;
  bool armed;
  std::uint64_t* counter;
  std::uint64_t* raised;  ///< the peer's credit, or a doorbell; null: the peer needs none
  std::uint64_t ahead;
  std::uint64_t* done;  ///< releases that are over; whoever hears the doorbell raises it
  std::uint64_t* fault;
  std::uint64_t first;
};

struct alignas(16) [[gnu::may_alias]] Sixteen {
  std::uint64_t low, high;
};
using Eight [[gnu::may_alias]] = std::uint64_t;
using Four [[gnu::may_alias]] = std::uint32_t;

/// Four loads before the first store: a load takes far longer than the loop.
template <class Unit, class Group>
SLUICE_DEVICE void copy_units(const Group& group, Unit* to, const Unit* from, std::uint64_t count) {
  const std::uint64_t step = group.size();
  std::uint64_t i = group.index();
  for (; i + 3 * step < count; i += 4 * step) {
    const Unit a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}

/// By units where both pointers are aligned to them, by bytes before and after. They are apart by a multiple of a unit.
template <class Unit, class Group>
SLUICE_DEVICE void copy_by(const Group& group, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t to_aligned = (sizeof(Unit) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Unit)) % sizeof(Unit);
  const std::uint64_t head = to_aligned < bytes ? to_aligned : bytes;
  const std::uint64_t units = (bytes - head) / sizeof(Unit);
  const std::uint64_t tail = head + units * sizeof(Unit);
  copy_units(group, to, from, head);
  copy_units(group, reinterpret_cast<Unit*>(to + head), reinterpret_cast<const Unit*>(from + head), units);
  copy_units(group, to + tail, from + tail, bytes - tail);
}

/// Memory that does not overlap, of any alignment. What another thread copies is there after `group.sync()`.
template <class Group>
SLUICE_DEVICE void copy(const Group& group, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const std::uintptr_t apart = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
  if (apart % 16 == 0) {
    copy_by<Sixteen>(group, to, from, bytes);
  } else if (apart % 8 == 0) {
    copy_by<Eight>(group, to, from, bytes);
  } else if (apart % 4 == 0) {
    copy_by<Four>(group, to, from, bytes);
  } else {
    copy_units(group, to, from, bytes);
  }
}

/// Polls until `reached()`, at most `polls` times. Returns whether it came.
template <class Reached>
SLUICE_DEVICE bool poll(std::uint64_t polls, Reached reached) {
  for (std::uint64_t i = 0; !reached(); ++i) {
    if (i >= polls && polls != kUntilFailed) return false;
    pause();
  }
  return true;
}

// What one thread does for its group.

/// Counts the epoch as begun, unless the end is closed.
///
/// Whoever closes the end, or parts with the peer, says so first, and then looks what has begun: one of the two sees
/// the other (both store, then load, in one order for all). Who closes also tells the peer how many epochs there were,
/// so for it `begun` alone is not enough: the kernel may have stored that and find the end closed. So whoever closes
/// waits until `is_decided`, and tells what was `entered`. That is final: what it does not see begun will find the end
/// closed.
SLUICE_DEVICE bool begin(Count& count, std::uint64_t epoch) {
  if (store_then_load(count.begun, epoch, count.closed) == 0) {
    store_relaxed(count.entered, epoch);  // nobody reads anything else because of it
    return true;
  }
  store_release(count.begun, epoch - 1);
  return false;
}

/// By the host, once `closed` is stored: whether each epoch that was begun has found the end either open or closed.
inline bool is_decided(Count& count) {
  // This first: what is stored there later finds the end closed.
  const std::uint64_t begun = __atomic_load_n(&count.begun, __ATOMIC_SEQ_CST);
  return begun == __atomic_load_n(&count.entered, __ATOMIC_ACQUIRE);
}

/// Begins the next put. Returns its epoch once its slot at the receiver is free; or kTimedOut, and then nothing has
/// changed; or why nothing is to be moved.
SLUICE_DEVICE std::uint64_t begin_put(const Out& out, std::uint64_t polls) {
  const std::uint64_t epoch = out.count->begun + 1;
  std::uint64_t credit = 0;
  const auto is_free = [&] { return (credit = load_acquire(*out.credit)) + out.target_slots >= epoch; };
  // What is bounded begins when it need not wait any more.
  if (polls != kUntilFailed && !poll(polls, is_free)) return kTimedOut;
  if (!begin(*out.count, epoch)) return kClosed;
  poll(kUntilFailed, is_free);
  const std::uint64_t held = load_acquire(out.count->held);
  if (credit < kPoison && held == kOpen) return epoch;
  // It is over, and moves nothing. The engine, which hears the doorbell, looks for itself; a NIC must not hear it.
  if (out.armed) {
    store_release(out.count->refused, epoch);
  } else {
    store_release(out.rings ? *out.raised : *out.done, out.rings ? epoch + out.ahead : epoch);
  }
  return credit < kPoison && held != kHeldByFailure ? kClosed : kFailed;
}

/// Tells the peer, or whoever hears the doorbell: all that kernels and streams have written before is there for them,
/// also for a NIC that reads the source as soon as its counter has moved, since every store releases at the scope of
/// the system. The store to the counter is one a ring, and never a total: a NIC counts stores.
template <class End>
SLUICE_DEVICE void raise(const End& end, std::uint64_t epoch) {
  if (end.counter != nullptr) store_to_register(*end.counter, 1);
  store_release(*end.raised, epoch + end.ahead);
}

/// All bytes are there: tells the receiver, or whoever hears the doorbell.
SLUICE_DEVICE void end_put(const Out& out, std::uint64_t epoch, std::uint64_t offset, std::uint64_t bytes) {
  if (out.parts != nullptr) {
    out.parts[epoch % out.kept * 2] = offset;
    out.parts[epoch % out.kept * 2 + 1] = bytes;
  }
  raise(out, epoch);
  if (!out.rings) store_release(*out.done, epoch);
}

/// Waits until nobody reads the source slot of the next put any more.
SLUICE_DEVICE DeviceResult await_source(const Out& out, std::uint64_t polls) {
  if (load_acquire(out.count->closed) != 0) return DeviceResult::closed;
  if (load_acquire(*out.credit) >= kPoison) return DeviceResult::failed;
  const std::uint64_t next = out.count->begun + 1;
  if (!out.rings || next <= out.source_slots) return DeviceResult::ok;
  const auto is_free = [&] { return load_acquire(*out.done) + out.source_slots >= next; };
  return poll(polls, is_free) ? DeviceResult::ok : DeviceResult::timeout;
}

/// Waits for the next epoch, and returns it; or kTimedOut, and then nothing has changed; or why it never comes.
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

/// Gives back the oldest epoch that was waited for.
SLUICE_DEVICE DeviceResult give_back(const In& in) {
  Count& count = *in.releases;
  const std::uint64_t epoch = count.begun + 1;
  if (load_acquire(count.closed) == 0 && epoch > in.waits->begun) {
    store_release(*in.fault, 1);
    return DeviceResult::failed;
  }
  if (!begin(count, epoch)) return DeviceResult::closed;
  const std::uint64_t held = load_acquire(count.held);
  const bool reaches = held == kOpen && in.raised != nullptr;
  // The engine's doorbell is ours, and it looks; a NIC's is for what may be fired.
  if (reaches || (in.rings && !in.armed)) {
    raise(in, epoch);
  } else if (in.armed) {
    store_release(count.refused, epoch);
  }
  if (!in.rings) store_release(*in.done, epoch);
  if (reaches) return DeviceResult::ok;
  const bool failed = held == kHeldByFailure || load_acquire(*in.signals[0]) >= kPoison;
  return failed ? DeviceResult::failed : DeviceResult::closed;
}

SLUICE_DEVICE DeviceResult result_of(std::uint64_t epoch) {
  switch (epoch) {
    case kTimedOut: return DeviceResult::timeout;
    case kClosed: return DeviceResult::closed;
    case kFailed: return DeviceResult::failed;
    default: return DeviceResult::ok;
  }
}

}  // namespace kernel

/// A sender inside a kernel, made by `Sender::on_device`: passed by value, valid until the Sender is closed.
///
/// `Group` is kernel::Thread, kernel::Warp or kernel::Block, or a type of yours that has what they have.
class DeviceSender {
 public:
  explicit DeviceSender(const kernel::Out& out) : out_(out) {}

  SLUICE_DEVICE std::uint64_t slot_bytes() const { return out_.slot_bytes; }

  /// `slot`: the source slot of the next put, once it may be overwritten.
  template <class Group>
  SLUICE_DEVICE DeviceResult acquire(const Group& group, std::byte*& slot, Polls polls = {}) const {
    std::uint64_t next = 0;
    if (group.index() == 0) {
      const DeviceResult result = kernel::await_source(out_, polls.most);
      next = result == DeviceResult::ok        ? out_.count->begun + 1
             : result == DeviceResult::timeout ? kernel::kTimedOut
             : result == DeviceResult::closed  ? kernel::kClosed
                                               : kernel::kFailed;
    }
    next = group.from_first(next);
    if (kernel::result_of(next) == DeviceResult::ok) slot = out_.source + next % out_.source_slots * out_.slot_bytes;
    return kernel::result_of(next);
  }

  /// Waits for the credit, moves the whole slot, raises the signal. What the group's threads have written before is
  /// part of it.
  template <class Group>
  SLUICE_DEVICE DeviceResult put(const Group& group, Polls polls = {}) const {
    return put(group, 0, out_.slot_bytes, polls);
  }

  /// The same for `bytes` bytes from `offset` in the slot, which contains them; 0 bytes signals only. Refused unless
  /// `moves_parts`.
  template <class Group>
  SLUICE_DEVICE DeviceResult put(const Group& group, std::uint64_t offset, std::uint64_t bytes,
                                 Polls polls = {}) const {
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

  /// A put in two steps, where `is_mapped`: `slot` is the receiver's own, for the group to write into; `signal`
  /// follows.
  template <class Group>
  SLUICE_DEVICE DeviceResult begin_put(const Group& group, std::byte*& slot, Polls polls = {}) const {
    if (!is_mapped()) return DeviceResult::refused;
    const std::uint64_t epoch = begin(group, polls);
    if (kernel::result_of(epoch) == DeviceResult::ok) slot = target_of(epoch);
    return kernel::result_of(epoch);
  }

  /// After `begin_put`: what the group has written is there, and the receiver may look.
  template <class Group>
  SLUICE_DEVICE void signal(const Group& group) const {
    group.sync();
    if (group.index() == 0) kernel::end_put(out_, out_.count->begun, 0, out_.slot_bytes);
  }

  /// What `put` does where not `is_mapped`: waits for the credit and rings the doorbell of whoever moves the bytes, the
  /// engine or a NIC.
  template <class Group>
  SLUICE_DEVICE DeviceResult ring(const Group& group, Polls polls = {}) const {
    return is_mapped() ? DeviceResult::refused : put(group, polls);
  }

  /// Whether the receiver's slots are in reach. If not, the engine or a NIC moves the bytes, and `acquire` is what
  /// keeps the source right.
  SLUICE_DEVICE bool is_mapped() const { return !out_.rings; }

  /// Whether less than a slot can be put. Not where a NIC fires: what it has armed before it was asked is whole slots.
  SLUICE_DEVICE bool moves_parts() const { return !out_.armed; }

 private:
  template <class Group>
  SLUICE_DEVICE std::uint64_t begin(const Group& group, Polls polls) const {
    group.sync();  // what the group has written is in the slot
    std::uint64_t epoch = 0;
    if (group.index() == 0) epoch = kernel::begin_put(out_, polls.most);
    return group.from_first(epoch);
  }
  SLUICE_DEVICE std::byte* target_of(std::uint64_t epoch) const {
    return out_.target + epoch % out_.target_slots * out_.target_stride;
  }

  kernel::Out out_;
};

/// A receiver inside a kernel, made by `Receiver::on_device`: passed by value, valid until the Receiver is closed.
class DeviceReceiver {
 public:
  explicit DeviceReceiver(const kernel::In& in) : in_(in) {}

  SLUICE_DEVICE std::uint64_t slot_bytes() const { return in_.slot_bytes; }

  /// Waits for the next epoch. `slot`: where all of its bytes are, then.
  template <class Group>
  SLUICE_DEVICE DeviceResult wait(const Group& group, const std::byte*& slot, Polls polls = {}) const {
    std::uint64_t epoch = 0;
    if (group.index() == 0) epoch = kernel::begin_wait(in_, polls.most);
    epoch = group.from_first(epoch);
    group.sync();
    if (kernel::result_of(epoch) == DeviceResult::ok) slot = in_.target + epoch % in_.slots * in_.slot_bytes;
    return kernel::result_of(epoch);
  }

  /// Gives back the oldest epoch that was waited for, which no thread of the group reads after this.
  template <class Group>
  SLUICE_DEVICE DeviceResult release(const Group& group) const {
    group.sync();
    std::uint64_t result = 0;
    if (group.index() == 0) result = static_cast<std::uint64_t>(kernel::give_back(in_));
    return static_cast<DeviceResult>(group.from_first(result));
  }

 private:
  kernel::In in_;
};

}  // namespace sluice
