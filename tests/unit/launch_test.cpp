// SPDX-License-Identifier: Apache-2.0
// sluice-run: this program starts itself under it, as ranks that end in all the ways that ranks end in.
#include "runtime/bootstrap.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using sluice::tests::contains;
using sluice::tests::lines;
using sluice::tests::Program;
using sluice::tests::Result;

// ---- what the ranks do: this program with "--as WHAT" ----

int g_exit_code = 0;
std::string g_job;

void say(const std::string& text) { ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), ssize_t(text.size())); }

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

void rank_one_fails(sluice::Context& context) {
  if (context.rank() == 1) g_exit_code = 3;
}

void rank_one_fails_and_others_hang(sluice::Context& context) {
  if (context.rank() == 1) ::_exit(3);
  sleep_for_ever();
}

void rank_one_is_killed(sluice::Context& context) {
  if (context.rank() == 1) ::raise(SIGKILL);
}

void rank_one_throws(sluice::Context& context) {
  if (context.rank() == 1) throw std::runtime_error("rank one had enough");
}

// Until connecting to the rank fails for good; returns why.
int wait_for_end_of(sluice::Rank rank) {
  while (sluice::runtime::connect_to(g_job, rank) || errno == EAGAIN) std::this_thread::yield();
  return errno;
}

void rank_zero_loses_a_peer_that_is_then_killed(sluice::Context& context) {
  if (context.rank() == 0) throw sluice::Error(sluice::Code::peer_lost, 0, 1, 0, 0, "rank 1 is gone");
  // Rank 0's end closes its socket. So its failure is seen first here, but is a consequence.
  wait_for_end_of(0);
  ::raise(SIGKILL);
}

void rank_one_waits_for_the_others_to_be_refused(sluice::Context& context) {
  if (context.rank() == 1) return;
  g_exit_code = wait_for_end_of(1) == ECONNREFUSED ? 0 : 4;
}

void says_who_it_is(sluice::Context& context) {
  say("rank " + std::to_string(context.rank()) + " of " + std::to_string(context.size()) + "\n");
}

void waits_for_a_signal(sluice::Context&) {
  say("r");
  sleep_for_ever();
}

void takes_user_signals(sluice::Context&) {
  ::signal(SIGUSR1, [](int) { ::_exit(7); });
  say("r");
  sleep_for_ever();
}

void close_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
}

// Words round a ring, while the rank writes to all standard descriptors, as a program does that complains a lot.
void writes_while_a_ring_turns(sluice::Context& context) {
  constexpr std::size_t kWords = 128;
  constexpr std::string_view kLine = "43 bytes of a message that has no reader...";
  const sluice::Rank right = (context.rank() + 1) % context.size();
  const sluice::Rank left = (context.rank() + context.size() - 1) % context.size();
  const auto stream = sluice::Stream::program_order();
  const sluice::Memory memory = context.allocate(2 * kWords * sizeof(int));
  sluice::Sender east = context.sender(right, 1, memory.slice(0, memory.bytes() / 2));
  sluice::Receiver west = context.receiver(left, 1, memory.slice(memory.bytes() / 2, memory.bytes() / 2));
  for (int epoch = 1; epoch <= 200; ++epoch) {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      [[maybe_unused]] const auto written = ::write(fd, kLine.data(), kLine.size());
    }
    const sluice::Slice source = east.acquire(stream);
    std::ranges::fill(source.as<int>(), context.rank() + epoch);
    east.put(stream);
    const sluice::Slice seen = west.wait(stream);
    if (std::ranges::count(seen.as<int>(), left + epoch) != kWords) g_exit_code = 4;
    west.release(stream);
  }
}

void closes_descriptors_inside(sluice::Context& context) {
  close_standard_descriptors();
  writes_while_a_ring_turns(context);
}

