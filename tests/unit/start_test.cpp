// SPDX-License-Identifier: Apache-2.0
// sluice::run and run_threads without a launcher.
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using sluice::Context;
using sluice::tests::contains;
using sluice::tests::lines;
using sluice::tests::Program;
using sluice::tests::Result;

int run(const sluice::Body& body, const sluice::Options& options = {}) {
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  return sluice::run(1, arguments, body, options);
}

void nothing(Context&) {}

template <class Main>
Result result_of(Main main) {
  return Program(main).result();
}

TEST(Start, a_program_started_alone_is_one_rank) {
  const Result result = result_of([] {
    int calls = 0;
    const int code = run([&](Context& context) {
      if (context.rank() == 0 && context.size() == 1 && context.node_size() == 1) ++calls;
    });
    return code == 0 && calls == 1 ? 0 : 9;
  });
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Start, what_the_body_throws_is_one_line_and_exit_code_1) {
  const Result error = result_of([] { return run([](Context& context) { context.allocate(0); }); });
  EXPECT_EQ(error.code, 1);
  EXPECT_TRUE(error.err.starts_with("sluice: rank 0: ")) << error.err;
  EXPECT_EQ(lines(error.err), 1) << error.err;

  const Result argument = result_of([] { return run([](Context&) { throw std::invalid_argument("odd"); }); });
  EXPECT_EQ(argument.code, 1);
  EXPECT_EQ(argument.err, "sluice: rank 0: odd\n");

  const Result other = result_of([] { return run([](Context&) { throw 7; }); });
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(lines(other.err), 1) << other.err;
}

TEST(Start, a_bad_setting_is_one_line_and_exit_code_2) {
  struct Case {
    const char* name;
    const char* value;
    const char* expected;
  };
  for (const Case& setting : {Case{"SLUICE_TIMEOUT", "soon", "SLUICE_TIMEOUT=soon"},
                              {"SLUICE_TYPO", "1", "SLUICE_TYPO"},
                              {"SLUICE_BACKENDS", "shm,pigeon", "\"pigeon\""},
                              {"SLUICE_RANK", "0", "SLUICE_RANK"},
                              {"SLUICE_SIZE", "4", "SLUICE_SIZE"},
                              {"SLUICE_REPORT_FD", "977", "SLUICE_REPORT_FD=977"}}) {
    const Result result = result_of([&] {
      ::setenv(setting.name, setting.value, 1);
      return run(nothing);
    });
    EXPECT_EQ(result.code, 2) << setting.name;
    EXPECT_TRUE(contains(result.err, setting.expected)) << result.err;
    EXPECT_EQ(lines(result.err), 1) << result.err;
  }
  const Result result = result_of([] {
    sluice::Options options;
    options.backends = "pigeon";
    return run(nothing, options);
  });
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "\"pigeon\"")) << result.err;
}

TEST(Start, variables_that_are_passed_over_are_named_at_info) {
  const auto with_log = [](const char* level) {
    return result_of([&] {
      ::setenv("SLUICE_LOG", level, 1);
      ::setenv("SLUICE_PORT", "tcp://10.96.0.7:80", 1);
      ::setenv("SLUICE_SOURCE_Kokkos", "/x", 1);
      return run(nothing);
    });
  };
  EXPECT_EQ(with_log("warn").err, "");
  const Result result = with_log("info");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(result.err), 1) << result.err;
  for (const char* const name : {"SLUICE_PORT", "SLUICE_SOURCE_Kokkos"})
    EXPECT_TRUE(contains(result.err, name)) << result.err;
}

Result with_variables(const std::vector<std::pair<const char*, const char*>>& variables) {
  return result_of([&] {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    return run(nothing);
  });
}

TEST(Start, a_launcher_of_several_ranks_without_the_mpi_library_is_an_error_and_never_several_single_ranks) {
  for (const auto& [variable, value] : {std::pair{"PMI_SIZE", "4"},
                                        {"PMI_RANK", "1"},
                                        {"OMPI_COMM_WORLD_SIZE", "4"},
                                        {"MV2_COMM_WORLD_SIZE", "4"},
                                        {"FLUX_JOB_SIZE", "4"},
                                        {"FLUX_TASK_RANK", "3"},
                                        {"PALS_RANKID", "1"},
                                        {"PALS_LOCAL_SIZE", "2"},
                                        {"JSM_NAMESPACE_SIZE", "4"},
                                        {"JSM_NAMESPACE_RANK", "1"},
                                        {"ALPS_APP_PE", "1"},
                                        {"MPI_LOCALRANKID", "1"},
                                        {"MPI_LOCALNRANKS", "2"},
                                        {"SLURM_STEP_NUM_TASKS", "2"},
                                        {"SLURM_PROCID", "1"},
                                        {"PMIX_RANK", "1"}}) {
    const Result several = with_variables({{variable, value}});
    EXPECT_EQ(several.code, 2) << variable;
    EXPECT_TRUE(contains(several.err, std::string(variable) + "=" + value)) << several.err;
    EXPECT_TRUE(contains(several.err, "not linked with Sluice::mpi")) << several.err;
    EXPECT_EQ(lines(several.err), 1) << several.err;
  }
  EXPECT_TRUE(contains(with_variables({{"FLUX_TASK_RANK", "3"}, {"FLUX_JOB_SIZE", "4"}}).err, "FLUX_JOB_SIZE=4"));
}

