// SPDX-License-Identifier: Apache-2.0
// One halo of Cabana's that is used again and again, on blocks that wrap around in all directions, with the space that
// cabana_space.hpp names or, without it, with MPI. Prints each row with its time in microseconds.
#include <Cabana_Grid.hpp>
#include <Kokkos_Core.hpp>

#include <mpi.h>
#include <algorithm>
#include <array>
#include <cstdio>

namespace {

constexpr int kTurns = 9;

/// The median over turns of `call`, each as long as its slowest rank, in microseconds.
template <class F>
double time_of(int repetitions, F call) {
  std::array<double, kTurns> taken{};
  for (double& time : taken) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < repetitions; ++i) call();
    time = (MPI_Wtime() - begin) * 1e6 / repetitions;
  }
  MPI_Allreduce(MPI_IN_PLACE, taken.data(), kTurns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::nth_element(taken.begin(), taken.begin() + kTurns / 2, taken.end());
  return taken[kTurns / 2];
}

void measure(int cells) {
  using namespace Cabana::Grid;
  using Exec = Kokkos::DefaultHostExecutionSpace;
  const DimBlockPartitioner<3> partitioner;
  const auto ranks = partitioner.ranksPerDimension(MPI_COMM_WORLD, {0, 0, 0});
  const std::array<int, 3> all{cells * ranks[0], cells * ranks[1], cells * ranks[2]};
  const auto mesh = createUniformGlobalMesh(std::array<double, 3>{0, 0, 0}, std::array<double, 3>{1, 1, 1}, all);
  const auto grid = createGlobalGrid(MPI_COMM_WORLD, mesh, std::array<bool, 3>{true, true, true}, partitioner);
  const auto layout = createArrayLayout(grid, 1, 4, Cell());
  const auto array = createArray<double, Exec::device_type>("array", layout);
  ArrayOp::assign(*array, 0.0, Ghost());
  ArrayOp::assign(*array, 1.0, Own());
  const auto halo = createHalo(NodeHaloPattern<3>(), 1, *array);
  const auto gather = [&] { halo->gather(Exec(), *array); };
  const auto scatter = [&] { halo->scatter(Exec(), ScatterReduce::Max(), *array); };
  gather();
  scatter();
  const int repetitions = cells < 64 ? 200 : 50;
  const double gather_us = time_of(repetitions, gather);
  const double scatter_us = time_of(repetitions, scatter);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    std::printf("periodic_gather, %d: %.3f\nperiodic_scatter, %d: %.3f\n", cells, gather_us, cells, scatter_us);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    const Kokkos::ScopeGuard guard(argc, argv);
    for (const int cells : {16, 32, 64, 96}) measure(cells);
  }
  MPI_Finalize();
  return 0;
}
