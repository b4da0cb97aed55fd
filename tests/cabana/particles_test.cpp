// SPDX-License-Identifier: Apache-2.0
// Particles by Sluice and by Cabana's own MPI, side by side on equal plans: every member is the same afterwards.
#include <sluice/cabana.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/cabana/heard.hpp"

namespace {

using sluice::cabana::CommSpace;
using Host = Kokkos::HostSpace;
using Ids = Kokkos::View<int*, Host>;
using Ranks = Kokkos::View<int*, Host>;

/// Two kinds of particles: they differ in members, vector length, and in whether tuples have gaps.
using Large = Cabana::AoSoA<Cabana::MemberTypes<double[3], int, float[2][2], char>, Host, 4>;
using Small = Cabana::AoSoA<Cabana::MemberTypes<float, short[2]>, Host, 16>;

int rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

/// In this order in every plan: one that finds out by itself may have another order each time.
std::vector<int> everybody() {
  std::vector<int> all(static_cast<std::size_t>(ranks()));
  std::iota(all.begin(), all.end(), 0);
  return Cabana::getUniqueTopology(MPI_COMM_WORLD, all);
}

/// f(slice of each ...) for each member.
template <class F, class... AoSoAs>
void each_member(F f, AoSoAs&... all) {
  using First = std::tuple_element_t<0, std::tuple<AoSoAs...>>;
  [&]<std::size_t... M>(std::index_sequence<M...>) {
    const auto of_member = [&](auto member) { f(Cabana::slice<decltype(member)::value>(all)...); };
    (of_member(std::integral_constant<std::size_t, M>()), ...);
  }
  (std::make_index_sequence<First::number_of_members>());
}

/// f(component of each ...) for each component of all particles.
template <class F, class Slice, class... Others>
void each_component(F f, const Slice& slice, const Others&... others) {
  std::size_t components = 1;
  for (std::size_t d = 2; d < slice.viewRank(); ++d) components *= slice.extent(d);
  constexpr std::size_t kLength = Slice::vector_length;
  for (std::size_t i = 0; i < slice.size(); ++i) {
    for (std::size_t n = 0; n < components; ++n) {
      const auto at = i / kLength * slice.stride(0) + i % kLength + n * kLength;
      f(i, n, slice.data()[at], others.data()[at]...);
    }
  }
}

/// Small whole numbers, so that sums are exact in every order.
template <class AoSoA>
AoSoA particles(std::size_t count, int step) {
  AoSoA made("particles", count);
  const auto fill = [step](std::size_t i, std::size_t n, auto& value) {
    const std::size_t seed = static_cast<std::size_t>(rank()) * 7919 + i * 31 + n * 13 + static_cast<std::size_t>(step);
    value = static_cast<std::remove_reference_t<decltype(value)>>(seed % 97);
  };
  each_member([&](const auto& slice) { each_component(fill, slice); }, made);
  return made;
}

template <class AoSoA>
void expect_equal(const AoSoA& ours, const AoSoA& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  std::size_t wrong = 0;
  const auto compare = [&](std::size_t, std::size_t, auto mine, auto other) { wrong += mine != other; };
  each_member([&](const auto& mine, const auto& other) { each_component(compare, mine, other); }, ours, theirs);
  EXPECT_EQ(wrong, 0U) << what;
}
std::string of_step(int step) { return "step " + std::to_string(step); }

/// Rank 1 has no particles in every third step; numbers grow and shrink.
std::size_t local_of(int rank, int step) {
  std::mt19937 random(static_cast<unsigned>(step * 100 + rank));
  if (rank == 1 && step % 3 == 0) return 0;
  return std::uniform_int_distribution<std::size_t>(1, step % 2 == 0 ? 10 : 300)(random);
}

/// The particles of a rank, and those that it sends or wants: to and from which rank, some several times.
struct Wishes {
  std::size_t local;
  Ids ids;
  Ranks of;
};

template <class Build>
Wishes wishes(int step) {
  std::mt19937 random(static_cast<unsigned>(step * 100 + 50 + rank()));
  const auto below = [&](std::size_t end) {
    return static_cast<int>(std::uniform_int_distribution<std::size_t>(0, end - 1)(random));
  };
  const std::size_t local = local_of(rank(), step);
  const auto count = static_cast<std::size_t>(below(2 * local + 1));
  Wishes made{local, Ids("ids", count), Ranks("ranks", count)};
  for (std::size_t i = 0; i < count; ++i) {
    const int other = below(static_cast<std::size_t>(ranks()));
    const bool has_any = std::is_same_v<Build, Cabana::Export> || local_of(other, step) > 0;
    made.of(i) = has_any ? other : rank();
    made.ids(i) = below(local_of(std::is_same_v<Build, Cabana::Export> ? rank() : made.of(i), step));
  }
  return made;
}

template <class Particles, class Build>
struct Kind {
  using AoSoA = Particles;
  using BuildType = Build;
  template <class CommSpace>
  using HaloOf = Cabana::Halo<Host, Build, CommSpace>;
};

template <class Halo, class AoSoA>
void gather_ghosts(const Halo& halo, AoSoA& all) {
  all.resize(halo.numLocal() + halo.numGhost());
  Cabana::gather(halo, all);
}

template <class>
class Halo : public testing::Test {};
using Halos = testing::Types<Kind<Large, Cabana::Export>, Kind<Small, Cabana::Export>, Kind<Large, Cabana::Import>>;
TYPED_TEST_SUITE(Halo, Halos);

TYPED_TEST(Halo, gathers_all_members) {
  for (int step = 0; step < 8; ++step) {
    const Wishes what = wishes<typename TypeParam::BuildType>(step);
    typename TypeParam::template HaloOf<CommSpace> ours(MPI_COMM_WORLD, what.local, what.ids, what.of, everybody());
    typename TypeParam::template HaloOf<Cabana::Mpi> theirs(MPI_COMM_WORLD, what.local, what.ids, what.of, everybody());
    ASSERT_EQ(ours.numGhost(), theirs.numGhost());
    auto mine = particles<typename TypeParam::AoSoA>(what.local, step);
    auto other = particles<typename TypeParam::AoSoA>(what.local, step);
    gather_ghosts(ours, mine);
    gather_ghosts(theirs, other);
    expect_equal(mine, other, of_step(step));
  }
}

TYPED_TEST(Halo, gathers_and_scatters_slices_again_and_again_and_after_it_was_built_anew) {
  const Wishes first = wishes<typename TypeParam::BuildType>(100);
  typename TypeParam::template HaloOf<CommSpace> ours(MPI_COMM_WORLD, first.local, first.ids, first.of, everybody());
  typename TypeParam::template HaloOf<Cabana::Mpi> theirs(MPI_COMM_WORLD, first.local, first.ids, first.of,
                                                          everybody());
  for (int step = 100; step < 106; ++step) {
    const Wishes what = wishes<typename TypeParam::BuildType>(step);
    ours.build(what.local, what.ids, what.of, everybody());
    theirs.build(what.local, what.ids, what.of, everybody());
    auto mine = particles<typename TypeParam::AoSoA>(what.local, step);
    auto other = particles<typename TypeParam::AoSoA>(what.local, step);
    gather_ghosts(ours, mine);
    gather_ghosts(theirs, other);
    const auto both = [&](const auto& here, const auto& there) {
      auto gather_ours = Cabana::createGather(ours, here);
      auto gather_theirs = Cabana::createGather(theirs, there);
      auto scatter_ours = Cabana::createScatter(ours, here);
      auto scatter_theirs = Cabana::createScatter(theirs, there);
      for (int time = 0; time < 3; ++time) {
        scatter_ours.apply();
        scatter_theirs.apply();
        gather_ours.apply();
        gather_theirs.apply();
      }
    };
    each_member(both, mine, other);
    expect_equal(mine, other, of_step(step));
  }
}

using Exported = Cabana::Halo<Host, Cabana::Export, CommSpace>;

Exported halo_of(const Wishes& what) { return {MPI_COMM_WORLD, what.local, what.ids, what.of, everybody()}; }

TEST(Gather, goes_on_with_what_it_reserves) {
  Wishes what = wishes<Cabana::Export>(1);
  Exported ours = halo_of(what);
  Cabana::Halo<Host, Cabana::Export> theirs(MPI_COMM_WORLD, what.local, what.ids, what.of, everybody());
  auto mine = particles<Large>(ours.numLocal() + ours.numGhost(), 1);
  auto other = particles<Large>(ours.numLocal() + ours.numGhost(), 1);
  auto gather_ours = Cabana::createGather(ours, mine);
  auto gather_theirs = Cabana::createGather(theirs, other);
  auto scatter_ours = Cabana::createScatter(ours, Cabana::slice<1>(mine));
  auto scatter_theirs = Cabana::createScatter(theirs, Cabana::slice<1>(other));
  for (int step = 2; step < 6; ++step) {
    what = wishes<Cabana::Export>(step);
    ours.build(what.local, what.ids, what.of, everybody());
    theirs.build(what.local, what.ids, what.of, everybody());
    mine = particles<Large>(ours.numLocal() + ours.numGhost(), step);
    other = particles<Large>(ours.numLocal() + ours.numGhost(), step);
    EXPECT_EQ(gather_ours.totalSend(ours), gather_theirs.totalSend(theirs));
    EXPECT_EQ(scatter_ours.totalReceive(ours), scatter_theirs.totalReceive(theirs));
    gather_ours.reserve(ours, mine);
    gather_theirs.reserve(theirs, other);
    scatter_ours.reserve(ours, Cabana::slice<1>(mine));
    scatter_theirs.reserve(theirs, Cabana::slice<1>(other));
    EXPECT_EQ(gather_ours.totalReceive(), gather_theirs.totalReceive());
    EXPECT_EQ(scatter_ours.totalSend(), scatter_theirs.totalSend());
    gather_ours.apply();
    gather_theirs.apply();
    scatter_ours.apply();
    scatter_theirs.apply();
    expect_equal(mine, other, of_step(step));
  }
}

/// The plan finds its neighbours by itself: ghosts have the particles of those that sent them, in their order.
TEST(Neighbours, that_a_halo_finds_send_what_they_have) {
  for (int step = 0; step < 4; ++step) {
    const Wishes what = wishes<Cabana::Export>(step);
    const Exported halo(MPI_COMM_WORLD, what.local, what.ids, what.of);
    Large all("who", halo.numLocal() + halo.numGhost());
    const auto who = Cabana::slice<1>(all);
    for (std::size_t i = 0; i < halo.numLocal(); ++i) who(i) = rank() * 1000 + static_cast<int>(i);
    Cabana::gather(halo, all);
    std::size_t ghost = halo.numLocal();
    for (int n = 0; n < halo.numNeighbor(); ++n) {
      for (std::size_t i = 0; i < halo.numImport(n); ++i, ++ghost) EXPECT_EQ(who(ghost) / 1000, halo.neighborRank(n));
    }
  }
}

TEST(Gather, refuses_particles_of_another_number) {
  const Exported halo = halo_of(wishes<Cabana::Export>(2));
  Large some("particles", halo.numLocal() + halo.numGhost() + 1);
  EXPECT_THROW(Cabana::gather(halo, some), std::runtime_error);
}

/// The destination of each particle; -1: no rank.
Ranks destinations(std::size_t count, int step) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + rank()));
  std::uniform_int_distribution<int> any(-1, ranks() - 1);
  Ranks to("ranks", count);
  for (std::size_t i = 0; i < count; ++i) to(i) = any(random);
  return to;
}
/// Every rank sends to every other.
Ranks all_round(std::size_t count) {
  Ranks to("ranks", count);
  for (std::size_t i = 0; i < count; ++i) to(i) = static_cast<int>(i) % ranks();
  return to;
}

