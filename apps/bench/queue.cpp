// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/queue.hpp"

#include "apps/bench/contender.hpp"
#include "apps/bench/gpu_queue.hpp"
#include "apps/bench/host_queue.hpp"

namespace bench {

std::unique_ptr<Queue> make_queue(const Case& one_case, long items_per_step) {
  Queue::Synchronize synchronize = [context = one_case.context](sluice::Stream stream) mutable {
    context.synchronize(stream);
  };
  const auto stream = one_case.options.stream;
  if (!of_gpu(stream)) return std::make_unique<HostQueue>(items_per_step, std::move(synchronize));
  const auto kind = stream == StreamChoice::cuda ? sluice::Stream::Kind::cuda : sluice::Stream::Kind::hip;
  return std::make_unique<GpuQueue>(kind, one_case.device, items_per_step, std::move(synchronize));
}

}  // namespace bench
