// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/shared_copy.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace sluice::backends::shm {

/// The fewer bytes, the smaller the pieces: both sides end at about the same time. A call of the kernel takes as long
/// as the copy of some KiB.
std::size_t SharedCopy::piece_bytes(std::size_t bytes) noexcept {
  constexpr std::size_t kLeast = 8 * 1024;
  constexpr std::size_t kMost = 128 * 1024;
  constexpr std::size_t kPage = 4096;
  return std::clamp((bytes / 16 + kPage - 1) / kPage * kPage, kLeast, kMost);
}

std::optional<std::size_t> SharedCopy::claim(std::uint64_t who, std::size_t pieces) noexcept {
  const std::uint64_t claims = claims_.fetch_add(who, std::memory_order_acq_rel);
  const std::uint64_t of_sender = claims / kOfSender;
  const std::uint64_t of_receiver = claims % kOfSender;
  if (of_sender + of_receiver >= pieces) return std::nullopt;
  return who == kOfSender ? of_sender : of_receiver;
}

bool SharedCopy::put(std::uint64_t epoch, Range part, const std::byte* source, const CrossMemory& target,
                     device::Watch& watch, base::Parking& wake) noexcept {
  const std::size_t piece = piece_bytes(part.bytes);
  const std::size_t pieces = (part.bytes + piece - 1) / piece;
  source_ = reinterpret_cast<std::uintptr_t>(source);
  offset_ = part.offset;
  bytes_ = part.bytes;
  claims_.store(0, std::memory_order_relaxed);
  copied_.store(0, std::memory_order_relaxed);
  epoch_.store(epoch, std::memory_order_release);
  wake.wake();
  std::size_t mine = 0;
  bool good = true;
  while (const auto number = claim(kOfSender, pieces)) {
    ++mine;  // after an error too, so that the receiver does not copy the piece
    const std::size_t at = (pieces - 1 - *number) * piece;
    good = good && target.copy(process_vm_writev, source + at, at, std::min(piece, part.bytes - at), watch);
  }
  if (!good) return false;
  // A receiver that has claimed a piece is in a call of the kernel, which reads our memory until it is counted.
  const std::uint64_t of_receiver = pieces - mine;
  const auto over = [&] { return copied_.load(std::memory_order_acquire) >= of_receiver; };
  for (int looks = 0; !over(); ++looks) {
    constexpr int kSpins = 10'000;
    constexpr int kLooksAfterFailure = 20'000;  // about a second
    if (looks < kSpins) {
      base::pause();
    } else if (watch.failed() && looks > kLooksAfterFailure) {
      return false;  // the receiver is dead, or stands still
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return true;
}

std::size_t SharedCopy::help(std::uint64_t epoch, pid_t sender, std::byte* target, std::size_t slot_bytes,
                             device::Watch& watch) noexcept {
  if (epoch_.load(std::memory_order_acquire) != epoch) return 0;
  const Range part{offset_, bytes_};
  if (part.offset > slot_bytes || part.bytes > slot_bytes - part.offset) return 0;  // never beyond our own memory
  const std::size_t piece = piece_bytes(part.bytes);
  const std::size_t pieces = (part.bytes + piece - 1) / piece;
  const CrossMemory source{sender, source_};
  for (std::size_t mine = 0;; ++mine) {
    const std::uint64_t of_sender = claims_.load(std::memory_order_relaxed) / kOfSender;
    const bool is_over = of_sender + copied_.load(std::memory_order_relaxed) >= pieces;
    const auto number = is_over || watch.failed() ? std::nullopt : claim(1, pieces);
    if (!number) return mine;
    const std::size_t at = *number * piece;
    (void)source.copy(process_vm_readv, target + part.offset + at, at, std::min(piece, part.bytes - at), watch);
    copied_.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace sluice::backends::shm
