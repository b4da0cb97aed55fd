// SPDX-License-Identifier: Apache-2.0
#include "device/reach.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

#include "base/fork.hpp"
#include "device/retire.hpp"

namespace sluice::device {
namespace {

using Key = std::pair<Driver*, std::uintptr_t>;  // of the first page

struct Given {
  std::uintptr_t end = 0;
  int owners = 0;
};

struct Book {
  std::recursive_mutex mutex;
  std::map<Key, Given> given;
  std::atomic<bool> in_parts{false};
  std::atomic<int> without_owner{0};  // pieces that a driver still has
};
base::OnePerProcess<Book> g_book;

base::OnePerProcess<base::Guarded<std::map<Key, Reached>>> g_for_ever;

/// Without the mutex, which copies and allocations take: the driver may wait for all streams. Stale pages have no
/// owner.
void take_back(const Key& key) {
  key.first->give_up(reinterpret_cast<void*>(key.second));
  const std::lock_guard lock(g_book->mutex);
  g_book->given.erase(key);
  --g_book->without_owner;
}

void leave(const Key& key) {
  {
    const std::lock_guard lock(g_book->mutex);
    if (--g_book->given.at(key).owners > 0) return;
    ++g_book->without_owner;
  }
  retire([key] { take_back(key); });
}

std::shared_ptr<const void> own(const Key& key, Given& given) {
  ++given.owners;
  return {nullptr, [key](const void*) { leave(key); }};
}

/// Adds the next piece from `at` on, at most to `end`: one that the driver has, or gets now. Moves `at` behind the
/// piece.
void add_piece(Driver& driver, std::uintptr_t& at, std::uintptr_t end, Reached& reached) {
  auto& given = g_book->given;
  const auto next = given.upper_bound({&driver, at});
  const auto before = next == given.begin() ? given.end() : std::prev(next);
  if (before != given.end() && before->first.first == &driver && before->second.end > at) {
    reached.push_back(own(before->first, before->second));
    at = before->second.end;
    return;
  }
  if (const std::size_t known = driver.reached(reinterpret_cast<void*>(at)); known != 0) {
    at += (known + kPage - 1) / kPage * kPage;
    return;
  }
  const bool bounded = next != given.end() && next->first.first == &driver && next->first.second < end;
  const std::uintptr_t until = bounded ? next->first.second : end;
  driver.reach(reinterpret_cast<void*>(at), until - at, Driver::Pages::memory);
  reached.push_back(own({&driver, at}, given[{&driver, at}] = {until, 0}));
  at = until;
}

}  // namespace

Reached reach(Driver& driver, const void* data, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t last = first + std::max<std::size_t>(bytes, 1);
  const std::uintptr_t begin = first / kPage * kPage;
  const std::uintptr_t end = (last + kPage - 1) / kPage * kPage;
  Reached reached;
  reap();
  const std::lock_guard lock(g_book->mutex);
  // An owner may have freed its memory, whose addresses are used again.
  if (stale(data, std::max<std::size_t>(bytes, 1)))
    throw StalePages("the memory that was here before is still used by a parked stream");
  // Pages that are shared with other memory are pieces of their own, so that only they stay as long as that memory.
  const std::uintptr_t whole_begin = first == begin ? begin : std::min(begin + kPage, end);
  const std::uintptr_t whole_end = last == end ? end : std::max(end - kPage, whole_begin);
  for (std::uintptr_t at = begin; at < end;) {
    const std::uintptr_t limit = at < whole_begin ? whole_begin : at < whole_end ? whole_end : end;
    add_piece(driver, at, limit, reached);
  }
  if (reached.size() > 1) g_book->in_parts.store(true);
  return reached;
}

bool stale(const void* data, std::size_t bytes) {
  if (bytes == 0 || g_book->without_owner.load() == 0) return false;
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(g_book->mutex);
  return std::any_of(g_book->given.begin(), g_book->given.end(), [&](const auto& entry) {
    const auto& [key, given] = entry;
    return given.owners == 0 && key.second < first + bytes && first < given.end;
  });
}

void* map_fresh(std::size_t bytes, int flags, int descriptor) {
  std::vector<void*> stale_ones;
  void* data = nullptr;
  for (;;) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (data == MAP_FAILED || !stale(data, bytes)) break;
    stale_ones.push_back(data);  // kept, or mmap would return it again
  }
  const int why = errno;
  for (void* const one : stale_ones) munmap(one, bytes);
  errno = why;
  return data;
}

void reach_for_ever(Driver& driver, void* page, std::size_t bytes) {
  const std::lock_guard lock(g_for_ever->mutex);
  Reached& reached = g_for_ever->value[{&driver, reinterpret_cast<std::uintptr_t>(page)}];
  if (reached.empty()) reached = reach(driver, page, bytes);
}

bool any_in_parts() noexcept { return g_book->in_parts.load(std::memory_order_relaxed); }

namespace {

/// Returns the distances from `data` at which pieces begin.
std::vector<std::size_t> cuts_inside(const void* data, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  std::vector<std::size_t> cuts;
  const std::lock_guard lock(g_book->mutex);
  for (const auto& [key, given] : g_book->given) {
    if (key.second > first && key.second < first + bytes) cuts.push_back(key.second - first);
  }
  return cuts;
}

}  // namespace

void for_each_given_part(const void* to, const void* from, std::size_t bytes,
                         const std::function<void(std::size_t, std::size_t)>& part) {
  std::vector<std::size_t> cuts = cuts_inside(to, bytes);
  std::ranges::copy(cuts_inside(from, bytes), std::back_inserter(cuts));
  cuts.push_back(bytes);
  std::sort(cuts.begin(), cuts.end());
  // Without the lock: a copy between hosts may block until its stream comes to it, and other ranks map memory
  // meanwhile. The pieces stay, since they have owners.
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    if (cut > at) part(at, cut - at);
    at = cut;
  }
}

}  // namespace sluice::device
