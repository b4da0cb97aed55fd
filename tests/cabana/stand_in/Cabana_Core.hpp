// SPDX-License-Identifier: Apache-2.0
// Stand-in for the particles of Cabana c1dcec9: declares what the adaptor and its tests use, so that they compile.
// Nothing here can be linked.
#pragma once

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace Cabana {

struct Mpi {};
struct Export {};
struct Import {};

// --- particles -------------------------------------------------------------------------------------------------------

template <class... Types>
struct MemberTypes {
  static constexpr std::size_t size = sizeof...(Types);
};

template <class Members>
struct Tuple {};

struct DefaultAccessMemory {};

namespace Impl {

template <int VectorLength>
struct Index {
  KOKKOS_FUNCTION static std::size_t s(std::size_t i);
  KOKKOS_FUNCTION static std::size_t a(std::size_t i);
};

template <std::size_t M, class Members>
struct MemberAt;
template <std::size_t M, class... Types>
struct MemberAt<M, MemberTypes<Types...>> {
  using type = typename std::tuple_element_t<M, std::tuple<std::type_identity<Types>...>>::type;
};

}  // namespace Impl

template <class DataType, class MemorySpace, class MemoryAccessType, int VectorLength, int Stride>
class Slice {
 public:
  using memory_space = MemorySpace;
  using size_type = typename MemorySpace::size_type;
  using index_type = Impl::Index<VectorLength>;
  using value_type = std::remove_all_extents_t<DataType>;
  using reference_type = value_type&;
  using pointer_type = value_type*;
  static constexpr int vector_length = VectorLength;

  std::string label() const;
  KOKKOS_FUNCTION size_type size() const;
  KOKKOS_FUNCTION pointer_type data() const;
  KOKKOS_FUNCTION size_type viewRank() const;
  KOKKOS_FUNCTION size_type extent(size_type d) const;
  KOKKOS_FUNCTION size_type stride(size_type d) const;
  KOKKOS_FUNCTION reference_type operator()(size_type i) const;
  KOKKOS_FUNCTION reference_type operator()(size_type i, size_type d0) const;
};

template <class Members, class MemorySpace, int VectorLength, class MemoryTraits = Kokkos::MemoryTraits<0>>
class AoSoA {
 public:
  using memory_space = MemorySpace;
  using size_type = typename MemorySpace::size_type;
  using tuple_type = Tuple<Members>;
  static constexpr std::size_t number_of_members = Members::size;
  // The stride depends on how members are padded, which is the business of Cabana.
  template <std::size_t M>
  using member_slice_type =
      Slice<typename Impl::MemberAt<M, Members>::type, MemorySpace, DefaultAccessMemory, VectorLength, VectorLength>;

  AoSoA(const std::string& label = "");
  AoSoA(std::string label, size_type n);
  std::string label() const;
  KOKKOS_FUNCTION size_type size() const;
  void resize(size_type n);
  KOKKOS_FUNCTION tuple_type getTuple(size_type i) const;
  KOKKOS_FUNCTION void setTuple(size_type i, const tuple_type& tuple) const;
};

template <class>
struct is_slice_impl : std::false_type {};
template <class DataType, class MemorySpace, class MemoryAccessType, int VectorLength, int Stride>
struct is_slice_impl<Slice<DataType, MemorySpace, MemoryAccessType, VectorLength, Stride>> : std::true_type {};
template <class T>
struct is_slice : is_slice_impl<std::remove_cv_t<T>> {};

template <class>
struct is_aosoa_impl : std::false_type {};
template <class Members, class MemorySpace, int VectorLength, class MemoryTraits>
struct is_aosoa_impl<AoSoA<Members, MemorySpace, VectorLength, MemoryTraits>> : std::true_type {};
template <class T>
struct is_aosoa : is_aosoa_impl<std::remove_cv_t<T>> {};

template <std::size_t M, class Particles>
typename Particles::template member_slice_type<M> slice(const Particles& particles, const std::string& label = "");

template <class To, class From>
void deep_copy(To& to, const From& from, std::enable_if_t<is_aosoa<To>::value && is_aosoa<From>::value>* = nullptr);

// --- plans -----------------------------------------------------------------------------------------------------------

std::vector<int> getUniqueTopology(MPI_Comm comm, std::vector<int> topology);

template <class MemorySpace>
class CommunicationPlanBase {
 public:
  using memory_space = MemorySpace;
  using execution_space = typename MemorySpace::execution_space;
  using size_type = typename MemorySpace::size_type;

  int numNeighbor() const;
  int neighborRank(int neighbor) const;
  std::size_t numExport(int neighbor) const;
  std::size_t totalNumExport() const;
  std::size_t numImport(int neighbor) const;
  std::size_t totalNumImport() const;
  std::size_t exportSize() const;
  Kokkos::View<std::size_t*, MemorySpace> getExportSteering() const;

  template <class Packed, class Ranks>
  void createExportSteering(const Packed& neighbor_ids, const Ranks& ranks);
  template <class Packed, class Ranks, class Ids>
  void createExportSteering(const Packed& neighbor_ids, const Ranks& ranks, const Ids& ids);

 protected:
  CommunicationPlanBase(MPI_Comm comm);
};

template <class MemorySpace, class CommSpaceType = Mpi>
class CommunicationPlan;

template <class MemorySpace>
class CommunicationPlan<MemorySpace, Mpi> : public CommunicationPlanBase<MemorySpace> {
  using Sizes = Kokkos::View<typename MemorySpace::size_type*, MemorySpace>;
  using Numbers = Kokkos::View<int*, MemorySpace>;

 public:
  template <class Ranks>
  Sizes createWithTopology(Export, const Ranks& ranks, const std::vector<int>& neighbors);
  template <class Ranks>
  Sizes createWithoutTopology(Export, const Ranks& ranks);
  template <class Ranks, class Ids>
  std::tuple<Sizes, Numbers, Numbers> createWithTopology(Import, const Ranks& ranks, const Ids& ids,
                                                         const std::vector<int>& neighbors);
  template <class Ranks, class Ids>
  std::tuple<Sizes, Numbers, Numbers> createWithoutTopology(Import, const Ranks& ranks, const Ids& ids);

 protected:
  CommunicationPlan(MPI_Comm comm);
};

// --- buffers ---------------------------------------------------------------------------------------------------------

template <class AoSoAType>
struct CommunicationDataAoSoA {
  using particle_data_type = AoSoAType;
  using memory_space = typename AoSoAType::memory_space;
  using data_type = typename AoSoAType::tuple_type;
  using buffer_type = Kokkos::View<data_type*, memory_space>;
  AoSoAType _particles;
};
template <class SliceType>
struct CommunicationDataSlice {
  using particle_data_type = SliceType;
  using memory_space = typename SliceType::memory_space;
  using data_type = typename SliceType::value_type;
  using buffer_type = Kokkos::View<data_type**, Kokkos::LayoutRight, memory_space>;
  SliceType _particles;
};

template <class Plan, class Data, class CommSpaceType = Mpi>
class CommunicationData {
 public:
  using plan_type = Plan;
  using execution_space = typename Plan::execution_space;
  using particle_data_type = typename Data::particle_data_type;
  using memory_space = typename Data::memory_space;
  using data_type = typename Data::data_type;
  using buffer_type = typename Data::buffer_type;

  virtual ~CommunicationData() = default;
  buffer_type getSendBuffer() const;
  buffer_type getReceiveBuffer() const;
  particle_data_type getData() const;
  void setData(const particle_data_type& particles);
  std::size_t sendSize();
  std::size_t receiveSize();
  std::size_t sendCapacity();
  std::size_t receiveCapacity();
  void shrinkToFit(bool use_overallocation = false);
  virtual void apply() = 0;
  void reserveImpl(const Plan& plan, particle_data_type particles, std::size_t send, std::size_t receive,
                   double overallocation);
  void reserveImpl(const Plan& plan, particle_data_type particles, std::size_t send, std::size_t receive);

 protected:
  CommunicationData(const Plan& plan, const particle_data_type& particles, double overallocation = 1.0);
  Plan _comm_plan;
  Data _comm_data;
};

// --- halos -----------------------------------------------------------------------------------------------------------

/// Has bodies where the plan below it, which may be ours, is used.
template <class MemorySpace, class BuildType = Export, class CommSpaceType = Mpi>
class Halo : public CommunicationPlan<MemorySpace, CommSpaceType> {
 public:
  using commspace_type = CommSpaceType;

  template <class Ids, class Ranks>
  Halo(MPI_Comm comm, std::size_t num_local, const Ids& ids, const Ranks& ranks, const std::vector<int>& neighbors)
      : CommunicationPlan<MemorySpace, CommSpaceType>(comm) {
    build(num_local, ids, ranks, neighbors);
  }
  template <class Ids, class Ranks>
  Halo(MPI_Comm comm, std::size_t num_local, const Ids& ids, const Ranks& ranks)
      : CommunicationPlan<MemorySpace, CommSpaceType>(comm) {
    build(num_local, ids, ranks);
  }
  template <class Ids, class Ranks>
  void build(std::size_t, const Ids& ids, const Ranks& ranks, const std::vector<int>& neighbors) {
    if constexpr (std::is_same_v<BuildType, Export>)
      this->createExportSteering(this->createWithTopology(Export(), ranks, neighbors), ranks, ids);
    else
      steer(this->createWithTopology(Import(), ranks, ids, neighbors));
  }
  template <class Ids, class Ranks>
  void build(std::size_t, const Ids& ids, const Ranks& ranks) {
    if constexpr (std::is_same_v<BuildType, Export>)
      this->createExportSteering(this->createWithoutTopology(Export(), ranks), ranks, ids);
    else
      steer(this->createWithoutTopology(Import(), ranks, ids));
  }
  std::size_t numLocal() const;
  std::size_t numGhost() const;

 private:
  template <class Found>
  void steer(const Found& found) {
    this->createExportSteering(std::get<0>(found), std::get<1>(found), std::get<2>(found));
  }
};

template <class HaloType, class Particles>
bool haloCheckValidSize(const HaloType& halo, const Particles& particles);

template <class HaloType, class Particles, class SFINAE = void>
class Gather;

// For every halo and thus for ours: the adaptor's specialisations have to be the closer match.
template <class HaloType, class AoSoAType>
class Gather<HaloType, AoSoAType, typename std::enable_if<is_aosoa<AoSoAType>::value>::type> {
 public:
  Gather(HaloType halo, AoSoAType aosoa, double overallocation = 1.0);
  std::size_t totalSend();
  std::size_t totalReceive();
  std::size_t totalSend(const HaloType& halo);
  std::size_t totalReceive(const HaloType& halo);
  void reserve(const HaloType& halo, AoSoAType& aosoa);
  void apply();
};
template <class HaloType, class SliceType>
class Gather<HaloType, SliceType, typename std::enable_if<is_slice<SliceType>::value>::type> {
 public:
  Gather(HaloType halo, SliceType slice, double overallocation = 1.0);
  void apply();
};

template <class HaloType, class Particles>
auto createGather(const HaloType& halo, const Particles& particles, double overallocation = 1.0) {
  return Gather<HaloType, Particles>(halo, particles, overallocation);
}
template <class HaloType, class Particles>
void gather(const HaloType& halo, Particles& particles) {
  createGather(halo, particles).apply();
}

template <class HaloType, class SliceType>
class Scatter {
 public:
  Scatter(HaloType halo, SliceType slice, double overallocation = 1.0);
  std::size_t totalSend();
  std::size_t totalReceive();
  std::size_t totalSend(const HaloType& halo);
  std::size_t totalReceive(const HaloType& halo);
  void reserve(const HaloType& halo, const SliceType& slice);
  void apply();
};

template <class HaloType, class SliceType>
auto createScatter(const HaloType& halo, const SliceType& slice, double overallocation = 1.0) {
  return Scatter<HaloType, SliceType>(halo, slice, overallocation);
}
template <class HaloType, class SliceType>
void scatter(const HaloType& halo, SliceType& slice) {
  createScatter(halo, slice).apply();
}

// --- migration -------------------------------------------------------------------------------------------------------

template <class MemorySpace, class CommSpaceType = Mpi>
class Distributor : public CommunicationPlan<MemorySpace, CommSpaceType> {
 public:
  using commspace_type = CommSpaceType;

  template <class Ranks>
  Distributor(MPI_Comm comm, const Ranks& ranks, const std::vector<int>& neighbors)
      : CommunicationPlan<MemorySpace, CommSpaceType>(comm) {
    this->createExportSteering(this->createWithTopology(Export(), ranks, neighbors), ranks);
  }
  template <class Ranks>
  Distributor(MPI_Comm comm, const Ranks& ranks) : CommunicationPlan<MemorySpace, CommSpaceType>(comm) {
    this->createExportSteering(this->createWithoutTopology(Export(), ranks), ranks);
  }
};

template <class>
struct is_distributor_impl : std::false_type {};
template <class MemorySpace, class CommSpaceType>
struct is_distributor_impl<Distributor<MemorySpace, CommSpaceType>> : std::true_type {};
template <class T>
struct is_distributor : is_distributor_impl<std::remove_cv_t<T>> {};

// For every distributor, as in Gather. Those without an execution space call the others, and so ours.
template <class Exec, class Plan, class AoSoAType>
void migrate(
    Exec exec, const Plan& plan, const AoSoAType& src, AoSoAType& dst,
    typename std::enable_if<(is_distributor<Plan>::value && is_aosoa<AoSoAType>::value), int>::type* = nullptr);
template <class Plan, class AoSoAType>
void migrate(
    const Plan& plan, const AoSoAType& src, AoSoAType& dst,
    typename std::enable_if<(is_distributor<Plan>::value && is_aosoa<AoSoAType>::value), int>::type* = nullptr) {
  migrate(typename Plan::execution_space{}, plan, src, dst);
}
template <class Exec, class Plan, class AoSoAType>
void migrate(
    Exec exec, const Plan& plan, AoSoAType& aosoa,
    typename std::enable_if<(is_distributor<Plan>::value && is_aosoa<AoSoAType>::value), int>::type* = nullptr);
template <class Plan, class AoSoAType>
void migrate(
    const Plan& plan, AoSoAType& aosoa,
    typename std::enable_if<(is_distributor<Plan>::value && is_aosoa<AoSoAType>::value), int>::type* = nullptr) {
  migrate(typename Plan::execution_space{}, plan, aosoa);
}
template <class Exec, class Plan, class SliceType>
void migrate(
    Exec exec, const Plan& plan, const SliceType& src, SliceType& dst,
    typename std::enable_if<(is_distributor<Plan>::value && is_slice<SliceType>::value), int>::type* = nullptr);
template <class Plan, class SliceType>
void migrate(
    const Plan& plan, const SliceType& src, SliceType& dst,
    typename std::enable_if<(is_distributor<Plan>::value && is_slice<SliceType>::value), int>::type* = nullptr) {
  migrate(typename Plan::execution_space{}, plan, src, dst);
}

}  // namespace Cabana
