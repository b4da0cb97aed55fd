// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <new>
#include <utility>

namespace sluice::tests {

/// Work that operator new of library_test does first in the calling thread; null: none. It may throw std::bad_alloc,
/// and may allocate.
inline thread_local constinit const std::function<void()>* at_allocation = nullptr;

/// Sets `at_allocation` as long as it lives.
class AtAllocation {
 public:
  explicit AtAllocation(std::function<void()> work) : work_(std::move(work)) { at_allocation = &work_; }
  AtAllocation(const AtAllocation&) = delete;
  AtAllocation& operator=(const AtAllocation&) = delete;
  ~AtAllocation() { at_allocation = nullptr; }

 private:
  const std::function<void()> work_;
};

/// There is no memory.
inline const std::function<void()> no_memory = [] { throw std::bad_alloc(); };

}  // namespace sluice::tests
