// SPDX-License-Identifier: Apache-2.0
// Memory for the counts and the arguments of kernels. Once kernels use it, it is never freed: a graph may be replayed
// after its channels were destroyed, and then finds here that nothing is left to do.
#pragma once

#include <cstddef>
#include <type_traits>

namespace sluice::device {

class Driver;

class Ledger {
 public:
  /// Zeroed memory that the driver's GPUs reach; null: for kernels on the host. @throws GpuError, std::bad_alloc
  Ledger(Driver* driver, std::size_t bytes);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  /// Memory without `keep` is used again.
  ~Ledger();

  /// Takes aligned memory for `count` objects.
  template <class T>
  T* take(std::size_t count = 1) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(take(count * sizeof(T), alignof(T)));
  }
  /// Kernels use the memory from now on.
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
