// SPDX-License-Identifier: Apache-2.0
#include "device/ledger.hpp"

#include <sys/mman.h>

#include <memory>
#include <new>

#include "device/reach.hpp"

namespace sluice::device {

Ledger::Ledger(Driver* driver, std::size_t bytes) : left_(bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  next_ = static_cast<std::byte*>(pages);
  if (driver != nullptr) reach_for_ever(*driver, pages, bytes);
}

void* Ledger::take(std::size_t bytes, std::size_t alignment) {
  void* at = next_;
  if (std::align(alignment, bytes, at, left_) == nullptr) throw std::bad_alloc();
  next_ = static_cast<std::byte*>(at) + bytes;
  left_ -= bytes;
  return at;
}

}  // namespace sluice::device
