// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/bounce.hpp"

#include <array>
#include <cstring>

#include "backends/shm/shared_copy.hpp"
#include "device/copy.hpp"

namespace sluice::backends::shm {
namespace {

/// In the line of a small payload: one transfer between cores for both.
struct BounceHeader {
  std::uint64_t offset;
  std::uint32_t bytes_low;
  std::uint32_t bytes_high;  ///< kInTarget set: the bytes are in the target already

  static constexpr std::uint32_t kInTarget = 0x8000'0000U;
};
static_assert(sizeof(BounceHeader) == 16);

/// A bounce slot is a header and what fits into its line, a SharedCopy, and the bytes of larger parts, which begin a
/// line: how fast a copy is depends on that.
constexpr std::size_t kBesideHeader = 64 - sizeof(BounceHeader);
constexpr std::size_t kSharedCopyAt = 64;
constexpr std::size_t kPayloadAt = 128;

std::size_t place_of(std::size_t bytes) noexcept { return bytes <= kBesideHeader ? sizeof(BounceHeader) : kPayloadAt; }
SharedCopy& shared_copy_of(std::byte* slot) noexcept { return *reinterpret_cast<SharedCopy*>(slot + kSharedCopyAt); }

BounceHeader header_of(Range part, bool in_target) {
  const auto high = static_cast<std::uint32_t>(part.bytes >> 32);
  return {part.offset, static_cast<std::uint32_t>(part.bytes), in_target ? high | BounceHeader::kInTarget : high};
}

void write_header(device::Lane lane, std::byte* at, const BounceHeader& header) {
  if (lane.gpu == nullptr) {
    std::memcpy(at, &header, sizeof header);
    return;
  }
  std::array<std::uint64_t, sizeof header / sizeof(std::uint64_t)> words{};
  std::memcpy(words.data(), &header, sizeof header);
  for (std::size_t i = 0; i < words.size(); ++i) lane.gpu->write(reinterpret_cast<base::Word*>(at)[i], words[i]);
}

/// Why a GPU's memory is not mapped.
std::string not_mapped(const char* where, const std::string& obstacle) {
  return obstacle.empty() ? "its driver gives to no other process" : where + (" (" + obstacle + ")");
}

/// The receiver's side: bounce slots, a whole number of lines apart. The memory is not touched before it is used.
class BounceLanding final : public Landing {
 public:
  BounceLanding(const Slots& target, Way way, pid_t peer)
      : Landing(kLandsInTarget, way), target_(target), peer_(peer),
        stride_((target.slot_bytes + kPayloadAt + 63) / 64 * 64),
        bounce_(device::allocate(stride_ * static_cast<std::size_t>(target.depth), false)) {
    if (way == Way::around) how_ = text({});
  }

  Key key(const Signal& signal, Sent& sent) const {
    const device::Extent& bounce = bounce_->extent();
    Target target = direct_target(target_, signal);
    if (way() == Way::undecided) {
      target.detour = where(bounce, bounce.data);
      target.detour_stride = stride_;
      return pack(target, {target_.memory.segment, signal.memory.segment, bounce.segment}, sent);
    }
    target.slots = where(bounce, bounce.data);
    target.stride = stride_;
    target.bounced = true;
    if (target_.memory.driver == nullptr) target.address = reinterpret_cast<std::uintptr_t>(target_.memory.data);
    const device::Segment* slots = bounce.segment;
    return pack(target, {slots == signal.memory.segment ? nullptr : slots, signal.memory.segment}, sent);
  }

  void decide(const std::string& obstacle) override {
    if (obstacle.empty()) {
      way_ = Way::direct;
      bounce_.reset();
    } else {
      way_ = Way::around;
      how_ = text(obstacle);
    }
  }

  void reach_from(device::Driver& driver) override {
    if (bounce_) device::reach(driver, bounce_->extent());
  }

