// SPDX-License-Identifier: Apache-2.0
// Particles: Cabana's Halo and Distributor with CommSpace in place of Cabana::Mpi. MPI still finds out who sends what
// to whom when one of them is made or built anew; gather, scatter and migrate move the particles through channels.
#pragma once

#include <sluice/cabana/communicator.hpp>
#include <sluice/kokkos/messages.hpp>

#include <Cabana_Core.hpp>
#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace sluice::cabana::detail {

/// A member's type and extents: "f8[2,2]".
template <class Member>
std::string member_text() {
  std::string text = kokkos::detail::type_text<std::remove_all_extents_t<Member>>();
  [&]<std::size_t... D>(std::index_sequence<D...>) {
    ((text += (D == 0 ? "[" : ",") + std::to_string(std::extent_v<Member, D>)), ...);
  }
  (std::make_index_sequence<std::rank_v<Member>>());
  return std::is_array_v<Member> ? text + ']' : text;
}
template <class... Members>
std::string tuple_text(std::type_identity<Cabana::Tuple<Cabana::MemberTypes<Members...>>>) {
  return ((' ' + member_text<Members>()) + ... + std::string());
}

/// How particles of an AoSoA lie in a message: as tuples.
template <class Particles, class = void>
struct Packed {
  using Element = typename Particles::tuple_type;

  explicit Packed(const Particles& all) : particles(all) {}
  std::size_t bytes() const { return sizeof(Element); }
  std::string text() const { return tuple_text(std::type_identity<Element>()); }
  KOKKOS_FUNCTION void load(std::size_t from, std::byte* packed, std::size_t at) const {
    reinterpret_cast<Element*>(packed)[at] = particles.getTuple(from);
  }
  KOKKOS_FUNCTION void store(std::size_t to, const std::byte* packed, std::size_t at) const {
    particles.setTuple(to, reinterpret_cast<const Element*>(packed)[at]);
  }

  Particles particles;
};

/// Those of a slice: their components, one particle after another.
template <class Slice>
struct Packed<Slice, std::enable_if_t<Cabana::is_slice<Slice>::value>> {
  using Element = typename Slice::value_type;

  explicit Packed(const Slice& all) : particles(all) {
    for (std::size_t d = 2; d < all.viewRank(); ++d) components *= all.extent(d);
  }
  std::size_t bytes() const { return components * sizeof(Element); }
  std::string text() const {
    std::string member = ' ' + kokkos::detail::type_text<Element>();
    for (std::size_t d = 2; d < particles.viewRank(); ++d)
      member += (d == 2 ? "[" : ",") + std::to_string(particles.extent(d));
    return particles.viewRank() > 2 ? member + ']' : member;
  }
  KOKKOS_FUNCTION Element& component(std::size_t particle, std::size_t n) const {
    const auto struct_at = Slice::index_type::s(particle) * particles.stride(0);
    return particles.data()[struct_at + Slice::index_type::a(particle) + n * Slice::vector_length];
  }
  KOKKOS_FUNCTION void load(std::size_t from, std::byte* packed, std::size_t at) const {
    auto* const values = reinterpret_cast<Element*>(packed) + at * components;
    for (std::size_t n = 0; n < components; ++n) values[n] = component(from, n);
  }
  KOKKOS_FUNCTION void store(std::size_t to, const std::byte* packed, std::size_t at) const {
    const auto* const values = reinterpret_cast<const Element*>(packed) + at * components;
    for (std::size_t n = 0; n < components; ++n) component(to, n) = values[n];
  }
  KOKKOS_FUNCTION void add(std::size_t to, const std::byte* packed, std::size_t at) const {
    const auto* const values = reinterpret_cast<const Element*>(packed) + at * components;
    for (std::size_t n = 0; n < components; ++n) Kokkos::atomic_add(&component(to, n), values[n]);
  }

  Slice particles;
  std::size_t components = 1;
};

/// Which particles a message is of: those that a list names, or all from the first on.
template <class Steering>
struct Chosen {
  Steering steering;
  std::size_t first = 0;
  bool listed = false;
  std::size_t count = 0;

  KOKKOS_FUNCTION std::size_t at(std::size_t i) const { return listed ? steering(first + i) : first + i; }
};

