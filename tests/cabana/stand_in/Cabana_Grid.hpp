// SPDX-License-Identifier: Apache-2.0
// Stand-in for the grids of Cabana c1dcec9: declares what the adaptor and its tests use, so that they compile. Nothing
// here can be linked.
#pragma once

#include <mpi.h>
#include <Cabana_Core.hpp>
#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace Cabana::Grid {

struct Dim {
  enum Values { I = 0, J = 1, K = 2 };
};
struct Cell {};
struct Node {};
template <int D>
struct Face {};
template <int D>
struct Edge {};
struct Own {};
struct Ghost {};
struct Local {};

template <class Scalar, std::size_t D = 3>
struct UniformMesh {
  static constexpr std::size_t num_space_dim = D;
};

template <long N>
class IndexSpace {
 public:
  KOKKOS_FUNCTION long min(long dim) const;
  KOKKOS_FUNCTION long max(long dim) const;
  KOKKOS_FUNCTION Kokkos::pair<long, long> range(long dim) const;
  KOKKOS_FUNCTION long extent(long dim) const;
  KOKKOS_FUNCTION long size() const;
};

template <class View>
auto createSubview(const View& view, const IndexSpace<3>& space)
    -> decltype(Kokkos::subview(view, space.range(0), space.range(1), space.range(2)));
template <class View>
auto createSubview(const View& view, const IndexSpace<4>& space)
    -> decltype(Kokkos::subview(view, space.range(0), space.range(1), space.range(2), space.range(3)));

// --- meshes and grids ------------------------------------------------------------------------------------------------

template <class Mesh>
class GlobalMesh;
template <std::size_t D>
class BlockPartitioner {};
template <std::size_t D>
class DimBlockPartitioner : public BlockPartitioner<D> {
 public:
  DimBlockPartitioner();
};

template <class Mesh>
class GlobalGrid {
 public:
  MPI_Comm comm() const;
  bool isPeriodic(int dim) const;
  int dimNumBlock(int dim) const;
  int dimBlockId(int dim) const;
  int totalNumBlock() const;
};

template <class Mesh>
class LocalGrid {
 public:
  const GlobalGrid<Mesh>& globalGrid() const;
  GlobalGrid<Mesh>& globalGrid();
  int haloCellWidth() const;
  template <class Decomposition, class Entity, class IndexType>
  IndexSpace<Mesh::num_space_dim> indexSpace(Decomposition, Entity, IndexType) const;
};

template <class Scalar, std::size_t D>
std::shared_ptr<GlobalMesh<UniformMesh<Scalar, D>>> createUniformGlobalMesh(const std::array<Scalar, D>& low,
                                                                            const std::array<Scalar, D>& high,
                                                                            const std::array<int, D>& cells);
template <class Mesh>
std::shared_ptr<GlobalGrid<Mesh>> createGlobalGrid(MPI_Comm comm, const std::shared_ptr<GlobalMesh<Mesh>>& mesh,
                                                   const std::array<bool, Mesh::num_space_dim>& periodic,
                                                   const BlockPartitioner<Mesh::num_space_dim>& partitioner);
template <class Mesh>
std::shared_ptr<LocalGrid<Mesh>> createLocalGrid(const std::shared_ptr<GlobalGrid<Mesh>>& global, int halo_cell_width);

// --- arrays ----------------------------------------------------------------------------------------------------------

template <class Entity, class Mesh>
class ArrayLayout {
 public:
  static constexpr std::size_t num_space_dim = Mesh::num_space_dim;

  const std::shared_ptr<LocalGrid<Mesh>> localGrid() const;
  template <class Decomposition, class IndexType>
  IndexSpace<num_space_dim + 1> indexSpace(Decomposition, IndexType) const;
  template <class Decomposition>
  IndexSpace<num_space_dim + 1> sharedIndexSpace(Decomposition, const std::array<int, num_space_dim>& offset,
                                                 int halo_width = -1) const;
};

template <class Scalar, class Entity, class Mesh, class... Params>
class Array {
 public:
  static constexpr std::size_t num_space_dim = Mesh::num_space_dim;
  using value_type = Scalar;
  using view_type =
      std::conditional_t<num_space_dim == 3, Kokkos::View<Scalar****, Params...>, Kokkos::View<Scalar***, Params...>>;
  using memory_space = typename view_type::memory_space;

  std::shared_ptr<ArrayLayout<Entity, Mesh>> layout() const;
  view_type view() const;
};

template <class Entity, class Mesh>
std::shared_ptr<ArrayLayout<Entity, Mesh>> createArrayLayout(const std::shared_ptr<LocalGrid<Mesh>>& local,
                                                             int dofs_per_entity, Entity);
template <class Scalar, class... Params, class Entity, class Mesh>
std::shared_ptr<Array<Scalar, Entity, Mesh, Params...>> createArray(
    const std::string& label, const std::shared_ptr<ArrayLayout<Entity, Mesh>>& layout);

// --- halos -----------------------------------------------------------------------------------------------------------

template <std::size_t D>
class HaloPattern {
 public:
  static constexpr std::size_t num_space_dim = D;
  HaloPattern();
  std::vector<std::array<int, D>> getNeighbors() const;
};
template <std::size_t D>
class NodeHaloPattern : public HaloPattern<D> {
 public:
  NodeHaloPattern();
};
template <std::size_t D>
class FaceHaloPattern : public HaloPattern<D> {
 public:
  FaceHaloPattern();
};

namespace ScatterReduce {
struct Sum {};
struct Min {};
struct Max {};
struct Replace {};
}  // namespace ScatterReduce

template <class MemorySpace, class CommSpaceType = Mpi>
class Halo;

template <class MemorySpace>
class Halo<MemorySpace, Mpi> {
 public:
  template <class Pattern, class... Arrays>
  Halo(const Pattern& pattern, int width, const Arrays&... arrays);
  template <class Exec, class... Arrays>
  void gather(const Exec& exec, const Arrays&... arrays) const;
  template <class Exec, class Operation, class... Arrays>
  void scatter(const Exec& exec, const Operation& operation, const Arrays&... arrays) const;
};

template <class CommSpaceType = Mpi, class Pattern, class... Arrays>
auto createHalo(const Pattern& pattern, int width, const Arrays&... arrays) {
  using Space = typename std::tuple_element_t<0, std::tuple<Arrays...>>::memory_space;
  return std::make_shared<Halo<Space, CommSpaceType>>(pattern, width, arrays...);
}

}  // namespace Cabana::Grid
