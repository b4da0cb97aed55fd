// SPDX-License-Identifier: Apache-2.0
// Rivals on GPUs are programs of their own (apps/bench/rivals/programs), a process for each rank, so that their
// libraries are loaded there and may fail there. They take turns with the others like any contender.
#pragma once

#include "apps/bench/harness/contender.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bench {

enum class Program { raw, raw_host, synchronised, nvshmem, nccl, nccl_put, ucx };

/// The reason why this rival cannot run with this command line; empty if it can, as far as this rank knows.
std::string why_no_program(Program program, const Options& options);

/// The processes of a rank's rivals, each started when it is first needed.
class RivalPrograms {
 public:
  RivalPrograms();
  ~RivalPrograms();
  RivalPrograms(const RivalPrograms&) = delete;
  RivalPrograms& operator=(const RivalPrograms&) = delete;

  /// Runs `unit` ("ping_pong", "flood", "halo" or "kernel") of the workload, with the peer's process of the same rival.
  /// One contender of a rival exists at a time.
  /// @returns nullptr, on both ranks, if the rival turns out to be unable to: then, and later, it is left out.
  std::unique_ptr<Contender> make(Program program, const char* unit, const Workload& workload);

 private:
  struct Running;
  std::vector<Running> running_;
};

}  // namespace bench
