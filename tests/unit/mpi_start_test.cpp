// SPDX-License-Identifier: Apache-2.0
// MPI as a way to start: this program starts itself under mpiexec.
#include "base/fd.hpp"
#include "tests/faults/limit.hpp"
#include "tests/peers.hpp"
#include "tests/unit/mpiexec.hpp"

#include <sluice/mpi.hpp>
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using sluice::tests::contains;
using sluice::tests::mpiexec;
using sluice::tests::Program;
using sluice::tests::Result;
using sluice::tests::start_mpiexec;

void say(const std::string& line) {
  const std::string text = line + "\n";
  ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// ---- what the ranks do: this program with "--as WHAT" ----

void says_who_it_is(sluice::Context& context) {
  say("rank " + std::to_string(context.rank()) + " of " + std::to_string(context.size()) + ", " +
      std::to_string(context.node_rank()) + " of " + std::to_string(context.node_size()) + " here");
}

// Sends its rank to the right, and checks what comes from the left.
void pass_on(sluice::Context& context) {
  const int size = context.size();
  const int right = (context.rank() + 1) % size;
  const int left = (context.rank() + size - 1) % size;
  const auto stream = sluice::Stream::program_order();
  const sluice::Memory memory = context.allocate(2 * sizeof(int));
  sluice::Sender east = context.sender(right, 1, memory.slice(0, sizeof(int)));
  sluice::Receiver west = context.receiver(left, 1, memory.slice(sizeof(int), sizeof(int)));
  const sluice::Slice source = east.acquire(stream);
  source.as<int>()[0] = context.rank();
  east.put(stream);
  const sluice::Slice target = west.wait(stream);
  const int seen = target.as<int>()[0];
  if (seen != left) throw std::runtime_error("expected " + std::to_string(left) + ", not " + std::to_string(seen));
  west.release(stream);
}

void passes_on(sluice::Context& context) {
  pass_on(context);
  say("passed on");
}

// A context of MPI's ranks whose standard descriptors were closed meanwhile, all of which they write to.
void passes_on_without_descriptors(sluice::Context&) {
  const sluice::base::Fd out(::dup(STDOUT_FILENO));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  sluice::Context context = sluice::mpi::context(MPI_COMM_WORLD);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool open = ::write(fd, "x", 1) == 1;
    if (!open) throw std::runtime_error("a standard descriptor is closed");
  }
  pass_on(context);
  ::dup2(out.get(), STDOUT_FILENO);
  say("passed on");
}

void has_several_contexts(sluice::Context& context) {
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -context.rank(), &reversed);
  sluice::Context same = sluice::mpi::context(MPI_COMM_WORLD);
  sluice::Context turned = sluice::mpi::context(reversed);
  MPI_Comm_free(&reversed);  // it was only needed to open
  if (turned.rank() != context.size() - 1 - context.rank()) throw std::runtime_error("not reversed");
  pass_on(turned);
  pass_on(context);
  pass_on(same);
  say("passed on");
}

// No rank hangs, and none writes beyond a list that has the wrong group's length.
void is_refused_other_communicators(sluice::Context& context) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, context.rank() == 0 ? 0 : 1, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, context.rank() == 0 ? 1 : 0, 0, &between);
  for (MPI_Comm const other : {between, MPI_COMM_NULL}) {
    try {
      sluice::mpi::context(other);
      say("opened");
    } catch (const sluice::Error& error) {
      if (error.code() != sluice::Code::bad_argument) say(error.what());
    }
  }
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
  passes_on(context);
}

void rank_one_throws(sluice::Context& context) {
  if (context.rank() == 1) throw std::runtime_error("rank one had enough");
}

void rank_one_throws_and_others_hang(sluice::Context& context) {
  if (context.rank() == 1) throw std::runtime_error("rank one had enough");
  for (;;) ::pause();
}

void rank_one_exits_with_a_channel(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(sizeof(int));
  sluice::Receiver receiver = context.receiver(1 - context.rank(), 1, memory.all());
  if (context.rank() == 1) std::exit(0);
  receiver.wait(sluice::Stream::program_order());
}

