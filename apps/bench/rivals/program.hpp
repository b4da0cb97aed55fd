// SPDX-License-Identifier: Apache-2.0
// Rivals on GPUs. Each is a program of its own (apps/bench/rivals/programs), with a process for each rank, so that its
// library is loaded there, and an abort ends that process only. It takes turns like any other contender.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

enum class Program { raw, raw_host, synchronised, nvshmem, nccl, nccl_put, ucx };

/// The reason why this rival cannot run with this command line; empty if it can, as far as this rank knows.
std::string why_no_program(Program program, const Options& options);

/// The processes of this rank's rivals. Each is started when it is first needed.
class RivalPrograms {
 public:
  RivalPrograms();
  ~RivalPrograms();
  RivalPrograms(const RivalPrograms&) = delete;
  RivalPrograms& operator=(const RivalPrograms&) = delete;

  /// Makes the rival's contender for `unit` ("ping_pong", "flood", "halo" or "kernel"). Both ranks of the workload call
  /// it. One contender of a rival exists at a time.
  /// @returns nullptr, on both ranks, if the rival cannot run; then it is left out of the rest of this run, and a line
  /// of the output says so
  std::unique_ptr<Contender> make(Program program, const char* unit, const Workload& workload);

 private:
  struct Running;
  std::vector<Running> running_;
};

}  // namespace bench
