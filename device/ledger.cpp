// SPDX-License-Identifier: Apache-2.0
#include "device/ledger.hpp"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "device/reach.hpp"

namespace sluice::device {
namespace {

/// Pages without `keep`, by driver and size.
base::OnePerProcess<base::Guarded<std::map<std::pair<Driver*, std::size_t>, std::vector<void*>>>> g_spare;

void* take_pages(Driver* driver, std::size_t bytes) {
  {
    const std::lock_guard lock(g_spare->mutex);
    auto& pages = g_spare->value[{driver, bytes}];
    if (!pages.empty()) {
      void* const found = pages.back();
      pages.pop_back();
      return std::memset(found, 0, bytes);
    }
  }
  void* const pages = map_fresh(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  if (driver != nullptr) reach_for_ever(*driver, pages, bytes);
  return pages;
}

}  // namespace

Ledger::Ledger(Driver* driver, std::size_t bytes)
    : driver_(driver), bytes_((bytes + kPage - 1) / kPage * kPage), pages_(take_pages(driver, bytes_)) {}

Ledger::~Ledger() {
  if (kept_) return;
  const std::lock_guard lock(g_spare->mutex);
  g_spare->value[{driver_, bytes_}].push_back(pages_);
}

}  // namespace sluice::device