// A context takes a descriptor to listen, and one for its engine.
void lacks_descriptors(sluice::Context&) {
  for (const std::size_t spare : {0U, 1U}) {
    const sluice::test::NoDescriptors none(spare);
    try {
      sluice::mpi::context(MPI_COMM_SELF);
      say("opened");
    } catch (const sluice::Error& error) {
      say(sluice::name(error.code()));
    }
  }
  sluice::mpi::context(MPI_COMM_SELF);
}

constexpr const char* kGoFile = "SLUICE_USER_TEST_GO";

// Rank 0 waits for its credit until the test makes that file.
void rank_one_holds_an_epoch(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(sizeof(int));
  if (context.rank() == 0) {
    sluice::Sender sender = context.sender(1, 7, memory.slice(0, sizeof(int)));
    for (int epoch = 1; epoch <= 2; ++epoch) sender.put({});
    return;
  }
  sluice::Receiver receiver = context.receiver(0, 7, memory.slice(0, sizeof(int)));
  receiver.wait({});
  while (!std::filesystem::exists(std::getenv(kGoFile))) std::this_thread::sleep_for(1ms);
  receiver.release({});
  receiver.wait({});
}

const std::map<std::string, void (*)(sluice::Context&)> kBodies = {
    {"rank_one_holds_an_epoch", rank_one_holds_an_epoch},
    {"says_who_it_is", says_who_it_is},
    {"passes_on", passes_on},
    {"passes_on_without_descriptors", passes_on_without_descriptors},
    {"has_several_contexts", has_several_contexts},
    {"is_refused_other_communicators", is_refused_other_communicators},
    {"lacks_descriptors", lacks_descriptors},
    {"rank_one_exits_with_a_channel", rank_one_exits_with_a_channel},
    {"rank_one_throws", rank_one_throws},
    {"rank_one_throws_and_others_hang", rank_one_throws_and_others_hang}};

int act_as(std::string what, int argc, char** argv) {
  const bool own_mpi = what == "initialises_mpi_itself";
  if (own_mpi) {
    MPI_Init(&argc, &argv);
    what = "passes_on";
  }
  const int code = sluice::run(argc, argv, kBodies.at(what));
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (own_mpi == (finalized != 0)) say("finalised by the wrong one");
  if (own_mpi) MPI_Finalize();
  return code;
}

// ---- the promises ----

TEST(MpiStart, every_rank_is_told_who_it_is) {
  const Result result = mpiexec("3", "says_who_it_is");
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* const line :
       {"rank 0 of 3, 0 of 3 here\n", "rank 1 of 3, 1 of 3 here\n", "rank 2 of 3, 2 of 3 here\n"}) {
    EXPECT_TRUE(contains(result.out, line)) << result.out;
  }
}

TEST(MpiStart, ranks_reach_each_other) {
  const Result result = mpiexec("3", "passes_on");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "passed on\npassed on\npassed on\n");
}

TEST(MpiStart, a_rank_that_waits_long_says_itself_who_owes_what) {
  const std::string go = testing::TempDir() + "sluice_mpi_start_" + std::to_string(::getpid());
  ::setenv("SLUICE_WARN", "100ms", 1);
  ::setenv(kGoFile, go.c_str(), 1);
  Program ranks = start_mpiexec("2", "rank_one_holds_an_epoch");
  ::unsetenv("SLUICE_WARN");
  ::unsetenv(kGoFile);
  const std::string owed = "rank 1 holds epoch 1 of tag 7 and has not released it";
  const std::string told = ranks.read_errors_until({"still waiting", owed}, Clock::now() + 40s);
  std::ofstream(go) << "go\n";
  const Result result = ranks.result();
  std::filesystem::remove(go);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(told, "still waiting")) << told;
  EXPECT_TRUE(contains(told, owed)) << told;
  EXPECT_FALSE(contains(told + result.err, "who waits for whom")) << told << result.err;
}

TEST(MpiStart, one_rank_is_enough) {
  const Result result = mpiexec("1", "says_who_it_is");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "rank 0 of 1, 0 of 1 here\n");
}

