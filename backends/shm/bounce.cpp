// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/bounce.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/crossing_copy.hpp"
#include "device/copy.hpp"

namespace sluice::backends::shm {
namespace {

struct BounceHeader {
  std::uint64_t offset;
  std::uint32_t bytes_low;
  std::uint32_t bytes_high;  ///< kShared set: the SharedCopy tells where the bytes are

  static constexpr std::uint32_t kShared = 0x8000'0000U;
};

/// In the line of a small payload: one transfer between cores for all three. A processor stores the epoch after the
/// rest, so that a receiver that finds it there need not load the line of the signal. GPUs only raise the signal.
struct FirstLine {
  BounceHeader header;
  base::Word epoch;

  static FirstLine& of(std::byte* slot) noexcept { return *reinterpret_cast<FirstLine*>(slot); }
};
static_assert(sizeof(FirstLine) == 24);

/// A bounce slot is a header and what fits into its line, a SharedCopy, and the bytes of larger parts, which begin a
/// line: how fast a copy is depends on that.
constexpr std::size_t kBesideHeader = 64 - sizeof(FirstLine);
constexpr std::size_t kSharedCopyAt = 64;
constexpr std::size_t kPayloadAt = kSharedCopyAt + sizeof(SharedCopy);
// Smaller parts are copied in at once.
constexpr std::size_t kLeastShared = SharedCopy::kLeastBytes;

std::size_t place_of(std::size_t bytes) noexcept { return bytes <= kBesideHeader ? sizeof(FirstLine) : kPayloadAt; }
/// Small slots are a line each.
std::size_t stride_of(std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  return bytes <= kBesideHeader ? kLine : (kPayloadAt + bytes + kLine - 1) / kLine * kLine;
}
SharedCopy& shared_copy_of(std::byte* slot) noexcept { return *reinterpret_cast<SharedCopy*>(slot + kSharedCopyAt); }

BounceHeader header_of(Range part, bool shared) {
  const auto high = static_cast<std::uint32_t>(part.bytes >> 32);
  return {part.offset, static_cast<std::uint32_t>(part.bytes), shared ? high | BounceHeader::kShared : high};
}

void write_header(device::Lane lane, std::byte* at, const BounceHeader& header, std::uint64_t epoch) {
  if (lane.gpu == nullptr) {
    FirstLine& line = FirstLine::of(at);
    line.header = header;
    return line.epoch.value.store(epoch, std::memory_order_release);
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
      : Landing(kLandsInTarget, way), target_(target), stride_(stride_of(target.slot_bytes)), peer_(peer),
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

  bool shows_epochs() const noexcept override { return true; }
  bool arrived(std::uint64_t epoch) const noexcept override {
    return FirstLine::of(slot(epoch)).epoch.value.load(std::memory_order_acquire) == epoch;
  }

  void help(std::uint64_t epoch) noexcept override {
    if (target_.slot_bytes > kLeastShared && target_.memory.driver == nullptr) take_shared(epoch);
  }

  void take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) override {
    const std::byte* at = slot(epoch);
    BounceHeader header;
    std::memcpy(&header, at, sizeof header);
    if ((header.bytes_high & BounceHeader::kShared) != 0) return take_shared(epoch);
    const Range part{header.offset, (std::size_t{header.bytes_high} << 32) | header.bytes_low};
    if (part.offset > target_.slot_bytes || part.bytes > target_.slot_bytes - part.offset)
      return;  // never beyond our own memory
    device::copy(lane, watch, target_.at(epoch) + part.offset, at + place_of(part.bytes), part.bytes,
                 target_.memory.driver);
  }

 private:
  std::byte* slot(std::uint64_t epoch) const { return bounce_->extent().data + target_.index(epoch) * stride_; }
  void take_shared(std::uint64_t epoch) const noexcept {
    std::byte* const at = slot(epoch);
    (void)shared_copy_of(at).take(epoch, target_.at(epoch), at + kPayloadAt, target_.slot_bytes, peer_);
  }

  std::string text(const std::string& obstacle) const {
    if (target_.memory.driver != nullptr) {
      return "shm: the target is a GPU's memory that " + not_mapped("the peer cannot map", obstacle) +
             ", so it lands in host memory, from where a stream of ours or the wait copies it";
    }
    return "shm: the target cannot be mapped, so bytes land in a bounce buffer and are copied out by the wait";
  }

  Slots target_;
  std::size_t stride_;
  pid_t peer_;
  std::optional<device::Allocation> bounce_;  // none: the peer maps the target
};

}  // namespace

Landed land_around(const Slots& target, const Signal& signal, Landing::Way way, pid_t peer, Sent& sent) {
  auto landing = std::make_unique<BounceLanding>(target, way, peer);
  Key key = landing->key(signal, sent);
  return {std::move(landing), std::move(key)};
}

void BouncePut::move(device::Lane lane, std::uint64_t epoch, Range part) {
  if (bring(lane, epoch, part, choose(lane, part))) raise_signal(lane, signal_, epoch);
}

/// A receiver copies out what is there of the epoch that it waits for, so those that are shared, and those before
/// them, have their signals.
void BouncePut::move_all(device::Lane lane, std::uint64_t first, std::uint64_t last) {
  const Range slot{0, source_.slot_bytes};
  for (std::uint64_t epoch = first, raised = first - 1; epoch <= last; ++epoch) {
    const Choice choice = choose(lane, slot);
    if (choice.shared && raised + 1 < epoch) raise_signal(lane, signal_, epoch - 1);
    if (!bring(lane, epoch, slot, choice)) return;
    if (!choice.shared && epoch < last) continue;
    raise_signal(lane, signal_, epoch);
    raised = epoch;
  }
}

/// Between the memory of hosts.
bool BouncePut::may_be_shared(device::Lane lane, Range part) const noexcept {
  const bool of_hosts = kernel_.address != 0 && lane.gpu == nullptr && source_.memory.driver == nullptr;
  return of_hosts && part.bytes > std::clamp(room_, kBesideHeader, kLeastShared);
}

BouncePut::Choice BouncePut::choose(device::Lane lane, Range part) const noexcept {
  if (!may_be_shared(lane, part)) return {};
  const bool kernel = kernel_.pid != 0 && part.bytes > SharedCopy::kLeastOfCall;
  const Way way = ways_->choose(part.bytes, turn_, kernel);
  const bool alone = part.bytes <= std::min(room_, SharedCopy::kLeastPiece) && way != Way::kernel &&
                     !ways_->wants_time(part.bytes, turn_, kernel);
  return {.way = way, .takes_turn = true, .shared = !alone};
}

bool BouncePut::bring(device::Lane lane, std::uint64_t epoch, Range part, Choice choice) {
  std::byte* const slot = target_.at(epoch);
  std::byte* const to = slot + place_of(part.bytes);
  const std::byte* const from = source_.at(epoch) + part.offset;
  if (choice.shared) {
    if (!copy_with_peer(lane, epoch, part, choice.way)) return false;
  } else if (choice.takes_turn) {
    base::copy_crossing(choice.way == Way::past_cache, to, from, part.bytes);
  } else if (!copy_(lane, watch_, to, from, part.bytes)) {
    return false;
  }
  if (choice.takes_turn) ++turn_;
  write_header(lane, slot, header_of(part, choice.shared), epoch);
  return true;
}

bool BouncePut::copy_with_peer(device::Lane lane, std::uint64_t epoch, Range part, Way way) {
  std::byte* const slot = target_.at(epoch);
  const std::size_t index = target_.index(epoch);
  const SharedCopy::Places places{source_.at(epoch) + part.offset,
                                  {slot + kPayloadAt, room_},
                                  {kernel_.pid, kernel_.address + index * slot_bytes_ + part.offset}};
  return shared_copy_of(slot).put(lane, epoch, part, places, {way, *ways_, timed_.at(index)}, watch_, *signal_.parking);
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
  const std::string target = "shm: the target cannot be mapped, so ";
  if (slot_bytes_ <= SharedCopy::kLeastOfCall && room_ == slot_bytes_)
    return target + "all goes through a bounce buffer";
  const std::string by_both = slot_bytes_ > SharedCopy::kLeastOfCall ? ", of which a peer that waits does a part" : "";
  if (room_ < std::min(SharedCopy::kLeastPiece, slot_bytes_)) {
    const std::string some =
        target + "parts up to " + std::to_string(std::min(room_, SharedCopy::kLeastOfCall)) + " bytes go ";
    const std::string faster =
        room_ <= SharedCopy::kLeastOfCall
            ? ""
            : "those up to " + std::to_string(room_) + " bytes too or by the kernel, as was faster lately, ";
    return some + "through a bounce buffer, " + faster + "and larger ones by the kernel's cross-memory copy" + by_both;
  }
  return target + "parts up to " + std::to_string(SharedCopy::kLeastOfCall) +
         " bytes go through a bounce buffer, and larger ones too or by the kernel's cross-memory copy, as was faster "
         "lately" +
         by_both;
}

}  // namespace sluice::backends::shm
