// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/queue.hpp"

#include <sluice/trace.hpp>

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/gpu_queue.hpp"
#include "apps/bench/harness/host_queue.hpp"

namespace bench {
namespace {

Queue::Synchronize synchronize_by(const Workload& workload) {
  return [context = workload.context](sluice::Stream stream) mutable { context.synchronize(stream); };
}

}  // namespace

std::unique_ptr<Queue> make_queue(const Workload& workload, long items_per_step) {
  if (of_gpu(workload.options.stream)) return make_gpu_queue(workload, items_per_step);
  return std::make_unique<HostQueue>(items_per_step, synchronize_by(workload));
}

std::unique_ptr<GpuQueue> make_gpu_queue(const Workload& workload, long items_per_step) {
  const bool cuda = workload.options.stream == StreamChoice::cuda;
  return std::make_unique<GpuQueue>(cuda ? sluice::Stream::Kind::cuda : sluice::Stream::Kind::hip, workload.device,
                                    items_per_step, synchronize_by(workload),
                                    sluice::tracing() ? GpuQueue::kItemsOfTimeline : GpuQueue::kItems);
}

}  // namespace bench
