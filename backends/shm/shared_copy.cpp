// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/shared_copy.hpp"

#include <algorithm>
#include <utility>

#include "base/crossing_copy.hpp"

namespace sluice::backends::shm {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t up_to_page(std::size_t bytes) noexcept { return (bytes + kPage - 1) / kPage * kPage; }

/// In bounce memory: small enough that both sides end at about the same time, and large enough that the line with the
/// counts, which moves between the cores for each piece, does not matter.
std::size_t piece_in_bounce(std::size_t bytes) noexcept {
  constexpr std::size_t kMost = 64 * 1024;
  return std::clamp(up_to_page(bytes / 8), SharedCopy::kLeastPiece, kMost);
}

/// By the kernel: a half for each side, since a call takes as long as the copy of some KiB. Many bytes are in smaller
/// pieces, for a receiver that comes late.
std::size_t piece_by_kernel(std::size_t bytes) noexcept {
  constexpr std::size_t kMost = 256 * 1024;
  return std::clamp(up_to_page((bytes + 1) / 2), kPage, kMost);
}

std::size_t pieces_of(std::size_t bytes, std::size_t piece) noexcept {
  return bytes / piece + static_cast<std::size_t>(bytes % piece != 0);
}

std::int64_t now_in_ns() noexcept { return base::Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

bool SharedCopy::put(device::Lane lane, std::uint64_t epoch, Range part, const Places& places, Choice choice,
                     device::Watch& watch, base::Parking& wake) noexcept {
  learn(std::exchange(choice.timed, {}), choice.ways);
  const bool has_room = places.bounce.room >= std::min(piece_in_bounce(part.bytes), part.bytes);
  return has_room && choice.way != Way::kernel ? put_through_bounce(epoch, part, places, choice, watch, wake)
                                               : put_by_kernel(lane, epoch, part, places, choice.ways, watch, wake);
}

/// The time until the receiver had all of the put; or if it began when the sender had ended, the time of both. The peer
/// may have written anything.
void SharedCopy::learn(const Timed& timed, FasterWay& ways) const noexcept {
  if (timed.epoch == 0 || out_epoch_.load(std::memory_order_acquire) != timed.epoch) return;
  const std::int64_t out_begin = out_begin_.load(std::memory_order_relaxed);
  const std::int64_t out_end = out_end_.load(std::memory_order_relaxed);
  if (out_begin < timed.begin || out_end < out_begin || out_end > now_in_ns()) return;
  const std::int64_t time = out_begin < timed.end ? std::max(timed.end, out_end) - timed.begin
                                                  : timed.end - timed.begin + out_end - out_begin;
  ways.took(timed.way, timed.bytes, std::chrono::nanoseconds(time));
}

void SharedCopy::publish(std::uint64_t epoch, const Layout& layout) noexcept {
  layout_ = layout;
  epoch_.store(epoch, std::memory_order_release);
}

bool SharedCopy::put_through_bounce(std::uint64_t epoch, Range part, const Places& places, Choice choice,
                                    device::Watch& watch, base::Parking& wake) noexcept {
  const auto [source, bounce, target] = places;
  const std::int64_t began = now_in_ns();
  const std::size_t piece = piece_in_bounce(part.bytes);
  const std::size_t pieces = pieces_of(part.bytes, piece);
  const std::size_t ring = bounce.room >= part.bytes ? pieces : bounce.room / piece;
  const std::uint64_t begin = filled_.load(std::memory_order_relaxed);  // the receiver has taken all of the last put
  publish(epoch, {part.offset, part.bytes, piece, ring, begin, 0});
  const auto bytes_at = [&](std::size_t number) { return std::min(piece, part.bytes - number * piece); };
  std::size_t end = pieces;
  for (std::size_t next = 0; next < end;) {
    if (next < ring || next - (taken_.load(std::memory_order_acquire) - begin) < ring) {
      base::copy_crossing(choice.way == Way::past_cache, bounce.data + next % ring * piece, source + next * piece,
                          bytes_at(next));
      filled_.store(begin + ++next, std::memory_order_release);
      wake.wake();  // for each piece: a receiver that was faster may sleep again
    } else {
      --end;
      if (!target.copy(process_vm_writev, source + end * piece, end * piece, bytes_at(end), watch)) return false;
    }
  }
  choice.timed = {epoch, part.bytes, choice.way, began, now_in_ns()};
  return true;
}

/// Claims the next piece, unless all are claimed.
bool SharedCopy::claim(std::uint64_t side, std::size_t pieces) noexcept {
  std::uint64_t claims = claims_.load(std::memory_order_relaxed);
  while (claims / kOfSender + claims % kOfSender < pieces) {
    if (claims_.compare_exchange_weak(claims, claims + side, std::memory_order_acq_rel)) return true;
  }
  return false;
}

bool SharedCopy::put_by_kernel(device::Lane lane, std::uint64_t epoch, Range part, const Places& places,
                               FasterWay& ways, device::Watch& watch, base::Parking& wake) noexcept {
  const std::int64_t began = now_in_ns();
  const std::size_t piece = piece_by_kernel(part.bytes);
  const std::size_t pieces = pieces_of(part.bytes, piece);
  const std::uint64_t before = copied_.value.load(std::memory_order_relaxed);
  const auto copy = [&](std::size_t first, std::size_t end) {
    const std::size_t at = first * piece;
    return places.target.copy(process_vm_writev, places.source + at, at, std::min(end * piece, part.bytes) - at, watch);
  };
  claims_.store(0, std::memory_order_relaxed);
  publish(epoch, {part.offset, part.bytes, piece, 0, 0, reinterpret_cast<std::uintptr_t>(places.source)});
  wake.wake();
  std::size_t mine = 0;
  bool good = true;
  // After an error it copies no more, nor does the receiver. Never beyond the source, whatever the peer writes.
  for (; mine < pieces && claim(kOfSender, pieces); ++mine) good = good && copy(mine, mine + 1);
  if (!good) return false;
  if (mine < pieces) {
    const device::Wait others{&copied_, before + (pieces - mine),   &copied_parking_,
                              epoch,    "wait for the peer's copy", true};
    copied_parking_.silence();  // failures do not wake this wait: it looks for them often
    device::wait(lane, others, watch, nullptr);
    if (watch.failed()) return false;
    if (refused_.load(std::memory_order_relaxed) != 0 && !copy(mine, pieces)) return false;
  }
  ways.took(Way::kernel, part.bytes, std::chrono::nanoseconds(now_in_ns() - began));
  return true;
}

std::size_t SharedCopy::take(std::uint64_t epoch, std::byte* target, const std::byte* bounce, std::size_t slot_bytes,
                             pid_t sender) noexcept {
  if (epoch_.load(std::memory_order_acquire) != epoch) return 0;
  const Layout layout = layout_;
  if (layout.source != 0) return take_by_kernel(layout, target, slot_bytes, sender);
  const auto [offset, all, piece, ring, begin, source] = layout;
  const std::uint64_t first = taken_.load(std::memory_order_relaxed);
  if (ring == 0 || first == filled_.load(std::memory_order_acquire)) return 0;
  if (out_epoch_.load(std::memory_order_relaxed) != epoch) out_begin_.store(now_in_ns(), std::memory_order_relaxed);
  std::uint64_t next = first;
  while (next != filled_.load(std::memory_order_acquire)) {
    const std::uint64_t number = next - begin;
    const std::uint64_t from = number % ring * piece;
    const std::uint64_t to = number * piece;
    // Never beyond our own memory, whatever the peer writes.
    if (all <= slot_bytes && offset <= slot_bytes - all && to < all) {
      const std::uint64_t bytes = std::min(piece, all - to);
      if (from <= slot_bytes - bytes) base::copy_bytes(target + offset + to, bounce + from, bytes);
    }
    taken_.store(++next, std::memory_order_release);
  }
  out_end_.store(now_in_ns(), std::memory_order_relaxed);
  out_epoch_.store(epoch, std::memory_order_release);
  return static_cast<std::size_t>(next - first);
}

std::size_t SharedCopy::take_by_kernel(const Layout& layout, std::byte* target, std::size_t slot_bytes,
                                       pid_t sender) noexcept {
  const auto [offset, all, piece, ring, begin, source] = layout;
  if (sender == 0 || refused_.load(std::memory_order_relaxed) != 0) return 0;
  if (piece == 0 || all > slot_bytes || offset > slot_bytes - all) return 0;  // never beyond our own memory
  const std::size_t pieces = pieces_of(all, piece);
  std::size_t mine = 0;
  while (mine < pieces && claim(kOfReceiver, pieces)) {
    const std::size_t at = (pieces - ++mine) * piece;
    const CrossMemory from{sender, source};
    if (from.copy(process_vm_readv, target + offset + at, at, std::min<std::size_t>(piece, all - at)) != 0)
      refused_.store(1, std::memory_order_relaxed);  // the sender copies it, once it is counted
    base::raise(copied_, copied_.value.load(std::memory_order_relaxed) + 1, copied_parking_);
  }
  return mine;
}

}  // namespace sluice::backends::shm
