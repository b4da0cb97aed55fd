// SPDX-License-Identifier: Apache-2.0
// The backend `mpi` between processes: this program starts itself under mpiexec.
#include "tests/unit/mpiexec.hpp"

#include <sluice/collectives.hpp>
#include <sluice/mpi.hpp>
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using sluice::tests::contains;
using sluice::tests::mpiexec;
using sluice::tests::Result;

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// ---- what the ranks do: this program with "--as WHAT" ----

constexpr std::uint64_t kEpochs = 20;

/// Numbers that no other rank and no other epoch has.
void fill_words(const sluice::Slice& slot, int rank, std::uint64_t epoch) {
  const auto words = slot.as<std::uint64_t>();
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint64_t>(rank) << 48 | epoch << 32 | i;
}

void expect_words(const sluice::Slice& slot, int rank, std::uint64_t epoch) {
  const auto words = slot.as<std::uint64_t>();
  for (std::size_t i = 0; i < words.size(); ++i)
    expect(words[i] == (static_cast<std::uint64_t>(rank) << 48 | epoch << 32 | i), "wrong bytes");
}

/// Around the ring, `bytes` in an epoch. All send before any receives, so large messages cross.
void passes_around(sluice::Context& context, sluice::Tag tag, std::size_t bytes) {
  const int size = context.size();
  const int right = (context.rank() + 1) % size;
  const int left = (context.rank() + size - 1) % size;
  const sluice::Memory memory = context.allocate(4 * bytes);
  sluice::Sender east = context.sender(right, tag, memory.slice(0, 2 * bytes), {.depth = 2});
  sluice::Receiver west = context.receiver(left, tag, memory.slice(2 * bytes, 2 * bytes), {.depth = 2});
  east.wait_connected();
  expect(contains(east.describe(), "mpi: sent as a message"), east.describe());
  for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    fill_words(east.acquire({}), context.rank(), epoch);
    east.put({});
    expect_words(west.wait({}), left, epoch);
    west.release({});
  }
  east.drain();
}

void has_channels(sluice::Context& context) {
  passes_around(context, 1, 64);
  passes_around(context, 2, 100'000);
  passes_around(context, 3, 8 << 20);
}

void has_windows(sluice::Context& context) {
  constexpr std::size_t kBytes = 80'000;
  const sluice::Memory memory = context.allocate(3 * kBytes);
  const sluice::Slice mine = memory.slice(0, kBytes);
  fill_words(mine, context.rank(), 1);
  if (context.rank() == 0) mine.as<std::uint64_t>()[0] = 0;
  sluice::Window window = context.window("memory", mine);
  sluice::Collective met = sluice::barrier(context, "met");
  const auto meet = [&] {
    met.start({});
    met.wait({});
  };
  meet();
  const int right = (context.rank() + 1) % context.size();
  sluice::Target target = context.target(right, "memory");
  const sluice::Slice copy = memory.slice(kBytes, kBytes);
  target.get({}, copy.slice(8, kBytes - 8), 8);
  target.flush({});
  for (std::size_t i = 1; i < kBytes / 8; ++i)
    expect(copy.as<std::uint64_t>()[i] == (static_cast<std::uint64_t>(right) << 48 | 1ULL << 32 | i), "wrong bytes");
  meet();
  const sluice::Slice source = memory.slice(2 * kBytes, kBytes);
  fill_words(source, context.rank(), 2);
  target.put({}, source.slice(8, kBytes - 8), 8);
  target.flush({});
  sluice::Target first = context.target(0, "memory");
  for (int i = 0; i < 5; ++i) first.fetch_add(0, 1);
  meet();
  const int left = (context.rank() + context.size() - 1) % context.size();
  for (std::size_t i = 1; i < kBytes / 8; ++i)
    expect(mine.as<std::uint64_t>()[i] == (static_cast<std::uint64_t>(left) << 48 | 2ULL << 32 | i), "wrong bytes");
  if (context.rank() == 0)
    expect(mine.as<std::uint64_t>()[0] == 5 * static_cast<std::uint64_t>(context.size()), "an atomic was lost");
  meet();
}

void has_collectives(sluice::Context& context) {
  constexpr std::size_t kNumbers = 10'000;
  const sluice::Memory memory = context.allocate(kNumbers * sizeof(double));
  const sluice::Slice all = memory.all();
  const auto numbers = all.as<double>();
  sluice::Collective sum = sluice::allreduce(context, "sum", sluice::Op::sum, sluice::Number::float64, all, all);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kNumbers; ++i) numbers[i] = context.rank() + static_cast<double>(i);
    sum.start({});
    sum.wait({});
    const int size = context.size();
    for (std::size_t i = 0; i < kNumbers; ++i)
      expect(numbers[i] == size * (size - 1) / 2.0 + size * static_cast<double>(i), "a wrong sum");
  }
}

