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
  BounceLanding(const Slots& target, const Signal& signal, Sent& sent)
      : target_(target), signal_(signal), bounce_(target), sent_(sent) {}
  Key key() const override;
  bool undecided() const noexcept override { return false; }
  void decide(const std::string& obstacle) override { obstacle_ = obstacle; }
  bool direct() const noexcept override { return false; }
  bool close() override { return false; }
  void reach_from(device::Driver& driver) override { device::reach(driver, bounce_.memory.extent()); }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override;
  std::string describe() const override;

  const BounceSlots& slots() const noexcept { return bounce_; }

 private:
  Slots target_;
  Signal signal_;
  BounceSlots bounce_;
  Sent& sent_;
  std::string obstacle_;  // why the peer cannot map a GPU's memory that its driver would give to it
};

/// Of a GPU's memory that its driver gives to other processes: the peer's may refuse it, which the peer alone finds
/// out. So there are bounce slots until it has.
class OfferedLanding final : public Landing {
 public:
  OfferedLanding(const Slots& target, const Signal& signal, Sent& sent)
      : target_(target), signal_(signal), detour_(std::make_unique<BounceLanding>(target, signal, sent)), sent_(sent) {}
  Key key() const override;
  bool undecided() const noexcept override { return undecided_; }
  void decide(const std::string& obstacle) override;
  bool direct() const noexcept override { return detour_ == nullptr; }
  bool close() override { return false; }
  void reach_from(device::Driver& driver) override {
    if (detour_ != nullptr) detour_->reach_from(driver);
  }
  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    if (detour_ != nullptr) detour_->take(lane, watch, epoch);
  }
  std::string describe() const override;

 private:
  Slots target_;
  Signal signal_;
  std::unique_ptr<BounceLanding> detour_;
  Sent& sent_;
  bool undecided_ = true;
};

/// Into a target that is mapped, though its landing had bounce slots too.
class OfferedPut final : public MappedPut {
 public:
  using MappedPut::MappedPut;
  std::optional<std::string> obstacle() const override { return ""; }
};

/// The sender's side.
class BouncePut final : public Put {
 public:
  /// `bounce` is the peer's, as mapped here, `stride` bytes apart; parts above `bounce_max` go by `kernel` where
  /// allowed, but for those of GPUs. `obstacle`: why the target is not mapped that could have been; else empty.
  BouncePut(Slots source, Slots bounce, std::size_t slot_bytes, Signal signal, device::Watch& watch, Mapped mapped,
            CrossMemory kernel, std::size_t bounce_max, std::string obstacle)
      : source_(source), bounce_(bounce), slot_bytes_(slot_bytes), signal_(signal), watch_(watch),
        mapped_(std::move(mapped)), kernel_(kernel), bounce_max_(bounce_max), obstacle_(std::move(obstacle)),
        copy_(source, bounce) {}

  Fired fired() const noexcept override { return Fired::by_stream; }
  std::optional<std::string> obstacle() const override {
    return obstacle_.empty() ? std::nullopt : std::optional(obstacle_);
  }
  void enqueue(device::Lane lane, std::uint64_t epoch, Range part) override;
  void reach_from(device::Driver& driver) override {
    reach_words(driver, signal_, mapped_, reached_);
    copy_.reach_from(driver, reached_);
  }
  /// They would have to know who moves the bytes, for each size.
  std::optional<ByKernel> by_kernel(device::Driver*) override { return std::nullopt; }
  bool landed(std::uint64_t) override { return true; }
  bool settled() override { return true; }
  Held forget_peer() noexcept override { return {std::exchange(mapped_, {}), std::exchange(reached_, {})}; }
  bool disarmed(bool) override { return true; }
  std::string describe() const override;

 private:
  void move(device::Lane lane, std::uint64_t epoch, Range part);
  bool write_target(std::uint64_t epoch, Range part);

  Slots source_;
  Slots bounce_;
  std::size_t slot_bytes_;
  Signal signal_;
  device::Watch& watch_;
  Mapped mapped_;
  CrossMemory kernel_;
  std::size_t bounce_max_;
  std::string obstacle_;
  StreamCopy copy_;
  device::Reached reached_;
};

}  // namespace sluice::backends::shm
