// SPDX-License-Identifier: Apache-2.0
// Every public template of the adaptor, instantiated with all its members; nothing of it is run.
#include <sluice/cabana.hpp>

namespace {

using sluice::cabana::CommSpace;
namespace grid = Cabana::Grid;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Host = Kokkos::HostSpace;
template <std::size_t D>
using Cells = grid::Array<double, grid::Cell, grid::UniformMesh<double, D>, Host>;
template <std::size_t D>
using Nodes = grid::Array<float, grid::Node, grid::UniformMesh<double, D>, Host>;
using Particles = Cabana::AoSoA<Cabana::MemberTypes<double[3], int>, Host, 8>;
using Positions = Particles::member_slice_type<0>;
using Exported = Cabana::Halo<Host, Cabana::Export, CommSpace>;
using Imported = Cabana::Halo<Host, Cabana::Import, CommSpace>;
using Distributor = Cabana::Distributor<Host, CommSpace>;
using Numbers = Kokkos::View<int*, Host>;

}  // namespace

// An instantiation leaves out inherited members, which is why bases stand beside those that derive from them.
template class sluice::cabana::detail::GridHalo<Host>;
template class sluice::cabana::StreamHalo<Exec, Host, CommSpace>;
template class Cabana::Grid::Halo<Host, CommSpace>;
template class Cabana::CommunicationPlan<Host, CommSpace>;
using OfParticles = Cabana::CommunicationDataAoSoA<Particles>;
using OfPositions = Cabana::CommunicationDataSlice<Positions>;
template class sluice::cabana::detail::HaloMove<Exported, OfParticles, false>;
template class sluice::cabana::detail::HaloMove<Imported, OfPositions, false>;
template class Cabana::Gather<Exported, Particles>;
template class Cabana::Gather<Imported, Positions>;
template class sluice::cabana::detail::HaloMove<Exported, OfPositions, true>;
template class Cabana::Scatter<Exported, Positions>;

namespace {

template <class Operation>
void scatter_all(const Exec& exec, const auto& halo, auto& stream, const auto&... arrays) {
  halo.scatter(exec, Operation(), arrays...);
  stream.enqueueScatter(Operation(), arrays...);
}

template <class Pattern>
void halos_of(const Exec& exec, const sluice::kokkos::Queue<Exec>& queue, const Pattern& pattern,
              const auto&... arrays) {
  const auto halo = grid::createHalo<CommSpace>(pattern, 1, arrays...);
  const auto stream = sluice::cabana::createStreamHalo(queue, pattern, 1, arrays...);
  sluice::cabana::createStreamHalo(exec, pattern, 1, arrays...)->enqueueGather(arrays...);
  halo->gather(exec, arrays...);
  scatter_all<grid::ScatterReduce::Sum>(exec, *halo, *stream, arrays...);
  scatter_all<grid::ScatterReduce::Min>(exec, *halo, *stream, arrays...);
  scatter_all<grid::ScatterReduce::Max>(exec, *halo, *stream, arrays...);
  scatter_all<grid::ScatterReduce::Replace>(exec, *halo, *stream, arrays...);
}

}  // namespace

void use_grids(const Exec& exec, const sluice::kokkos::Queue<Exec>& queue, const Cells<2>& flat, const Cells<3>& cells,
               const Nodes<3>& nodes) {
  halos_of(exec, queue, grid::NodeHaloPattern<2>(), flat);
  halos_of(exec, queue, grid::FaceHaloPattern<3>(), cells, nodes);
}

void use_particles(const Exec& exec, Particles& particles, Positions& positions, const Numbers& ids,
                   const Numbers& ranks) {
  const Exported exported(MPI_COMM_WORLD, 1, ids, ranks);
  const Imported imported(MPI_COMM_WORLD, 1, ids, ranks);
  Cabana::gather(exported, particles);
  Cabana::gather(imported, positions);
  Cabana::scatter(exported, positions);
  const Distributor distributor(MPI_COMM_WORLD, ranks);
  Cabana::migrate(distributor, particles, particles);
  Cabana::migrate(distributor, positions, positions);
  Cabana::migrate(distributor, particles);
  Cabana::migrate(exec, distributor, particles, particles);
  Cabana::migrate(exec, distributor, positions, positions);
  Cabana::migrate(exec, distributor, particles);
}
