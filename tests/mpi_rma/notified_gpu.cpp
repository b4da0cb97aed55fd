// SPDX-License-Identifier: Apache-2.0
// A program of MPI whose CUDA stream waits for notifications.
#include <cuda.h>
#include <sluice/mpi_rma.h>

#include "tests/mpi_rma/checks.hpp"

namespace {

using namespace checks;

CUstream new_stream() {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  expect(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "a stream of the GPU");
  return stream;
}

struct Look {
  const int* at;
  int seen;
};
void look(void* argument) {
  auto& one = *static_cast<Look*>(argument);
  one.seen = *one.at;
}

void check_waits() {
  const CUstream stream = new_stream();
  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&memory), &window);
  MPI_Win_set_num_notify(window, MPI_INFO_NULL, 2);
  MPI_Win_lock_all(0, window);
  const int next = (world_rank() + 1) % world_size();
  const int before = (world_rank() + world_size() - 1) % world_size();
  Look one{memory, 0};
  for (int i = 1; i <= 20; ++i) {
    expect_equal(SLUICE_Win_wait_notify_enqueue(window, 1, 1, sluice_stream_cuda(stream)), MPI_SUCCESS, "a wait");
    cuLaunchHostFunc(stream, look, &one);
    MPI_Barrier(MPI_COMM_WORLD);
    if (i == 1) expect(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY, "a stream that waits for a notification");
    MPI_Barrier(MPI_COMM_WORLD);
    const int value = i * 100 + world_rank();
    MPI_Put_notify(&value, 1, MPI_INT, next, 0, 1, MPI_INT, 1, window);
    expect(cuStreamSynchronize(stream) == CUDA_SUCCESS, "the stream");
    expect_equal(one.seen, i * 100 + before, "what the stream saw");
    MPI_Count taken = 0;
    MPI_Win_reset_notify_value(window, 1, &taken);
    expect_equal(taken, 1, "what a reset has taken");
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  cuStreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check_waits();
  int all = 0;
  MPI_Reduce(&failures(), &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (world_rank() == 0) std::printf(all == 0 ? "passed\n" : "%d failures\n", all);
  MPI_Finalize();
  return failures() == 0 ? 0 : 1;
}
