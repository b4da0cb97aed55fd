// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/queue.hpp"

#include <sluice/trace.hpp>

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/harness/host_queue.hpp"

namespace bench {
namespace {

Queue::Synchronize synchronize_by(const Case& one_case) {
  return [context = one_case.context](sluice::Stream stream) mutable { context.synchronize(stream); };
}

}  // namespace

std::unique_ptr<Queue> make_queue(const Case& one_case, long items_per_step) {
  if (of_gpu(one_case.options.stream)) return make_gpu_queue(one_case, items_per_step);
  return std::make_unique<HostQueue>(items_per_step, synchronize_by(one_case));
}

std::unique_ptr<GpuQueue> make_gpu_queue(const Case& one_case, long items_per_step) {
  const bool cuda = one_case.options.stream == StreamChoice::cuda;
  return std::make_unique<GpuQueue>(cuda ? sluice::Stream::Kind::cuda : sluice::Stream::Kind::hip, one_case.device,
                                    items_per_step, synchronize_by(one_case),
                                    sluice::tracing() ? GpuQueue::kItemsOfTimeline : GpuQueue::kItems);
}

}  // namespace bench