struct Store {
  template <class Particles>
  KOKKOS_FUNCTION void operator()(const Particles& to, std::size_t at, const std::byte* packed, std::size_t i) const {
    to.store(at, packed, i);
  }
};
struct Add {
  template <class Particles>
  KOKKOS_FUNCTION void operator()(const Particles& to, std::size_t at, const std::byte* packed, std::size_t i) const {
    to.add(at, packed, i);
  }
};

template <class Particles, class Which>
struct PackParticles {
  Packed<Particles> from;
  Which which;
  std::byte* packed;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    from.load(which.at(at), packed, at);
  }
};
template <class Particles, class Which, class How>
struct UnpackParticles {
  Packed<Particles> to;
  Which which;
  const std::byte* packed;
  How how;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    how(to, which.at(at), packed, at);
  }
};

/// Moves particles between ranks, by one plan after another: one message to each neighbour that gets any. Those that
/// stay pass through memory of the rank's own, so that they may go to where others come from.
template <class MemorySpace>
class Movers {
 public:
  using Exec = typename MemorySpace::execution_space;
  using Steering = Kokkos::View<std::size_t*, MemorySpace>;
  using Which = Chosen<Steering>;
  /// What goes to a neighbour, and what comes from it.
  struct Turn {
    int rank;
    Which out, in;
  };

  /// A depth of 1 will do, as `move` blocks: the rank that is behind all others waits for no credit.
  explicit Movers(Context& context)
      : messages_(context, kokkos::Queue<Exec>(Exec()), "cabana particles in " + std::string(MemorySpace::name()), 1) {}