/// While Sluice's thread sends and receives, the program does too, on the same ranks.
void calls_mpi_too(sluice::Context& context) {
  const int size = context.size();
  const int right = (context.rank() + 1) % size;
  const int left = (context.rank() + size - 1) % size;
  const sluice::Memory memory = context.allocate(16);
  sluice::Sender east = context.sender(right, 1, memory.slice(0, 8));
  sluice::Receiver west = context.receiver(left, 1, memory.slice(8, 8));
  for (std::uint64_t epoch = 1; epoch <= 200; ++epoch) {
    fill_words(east.acquire({}), context.rank(), epoch);
    east.put({});
    std::uint64_t out = epoch;
    std::uint64_t in = 0;
    MPI_Sendrecv(&out, 1, MPI_UINT64_T, right, 0, &in, 1, MPI_UINT64_T, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(in == epoch, "a message of the program is wrong");
    expect_words(west.wait({}), left, epoch);
    west.release({});
  }
}

void has_several_contexts(sluice::Context& context) {
  sluice::Context same = sluice::mpi::context(MPI_COMM_WORLD);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -context.rank(), &reversed);
  sluice::Context turned = sluice::mpi::context(reversed);
  MPI_Comm_free(&reversed);
  passes_around(turned, 1, 5000);
  passes_around(context, 1, 5000);
  passes_around(same, 1, 5000);
}

void rank_one_throws(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(1 << 20);
  if (context.rank() == 0) {
    sluice::Sender sender = context.sender(1, 1, memory.all());
    sender.wait_connected();
    for (;;) sender.put({});
  }
  sluice::Receiver receiver = context.receiver(0, 1, memory.all());
  receiver.wait({});
  throw std::runtime_error("rank one had enough");
}

const std::map<std::string, void (*)(sluice::Context&)> kBodies = {{"has_channels", has_channels},
                                                                   {"has_windows", has_windows},
                                                                   {"has_collectives", has_collectives},
                                                                   {"calls_mpi_too", calls_mpi_too},
                                                                   {"has_several_contexts", has_several_contexts},
                                                                   {"rank_one_throws", rank_one_throws}};

/// An MPI that the program starts itself, at too low a level for the backend, or ends too early.
int act_with_own_mpi(const std::string& what, int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, what == "is_single" ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
  int code = 0;
  try {
    sluice::Context context = sluice::mpi::context(MPI_COMM_WORLD);
    const sluice::Memory memory = context.allocate(16);
    const int other = 1 - context.rank();
    sluice::Sender sender = context.sender(other, 1, memory.slice(0, 8));
    sluice::Receiver receiver = context.receiver(other, 1, memory.slice(8, 8));
    sender.put({});
    receiver.wait({});
    MPI_Finalize();
    receiver.release({});
    for (;;) sender.put({});
  } catch (const sluice::Error& error) {
    std::fputs((std::string(error.what()) + "\n").c_str(), stderr);
    code = 3;
  }
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended == 0) MPI_Finalize();
  return code;
}

int act_as(const std::string& what, int argc, char** argv) {
  if (what == "is_single" || what == "ends_mpi_first") return act_with_own_mpi(what, argc, argv);
  return sluice::run(argc, argv, kBodies.at(what));
}

// ---- the promises ----

void expect_well(const std::string& ranks, const std::string& what) {
  const Result result = mpiexec(ranks, what, "mpi");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

TEST(MpiBackend, moves_every_byte_between_processes) {
  expect_well("2", "has_channels");
  expect_well("4", "has_channels");
}

TEST(MpiBackend, has_windows_between_processes) {
  expect_well("2", "has_windows");
  expect_well("4", "has_windows");
}

TEST(MpiBackend, has_collectives_between_processes) { expect_well("4", "has_collectives"); }

TEST(MpiBackend, lets_the_program_call_mpi_at_the_same_time) { expect_well("2", "calls_mpi_too"); }

TEST(MpiBackend, serves_several_contexts_at_once) { expect_well("3", "has_several_contexts"); }

TEST(MpiBackend, ends_what_is_under_way_to_a_rank_that_leaves) {
  const Result result = mpiexec("2", "rank_one_throws", "mpi");
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(contains(result.err, "rank one had enough")) << result.err;
  EXPECT_TRUE(contains(result.err, "rank 0: peer_lost")) << result.err;
}

TEST(MpiBackend, needs_an_mpi_that_many_threads_may_call) {
  const Result result = mpiexec("2", "is_single", "mpi");
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_TRUE(contains(result.err, "mpi is not usable here: ")) << result.err;
  EXPECT_TRUE(contains(result.err, "MPI_THREAD_MULTIPLE")) << result.err;
}

TEST(MpiBackend, says_so_if_the_program_ends_mpi_too_early) {
  const Result result = mpiexec("2", "ends_mpi_first", "mpi");
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_TRUE(contains(result.err, "MPI_Finalize")) << result.err;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return act_as(argv[2], argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