template <class CommSpace>
using DistributorOf = Cabana::Distributor<Host, CommSpace>;

template <class CommSpace, class AoSoA>
AoSoA migrated(const AoSoA& from, const Ranks& to) {
  const DistributorOf<CommSpace> distributor(MPI_COMM_WORLD, to, everybody());
  AoSoA there("there", distributor.totalNumImport());
  Cabana::migrate(distributor, from, there);
  return there;
}

/// In place.
template <class CommSpace, class AoSoA>
void migrate(AoSoA& particles, const Ranks& to) {
  const DistributorOf<CommSpace> distributor(MPI_COMM_WORLD, to, everybody());
  Cabana::migrate(distributor, particles);
}

template <class>
class Distributor : public testing::Test {};
using Distributors = testing::Types<Large, Small>;
TYPED_TEST_SUITE(Distributor, Distributors);

TYPED_TEST(Distributor, migrates_between_arrays) {
  for (int step = 0; step < 6; ++step) {
    const std::size_t count = rank() == 1 && step % 2 == 0 ? 0 : static_cast<std::size_t>(20 + 70 * (step % 3));
    const auto from = particles<TypeParam>(count, step);
    const Ranks to = destinations(from.size(), step);
    expect_equal(migrated<CommSpace>(from, to), migrated<Cabana::Mpi>(from, to), of_step(step));
  }
}

