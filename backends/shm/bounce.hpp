// SPDX-License-Identifier: Apache-2.0
// Into memory that the sender cannot map: small parts go through slots of ours that it can, large ones by the kernel's
// cross-memory copy.
#pragma once

#include "backends/put.hpp"
#include "backends/shm/cross_memory.hpp"
#include "backends/shm/keys.hpp"

namespace sluice::backends::shm {

/// In front of the payload of each bounce slot, in the same line as a small payload: one transfer between cores for
/// both.
struct BounceHeader {
  std::uint64_t offset;
  std::uint32_t bytes_low;
  std::uint32_t bytes_high;  ///< kInTarget set: the bytes are in the target already

  static constexpr std::uint32_t kInTarget = 0x8000'0000U;
};
static_assert(sizeof(BounceHeader) == 16);

/// Slots with a header each, a whole number of lines apart. The memory is not touched before it is used.
struct BounceSlots {
  explicit BounceSlots(const Slots& target)
      : stride((target.slot_bytes + sizeof(BounceHeader) + 63) / 64 * 64),
        memory(device::allocate(stride * static_cast<std::size_t>(target.depth), false)) {}

  std::size_t stride;
  device::Allocation memory;
};

/// The receiver's side.
class BounceLanding final : public Landing {
 public:
  /// `way`: around; or undecided, for memory of a GPU that its driver gives to other processes, which the peer's may
  /// refuse.
  BounceLanding(const Slots& target, Way way);
  void decide(const std::string& obstacle) override;
  void reach_from(device::Driver& driver) override {
    if (bounce_) device::reach(driver, bounce_->memory.extent());
  }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override;

  Key key(const Signal& signal, Sent& sent) const;

 private:
  std::string text(const std::string& obstacle) const;

  Slots target_;
  std::optional<BounceSlots> bounce_;  // none: the peer maps the target
};

/// The sender's side.
class BouncePut final : public StreamPut {
 public:
  /// `bounce` is the peer's, as mapped here, `stride` bytes apart; parts above `bounce_max` go by `kernel` where
  /// allowed, but for those of GPUs. `why_around`: why the target is not mapped that could have been; else nothing.
  BouncePut(Slots source, Slots bounce, std::size_t slot_bytes, Signal signal, device::Watch& watch, Mapped mapped,
            CrossMemory kernel, std::size_t bounce_max, std::optional<std::string> why_around)
      : StreamPut(source, bounce, signal, watch, std::move(mapped), std::move(why_around)), slot_bytes_(slot_bytes),
        kernel_(kernel), bounce_max_(bounce_max) {}

  /// Kernels would have to know for each size how the bytes are moved.
  std::optional<ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  std::string describe() const override;

 private:
  void move(device::Lane lane, std::uint64_t epoch, Range part) override;
  bool write_target(std::uint64_t epoch, Range part);

  std::size_t slot_bytes_;
  CrossMemory kernel_;
  std::size_t bounce_max_;
};

}  // namespace sluice::backends::shm
