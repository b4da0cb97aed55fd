// SPDX-License-Identifier: Apache-2.0
// Particles: Cabana's Halo and Distributor with CommSpace in place of Cabana::Mpi. MPI still finds out which ranks
// exchange which particles when one of them is made or built anew; gather, scatter and migrate move the particles
// through channels.
#pragma once

#include <sluice/cabana/comm_space.hpp>
#include <sluice/kokkos/messages.hpp>
#include <sluice/kokkos/mpi_contexts.hpp>

#include <Cabana_Core.hpp>
#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::cabana::detail {

/// A member's type and extents: "f8[2,2]".
template <class Member>
std::string member_text() {
  std::string text = kokkos::detail::type_text<std::remove_all_extents_t<Member>>();
  kokkos::detail::for_each_below<std::rank_v<Member>>(
      [&](auto d) { text += (d == 0 ? "[" : ",") + std::to_string(std::extent_v<Member, d>); });
  return std::is_array_v<Member> ? text + ']' : text;
}
template <class... Members>
std::string tuple_text(std::type_identity<Cabana::Tuple<Cabana::MemberTypes<Members...>>>) {
  return ((' ' + member_text<Members>()) + ... + std::string());
}

/// Describes particles for ChannelOptions::contents: each member of an AoSoA, or that of a slice.
template <class Particles>
std::string particles_text(const Particles& particles) {
  if constexpr (Cabana::is_slice<Particles>::value) {
    std::string member = ' ' + kokkos::detail::type_text<typename Particles::value_type>();
    for (std::size_t d = 2; d < particles.viewRank(); ++d)
      member += (d == 2 ? "[" : ",") + std::to_string(particles.extent(d));
    return particles.viewRank() > 2 ? member + ']' : member;
  } else {
    return tuple_text(std::type_identity<typename Particles::tuple_type>());
  }
}

/// The work of a kernel on each particle of a message: copy it into the message, copy it out, or add to it.
enum class Action : std::uint8_t { load, store, add };

/// The particles of an AoSoA, which lie in a message as tuples.
template <class Particles, class = void>
struct Packed {
  using Element = typename Particles::tuple_type;

  std::size_t bytes() const { return sizeof(Element); }
  template <Action kAction>
  KOKKOS_FUNCTION void move(std::size_t particle, std::byte* packed, std::size_t at) const {
    static_assert(kAction != Action::add, "only the particles of a slice are added");
    auto* const elements = reinterpret_cast<Element*>(packed);
    if constexpr (kAction == Action::load)
      elements[at] = particles.getTuple(particle);
    else
      particles.setTuple(particle, elements[at]);
  }

  Particles particles;
};

/// The particles of a slice, which lie in a message as their components, one particle after another. Does not keep the
/// slice.
template <class Slice>
struct Packed<Slice, std::enable_if_t<Cabana::is_slice<Slice>::value>> {
  using Element = typename Slice::value_type;

  explicit Packed(const Slice& all) : data(all.data()), stride(all.stride(0)) {
    for (std::size_t d = 2; d < all.viewRank(); ++d) components *= all.extent(d);
  }
  std::size_t bytes() const { return components * sizeof(Element); }
  template <Action kAction>
  KOKKOS_FUNCTION void move(std::size_t particle, std::byte* packed, std::size_t at) const {
    auto* const values = reinterpret_cast<Element*>(packed) + at * components;
    Element* const mine = data + Slice::index_type::s(particle) * stride + Slice::index_type::a(particle);
    for (std::size_t n = 0; n < components; ++n) {
      Element& component = mine[n * Slice::vector_length];
      if constexpr (kAction == Action::load)
        values[n] = component;
      else if constexpr (kAction == Action::store)
        component = values[n];
      else
        Kokkos::atomic_add(&component, values[n]);
    }
  }

  Element* data;
  std::size_t stride;
  std::size_t components = 1;
};

/// The particles of a message: entries of a plan's list, or without a list consecutive ones, from `first` on.
struct Chosen {
  const std::size_t* list = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;