/// The next step has what this one has brought: numbers drift, and some ranks run dry.
TYPED_TEST(Distributor, migrates_in_place_step_after_step) {
  const std::size_t count = 50 * (static_cast<std::size_t>(rank()) + 1);
  auto ours = particles<TypeParam>(count, 0);
  auto theirs = particles<TypeParam>(count, 0);
  for (int step = 0; step < 8; ++step) {
    const Ranks to = destinations(ours.size(), 50 + step);
    migrate<CommSpace>(ours, to);
    migrate<Cabana::Mpi>(theirs, to);
    expect_equal(ours, theirs, of_step(step));
  }
}

TYPED_TEST(Distributor, migrates_slices_again_and_again) {
  const auto from = particles<TypeParam>(90, 3);
  const Ranks to = destinations(from.size(), 3);
  const DistributorOf<CommSpace> ours(MPI_COMM_WORLD, to, everybody());
  const DistributorOf<Cabana::Mpi> theirs(MPI_COMM_WORLD, to, everybody());
  TypeParam mine("mine", ours.totalNumImport());
  TypeParam other("other", theirs.totalNumImport());
  for (int time = 0; time < 5; ++time) {
    each_member([&](const auto& here, auto there) { Cabana::migrate(ours, here, there); }, from, mine);
    each_member([&](const auto& here, auto there) { Cabana::migrate(theirs, here, there); }, from, other);
  }
  expect_equal(mine, other, "slices");
}

