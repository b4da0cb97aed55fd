// SPDX-License-Identifier: Apache-2.0
// Heat that spreads over a periodic field, which is cut into a column of blocks, one for each rank. No heat may be
// lost.
#include <sluice/kokkos.hpp>
#include <sluice/sluice.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Field = Kokkos::View<double**, Exec>;
using Rows = Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>>;

constexpr int kWidth = 64;  // own cells of a block in each direction; one row of ghosts lies at each end of them
constexpr int kSteps = 100;

/// Computes all cells of the next field but the ghosts.
void spread(const Exec& exec, const Field& now, const Field& next) {
  Kokkos::parallel_for(
      "spread", Rows(exec, {1, 1}, {kWidth + 1, kWidth + 1}), KOKKOS_LAMBDA(int i, int j) {
        const double around = now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1);
        next(i, j) = now(i, j) + 0.1 * (around - 4 * now(i, j));
      });
}

double heat_of(const Exec& exec, const Field& field) {
  double sum = 0;
  Kokkos::parallel_reduce(
      "heat", Rows(exec, {1, 1}, {kWidth + 1, kWidth + 1}),
      KOKKOS_LAMBDA(int i, int j, double& part) { part += field(i, j); }, sum);
  return sum;
}

void diffuse(sluice::Context& context) {
  // Ranks may be threads, so each needs an instance of its own, which on a GPU is a stream.
  const Exec exec = Kokkos::Experimental::partition_space(Exec(), 1)[0];
  Field now(Kokkos::view_alloc(exec, "now"), kWidth + 2, kWidth + 2);
  Field next(Kokkos::view_alloc(exec, "next"), kWidth + 2, kWidth + 2);
  const bool first = context.rank() == 0;
  Kokkos::parallel_for(
      "spark", Kokkos::RangePolicy<Exec>(exec, 0, 1), KOKKOS_LAMBDA(int) { now(1, 1) = first ? 1000.0 : 0.0; });

  // Each field has a halo of its own. One halo, and exchange(next), would do.
  const sluice::kokkos::Cartesian<2> grid{.ranks = {context.size(), 1}, .periodic = {true, true}};
  const sluice::kokkos::HaloOptions<2> faces{.stencil = sluice::kokkos::faces<2>(), .name = "now"};
  const sluice::kokkos::HaloOptions<2> others{.stencil = sluice::kokkos::faces<2>(), .name = "next"};
  sluice::kokkos::Halo halo(context, exec, grid, 1, faces, now);
  sluice::kokkos::Halo other(context, exec, grid, 1, others, next);
  // Connects everything before any work waits on a stream.
  halo.commit();
  other.commit();
  for (int step = 0; step < kSteps; step += 2) {
    halo.exchange();
    spread(exec, now, next);
    other.exchange();
    spread(exec, next, now);
  }

  // The ranks add up the heat of their blocks: each adds its own to a View of one number and sends that on.
  Kokkos::View<double, Kokkos::HostSpace> sum("sum");
  sum() = heat_of(exec, now);
  if (context.size() > 1) {
    const Kokkos::DefaultHostExecutionSpace host;
    Kokkos::View<double, Kokkos::HostSpace> before("before");
    const int above = (context.rank() + 1) % context.size();
    const int below = (context.rank() + context.size() - 1) % context.size();
    auto out = sluice::kokkos::sender(context, host, above, 0, sum);
    auto in = sluice::kokkos::receiver(context, host, below, 0, before);
    if (!first) {
      in.wait();
      sum() += before();
      in.release();
    }
    out.put();
    if (first) {
      in.wait();
      out.acquire();  // the put has left the View, which may be overwritten
      sum() = before();
      in.release();
    }
  }
  if (!first) return;
  std::printf("heat after %d steps on %d ranks: %.9f\n", kSteps, context.size(), sum());
  std::fflush(stdout);  // a job that is killed has its lines, in a file too
  if (std::abs(sum() - 1000.0) > 1e-9) throw std::runtime_error("heat was lost");
}

}  // namespace

int main(int argc, char** argv) {
  // CUDA loads a kernel at its first launch, and may wait for streams that in turn wait for that launch: load early.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  Kokkos::ScopeGuard kokkos(argc, argv);
  return sluice::run(argc, argv, diffuse);
}
