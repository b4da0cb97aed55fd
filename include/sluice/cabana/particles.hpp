// SPDX-License-Identifier: Apache-2.0
// Particles: Cabana's Halo and Distributor with CommSpace in place of Cabana::Mpi. MPI still finds out who sends what
// to whom when one of them is made or built anew; gather, scatter and migrate move the particles through channels.
#pragma once

#include <sluice/cabana/communicator.hpp>
#include <sluice/kokkos/messages.hpp>

#include <Cabana_Core.hpp>
#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice::cabana::detail {

using kokkos::detail::Way;

/// How particles of an AoSoA lie in a message: as tuples.
template <class Particles, class = void>
struct Packed {
  using Element = typename Particles::tuple_type;

  explicit Packed(const Particles& all) : particles(all) {}
  std::size_t bytes() const { return sizeof(Element); }
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

/// Moves particles between the ranks of a plan. One message to each neighbour; those that stay pass through memory of
/// the rank's own, so that they may go to where others come from.
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

  explicit Movers(MPI_Comm comm)
      : communicator_(communicator(comm)), rank_(communicator_->context.rank()),
        messages_(communicator_->context, kokkos::Queue<Exec>(Exec()), communicator_->next_name()) {}

  /// Returns when `to` has all of it, and `from` may be overwritten.
  template <class Particles, class How>
  void move(const std::vector<Turn>& turns, const Particles& from, const Particles& to, How how) {
    const kokkos::Queue<Exec>& queue = messages_.queue();
    const Packed<Particles> source(from);
    const Packed<Particles> target(to);
    std::vector<typename kokkos::Messages<Exec>::Request> sent;
    std::vector<typename kokkos::Messages<Exec>::Request> received;
    const auto pack = [&queue, source](const Which& which, std::byte* packed) {
      queue.parallel_for("sluice: pack particles", static_cast<std::int64_t>(which.count),
                         PackParticles<Particles, Which>{source, which, packed});
    };
    const auto unpack = [&queue, target, how](const Which& which, const std::byte* packed) {
      queue.parallel_for("sluice: unpack particles", static_cast<std::int64_t>(which.count),
                         UnpackParticles<Particles, Which, How>{target, which, packed, how});
    };
    for (const Turn& turn : turns) {
      if (turn.rank == rank_) {
        if (turn.out.count * source.bytes() > staying_.extent(0)) {
          staying_ = decltype(staying_)(Kokkos::view_alloc(Kokkos::WithoutInitializing, "sluice: staying particles"),
                                        turn.out.count * source.bytes());
        }
        pack(turn.out, staying_.data());
      } else {
        const auto out = [pack, which = turn.out](std::byte* packed) { pack(which, packed); };
        sent.push_back(messages_.send(turn.rank, turn.out.count * source.bytes(), out));
      }
    }
    for (const Turn& turn : turns) {
      if (turn.rank == rank_) continue;
      const auto in = [unpack, which = turn.in](const std::byte* packed) { unpack(which, packed); };
      received.push_back(messages_.receive(turn.rank, turn.in.count * target.bytes(), in));
    }
    for (const auto& one : sent) messages_.wait(one);  // before anything is overwritten
    std::size_t next = 0;
    for (const Turn& turn : turns) {  // one neighbour after another
      if (turn.rank == rank_)
        unpack(turn.in, staying_.data());
      else
        messages_.wait(received[next++]);
    }
    queue.fence("sluice: particles have moved");
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  int rank_;
  kokkos::Messages<Exec> messages_;
  Kokkos::View<std::byte*, MemorySpace> staying_;
};

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
  using plan_type = Halo;
  using particle_data_type = Particles;
  using execution_space = typename Halo::execution_space;
  using memory_space = typename Halo::memory_space;

  /// @throws std::runtime_error if the particles are not as many as the halo's own and its ghosts
  HaloData(const Halo& halo, const Particles& particles) : halo_(halo), particles_(particles) { check(); }

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
  explicit GatherOf(const Halo& halo, const Particles& particles, double = 1.0)
      : HaloData<Halo, Particles>(halo, particles) {}
  std::size_t totalSend() const { return this->halo_.totalNumExport(); }
  std::size_t totalReceive() const { return this->halo_.totalNumImport(); }
  /// Blocks the host until the ghosts are there. All ranks of the halo.
  void apply() {
    const auto turns = exports_of(this->halo_, this->halo_.numLocal());
    this->halo_.movers().move(turns, this->particles_, this->particles_, Store{});
  }
};

template <class Halo, class Particles>
class ScatterOf : public HaloData<Halo, Particles> {
 public:
  explicit ScatterOf(const Halo& halo, const Particles& particles, double = 1.0)
      : HaloData<Halo, Particles>(halo, particles) {}
  std::size_t totalSend() const { return this->halo_.totalNumImport(); }
  std::size_t totalReceive() const { return this->halo_.totalNumExport(); }
  /// Blocks the host until the ghosts of all ranks are added to what they are ghosts of. All ranks of the halo.
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

/// The plan of MPI, whose particles take another way.
template <class MemorySpace>
class CommunicationPlan<MemorySpace, sluice::cabana::CommSpace> : public CommunicationPlan<MemorySpace, Mpi> {
 public:
  /// What moves particles. Copies of a plan share it.
  auto& movers() const { return *movers_; }

 protected:
  explicit CommunicationPlan(MPI_Comm comm)
      : CommunicationPlan<MemorySpace, Mpi>(comm),
        movers_(std::make_shared<sluice::cabana::detail::Movers<MemorySpace>>(comm)) {}

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

/// Particles go to the ranks that the distributor was made with. Blocks the host until they are there; waits for what
/// was launched on `exec`. All ranks. @throws std::runtime_error if the sizes are not the distributor's
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