/// The order of neighbours that the plan finds by itself may be another each time: so is that of particles.
TEST(Neighbours, that_a_distributor_finds_get_what_is_theirs) {
  for (int step = 0; step < 4; ++step) {
    const Large from = particles<Large>(80, step);
    const Ranks to = destinations(from.size(), step);
    const DistributorOf<CommSpace> ours(MPI_COMM_WORLD, to);
    Large there("there", ours.totalNumImport());
    Cabana::migrate(ours, from, there);
    Large expected = migrated<Cabana::Mpi>(from, to);
    const auto sorted = [](const Large& all) {
      std::vector<std::array<double, 3>> positions;
      const auto position = Cabana::slice<0>(all);
      for (std::size_t i = 0; i < all.size(); ++i)
        positions.push_back({position(i, 0), position(i, 1), position(i, 2)});
      std::ranges::sort(positions);
      return positions;
    };
    EXPECT_EQ(sorted(there), sorted(expected)) << of_step(step);
  }
}

TEST(Migrate, refuses_a_target_of_another_size) {
  const Large from = particles<Large>(10, 0);
  const DistributorOf<CommSpace> distributor(MPI_COMM_WORLD, destinations(from.size(), 4), everybody());
  Large there("there", distributor.totalNumImport() + 1);
  EXPECT_THROW(Cabana::migrate(distributor, from, there), std::runtime_error);
}