  /// Returns when `to` has all of it, and `from` may be overwritten. All ranks, in the same order. What fails is thrown
  /// by later moves as well, which would else take messages of this one.
  template <class Particles, class How>
  void move(const std::vector<Turn>& turns, const Particles& from, const Particles& to, How how) {
    const Kokkos::Profiling::ScopedRegion region("sluice: move particles");
    if (failure_) std::rethrow_exception(failure_);
    try {
      exchange(turns, Packed<Particles>(from), Packed<Particles>(to), how);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

 private:
  template <class Particles, class How>
  void exchange(const std::vector<Turn>& turns, const Packed<Particles>& from, const Packed<Particles>& to, How how) {
    const Rank self = messages_.context().rank();
    std::vector<typename kokkos::Messages<Exec>::Request> sent;
    std::vector<typename kokkos::Messages<Exec>::Request> received;
    for (const Turn& turn : turns) {
      const auto out = [this, from, which = turn.out](std::byte* packed) { pack(from, which, packed); };
      const std::size_t bytes = turn.out.count * from.bytes();
      if (turn.rank == self)
        out(staying(bytes));
      else
        sent.push_back(messages_.send(turn.rank, bytes, out, contents_of(turn.out, from)));
    }
    for (const Turn& turn : turns) {
      const auto in = [this, to, which = turn.in, how](const std::byte* packed) { unpack(to, which, packed, how); };
      if (turn.rank != self) {
        received.push_back(messages_.receive(turn.rank, turn.in.count * to.bytes(), in, contents_of(turn.in, to)));
      }
    }
    for (const auto& one : sent) messages_.wait(one);  // before anything is overwritten
    auto next = received.begin();
    for (const Turn& turn : turns) {  // one neighbour after another
      if (turn.rank == self)
        unpack(to, turn.in, staying_.data(), how);
      else
        messages_.wait(*next++);
    }
    messages_.queue().fence("sluice: particles have moved");
  }

  /// Describes a message of these particles for ChannelOptions::contents: their number, and each member.
  template <class Particles>
  static auto contents_of(const Which& which, const Packed<Particles>& particles) {
    return [&] { return std::to_string(which.count) + " of" + particles.text(); };
  }

  template <class Particles>
  void pack(const Packed<Particles>& from, const Which& which, std::byte* packed) const {
    messages_.queue().parallel_for("sluice: pack particles", static_cast<std::int64_t>(which.count),
                                   PackParticles<Particles, Which>{from, which, packed});
  }
  template <class Particles, class How>
  void unpack(const Packed<Particles>& to, const Which& which, const std::byte* packed, How how) const {
    messages_.queue().parallel_for("sluice: unpack particles", static_cast<std::int64_t>(which.count),
                                   UnpackParticles<Particles, Which, How>{to, which, packed, how});
  }

  /// Memory for those that stay.
  std::byte* staying(std::size_t bytes) {
    if (bytes > staying_.extent(0)) {
      staying_ =
          decltype(staying_)(Kokkos::view_alloc(Kokkos::WithoutInitializing, "sluice: staying particles"), bytes);
    }
    return staying_.data();
  }

  kokkos::Messages<Exec> messages_;
  Kokkos::View<std::byte*, MemorySpace> staying_;
  std::exception_ptr failure_;
};

/// Those of all plans on a communicator, so that a plan made anew finds the channels open. They end with Kokkos, whose
/// streams outlive channels.
template <class MemorySpace>
std::shared_ptr<Movers<MemorySpace>> movers_of(MPI_Comm comm) {
  const SharedCommunicator shared = communicator(comm);
  auto& movers = shared->movers[typeid(MemorySpace)];
  if (!movers) {
    movers = std::make_shared<Movers<MemorySpace>>(shared->context);
    Kokkos::push_finalize_hook([all = std::weak_ptr(shared)] {
      if (const SharedCommunicator still = all.lock()) still->movers.clear();
    });
  }
  return std::static_pointer_cast<Movers<MemorySpace>>(movers);
}

/// Exported particles go to neighbours, and come in from `first` on.
template <class Plan>
auto exports_of(const Plan& plan, std::size_t first) {
  using Mover = Movers<typename Plan::memory_space>;
  std::vector<typename Mover::Turn> turns;
  std::size_t out = 0;
  for (int n = 0; n < plan.numNeighbor(); ++n) {
    turns.push_back({plan.neighborRank(n),
                     {plan.getExportSteering(), out, true, plan.numExport(n)},
                     {plan.getExportSteering(), first, false, plan.numImport(n)}});
    out += plan.numExport(n);
    first += plan.numImport(n);
  }
  return turns;
}

/// The way back.
template <class Plan>
auto returns_of(const Plan& plan, std::size_t first) {
  auto turns = exports_of(plan, first);
  for (auto& turn : turns) std::swap(turn.out, turn.in);
  return turns;
}

/// What Gather and Scatter have in common.
template <class Halo, class Particles>
class HaloData {
 public:
  using commspace_type = CommSpace;
  using plan_type = Halo;
  using particle_data_type = Particles;
  using execution_space = typename Halo::execution_space;
  using memory_space = typename Halo::memory_space;

  /// @throws std::runtime_error if the particles are not as many as the halo's own and its ghosts
  HaloData(const Halo& halo, const Particles& particles, double = 1.0) : halo_(halo), particles_(particles) { check(); }

  Particles getData() const { return particles_; }
  void setData(const Particles& particles) { particles_ = particles; }
  /// From now on for these. Channels grow by themselves: there is nothing to reserve. @throws as the constructor
  void reserve(const Halo& halo, const Particles& particles, double = 1.0) {
    halo_ = halo;
    particles_ = particles;
    check();
  }

 protected:
  Halo halo_;
  Particles particles_;

 private:
  void check() const {
    if (particles_.size() == halo_.numLocal() + halo_.numGhost()) return;
    throw std::runtime_error("sluice: '" + particles_.label() + "' has " + std::to_string(particles_.size()) +
                             " particles, and the halo " + std::to_string(halo_.numLocal()) + " and " +
                             std::to_string(halo_.numGhost()) + " ghosts");
  }
};

template <class Halo, class Particles>
class GatherOf : public HaloData<Halo, Particles> {
 public:
  using HaloData<Halo, Particles>::HaloData;
  std::size_t totalSend() const { return totalSend(this->halo_); }
  std::size_t totalReceive() const { return totalReceive(this->halo_); }
  std::size_t totalSend(const Halo& halo) const { return halo.totalNumExport(); }
  std::size_t totalReceive(const Halo& halo) const { return halo.totalNumImport(); }
  /// Blocks the host until the ghosts are there. Waits for what was launched on the default instance for their memory
  /// before, and on no other. All ranks of the halo.
  void apply() {
    const auto turns = exports_of(this->halo_, this->halo_.numLocal());
    this->halo_.movers().move(turns, this->particles_, this->particles_, Store{});
  }
};

template <class Halo, class Particles>
class ScatterOf : public HaloData<Halo, Particles> {
 public:
  using HaloData<Halo, Particles>::HaloData;
  std::size_t totalSend() const { return totalSend(this->halo_); }
  std::size_t totalReceive() const { return totalReceive(this->halo_); }
  std::size_t totalSend(const Halo& halo) const { return halo.totalNumImport(); }
  std::size_t totalReceive(const Halo& halo) const { return halo.totalNumExport(); }
  /// Blocks the host until the ghosts of all ranks are added to what they are ghosts of. Waits as Gather does. All
  /// ranks of the halo.
  void apply() {
    const auto turns = returns_of(this->halo_, this->halo_.numLocal());
    this->halo_.movers().move(turns, this->particles_, this->particles_, Add{});
  }
};

template <class MemorySpace, class BuildType>
using HaloOn = Cabana::Halo<MemorySpace, BuildType, CommSpace>;

template <class Distributor, class Particles>
void check_sizes(const Distributor& distributor, const Particles& from, std::size_t to) {
  if (from.size() == distributor.exportSize() && to == distributor.totalNumImport()) return;
  throw std::runtime_error("sluice: migration of '" + from.label() + "': it has " + std::to_string(from.size()) +
                           " particles, not " + std::to_string(distributor.exportSize()) + ", or there is room for " +
                           std::to_string(to) + ", not " + std::to_string(distributor.totalNumImport()));
}

}  // namespace sluice::cabana::detail

namespace Cabana {

/// The plan of MPI, whose particles take another way, which all plans on a communicator share: all ranks move particles
/// by them in the same order, one thread at a time.
template <class MemorySpace>
class CommunicationPlan<MemorySpace, sluice::cabana::CommSpace> : public CommunicationPlan<MemorySpace, Mpi> {
 public:
  /// What moves particles.
  auto& movers() const { return *movers_; }

