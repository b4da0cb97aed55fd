// SPDX-License-Identifier: Apache-2.0
// The words of each rank by which the protocols of epochs work. Peers change them by atomics through a Target: those
// are carried out by processors, or all by a thread of the owner. So the owner may read and write its own words as
// atomics of its process in either case.
#pragma once

#include <sluice/memory.hpp>
#include <sluice/window.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::rma {

inline constexpr std::size_t kWord = sizeof(std::uint64_t);

/// Parts of the word of a lock: the numbers of shared locks, of exclusive ones, held or awaited, and of ranks that have
/// said that exclusive locks have to be counted at rank 0. The first two have 20 bits each, for at most
/// 2^20 - 1 ranks, and as many exclusive locks at a time.
inline constexpr std::uint64_t kShared = 1;
inline constexpr std::uint64_t kExclusive = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kCounting = std::uint64_t{1} << 40;
constexpr std::uint64_t shared_of(std::uint64_t lock) noexcept { return lock % kExclusive; }
constexpr std::uint64_t exclusive_of(std::uint64_t lock) noexcept { return lock % kCounting / kExclusive; }
constexpr bool is_counting(std::uint64_t lock) noexcept { return lock >= kCounting; }
constexpr bool is_unexcluded(std::uint64_t lock) noexcept { return exclusive_of(lock) == 0; }
/// No lock is held or awaited.
constexpr bool is_free(std::uint64_t lock) noexcept { return lock % kCounting == 0; }

/// Offsets from the first word of a rank. Words that different peers change often are on different cache lines:
/// kUncounted, which a rank changes before its first exclusive lock alone, shares the line of kAllLocks.
namespace at {
inline constexpr std::size_t kAllLocks = 0;   ///< at rank 0: locks of all ranks, and exclusive ones
inline constexpr std::size_t kUncounted = 8;  ///< at rank 0: not 0 once a rank may hold exclusive locks uncounted
inline constexpr std::size_t kLock = 64;      ///< of this rank's memory
inline constexpr std::size_t kPosts = 128;    ///< ranks that have posted to this one, plus 1; 0: free
inline constexpr std::size_t kPostCount = 64;
inline constexpr std::size_t kEpochsEnd = kPosts + kPostCount * kWord;
// Of a CollectiveWindow alone.
inline constexpr std::size_t kHandle = kEpochsEnd;  ///< a WindowHandle of the rank's memory
inline constexpr std::size_t kSharedEnd = kHandle + sizeof(WindowHandle);
// The rest is for accesses of this rank alone.
inline constexpr std::size_t kMinusShared = kSharedEnd;  ///< -kShared; accumulates add it, and it never changes
inline constexpr std::size_t kMinusExclusive = kMinusShared + kWord;  ///< -kExclusive, which never changes either
inline constexpr std::size_t kCopy = kSharedEnd + 64;                 ///< of a peer's handle
inline constexpr std::size_t kOlds = kCopy + sizeof(WindowHandle);    ///< one for each post under way
inline constexpr std::size_t kEnd = kOlds + kPostCount * kWord;
}  // namespace at

/// The words of this rank of a CollectiveWindow.
class Words {
 public:
  explicit Words(Slice page) : page_(std::move(page)) {}

  std::atomic_ref<std::uint64_t> word(std::size_t offset) const {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(page_.data() + offset));
  }
  Slice slice(std::size_t offset, std::size_t bytes) const { return page_.slice(offset, bytes); }

 private:
  Slice page_;
};

}  // namespace sluice::rma
