// SPDX-License-Identifier: Apache-2.0
// On the emulated GPU alone: its memory, and what its streams cannot do.
#ifdef WITH_CUDA
#include <array>

#include "tests/mpis/order.hpp"
#include "tests/mpis/programs.hpp"

using namespace stream_mpi_test;

/// Messages and a sum from memory of the GPU to memory of the GPU.
void run_device() {
  constexpr int kMpisOnGpu = 64;
  Order order;
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "mpi_memory_alloc_kinds", "cuda:device");
  std::array<void*, 3> memory{};
  for (void*& one : memory)
    expect_equal(MPIS_Alloc_mem(kMpisOnGpu * sizeof(int), info, &one), MPIS_SUCCESS, "memory of the GPU");
  MPI_Info_free(&info);
  const int peer = next_rank();
  const int before = rank_before();
  std::vector<MPIS_Request> requests{receive_of(memory[1], kMpisOnGpu, before), send_of(memory[0], kMpisOnGpu, peer)};
  MPIS_Request sum = MPIS_REQUEST_NULL;
  MPIS_Allreduce_init(memory[0], memory[2], kMpisOnGpu, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &sum);
  requests.push_back(sum);
  match_all(requests);
  std::vector<int> out(kMpisOnGpu);
  std::array<std::vector<int>, 2> in{std::vector<int>(kMpisOnGpu), std::vector<int>(kMpisOnGpu)};
  // Else the driver may copy them when the copy is enqueued.
  for (std::vector<int>* const pinned : {&out, &in[0], &in[1]})
    cuMemHostRegister(pinned->data(), kMpisOnGpu * sizeof(int), 0);
  const auto on_gpu = [&](std::size_t i) { return reinterpret_cast<CUdeviceptr>(memory.at(i)); };
  for (int step = 0; step < 10; ++step) {
    order.run([&, step] { fill(out, world_rank(), step); });
    cuMemcpyHtoDAsync(on_gpu(0), out.data(), kMpisOnGpu * sizeof(int), order.stream->cuda);
    order.start_all(requests);
    order.wait_all();
    for (std::size_t i : {0U, 1U})
      cuMemcpyDtoHAsync(in[i].data(), on_gpu(i + 1), kMpisOnGpu * sizeof(int), order.stream->cuda);
    order.run([&, step] {
      expect_filled(in[0], before, step, "memory of the GPU");
      int expected = 0;
      for (int rank = 0; rank < world_size(); ++rank) expected += stamp(rank, step, 1);
      expect_equal(in[1][1], expected, "a sum in memory of the GPU");
    });
  }
  order.wait();
  for (std::vector<int>* const pinned : {&out, &in[0], &in[1]}) cuMemHostUnregister(pinned->data());
  for (void* const one : memory) expect_equal(MPIS_Free_mem(one), MPIS_SUCCESS, "the end of memory");
  free_all(requests);
}

/// A datatype with gaps is refused at both ends, whichever has it.
void run_gaps() {
  Order order;
  const int peer = 1 - world_rank();
  std::array<int, 8> values{};
  MPI_Datatype gaps = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 1, 3, MPI_INT, &gaps);
  MPI_Type_commit(&gaps);
  for (const int bad : {0, 1}) {
    const MPI_Datatype type = world_rank() == bad ? gaps : MPI_INT;
    const int count = world_rank() == bad ? 1 : 2;
    MPIS_Request request = world_rank() == 0 ? send_of(values.data(), count, peer, 0, MPI_COMM_WORLD, type)
                                             : receive_of(values.data(), count, peer, 0, MPI_COMM_WORLD, type);
    expect_equal(MPIS_Match(&request, MPI_STATUS_IGNORE), MPIS_UNSUPPORTED_BEHAVIOR, "gaps, on a GPU");
    expect_equal(MPIS_Request_free(&request), MPIS_SUCCESS, "the end of a request");
  }
  MPI_Type_free(&gaps);
}
#endif