  void help(device::Watch& watch, std::uint64_t epoch) noexcept override {
    if (peer_ == 0 || way() != Way::around || target_.memory.driver != nullptr) return;
    (void)shared_copy_of(bounce_->extent().data + target_.index(epoch) * stride_)
        .help(epoch, peer_, target_.at(epoch), target_.slot_bytes, watch);
  }

  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    const std::uint64_t slot = target_.index(epoch);
    const std::byte* at = bounce_->extent().data + slot * stride_;
    BounceHeader header;
    std::memcpy(&header, at, sizeof header);
    if ((header.bytes_high & BounceHeader::kInTarget) != 0) return;
    const Range part{header.offset, (std::size_t{header.bytes_high} << 32) | header.bytes_low};
    if (part.offset > target_.slot_bytes || part.bytes > target_.slot_bytes - part.offset)
      return;  // never beyond our own memory
    device::copy(lane, watch, target_.at(epoch) + part.offset, at + place_of(part.bytes), part.bytes,
                 target_.memory.driver);
  }

 private:
  std::string text(const std::string& obstacle) const {
    if (target_.memory.driver != nullptr) {
      return "shm: the target is a GPU's memory that " + not_mapped("the peer cannot map", obstacle) +
             ", so it lands in host memory, from where a stream of ours or the wait copies it";
    }
    return "shm: the target cannot be mapped, so small parts land in a bounce buffer and are copied out by the wait";
  }

  Slots target_;
  pid_t peer_;
  std::size_t stride_;
  std::optional<device::Allocation> bounce_;  // none: the peer maps the target
};

}  // namespace

Landed land_around(const Slots& target, const Signal& signal, Landing::Way way, pid_t peer, Sent& sent) {
  auto landing = std::make_unique<BounceLanding>(target, way, peer);
  Key key = landing->key(signal, sent);
  return {std::move(landing), std::move(key)};
}

void BouncePut::move(device::Lane lane, std::uint64_t epoch, Range part) {
  if (bring(lane, epoch, part)) raise_signal(lane, signal_, epoch);
}

/// A receiver does its share of the epoch that it waits for, so each that is shared has its signal.
void BouncePut::move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  const Range slot{0, source_.slot_bytes};
  for (std::uint64_t epoch = first; epoch <= last; ++epoch) {
    if (!bring(lane, epoch, slot)) return;
    if (epoch == last || goes_into_target(lane, slot)) raise_signal(lane, signal_, epoch);
  }
}

bool BouncePut::goes_into_target(device::Lane lane, Range part) const noexcept {
  const bool by_kernel = kernel_.pid != 0 && lane.gpu == nullptr && source_.memory.driver == nullptr;
  return part.bytes > bounce_max_ && by_kernel;
}

bool BouncePut::bring(device::Lane lane, std::uint64_t epoch, Range part) {
  const bool in_target = goes_into_target(lane, part);
  std::byte* const slot = target_.at(epoch);
  if (in_target) {
    if (!copy_with_peer(epoch, part)) return false;
  } else if (!copy_(lane, watch_, slot + place_of(part.bytes), source_.at(epoch) + part.offset, part.bytes)) {
    return false;
  }
  write_header(lane, slot, header_of(part, in_target));
  return true;
}

bool BouncePut::copy_with_peer(std::uint64_t epoch, Range part) {
  const CrossMemory target{kernel_.pid, kernel_.address + target_.index(epoch) * slot_bytes_ + part.offset};
  return shared_copy_of(target_.at(epoch))
      .put(epoch, part, source_.at(epoch) + part.offset, target, watch_, *signal_.parking);
}

std::string BouncePut::describe() const {
  if (kernel_.address == 0) {
    return "shm: the target is a GPU's memory that " + not_mapped("cannot be mapped here", obstacle.value_or("")) +
           ", so all goes through a bounce buffer in host memory" + copy_.describe();
  }
  if (kernel_.pid == 0) {
    return "shm: the target cannot be mapped and the kernel forbids to copy into it, so all goes through a bounce "
           "buffer" +
           copy_.describe();
  }
  if (copy_.on_gpu()) return "shm: the target cannot be mapped, so all goes through a bounce buffer" + copy_.describe();
  return "shm: the target cannot be mapped, so parts up to " + std::to_string(bounce_max_) +
         " bytes go through a bounce buffer, larger ones by the kernel's cross-memory copy, of which a peer that waits "
         "does its share";
}

}  // namespace sluice::backends::shm
