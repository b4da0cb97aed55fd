// SPDX-License-Identifier: Apache-2.0
// Particles by Sluice and by Cabana's own MPI, side by side on equal plans: every member is the same afterwards.
#include <sluice/cabana.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using sluice::cabana::CommSpace;
using Host = Kokkos::HostSpace;
using Members = Cabana::MemberTypes<double[3], int, float[2][2], char>;
using AoSoA = Cabana::AoSoA<Members, Host, 4>;
using Ids = Kokkos::View<std::size_t*, Host>;
using Ranks = Kokkos::View<int*, Host>;

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

/// Small whole numbers, so that sums are exact in every order.
AoSoA particles(std::size_t count, int step) {
  AoSoA made("particles", count);
  const auto position = Cabana::slice<0>(made);
  const auto kind = Cabana::slice<1>(made);
  const auto matrix = Cabana::slice<2>(made);
  const auto letter = Cabana::slice<3>(made);
  for (std::size_t i = 0; i < count; ++i) {
    const auto seed = static_cast<int>((static_cast<std::size_t>(rank()) * 7919 + i * 31) % 997) + step;
    for (int d = 0; d < 3; ++d) position(i, d) = seed * 3 + d;
    kind(i) = seed;
    for (int d = 0; d < 4; ++d) matrix(i, d / 2, d % 2) = static_cast<float>(seed % 100 + d);
    letter(i) = static_cast<char>(seed % 64);
  }
  return made;
}

void expect_equal(const AoSoA& ours, const AoSoA& theirs, const std::string& what) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  std::size_t wrong = 0;
  const auto compare = [&](const auto& mine, const auto& other, std::size_t components) {
    for (std::size_t i = 0; i < ours.size(); ++i) {
      for (std::size_t n = 0; n < components; ++n) {
        const auto at = decltype(mine.stride(0))(i / 4 * mine.stride(0) + i % 4 + n * 4);
        wrong += mine.data()[at] != other.data()[at];
      }
    }
  };
  compare(Cabana::slice<0>(ours), Cabana::slice<0>(theirs), 3);
  compare(Cabana::slice<1>(ours), Cabana::slice<1>(theirs), 1);
  compare(Cabana::slice<2>(ours), Cabana::slice<2>(theirs), 4);
  compare(Cabana::slice<3>(ours), Cabana::slice<3>(theirs), 1);
  EXPECT_EQ(wrong, 0U) << what;
}

/// What a rank sends: some of its particles, each to any rank, several times as the case may be.
struct Exports {
  std::size_t local;
  Ids ids;
  Ranks to;
};

/// Rank 1 has no particles in every third step, and sends none; numbers grow and shrink.
Exports exports(int step) {
  std::mt19937 random(static_cast<unsigned>(step * 100 + rank()));
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  const std::size_t local = rank() == 1 && step % 3 == 0 ? 0 : 1 + below(step % 2 == 0 ? 10 : 300);
  const std::size_t count = local == 0 ? 0 : below(2 * local);
  Exports made{local, Ids("ids", count), Ranks("ranks", count)};
  for (std::size_t i = 0; i < count; ++i) {
    made.ids(i) = below(local);
    made.to(i) = static_cast<int>(below(static_cast<std::size_t>(ranks())));
  }
  return made;
}

template <class CommSpace>
using HaloOf = Cabana::Halo<Host, Cabana::Export, CommSpace>;

template <class CommSpace>
AoSoA gathered(HaloOf<CommSpace>& halo, std::size_t local, int step) {
  AoSoA all = particles(local, step);
  all.resize(halo.numLocal() + halo.numGhost());
  Cabana::gather(halo, all);
  return all;
}

TEST(Halo, gathers_all_members) {
  for (int step = 0; step < 8; ++step) {
    const Exports what = exports(step);
    HaloOf<CommSpace> ours(MPI_COMM_WORLD, what.local, what.ids, what.to, everybody());
    HaloOf<Cabana::Mpi> theirs(MPI_COMM_WORLD, what.local, what.ids, what.to, everybody());
    ASSERT_EQ(ours.numGhost(), theirs.numGhost());
    expect_equal(gathered(ours, what.local, step), gathered(theirs, what.local, step), "step " + std::to_string(step));
  }
}

TEST(Halo, gathers_and_scatters_slices_again_and_again_and_after_it_was_built_anew) {
  const Exports first = exports(100);
  HaloOf<CommSpace> ours(MPI_COMM_WORLD, first.local, first.ids, first.to, everybody());
  HaloOf<Cabana::Mpi> theirs(MPI_COMM_WORLD, first.local, first.ids, first.to, everybody());
  for (int step = 0; step < 6; ++step) {
    const Exports what = exports(100 + step);
    ours.build(what.local, what.ids, what.to, everybody());
    theirs.build(what.local, what.ids, what.to, everybody());
    AoSoA mine = gathered(ours, what.local, step);
    AoSoA other = gathered(theirs, what.local, step);
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
    both(Cabana::slice<0>(mine), Cabana::slice<0>(other));
    both(Cabana::slice<1>(mine), Cabana::slice<1>(other));
    both(Cabana::slice<2>(mine), Cabana::slice<2>(other));
    expect_equal(mine, other, "step " + std::to_string(step));
  }
}