 protected:
  explicit CommunicationPlan(MPI_Comm comm)
      : CommunicationPlan<MemorySpace, Mpi>(comm), movers_(sluice::cabana::detail::movers_of<MemorySpace>(comm)) {}

 private:
  std::shared_ptr<sluice::cabana::detail::Movers<MemorySpace>> movers_;
};

template <class MemorySpace, class BuildType, class AoSoAType>
class Gather<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, AoSoAType,
             typename std::enable_if<is_aosoa<AoSoAType>::value>::type>
    : public sluice::cabana::detail::GatherOf<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>, AoSoAType> {
  using Gather::GatherOf::GatherOf;
};

template <class MemorySpace, class BuildType, class SliceType>
class Gather<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, SliceType,
             typename std::enable_if<is_slice<SliceType>::value>::type>
    : public sluice::cabana::detail::GatherOf<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>, SliceType> {
  using Gather::GatherOf::GatherOf;
};

template <class MemorySpace, class BuildType, class SliceType>
class Scatter<Halo<MemorySpace, BuildType, sluice::cabana::CommSpace>, SliceType>
    : public sluice::cabana::detail::ScatterOf<sluice::cabana::detail::HaloOn<MemorySpace, BuildType>, SliceType> {
  using Scatter::ScatterOf::ScatterOf;
};

/// Particles go to the ranks that the distributor was made with. Blocks the host until they are there. Waits for what
/// was launched on `exec` before; what moves them runs on the default instance for their memory. All ranks.
/// @throws std::runtime_error if the sizes are not the distributor's
template <class ExecutionSpace, class MemorySpace, class Particles>
void migrate(
    const ExecutionSpace& exec, const Distributor<MemorySpace, sluice::cabana::CommSpace>& distributor,
    const Particles& src, Particles& dst,
    typename std::enable_if<(is_aosoa<Particles>::value || is_slice<Particles>::value), int>::type* = nullptr) {
  sluice::cabana::detail::check_sizes(distributor, src, dst.size());
  exec.fence("sluice: particles are about to move");
  distributor.movers().move(sluice::cabana::detail::exports_of(distributor, 0), src, dst,
                            sluice::cabana::detail::Store{});
}

/// In place: the AoSoA has afterwards the size of what has come.
template <class ExecutionSpace, class MemorySpace, class AoSoAType>
void migrate(const ExecutionSpace& exec, const Distributor<MemorySpace, sluice::cabana::CommSpace>& distributor,
             AoSoAType& aosoa, typename std::enable_if<is_aosoa<AoSoAType>::value, int>::type* = nullptr) {
  const std::size_t come = distributor.totalNumImport();
  sluice::cabana::detail::check_sizes(distributor, aosoa, come);
  exec.fence("sluice: particles are about to move");
  if (come > aosoa.size()) aosoa.resize(come);
  distributor.movers().move(sluice::cabana::detail::exports_of(distributor, 0), aosoa, aosoa,
                            sluice::cabana::detail::Store{});
  if (come < aosoa.size()) aosoa.resize(come);
}

}  // namespace Cabana