TEST(MpiStart, an_mpi_that_the_program_runs_itself_stays_its_own) {
  const Result result = mpiexec("2", "initialises_mpi_itself");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "passed on\npassed on\n");
}

TEST(MpiStart, several_contexts_live_at_once) {
  const Result result = mpiexec("3", "has_several_contexts");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "passed on\npassed on\npassed on\n");
}

TEST(MpiStart, a_context_on_an_intercommunicator_or_on_none_is_refused) {
  const Result result = mpiexec("3", "is_refused_other_communicators");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "passed on\npassed on\npassed on\n");
}

TEST(MpiStart, a_context_fills_standard_descriptors_that_are_closed) {
  const Result result = mpiexec("2", "passes_on_without_descriptors");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "passed on\npassed on\n");
}

TEST(MpiStart, a_context_without_descriptors_is_out_of_resources_and_passes) {
  if (sluice::test::kSanitized) {
    std::puts("SKIPPED-HERE: MpiStart.a_context_without_descriptors*: a sanitizer needs descriptors to look at memory");
    return;
  }
  const Result result = mpiexec("1", "lacks_descriptors");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "out_of_resources\nout_of_resources\n");
}

/// This program by itself, as if another launcher had started it.
Result started_with(const char* variable, const char* value) {
  Program program([&] {
    ::setenv(variable, value, 1);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    ::execl(self.c_str(), self.c_str(), "--as", "says_who_it_is", nullptr);
    return 127;
  });
  return program.result();
}

TEST(MpiStart, an_mpi_that_finds_fewer_ranks_than_were_started_is_an_error) {
  for (const auto& [variable, value] : {std::pair{"OMPI_COMM_WORLD_SIZE", "4"}, {"FLUX_JOB_SIZE", "4"}}) {
    const Result result = started_with(variable, value);
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(contains(result.err, std::string(variable) + "=4: ")) << result.err;
    EXPECT_TRUE(contains(result.err, "MPI_Init found 1")) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(MpiStart, a_launcher_that_does_not_tell_how_many_ranks_it_started_is_named) {
  const Result result = started_with("ALPS_APP_PE", "0");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.err, "warn: ALPS_APP_PE=0: ")) << result.err;
  EXPECT_EQ(result.out, "rank 0 of 1, 0 of 1 here\n");
}

TEST(MpiStart, ranks_of_sluice_run_are_not_several_of_mpiexec) {
  Program launcher([] {
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::string> words = {"sluice-run", "-n", "2", "mpiexec", "-n", "2", self, "--as", "passes_on"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    return sluice::launch(static_cast<int>(arguments.size()), arguments.data());
  });
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 2) << result.err;
  for (const char* const rank : {"rank 0", "rank 1"})
    EXPECT_TRUE(contains(result.err, std::string("sluice: ") + rank + " runs already")) << result.err;
}

TEST(MpiStart, a_body_that_throws_fails_the_job) {
  const Result result = mpiexec("3", "rank_one_throws");
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(contains(result.err, "sluice: rank 1: rank one had enough\n")) << result.err;
}

TEST(MpiStart, a_rank_that_exits_with_a_channel_open_fails_the_job) {
  const Result result = mpiexec("2", "rank_one_exits_with_a_channel");
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(contains(result.err, "sluice: rank 1 called exit inside sluice::run")) << result.err;
}

TEST(MpiStart, ranks_that_do_not_end_by_themselves_are_ended_after_5_s) {
  const auto before = Clock::now();
  const Result result = mpiexec("3", "rank_one_throws_and_others_hang");
  EXPECT_NE(result.code, 0);
  EXPECT_GE(Clock::now() - before, 5s);
}

TEST(MpiStart, a_context_needs_an_initialised_mpi) {
  try {
    sluice::mpi::context(MPI_COMM_WORLD);
    FAIL() << "nothing was thrown";
  } catch (const sluice::Error& error) {
    EXPECT_EQ(error.code(), sluice::Code::misuse);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return act_as(argv[2], argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