  KOKKOS_FUNCTION std::size_t at(std::size_t i) const { return list != nullptr ? list[first + i] : first + i; }
};

/// The messages to and from a neighbour.
struct Turn {
  int rank;
  Chosen out, in;
};

template <class Particles, Action kAction>
struct MoveParticles {
  Packed<Particles> particles;
  Chosen which;
  std::byte* packed;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    particles.template move<kAction>(which.at(at), packed, at);
  }
};

/// Moves particles between ranks, by one plan after another: one message to each neighbour that gets any. Particles
/// that stay on a rank pass through memory of its own, so that they can replace particles that leave.
template <class MemorySpace>
class Movers {
 public:
  using Exec = typename MemorySpace::execution_space;

  /// A depth of 1 is enough, as `move` blocks: the rank that is behind all others waits for no credit.
  explicit Movers(kokkos::detail::Shared& shared)
      : messages_(shared.context, kokkos::Queue<Exec>(Exec()),
                  "cabana particles in " + std::string(MemorySpace::name()), 1),
        failed_(shared.failed) {}

  /// Stores particles of `from` in `to`, or adds them. Returns when `to` has all of them, and `from` may be
  /// overwritten. All ranks, in the same order. A failure is thrown by later moves as well, which would otherwise take
  /// messages of this one.
  template <Action kAction, class Particles>
  void move(const std::vector<Turn>& turns, const Particles& from, const Particles& to) {
    const auto region = kokkos::detail::tool_region("sluice: move particles");
    if (failure_) std::rethrow_exception(failure_);
    try {
      exchange<kAction>(turns, from, to);
    } catch (...) {
      failure_ = std::current_exception();
      *failed_ = true;
      throw;
    }
  }

 private:
  template <Action kAction, class Particles>
  void exchange(const std::vector<Turn>& turns, const Particles& from, const Particles& to) {
    const Rank self = messages_.context().rank();
    const Packed<Particles> out{from}, in{to};
    const auto contents_of = [](const Chosen& which, const Particles& particles) {
      return [&] { return std::to_string(which.count) + " of" + particles_text(particles); };
    };
    // Closures refer to locals: all are called before this returns, or never, as `move` calls nothing after a failure.
    sent_.clear();
    received_.clear();
    for (const Turn& turn : turns) {
      const std::size_t bytes = turn.out.count * out.bytes();
      if (turn.rank == self) {
        run<Action::load>(out, turn.out, staying(bytes));
      } else {
        const auto pack = [this, &out, &turn](std::byte* packed) { run<Action::load>(out, turn.out, packed); };
        sent_.push_back(messages_.send(turn.rank, bytes, pack, contents_of(turn.out, from)));
      }
    }
    for (const Turn& turn : turns) {
      if (turn.rank == self) continue;
      const auto unpack = [this, &in, &turn](std::byte* packed) { run<kAction>(in, turn.in, packed); };
      received_.push_back(messages_.receive(turn.rank, turn.in.count * in.bytes(), unpack, contents_of(turn.in, to)));
    }
    for (const auto& one : sent_) messages_.wait(one);  // before anything is overwritten
    auto next = received_.begin();
    for (const Turn& turn : turns) {  // one neighbour after another
      if (turn.rank == self)
        run<kAction>(in, turn.in, staying_.data());
      else
        messages_.wait(*next++);
    }
    if constexpr (!kokkos::detail::kOnHost<Exec>) messages_.queue().fence("sluice: particles have moved");
  }

  /// Enqueues the kernel that moves the particles of a message.
  template <Action kAction, class Particles>
  void run(const Packed<Particles>& particles, const Chosen& which, std::byte* packed) const {
    messages_.queue().move(kAction == Action::load ? "sluice: pack particles" : "sluice: unpack particles",
                           static_cast<std::int64_t>(which.count),
                           static_cast<std::int64_t>(which.count * particles.bytes()),
                           MoveParticles<Particles, kAction>{particles, which, packed});
  }