TEST(Migrate, waits_for_an_instance_of_the_programs_own) {
  const Large from = particles<Large>(100, 0);
  const Ranks to = destinations(from.size(), 5);
  const DistributorOf<CommSpace> distributor(MPI_COMM_WORLD, to, everybody());
  const Large expected = migrated<Cabana::Mpi>(from, to);
  const auto check = [&](const auto& exec) {
    Large there("there", distributor.totalNumImport());
    Large in_place("in place", from.size());
    Cabana::deep_copy(in_place, from);
    const Heard heard;
    Cabana::migrate(exec, distributor, from, there);
    Cabana::migrate(exec, distributor, in_place);
    EXPECT_EQ(Heard::count("sluice: particles are about to move"), 2);
    expect_equal(there, expected, "migrate");
    expect_equal(in_place, expected, "migrate in place");
  };
  check(Kokkos::Experimental::partition_space(Host::execution_space(), 1)[0]);
  check(Kokkos::Serial());
}

/// Kernels are loaded where channels are opened.
TEST(Plans, on_a_communicator_share_their_channels) {
  const Large from = particles<Large>(100, 0);
  const Ranks to = all_round(from.size());
  static_cast<void>(migrated<CommSpace>(from, to));
  const Heard heard;
  for (int step = 0; step < 5; ++step) static_cast<void>(migrated<CommSpace>(from, to));
  EXPECT_EQ(Heard::count("sluice: load"), 0);
  EXPECT_EQ(Heard::count("sluice: move particles"), 5);
}

/// The others come to the second gather when rank 0 has done it and forgotten the halo. They keep theirs.
TEST(Plans, that_end_take_nothing_from_those_that_are_behind) {
  const std::size_t count = rank() == 0 ? 12 : 0;
  Wishes what{12, Ids("ids", count), all_round(count)};
  for (std::size_t i = 0; i < count; ++i) what.ids(i) = static_cast<int>(i);
  auto halo = std::make_unique<Exported>(halo_of(what));
  Large all("who", halo->numLocal() + halo->numGhost());
  Cabana::gather(*halo, all);
  const auto who = Cabana::slice<1>(all);
  for (std::size_t i = 0; i < halo->numLocal(); ++i) who(i) = rank() + 7;
  if (rank() == 0) {
    Cabana::gather(*halo, all);
    halo.reset();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() != 0) Cabana::gather(*halo, all);
  const auto expect_ghosts = [&] {
    for (std::size_t i = 12; i < all.size(); ++i) EXPECT_EQ(who(i), 7);
  };
  expect_ghosts();
  Cabana::gather(halo_of(what), all);
  expect_ghosts();
}

/// Its channels fail at both ends, as they do if it ends. Afterwards what is left of that move may be under way.
TEST(Plans, with_a_rank_that_is_lost_move_nothing_any_longer) {
  if (ranks() == 1) return;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank(), &comm);  // in another order: nothing is shared with others' plans
  const Large from = particles<Large>(20, 0);
  const DistributorOf<CommSpace> to_all(comm, all_round(from.size()), everybody());
  const DistributorOf<CommSpace> to_none(comm, Ranks("ranks", 0), everybody());
  Large there("there", to_all.totalNumImport());
  Large nothing("nothing", 0);
  Cabana::migrate(to_all, from, there);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() == 0) sluice::kokkos::detail::shared_by(comm)->context.abort("lost");
  EXPECT_THROW(Cabana::migrate(to_all, from, there), sluice::Error);
  EXPECT_THROW(Cabana::migrate(to_none, nothing, nothing), sluice::Error);
  MPI_Comm_free(&comm);
}

/// If one rank alone has seen a failure, later communicators of these ranks share one context again, on all ranks.
TEST(Contexts, that_failed_on_a_rank_are_left_by_all) {
  const auto split = [] {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, (rank() + 1) % ranks(), &made);
    return made;
  };
  std::array<MPI_Comm, 3> comms{};
  std::array<std::shared_ptr<sluice::kokkos::detail::Shared>, 3> shared;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    comms[i] = split();
    shared[i] = sluice::kokkos::detail::shared_by(comms[i]);
    if (i == 0) *shared[i]->failed = rank() == 0;
    const DistributorOf<CommSpace> distributor(comms[i], all_round(30), everybody());
    Large there("there", distributor.totalNumImport());
    if (i > 0) Cabana::migrate(distributor, particles<Large>(30, 0), there);
  }
  EXPECT_NE(shared[1], shared[0]);
  EXPECT_EQ(shared[2], shared[1]);
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

}  // namespace
