// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/buffers.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace bench {

Pages::Pages(std::size_t bytes) {
  const std::size_t whole = whole_pages(std::max<std::size_t>(bytes, 1));
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)));
  if (!memory_) throw std::bad_alloc();
  std::memset(memory_.get(), 1, whole);
}

sluice::Memory allocate(const Workload& workload, std::size_t bytes) {
  if (of_gpu(workload.options.stream)) return workload.context.allocate(bytes, sluice::Space::device, workload.device);
  return workload.context.allocate(bytes);
}

Slots::Slots(const Workload& workload, int depth) {
  const std::size_t bytes = std::max<std::size_t>(workload.bytes, 1) * static_cast<std::size_t>(depth);
  if (workload.options.memory == MemoryChoice::user) {
    user_ = std::make_unique<Pages>(bytes);
    slice_ = workload.context.region(user_->data(), bytes).all();
  } else {
    slice_ = allocate(workload, bytes).all();
    if (!of_gpu(workload.options.stream)) std::memset(slice_.data(), 1, bytes);
  }
}

}  // namespace bench
