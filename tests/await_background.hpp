// SPDX-License-Identifier: Apache-2.0
// For programs of stream MPI with the library's own sources: what its thread of the background has done.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "dialects/common/background.hpp"
#include "tests/await_answer.hpp"

namespace stream_mpi_test {

using sluice::stream_mpi::Background;

/// Returns once the count has grown by `more` from `before`.
inline void await_more(const std::atomic<std::uint64_t>& count, std::uint64_t before, std::uint64_t more = 1) {
  await_or_abort([&] {
    std::this_thread::yield();
    return count - before >= more;
  });
}

}  // namespace stream_mpi_test