  /// Returns memory for particles that stay on this rank.
  std::byte* staying(std::size_t bytes) {
    if (bytes > staying_.extent(0)) Kokkos::realloc(Kokkos::WithoutInitializing, staying_, bytes);
    return staying_.data();
  }

  using Messages = kokkos::Messages<Exec>;

  Messages messages_;
  std::vector<typename Messages::Request> sent_;
  std::vector<typename Messages::Request> received_;
  Kokkos::View<std::byte*, MemorySpace> staying_{"sluice: staying particles", 0};
  std::exception_ptr failure_;
  std::shared_ptr<bool> failed_;
};

/// Returns the messages of a plan: exported particles go to neighbours, and imported ones land from `first` on. The
/// result refers to a list of the plan.
std::vector<Turn> exports_of(const auto& plan, std::size_t first) {
  const std::size_t* const list = plan.getExportSteering().data();
  std::vector<Turn> turns;
  std::size_t out = 0;
  for (int n = 0; n < plan.numNeighbor(); ++n) {
    turns.push_back({plan.neighborRank(n), {list, out, plan.numExport(n)}, {nullptr, first, plan.numImport(n)}});
    out += plan.numExport(n);
    first += plan.numImport(n);
  }
  return turns;
}

/// Gather, or with `kBack` Scatter. Has the buffers of Cabana's base, and their sizes, for programs that use them;
/// particles go through the memory of channels. One thread at a time.
template <class Halo, class Buffers, bool kBack>
class HaloMove : public Cabana::CommunicationData<Halo, Buffers> {
  using Base = Cabana::CommunicationData<Halo, Buffers>;

 public:
  using commspace_type = CommSpace;
  using typename Base::particle_data_type;

  /// @throws std::runtime_error if the particles are not as many as the halo's own and its ghosts
  HaloMove(const Halo& halo, const particle_data_type& particles, double overallocation = 1.0)
      : Base(halo, particles, overallocation) {
    reserve(halo, particles);
  }
  /// The numbers of particles that this rank sends and receives, for the last halo or a given one.
  std::size_t totalSend() const { return totalSend(this->_comm_plan); }
  std::size_t totalReceive() const { return totalReceive(this->_comm_plan); }
  std::size_t totalSend(const Halo& halo) const { return kBack ? halo.totalNumImport() : halo.totalNumExport(); }
  std::size_t totalReceive(const Halo& halo) const { return kBack ? halo.totalNumExport() : halo.totalNumImport(); }
  /// Makes later calls of `apply` move these particles; see Cabana::Gather. @throws as the constructor
  void reserve(const Halo& halo, const particle_data_type& particles, auto... overallocation) {
    if (!Cabana::haloCheckValidSize(halo, particles))
      throw std::runtime_error("sluice: '" + particles.label() + "' has " + std::to_string(particles.size()) +
                               " particles, and the halo " + std::to_string(halo.numLocal()) + " and " +
                               std::to_string(halo.numGhost()) + " ghosts");
    this->reserveImpl(halo, particles, totalSend(halo), totalReceive(halo), overallocation...);
    turns_ = exports_of(halo, halo.numLocal());
    if constexpr (kBack) {
      for (Turn& turn : turns_) std::swap(turn.out, turn.in);
    }
  }
  /// Blocks the host until this rank's ghosts are filled, or with `kBack` the ghosts of all ranks are added to their
  /// owners' particles. Waits for work launched before on the default instance for their memory, and on no other. All
  /// ranks of the halo call it.
  /// @throws Error as kokkos::Messages; after a failure each later move on these ranks throws it again
  void apply() override {
    const auto& particles = this->_comm_data._particles;
    this->_comm_plan.movers().template move<kBack ? Action::add : Action::store>(turns_, particles, particles);
  }

 private:
  std::vector<Turn> turns_;  // refer to a list of _comm_plan
};

template <class MemorySpace, class BuildType>
using HaloOn = Cabana::Halo<MemorySpace, BuildType, CommSpace>;

