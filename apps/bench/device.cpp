// SPDX-License-Identifier: Apache-2.0
// Kernels that hold channels and put by themselves, compared with puts by streams.
#include "apps/bench/benches.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int kKernelDepth = 2;  // with one slot, each put would wait for the credit of the previous one

}  // namespace

void run_device(Session& session) {
  const Metric one_way{"latency", "us", half_in_us};
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, kKernelDepth);
    std::vector<Entry> on_streams;
    on_streams.push_back({"on_streams", "ours, from stream to stream", make_ping_pong(workload).contender});
    workload.tag = 1;
    measure_row(session, workload, &Rival::device, make_kernel_ping_pong(workload), one_way, session.budget(),
                std::move(on_streams));
  }
}

}  // namespace bench
