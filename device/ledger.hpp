// SPDX-License-Identifier: Apache-2.0
// Memory for the counts and the arguments of kernels. Once kernels use it, it is never freed: a graph may be replayed
// after its channels were destroyed, and then finds here that nothing is left to do.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <type_traits>

namespace sluice::device {

class Driver;

class Ledger {
 public:
  /// Zeroed memory that the driver's GPUs reach; null: for kernels on the host. @throws GpuError, std::bad_alloc
  Ledger(Driver* driver, std::size_t bytes);
  /// Memory without `keep` is used again.
  ~Ledger();

  /// Takes aligned memory for `count` objects. @throws std::bad_alloc
  template <class T>
  T* take(std::size_t count = 1) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(room_.allocate(count * sizeof(T), alignof(T)));
  }
  /// Kernels use the memory from now on.
  void keep() noexcept { kept_ = true; }

 private:
  Driver* driver_;
  std::size_t bytes_;  // whole pages
  void* pages_;
  std::pmr::monotonic_buffer_resource room_{pages_, bytes_, std::pmr::null_memory_resource()};
  bool kept_ = false;
};

}  // namespace sluice::device
