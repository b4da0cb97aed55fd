// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/shared_copy.hpp"

#include <algorithm>

#include "base/copy.hpp"

namespace sluice::backends::shm {
namespace {

/// Small enough that both sides end at about the same time, and large enough that the line with the counts, which moves
/// between the cores for each piece, does not matter.
std::size_t piece_bytes(std::size_t bytes) noexcept {
  constexpr std::size_t kLeast = SharedCopy::kLeastPiece;
  constexpr std::size_t kMost = 64 * 1024;
  constexpr std::size_t kPage = 4096;
  return std::clamp((bytes / 8 + kPage - 1) / kPage * kPage, kLeast, kMost);
}

std::size_t pieces_of(std::size_t bytes, std::size_t piece) noexcept { return (bytes + piece - 1) / piece; }

}  // namespace

bool SharedCopy::put(std::uint64_t epoch, Range part, const std::byte* source, Bounce bounce, const CrossMemory& target,
                     device::Watch& watch, base::Parking& wake) noexcept {
  const std::size_t piece = piece_bytes(part.bytes);
  const std::size_t pieces = pieces_of(part.bytes, piece);
  const std::size_t ring = bounce.room >= part.bytes ? pieces : bounce.room / piece;
  const std::uint64_t begin = filled_.load(std::memory_order_relaxed);  // the receiver has taken all of the last put
  layout_ = {part.offset, part.bytes, piece, ring, begin};
  epoch_.store(epoch, std::memory_order_release);
  const auto bytes_at = [&](std::size_t number) { return std::min(piece, part.bytes - number * piece); };
  std::size_t end = pieces;
  for (std::size_t next = 0; next < end;) {
    if (next < ring || next - (taken_.load(std::memory_order_acquire) - begin) < ring) {
      base::copy_bytes(bounce.data + next % ring * piece, source + next * piece, bytes_at(next));
      filled_.store(begin + ++next, std::memory_order_release);
      wake.wake();  // for each piece: a receiver that was faster may sleep again
    } else {
      --end;
      if (!target.copy(process_vm_writev, source + end * piece, end * piece, bytes_at(end), watch)) return false;
    }
  }
  return true;
}

std::size_t SharedCopy::take(std::uint64_t epoch, std::byte* target, const std::byte* bounce,
                             std::size_t slot_bytes) noexcept {
  if (epoch_.load(std::memory_order_acquire) != epoch) return 0;
  const auto [offset, all, piece, ring, begin] = layout_;
  const std::uint64_t first = taken_.load(std::memory_order_relaxed);
  std::uint64_t next = first;
  while (ring != 0 && next != filled_.load(std::memory_order_acquire)) {
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
  return static_cast<std::size_t>(next - first);
}

}  // namespace sluice::backends::shm
