// SPDX-License-Identifier: Apache-2.0
// For programs of stream MPI: a stream and work in its order, and messages of numbers that no other message has.
#pragma once

#include <sluice/c/stream.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi_rma/checks.hpp"

#ifdef WITH_CUDA
#include <cuda.h>
#endif

namespace stream_mpi_test {

using checks::expect;
using checks::expect_equal;
using checks::world_rank;
using checks::world_size;

#ifdef WITH_CUDA
inline void make_gpu_current(int gpu = 0) {
  CUcontext context = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, gpu);
  cuCtxSetCurrent(context);
}
#endif

/// A host stream, or one of the emulated GPU, which becomes the current one.
class OrderedStream {
 public:
  explicit OrderedStream([[maybe_unused]] bool on_gpu, [[maybe_unused]] int gpu = 0) {
#ifdef WITH_CUDA
    if (on_gpu) {
      make_gpu_current(gpu);
      expect(cuStreamCreate(&cuda, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream of the GPU");
      return;
    }
#endif
    expect_equal(sluice_host_stream_create(nullptr, &stream), SLUICE_OK, "a host stream");
  }
  OrderedStream(const OrderedStream&) = delete;
  OrderedStream& operator=(const OrderedStream&) = delete;
  ~OrderedStream() {
    if (stream != nullptr) sluice_host_stream_free(&stream);
#ifdef WITH_CUDA
    if (cuda != nullptr) cuStreamDestroy(cuda);
#endif
  }

  void* handle_of_stream() const {
#ifdef WITH_CUDA
    if (cuda != nullptr) return static_cast<void*>(cuda);
#endif
    return static_cast<void*>(stream);
  }

  /// Behind all that is enqueued.
  void run(std::function<void()> work) {
    auto* const owned = new std::function<void()>(std::move(work));
#ifdef WITH_CUDA
    if (cuda != nullptr) {
      cuLaunchHostFunc(
          cuda, [](void* argument) { (void)call(argument); }, static_cast<void*>(owned));
      return;
    }
#endif
    sluice_host_stream_run(stream, &call, owned);
  }
  void wait() {
#ifdef WITH_CUDA
    if (cuda != nullptr) {
      expect(cuStreamSynchronize(cuda) == CUDA_SUCCESS, "a wait of the host");
      return;
    }
#endif
    expect_equal(sluice_host_stream_synchronize(stream, SLUICE_FOREVER), SLUICE_OK, "a wait of the host");
  }

  sluice_host_stream* stream = nullptr;
#ifdef WITH_CUDA
  CUstream cuda = nullptr;
#endif

 private:
  static int call(void* work) {
    auto* const function = static_cast<std::function<void()>*>(work);
    (*function)();
    delete function;
    return 0;
  }
};

/// A number that no other message has.
inline int stamp(int rank, int step, int i) { return rank * 1000000 + step * 1000 + i; }

inline void fill(std::vector<int>& buffer, int rank, int step) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = stamp(rank, step, static_cast<int>(i));
}

inline void expect_filled(const std::vector<int>& buffer, int rank, int step, const std::string& what) {
  for (std::size_t i = 0; i < buffer.size(); ++i)
    expect_equal(buffer[i], stamp(rank, step, static_cast<int>(i)), what + " at step " + std::to_string(step));
}

inline std::vector<int> poisoned(std::size_t count) { return std::vector<int>(count, -7); }

inline int next_rank() { return (world_rank() + 1) % world_size(); }
inline int rank_before() { return (world_rank() + world_size() - 1) % world_size(); }

/// A periodic grid of two dimensions, whose communicator the program frees. Several of the four neighbours of a rank
/// may be one rank, or itself.
struct Grid {
  Grid() {
    std::array<int, 2> sizes{};
    const std::array<int, 2> periods{1, 1};
    MPI_Dims_create(world_size(), 2, sizes.data());
    MPI_Cart_create(MPI_COMM_WORLD, 2, sizes.data(), periods.data(), 1, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Cart_shift(comm, 0, 1, &peers[0], &peers[1]);
    MPI_Cart_shift(comm, 1, 1, &peers[2], &peers[3]);
  }

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  std::array<int, 4> peers{};  ///< a message to `peers[i]` arrives there from direction `i ^ 1`
};

/// Ends a rank whose peer has died: MPI_Finalize would not return.
[[noreturn]] inline void leave(bool good) {
  std::puts(good ? "the peer is lost" : "no error");
  std::fflush(stdout);
  _exit(0);
}

}  // namespace stream_mpi_test