/// The plan finds its neighbours by itself: ghosts have the particles of those that sent them, in their order.
TEST(Halo, of_unknown_neighbours_gathers_what_they_have) {
  for (int step = 0; step < 4; ++step) {
    const Exports what = exports(step);
    HaloOf<CommSpace> halo(MPI_COMM_WORLD, what.local, what.ids, what.to);
    AoSoA all("who", halo.numLocal() + halo.numGhost());
    const auto who = Cabana::slice<1>(all);
    for (std::size_t i = 0; i < halo.numLocal(); ++i) who(i) = rank() * 1000 + static_cast<int>(i);
    Cabana::gather(halo, all);
    std::size_t ghost = halo.numLocal();
    for (int n = 0; n < halo.numNeighbor(); ++n) {
      for (std::size_t i = 0; i < halo.numImport(n); ++i, ++ghost) EXPECT_EQ(who(ghost) / 1000, halo.neighborRank(n));
    }
  }
}

TEST(Halo, refuses_particles_of_another_number) {
  const Exports what = exports(2);
  HaloOf<CommSpace> halo(MPI_COMM_WORLD, what.local, what.ids, what.to, everybody());
  AoSoA some("particles", halo.numLocal() + halo.numGhost() + 1);
  EXPECT_THROW(Cabana::gather(halo, some), std::runtime_error);
}

/// Where each particle goes: -1 is nowhere.
Ranks destinations(std::size_t count, int step) {
  std::mt19937 random(static_cast<unsigned>(step * 1000 + rank()));
  std::uniform_int_distribution<int> any(-1, ranks() - 1);
  Ranks to("ranks", count);
  for (std::size_t i = 0; i < count; ++i) to(i) = any(random);
  return to;
}

template <class CommSpace>
AoSoA migrated(const AoSoA& from, const Ranks& to) {
  const Cabana::Distributor<Host, CommSpace> distributor(MPI_COMM_WORLD, to, everybody());
  AoSoA there("there", distributor.totalNumImport());
  Cabana::migrate(distributor, from, there);
  return there;
}

/// In place.
template <class CommSpace>
void migrate(AoSoA& particles, const Ranks& to) {
  const Cabana::Distributor<Host, CommSpace> distributor(MPI_COMM_WORLD, to, everybody());
  Cabana::migrate(distributor, particles);
}

TEST(Distributor, migrates_between_arrays) {
  for (int step = 0; step < 6; ++step) {
    const AoSoA from =
        particles(rank() == 1 && step % 2 == 0 ? 0 : static_cast<std::size_t>(20 + 70 * (step % 3)), step);
    const Ranks to = destinations(from.size(), step);
    expect_equal(migrated<CommSpace>(from, to), migrated<Cabana::Mpi>(from, to), "step " + std::to_string(step));
  }
}

/// The next step has what this one has brought: numbers drift, and some ranks run dry.
TEST(Distributor, migrates_in_place_step_after_step) {
  AoSoA ours = particles(static_cast<std::size_t>(50 * (rank() + 1)), 0);
  AoSoA theirs = particles(static_cast<std::size_t>(50 * (rank() + 1)), 0);
  for (int step = 0; step < 8; ++step) {
    const Ranks to = destinations(ours.size(), 50 + step);
    migrate<CommSpace>(ours, to);
    migrate<Cabana::Mpi>(theirs, to);
    expect_equal(ours, theirs, "step " + std::to_string(step));
  }
}

TEST(Distributor, migrates_slices_and_keeps_its_channels) {
  const AoSoA from = particles(90, 3);
  const Ranks to = destinations(from.size(), 3);
  const Cabana::Distributor<Host, CommSpace> ours(MPI_COMM_WORLD, to, everybody());
  const Cabana::Distributor<Host, Cabana::Mpi> theirs(MPI_COMM_WORLD, to, everybody());
  AoSoA mine("mine", ours.totalNumImport());
  AoSoA other("other", theirs.totalNumImport());
  const auto move = [&](const auto& distributor, AoSoA& there) {
    const auto position = Cabana::slice<0>(from);
    const auto kind = Cabana::slice<1>(from);
    const auto matrix = Cabana::slice<2>(from);
    const auto letter = Cabana::slice<3>(from);
    auto position_there = Cabana::slice<0>(there);
    auto kind_there = Cabana::slice<1>(there);
    auto matrix_there = Cabana::slice<2>(there);
    auto letter_there = Cabana::slice<3>(there);
    for (int time = 0; time < 5; ++time) {
      Cabana::migrate(distributor, position, position_there);
      Cabana::migrate(distributor, kind, kind_there);
      Cabana::migrate(distributor, matrix, matrix_there);
      Cabana::migrate(distributor, letter, letter_there);
    }
  };
  move(ours, mine);
  move(theirs, other);
  expect_equal(mine, other, "slices");
}

TEST(Distributor, refuses_a_target_of_another_size) {
  const AoSoA from = particles(10, 0);
  const Cabana::Distributor<Host, CommSpace> distributor(MPI_COMM_WORLD, destinations(from.size(), 4), everybody());
  AoSoA there("there", distributor.totalNumImport() + 1);
  EXPECT_THROW(Cabana::migrate(distributor, from, there), std::runtime_error);
}

}  // namespace
