// SPDX-License-Identifier: Apache-2.0
// Stands for a GPU's block of threads: here, some threads of the host.
#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace sluice::test {

class HostBlock {
 public:
  struct Shared {
    explicit Shared(std::uint32_t threads) : all(threads) {}
    std::barrier<> all;
    std::uint64_t first = 0;
  };
  HostBlock(std::uint32_t index, std::uint32_t size, Shared& shared) : index_(index), size_(size), shared_(&shared) {}

  std::uint32_t index() const { return index_; }
  std::uint32_t size() const { return size_; }
  void sync() const { shared_->all.arrive_and_wait(); }
  std::uint64_t from_first(std::uint64_t value) const {
    sync();
    if (index_ == 0) shared_->first = value;
    sync();
    return shared_->first;
  }

 private:
  std::uint32_t index_;
  std::uint32_t size_;
  Shared* shared_;
};

/// Calls `kernel(block)` in so many threads, one of which is this one.
template <class Kernel>
void run_block(std::uint32_t threads, Kernel kernel) {
  HostBlock::Shared shared(threads);
  std::vector<std::jthread> others;
  for (std::uint32_t i = 1; i < threads; ++i) {
    others.emplace_back([i, threads, &shared, &kernel] { kernel(HostBlock(i, threads, shared)); });
  }
  kernel(HostBlock(0, threads, shared));
}

}  // namespace sluice::test