const std::map<std::string, void (*)(sluice::Context&)> kBodies = {
    {"writes_while_a_ring_turns", writes_while_a_ring_turns},
    {"closes_descriptors_inside", closes_descriptors_inside},
    {"rank_one_fails", rank_one_fails},
    {"rank_one_fails_and_others_hang", rank_one_fails_and_others_hang},
    {"rank_one_is_killed", rank_one_is_killed},
    {"rank_one_throws", rank_one_throws},
    {"rank_zero_loses_a_peer_that_is_then_killed", rank_zero_loses_a_peer_that_is_then_killed},
    {"rank_one_waits_for_the_others_to_be_refused", rank_one_waits_for_the_others_to_be_refused},
    {"says_who_it_is", says_who_it_is},
    {"waits_for_a_signal", waits_for_a_signal},
    {"takes_user_signals", takes_user_signals}};

int act_as(const std::string& what) {
  if (what == "never_runs") return 0;
  if (what == "runs_twice") {
    sluice::run(0, nullptr, says_who_it_is);
    return sluice::run(0, nullptr, says_who_it_is);
  }
  if (what == "threads_without_descriptors") {
    close_standard_descriptors();
    const int code = sluice::run_threads(3, writes_while_a_ring_turns);
    return code != 0 ? code : g_exit_code;
  }
  if (const char* const job = std::getenv("SLUICE_JOB")) g_job = job;
  const int code = sluice::run(0, nullptr, kBodies.at(what));
  return code != 0 ? code : g_exit_code;
}

// ---- the launcher, in a process of its own ----

int launch_here(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sluice-run");
  std::vector<char*> pointers;
  pointers.reserve(arguments.size());
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  const int code = sluice::launch(static_cast<int>(pointers.size()), pointers.data());
  const bool child_left = ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
  return child_left ? 99 : code;
}

Program start(const std::vector<std::string>& arguments) {
  return Program([&] { return launch_here(arguments); });
}

Result launch(const std::vector<std::string>& arguments) { return start(arguments).result(); }

std::vector<std::string> as(const std::string& what, std::vector<std::string> flags = {"-n", "3"}) {
  flags.insert(flags.end(), {"/proc/self/exe", "--as", what});
  return flags;
}

// ---- the promises ----

