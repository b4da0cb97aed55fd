// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/addresses.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace emucuda {
namespace {

constexpr std::size_t kGuard = 4096;

std::uintptr_t round_up(std::uintptr_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// True if an entry of a map from addresses has a byte in [base, base + bytes).
template <class Map, class Size>
bool any_in(const Map& map, std::uintptr_t base, std::size_t bytes, Size size) {
  auto next = map.lower_bound(base);
  if (next != map.end() && next->first < base + bytes) return true;
  if (next == map.begin()) return false;
  --next;
  return next->first + size(next->second) > base;
}

}  // namespace

Range::~Range() {
  if (pinned != nullptr) ::munmap(pinned, pinned_bytes);
}

bool Addresses::open() {
  if (window_) return true;
  void* memory = ::mmap(nullptr, kWindow, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  window_ = next_ = reinterpret_cast<std::uintptr_t>(memory);
  return true;
}

std::uintptr_t Addresses::reserve(std::size_t bytes, std::size_t alignment) {
  if (bytes > kWindow / 4) return 0;
  const std::lock_guard lock(mutex_);
  std::uintptr_t base = reserve_from(next_, bytes, alignment);
  if (base == 0) base = reserve_from(window_, bytes, alignment);
  if (base != 0) next_ = base + bytes + kGuard;
  return base;
}

std::uintptr_t Addresses::reserve_again(std::size_t bytes, std::size_t alignment) {
  if (bytes > kWindow / 4) return 0;
  const std::lock_guard lock(mutex_);
  return reserve_from(window_, bytes, alignment);
}

std::uintptr_t Addresses::reserve_from(std::uintptr_t from, std::size_t bytes, std::size_t alignment) {
  for (std::uintptr_t base = round_up(from, alignment); base + bytes + kGuard <= window_ + kWindow; base += alignment) {
    if (taken(base, bytes)) continue;
    reservations_[base] = bytes;
    return base;
  }
  return 0;
}

bool Addresses::taken(std::uintptr_t base, std::size_t bytes) const {
  return any_in(reservations_, base, bytes + kGuard, [](std::size_t size) { return size + kGuard; });
}

void Addresses::unreserve(std::uintptr_t base) {
  const std::lock_guard lock(mutex_);
  reservations_.erase(base);
}

std::size_t Addresses::reserved(std::uintptr_t base) const {
  const std::lock_guard lock(mutex_);
  const auto found = reservations_.find(base);
  return found == reservations_.end() ? 0 : found->second;
}

bool Addresses::inside_reservation(std::uintptr_t base, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto after = reservations_.upper_bound(base);
  if (after == reservations_.begin()) return false;
  --after;
  return base + bytes <= after->first + after->second;
}

void Addresses::add(const RangePtr& range) {
  const std::lock_guard lock(mutex_);
  range->id = ++last_id_;
  ranges_[range->base] = range;
}

void Addresses::remove(const Range& range) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(range.base);
  if (found == ranges_.end() || found->second.get() != &range) return;
  found->second->live = false;
  ranges_.erase(found);
}

RangePtr Addresses::find(std::uintptr_t address) const {
  auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const RangePtr& range = (--after)->second;
  return address - range->base < range->bytes ? range : nullptr;
}

RangePtr Addresses::at(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  return find(address);
}

bool Addresses::overlaps(std::uintptr_t base, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return any_in(ranges_, base, bytes, [](const RangePtr& range) { return range->bytes; });
}

std::vector<RangePtr> Addresses::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<RangePtr> result;
  for (const auto& [base, range] : ranges_) result.push_back(range);
  return result;
}

std::optional<Pieces> Addresses::pieces(std::uintptr_t base, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  Pieces result;
  do {
    const RangePtr range = find(base);
    if (!range || (!result.empty() && (range->kind != Kind::mapped || result[0].range->kind != Kind::mapped)))
      return {};
    const std::size_t offset = base - range->base;
    const std::size_t here = std::min(bytes, range->bytes - offset);
    result.push_back({range, range->alias + offset, here});
    base += here;
    bytes -= here;
  } while (bytes > 0);
  return result;
}

}  // namespace emucuda