TEST(Start, a_launcher_that_does_not_tell_how_many_ranks_it_started_is_named) {
  for (const char* const variable : {"ALPS_APP_PE", "PALS_RANKID", "PMIX_RANK", "MPI_LOCALRANKID"}) {
    const Result alone = with_variables({{variable, "0"}});
    EXPECT_EQ(alone.code, 0);
    EXPECT_TRUE(contains(alone.err, std::string("warn: ") + variable + "=0: ")) << alone.err;
    EXPECT_EQ(lines(alone.err), 1) << alone.err;
  }
}

TEST(Start, threads_do_not_take_another_descriptor_for_that_of_the_launcher) {
  const Result result = result_of([&] {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return 9;
    ::close(ends[0]);
    ::setenv("SLUICE_LAUNCHER_FD", std::to_string(ends[1]).c_str(), 1);  // it has hung up
    return sluice::run_threads(2, [](Context& context) {
      const sluice::Memory memory = context.allocate(128);
      sluice::Sender sender = context.sender(1 - context.rank(), 1, memory.slice(0, 64));
      sluice::Receiver receiver = context.receiver(1 - context.rank(), 1, memory.slice(64, 64));
      for (int i = 0; i < 20; ++i) {
        sender.put({});
        receiver.wait({});
        receiver.release({});
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  });
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Start, a_number_that_no_rank_has_says_nothing) {
  for (const char* const number : {"-1", "4294967294", "", "x"})
    EXPECT_EQ(with_variables({{"PMIX_RANK", number}}).err, "");
}

TEST(Start, a_launcher_of_one_rank_is_nothing_to_speak_of) {
  const std::vector<std::vector<std::pair<const char*, const char*>>> cases = {
      {{"PMI_SIZE", "1"}},
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}},
      {{"FLUX_JOB_SIZE", "1"}, {"FLUX_TASK_RANK", "0"}},
      {{"SLURM_PROCID", "0"}},  // a batch script
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}};
  for (const auto& variables : cases) {
    const Result alone = with_variables(variables);
    EXPECT_EQ(alone.code, 0) << variables.front().first;
    EXPECT_EQ(alone.err, "");
  }
}

TEST(Start, the_launchers_variables_come_before_mpi) {
  const Result result = result_of([] {
    ::setenv("PMI_SIZE", "4", 1);
    ::setenv("SLUICE_THREADS", "2", 1);
    std::atomic<int> calls{0};
    const int code = run([&](Context& context) { calls += context.size(); });
    return code == 0 && calls == 4 ? 0 : 9;
  });
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Start, what_a_rank_starts_is_not_taken_for_that_rank) {
  const Result result = result_of([] {
    ::setenv("SLUICE_THREADS", "2", 1);
    return run([](Context&) {
      if (std::getenv("SLUICE_THREADS") != nullptr) throw std::runtime_error("still set");
    });
  });
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Start, threads_may_be_run_any_number_of_times) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::atomic<int> sum{0};
    EXPECT_EQ(sluice::run_threads(ranks,
                                  [&](Context& context) {
                                    EXPECT_EQ(context.size(), ranks);
                                    EXPECT_EQ(context.node_rank(), context.rank());
                                    sum += context.rank() + 1;
                                  }),
              0);
    EXPECT_EQ(sum, ranks * (ranks + 1) / 2);
  }
}

TEST(Start, the_end_of_a_thread_rank_is_noticed_by_the_others) {
  const Result result = result_of([] {
    return sluice::run_threads(3, [](Context& context) {
      if (context.rank() == 1) throw std::runtime_error("had enough");
      if (context.rank() == 2) return;
      const sluice::Memory memory = context.allocate(8);
      sluice::Receiver receiver = context.receiver(1, 5, memory.all());
      receiver.wait_for(std::chrono::seconds(60));
    });
  });
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(contains(result.err, "sluice: rank 1: had enough\n")) << result.err;
  EXPECT_TRUE(contains(result.err, "sluice: rank 0: ")) << result.err;
  EXPECT_FALSE(contains(result.err, "sluice: rank 2: ")) << result.err;
}

TEST(Start, a_rank_that_exits_while_others_run_is_exit_code_1) {
  const Result result = result_of([] {
    return sluice::run_threads(3, [](Context& context) {
      if (context.rank() == 1) std::exit(0);
      for (;;) ::pause();
    });
  });
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err,
            "sluice: rank 1 called exit inside sluice::run, with 2 ranks of this process not at their end\n");
}

TEST(Start, no_ranks_is_a_bad_setting) {
  for (const int ranks : {0, -1}) {
    const Result result = result_of([&] { return sluice::run_threads(ranks, nothing); });
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(contains(result.err, "must be 1 or more, not " + std::to_string(ranks))) << result.err;
  }
}

TEST(Start, descriptors_that_run_out_are_an_error_and_no_hang) {
  const Result result = result_of([] {
    const rlimit few{32, 32};
    ::setrlimit(RLIMIT_NOFILE, &few);
    return sluice::run_threads(64, nothing);
  });
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(lines(result.err), 1) << result.err;
  EXPECT_TRUE(contains(result.err, "64 ranks in one process: this process needs ")) << result.err;
  EXPECT_TRUE(contains(result.err, "may have no more than 32 (ulimit -Hn)")) << result.err;
}

}  // namespace