TEST(Launch, every_rank_is_told_who_it_is) {
  const Result result = launch(as("says_who_it_is"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(result.out), 3);
  for (const char* const line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"})
    EXPECT_TRUE(contains(result.out, line));
}

TEST(Launch, ranks_may_be_threads_of_one_process) {
  const Result result = launch(as("says_who_it_is", {"-n", "3", "--threads"}));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* const line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"})
    EXPECT_TRUE(contains(result.out, line));
}

TEST(Launch, many_ranks_start_and_end) {
  const Result result = launch(as("says_who_it_is", {"-n", "32"}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(result.out), 32);
}

TEST(Launch, the_exit_code_is_that_of_the_rank_that_failed) {
  const Result result = launch(as("rank_one_fails"));
  EXPECT_EQ(result.code, 3) << result.err;
}

TEST(Launch, what_a_body_throws_is_one_line_and_exit_code_1) {
  const Result result = launch(as("rank_one_throws"));
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "sluice: rank 1: rank one had enough\n");
}

TEST(Launch, what_a_body_throws_in_a_thread_is_one_line_and_exit_code_1) {
  const Result result = launch(as("rank_one_throws", {"-n", "3", "--threads"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "sluice: rank 1: rank one had enough\n");
}

TEST(Launch, a_rank_ended_by_a_signal_gives_128_and_the_signal) {
  const Result result = launch(as("rank_one_is_killed"));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_TRUE(contains(result.err, "rank 1 was ended by signal 9 (SIGKILL)")) << result.err;
}

TEST(Launch, a_rank_that_lost_its_peer_is_a_consequence) {
  const Result result = launch(as("rank_zero_loses_a_peer_that_is_then_killed", {"-n", "2"}));
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
}

TEST(Launch, ranks_that_do_not_end_by_themselves_are_killed_after_5_s) {
  const auto before = Clock::now();
  const Result result = launch(as("rank_one_fails_and_others_hang"));
  EXPECT_EQ(result.code, 3);
  EXPECT_GE(Clock::now() - before, 5s);
  EXPECT_TRUE(contains(result.err, "killed rank 0, rank 2: still running 5 s after the failure of rank 1"))
      << result.err;
}

TEST(Launch, keep_going_kills_nobody) {
  Program launcher = start(as("waits_for_a_signal", {"-n", "2", "--keep-going"}));
  launcher.read_bytes(2);
  launcher.signal(SIGUSR1);  // which ends both
  EXPECT_EQ(launcher.result().code, 128 + SIGUSR1);

  Program hanging = start(as("rank_one_fails_and_others_hang", {"-n", "2", "--keep-going"}));
  std::this_thread::sleep_for(6s);  // longer than rank 0 would have without the flag
  hanging.signal(SIGTERM);
  const Result result = hanging.result();
  EXPECT_EQ(result.code, 3);
  EXPECT_FALSE(contains(result.err, "killed")) << result.err;
}

TEST(Launch, signals_reach_every_rank) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Program launcher = start(as("waits_for_a_signal"));
    launcher.read_bytes(3);
    launcher.signal(signal);
    EXPECT_EQ(launcher.result().code, 128 + signal);
  }
  Program launcher = start(as("takes_user_signals"));
  launcher.read_bytes(3);
  launcher.signal(SIGUSR1);
  EXPECT_EQ(launcher.result().code, 7);
}

TEST(Launch, nothing_outlives_a_launcher_that_is_killed) {
  Program launcher = start(as("waits_for_a_signal"));
  launcher.read_bytes(3);
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.result().code, 128 + SIGKILL);  // and the pipes ended: no rank is left
}

TEST(Launch, a_rank_that_ended_cannot_be_connected_to) {
  const Result result = launch(as("rank_one_waits_for_the_others_to_be_refused"));
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Launch, a_program_that_never_calls_run_is_refused) {
  for (const auto& flags : {std::vector<std::string>{"-n", "3"}, {"-n", "3", "--threads"}, {"-n", "1", "--threads"}}) {
    const Result result = launch(as("never_runs", flags));
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.err, "sluice-run: /proc/self/exe ended without having called sluice::run\n");
  }
}

