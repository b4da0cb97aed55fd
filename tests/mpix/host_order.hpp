// SPDX-License-Identifier: Apache-2.0
// A host stream of the program, or with MPIX_TEST_STREAM=cuda or hip one of the emulated GPU.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/ordered_stream.hpp"

namespace stream_mpi_test {

/// In the words of MPICH's dialect. A stream of HIP's, by the stand-in for its runtime, is one of CUDA's.
inline std::string type_of_stream() {
  const char* const set = std::getenv("MPIX_TEST_STREAM");
  return set == nullptr ? "sluice_host_stream*" : std::string(set) + "Stream_t";
}
inline bool on_gpu() { return type_of_stream() != "sluice_host_stream*"; }

class HostOrder : public OrderedStream {
 public:
  HostOrder() : OrderedStream(on_gpu()) {}
};

}  // namespace stream_mpi_test
