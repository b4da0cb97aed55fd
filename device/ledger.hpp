// SPDX-License-Identifier: Apache-2.0
// Memory that kernels count in, and find what they need for it. Once they do it is never freed: a graph may be replayed
// after all that it was captured for is gone, and then finds here that nothing is left to be done.
#pragma once

#include <cstddef>
#include <type_traits>

namespace sluice::device {

class Driver;

class Ledger {
 public:
  /// Zeroed, and reached by the driver's GPUs; null: by kernels of the host. @throws GpuError, std::bad_alloc
  Ledger(Driver* driver, std::size_t bytes);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  /// What was not kept is used again.
  ~Ledger();

  /// As many as fit into the bytes, aligned.
  template <class T>
  T* take(std::size_t count = 1) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(take(count * sizeof(T), alignof(T)));
  }
  /// Kernels have it now.
  void keep() noexcept { kept_ = true; }

 private:
  void* take(std::size_t bytes, std::size_t alignment);

  Driver* driver_;
  std::size_t bytes_;  // whole pages
  void* pages_;
  void* next_;
  std::size_t left_;
  bool kept_ = false;
};

}  // namespace sluice::device