TEST(Launch, run_is_called_once_a_process) {
  const Result result = launch(as("runs_twice", {"-n", "1"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "once a process")) << result.err;
}

// What is written to a closed descriptor must not land in a channel. The job has no output: its exit code says all.
class ClosedDescriptors : public testing::TestWithParam<const char*> {
 protected:
  ClosedDescriptors() { ::setenv("SLUICE_BACKENDS", GetParam(), 1); }
  ~ClosedDescriptors() override { ::unsetenv("SLUICE_BACKENDS"); }
};

TEST_P(ClosedDescriptors, of_a_launcher) {
  Program launcher([] {
    close_standard_descriptors();
    return launch_here(as("writes_while_a_ring_turns"));
  });
  EXPECT_EQ(launcher.result().code, 0);
}

TEST_P(ClosedDescriptors, of_ranks) {
  const std::string script = "exec 0<&- 1>&- 2>&-; exec \"$0\" --as writes_while_a_ring_turns";
  EXPECT_EQ(launch({"-n", "3", "sh", "-c", script, std::filesystem::read_symlink("/proc/self/exe")}).code, 0);
}

TEST_P(ClosedDescriptors, inside_a_body) { EXPECT_EQ(launch(as("closes_descriptors_inside")).code, 0); }

std::vector<const char*> backends_of_this_build() {
#ifdef SLUICE_TESTS_OFI
  return {"shm", "ofi:tcp"};
#else
  return {"shm"};
#endif
}
INSTANTIATE_TEST_SUITE_P(Backends, ClosedDescriptors, testing::ValuesIn(backends_of_this_build()),
                         [](const auto& one) { return contains(one.param, "ofi") ? "ofi_tcp" : "shm"; });

TEST(Launch, threads_of_a_process_without_descriptors_lose_nothing) {
  Program program([] { return act_as("threads_without_descriptors"); });
  EXPECT_EQ(program.result().code, 0);
}

TEST(Launch, bad_usage_is_one_line_and_exit_code_2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "-n N is missing"},
      {{"-n"}, "-n takes the number of ranks"},
      {{"-n", "0", "true"}, "not \"0\""},
      {{"-n", "-3", "true"}, "not \"-3\""},
      {{"-n", "2x", "true"}, "not \"2x\""},
      {{"-n", "99999999999", "true"}, "not \"99999999999\""},
      {{"true"}, "-n N is missing"},
      {{"-n", "2"}, "which program?"},
      {{"-n", "2", "--fast", "true"}, "unknown flag --fast"},
      {{"-n", "2", "--hosts", "2", "--host", "0", "true"}, "--hosts, --host and --meet are given together"},
      {{"-n", "2", "--host", "0", "true"}, "--hosts, --host and --meet are given together"},
      {{"-n", "2", "--meet", "a:1", "true"}, "--hosts, --host and --meet are given together"},
      {{"-n", "2", "--hosts", "2", "--host", "2", "--meet", "a:1", "true"}, "there is no --host 2 among 2"},
      {{"-n", "2", "--hosts", "2", "--host", "-1", "--meet", "a:1", "true"}, "not \"-1\""},
      {{"-n", "2", "--hosts", "0", "--host", "0", "--meet", "a:1", "true"}, "not \"0\""},
      {{"-n", "2", "--hosts", "2", "--host", "0", "--meet", "a", "true"}, "--meet takes HOST:PORT, not \"a\""},
      {{"-n", "2", "--hosts", "2", "--host", "0", "--meet", ":1", "true"}, "--meet takes HOST:PORT"},
      {{"-n", "2", "--hosts", "2", "--host", "0", "--meet", "a:65536", "true"}, "--meet takes HOST:PORT"},
      {{"-n", "2", "--hosts", "2", "--host", "0", "--meet", "a:1x", "true"}, "--meet takes HOST:PORT"},
      {{"-n", "2", "--meet"}, "--meet takes HOST:PORT"},
      {{"-n", "2", "--threads", "--hosts", "2", "--host", "0", "--meet", "a:1", "true"},
       "--threads starts one process"},
      {{"-n", "2", "--hosts", "2", "--host", "0", "--meet", "a:1", "./no/such"}, "no program ./no/such"},
      {{"-n", "2", ""}, "no program"},
      {{"-n", "2", "no-such-program-anywhere"}, "no program no-such-program-anywhere"},
      {{"-n", "2", "./no/such/program"}, "no program ./no/such/program"},
      {{"-n", "2", "/"}, "no program /"}};
  for (const auto& [arguments, expected] : cases) {
    const Result result = launch(arguments);
    EXPECT_EQ(result.code, 2) << expected;
    EXPECT_TRUE(result.err.starts_with("sluice-run: ") && contains(result.err, expected)) << result.err;
    EXPECT_EQ(lines(result.err), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(Launch, help_is_no_error) {
  const Result result = launch({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.out.starts_with("usage: sluice-run -n N"));
}

TEST(Launch, a_bad_variable_is_one_line_and_exit_code_2) {
  for (const auto& [name, value] : {std::pair{"SLUICE_TIMOUT", "60s"}, {"SLUICE_BACKENDS", "shm,pigeon"}}) {
    ::setenv(name, value, 1);
    const Result result = launch(as("says_who_it_is"));
    ::unsetenv(name);
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(contains(result.err, name)) << result.err;
    EXPECT_EQ(lines(result.err), 1) << result.err;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return act_as(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