void check_sizes(const auto& distributor, const auto& from, std::size_t to) {
  if (from.size() == distributor.exportSize() && to == distributor.totalNumImport()) return;
  throw std::runtime_error("sluice: migration of '" + from.label() + "': it has " + std::to_string(from.size()) +
                           " particles, not " + std::to_string(distributor.exportSize()) + ", or there is room for " +
                           std::to_string(to) + ", not " + std::to_string(distributor.totalNumImport()));
}

void migrate(const auto& distributor, const auto& from, const auto& to) {
  distributor.movers().template move<Action::store>(exports_of(distributor, 0), from, to);
}

}  // namespace sluice::cabana::detail

namespace Cabana {

/// The plan of MPI, whose particles go through channels, which all plans on a communicator share: all ranks move
/// particles by these plans in the same order, one thread at a time.
template <class MemorySpace>
class CommunicationPlan<MemorySpace, sluice::cabana::CommSpace> : public CommunicationPlan<MemorySpace, Mpi> {
 public:
  /// The object that moves particles.
  auto& movers() const { return *movers_; }

 protected:
  explicit CommunicationPlan(MPI_Comm comm) : CommunicationPlan<MemorySpace, Mpi>(comm) {
    const auto shared = sluice::kokkos::detail::shared_by(comm);
    movers_ = shared->template keep<Movers>(*shared);
  }

 private:
  using Movers = sluice::cabana::detail::Movers<MemorySpace>;

  std::shared_ptr<Movers> movers_;  // shared by all plans of these ranks, so that a new plan finds the channels open
};

template <class MemorySpace, class BuildType, class AoSoAType>
class Gather<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, AoSoAType,
             typename std::enable_if<is_aosoa<AoSoAType>::value>::type>
    : public sluice::cabana::detail::HaloMove<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>,
                                              CommunicationDataAoSoA<AoSoAType>, false> {
  using Gather::HaloMove::HaloMove;
};

template <class MemorySpace, class BuildType, class SliceType>
class Gather<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, SliceType,
             typename std::enable_if<is_slice<SliceType>::value>::type>
    : public sluice::cabana::detail::HaloMove<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>,
                                              CommunicationDataSlice<SliceType>, false> {
  using Gather::HaloMove::HaloMove;
};

template <class MemorySpace, class BuildType, class SliceType>
class Scatter<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, SliceType>
    : public sluice::cabana::detail::HaloMove<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>,
                                              CommunicationDataSlice<SliceType>, true> {
  using Scatter::HaloMove::HaloMove;
};

/// Copies the particles of `src` to `dst` on the ranks that the distributor names. Blocks the host until that has
/// happened. Waits for work launched on `exec` before; the kernels that move particles run on the default instance for
/// their memory. All ranks call it.
/// @throws std::runtime_error if the sizes are not the distributor's; Error as kokkos::Messages
template <class ExecutionSpace, class MemorySpace, class Particles>
void migrate(
    const ExecutionSpace& exec, const Distributor<MemorySpace, sluice::cabana::CommSpace>& distributor,
    const Particles& src, Particles& dst,
    typename std::enable_if<(is_aosoa<Particles>::value || is_slice<Particles>::value), int>::type* = nullptr) {
  sluice::cabana::detail::check_sizes(distributor, src, dst.size());
  exec.fence("sluice: particles are about to move");
  sluice::cabana::detail::migrate(distributor, src, dst);
}

/// Migrates in place: afterwards the AoSoA has the received particles alone, and their number as its size.
template <class ExecutionSpace, class MemorySpace, class AoSoAType>
void migrate(const ExecutionSpace& exec, const Distributor<MemorySpace, sluice::cabana::CommSpace>& distributor,
             AoSoAType& aosoa, typename std::enable_if<is_aosoa<AoSoAType>::value, int>::type* = nullptr) {
  const std::size_t come = distributor.totalNumImport();
  sluice::cabana::detail::check_sizes(distributor, aosoa, come);
  exec.fence("sluice: particles are about to move");
  if (come > aosoa.size()) aosoa.resize(come);
  sluice::cabana::detail::migrate(distributor, aosoa, aosoa);
  if (come < aosoa.size()) aosoa.resize(come);
}

}  // namespace Cabana
