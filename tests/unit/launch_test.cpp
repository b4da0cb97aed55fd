// SPDX-License-Identifier: Apache-2.0
// sluice-run: this program starts itself under it, as ranks that end in all the ways that ranks end in.
#include "base/cores.hpp"
#include "peers/bootstrap.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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

void says_its_cores(sluice::Context& context) {
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  std::string text =
      std::to_string(context.rank()) + ": threads " + (threads == nullptr ? "unset" : threads) + ", cores";
  for (const int core : sluice::base::cores_here().mask) text += " " + std::to_string(core);
  say(text + "\n");
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

constexpr std::size_t kSlices = 10;

void record_slices() {
  for (std::size_t i = 0; i < kSlices; ++i) const sluice::Span slice("work");
}

void records_and_rank_one_is_killed(sluice::Context& context) {
  record_slices();
  if (context.rank() == 1) ::raise(SIGKILL);
}

/// Ranks that are threads of one process, of which the last one to record kills it.
void records_and_kills_all(sluice::Context& context) {
  static std::atomic<int> recorded{0};
  record_slices();
  if (++recorded == context.size()) ::raise(SIGKILL);
  sleep_for_ever();
}

void records_and_sleeps(sluice::Context&) {
  record_slices();
  say("r");
  sleep_for_ever();
}

/// Rank 0 waits for a put that no rank makes.
void records_and_hangs(sluice::Context& context) {
  ::signal(SIGTERM, SIG_IGN);
  record_slices();
  const sluice::Memory memory = context.allocate(8);
  if (context.rank() == 0) {
    sluice::Receiver receiver = context.receiver(1, 1, memory.all());
    say("r");
    receiver.wait(sluice::Stream::program_order());
  } else {
    const sluice::Sender sender = context.sender(0, 1, memory.all());
    say("r");
    sleep_for_ever();
  }
}

void close_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
}

/// Sends words round a ring, and calls `meanwhile` at each turn.
template <class Meanwhile>
void turn_a_ring(sluice::Context& context, const Meanwhile& meanwhile) {
  constexpr std::size_t kWords = 128;
  const sluice::Rank right = (context.rank() + 1) % context.size();
  const sluice::Rank left = (context.rank() + context.size() - 1) % context.size();
  const auto stream = sluice::Stream::program_order();
  const sluice::Memory memory = context.allocate(2 * kWords * sizeof(int));
  sluice::Sender east = context.sender(right, 1, memory.slice(0, memory.bytes() / 2));
  sluice::Receiver west = context.receiver(left, 1, memory.slice(memory.bytes() / 2, memory.bytes() / 2));
  for (int epoch = 1; epoch <= 200; ++epoch) {
    meanwhile();
    const sluice::Slice source = east.acquire(stream);
    std::ranges::fill(source.as<int>(), context.rank() + epoch);
    east.put(stream);
    const sluice::Slice seen = west.wait(stream);
    if (std::ranges::count(seen.as<int>(), left + epoch) != kWords) g_exit_code = 4;
    west.release(stream);
  }
}

void a_ring_turns(sluice::Context& context) {
  turn_a_ring(context, [] {});
}

// To all standard descriptors, as a program does that complains a lot.
void writes_while_a_ring_turns(sluice::Context& context) {
  turn_a_ring(context, [] {
    constexpr std::string_view kLine = "43 bytes of a message that has no reader...";
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      [[maybe_unused]] const auto written = ::write(fd, kLine.data(), kLine.size());
    }
  });
}

void closes_descriptors_inside(sluice::Context& context) {
  writes_while_a_ring_turns(context);  // libfabric has its sockets from now on
  close_standard_descriptors();
  writes_while_a_ring_turns(context);
}

void says_what_it_reads(sluice::Context& context) {
  std::string text(100, ' ');
  const auto bytes = ::read(STDIN_FILENO, text.data(), text.size());
  say("rank " + std::to_string(context.rank()) + " reads " +
      text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))) + "\n");
}

void ignores_the_request_to_end(sluice::Context&) {
  ::signal(SIGTERM, SIG_IGN);
  say("r");
  sleep_for_ever();
}

// As a rank does that saves what it has.
void catches_the_request_to_end(sluice::Context&) {
  ::signal(SIGTERM, [](int) { [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, "t", 1); });
  say("r");
  sleep_for_ever();
}

void says_when_it_goes_on(sluice::Context&) {
  ::signal(SIGCONT, [](int) { [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, "c", 1); });
  say(std::to_string(::getpid()) + "\n");
  sleep_for_ever();
}

// A hundred children whose parent ends before they are waited for.
void leaves_children_behind_and_ends(sluice::Context&) {
  const pid_t between = ::fork();
  if (between == 0) {
    for (int i = 0; i < 100; ++i) {
      if (::fork() == 0) ::_exit(0);
    }
    ::_exit(0);
  }
  ::waitpid(between, nullptr, 0);
}

void leaves_children_behind(sluice::Context& context) {
  leaves_children_behind_and_ends(context);
  say("r");
  sleep_for_ever();
}

/// Both ends of a channel to itself, open.
struct OpenChannel {
  explicit OpenChannel(sluice::Context& context)
      : memory(context.allocate(16)), sender(context.sender(context.rank(), 1, memory.slice(0, 8))),
        receiver(context.receiver(context.rank(), 1, memory.slice(8, 8))) {}

  sluice::Memory memory;
  sluice::Sender sender;
  sluice::Receiver receiver;
};

void rank_one_exits_with_a_channel(sluice::Context& context) {
  const OpenChannel channel(context);
  if (context.rank() == 1) std::exit(0);
  sleep_for_ever();
}

void rank_one_leaves_with_a_channel(sluice::Context& context) {
  const OpenChannel channel(context);
  if (context.rank() == 1) ::_exit(0);
}

void rank_one_exits_with_7(sluice::Context& context) {
  const OpenChannel channel(context);
  if (context.rank() == 1) std::exit(7);
}

void rank_one_exits(sluice::Context& context) {
  if (context.rank() == 1) std::exit(0);
  sleep_for_ever();
}

// As a program does that says how it is used.
void every_rank_exits(sluice::Context& context) {
  { const OpenChannel channel(context); }
  says_who_it_is(context);
  std::exit(0);
}

void rank_one_exits_while_a_ring_turns(sluice::Context& context) {
  int turns = 0;
  turn_a_ring(context, [&] {
    if (context.rank() == 1 && ++turns == 100) std::exit(0);
  });
}

// Rank 0 waits for what never comes, and then as rank 1 does, which waits for nothing of Sluice's.
void waits_in_a_channel(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(8);
  sluice::Receiver receiver = context.receiver(context.rank(), 1, memory.all());
  say("r");
  if (context.rank() == 0) {
    try {
      receiver.wait_for(1min);
    } catch (const sluice::Error& error) {
      say(std::string(error.what()) + "\n");
    }
  }
  sleep_for_ever();
}

const std::map<std::string, void (*)(sluice::Context&)> kBodies = {
    {"rank_one_exits_with_a_channel", rank_one_exits_with_a_channel},
    {"rank_one_leaves_with_a_channel", rank_one_leaves_with_a_channel},
    {"rank_one_exits_with_7", rank_one_exits_with_7},
    {"rank_one_exits", rank_one_exits},
    {"every_rank_exits", every_rank_exits},
    {"rank_one_exits_while_a_ring_turns", rank_one_exits_while_a_ring_turns},
    {"waits_in_a_channel", waits_in_a_channel},
    {"says_what_it_reads", says_what_it_reads},
    {"ignores_the_request_to_end", ignores_the_request_to_end},
    {"catches_the_request_to_end", catches_the_request_to_end},
    {"says_when_it_goes_on", says_when_it_goes_on},
    {"leaves_children_behind", leaves_children_behind},
    {"leaves_children_behind_and_ends", leaves_children_behind_and_ends},
    {"a_ring_turns", a_ring_turns},
    {"writes_while_a_ring_turns", writes_while_a_ring_turns},
    {"closes_descriptors_inside", closes_descriptors_inside},
    {"rank_one_fails", rank_one_fails},
    {"rank_one_fails_and_others_hang", rank_one_fails_and_others_hang},
    {"rank_one_is_killed", rank_one_is_killed},
    {"rank_one_throws", rank_one_throws},
    {"rank_zero_loses_a_peer_that_is_then_killed", rank_zero_loses_a_peer_that_is_then_killed},
    {"rank_one_waits_for_the_others_to_be_refused", rank_one_waits_for_the_others_to_be_refused},
    {"records_and_rank_one_is_killed", records_and_rank_one_is_killed},
    {"records_and_kills_all", records_and_kills_all},
    {"records_and_sleeps", records_and_sleeps},
    {"records_and_hangs", records_and_hangs},
    {"says_its_cores", says_its_cores},
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
  if (what == "loses_events_at_its_exit") {
    const int code = sluice::run(0, nullptr, [](sluice::Context&) {});
    const rlimit limit{4096, 4096};  // a full device
    ::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 4;
    for (int i = 0; i < 1000; ++i) const sluice::Span slice("slice");
    return code;
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

/// As the filter of a container does.
void forbid(int call, int error) {
  std::array<sock_filter, 4> filter = {{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(97);
}

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

Result launch_with_few_descriptors(rlim_t hard) {
  return Program([hard] {
           const rlimit few{24, hard};
           ::setrlimit(RLIMIT_NOFILE, &few);
           return launch_here(as("says_who_it_is", {"-n", "32"}));
         })
      .result();
}

TEST(Launch, many_ranks_get_the_descriptors_that_they_need) {
  const Result result = launch_with_few_descriptors(200);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(result.out), 32);
}

TEST(Launch, too_few_descriptors_are_one_error_that_names_limit_and_need) {
  const Result result = launch_with_few_descriptors(64);
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(contains(result.err, "this process needs ")) << result.err;
  EXPECT_TRUE(contains(result.err, "no more than 64 (ulimit -Hn)")) << result.err;
  EXPECT_EQ(lines(result.err), 1) << result.err;
}

TEST(Launch, more_ranks_than_there_can_be_are_refused_at_once) {
  const Result result = launch(as("says_who_it_is", {"-n", "2147483647"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(contains(result.err, "this process needs 42949673")) << result.err;
  EXPECT_EQ(lines(result.err), 1) << result.err;
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

TEST(Launch, what_is_left_is_killed_at_the_second_request_to_end) {
  Program launcher = start(as("catches_the_request_to_end"));
  launcher.read_bytes(3);
  launcher.signal(SIGTERM);
  launcher.read_bytes(3);
  std::this_thread::sleep_for(6s);  // longer than after a failure
  launcher.signal(SIGTERM);
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_TRUE(contains(result.err, "killed rank 0, rank 1, rank 2: still running at the second signal")) << result.err;
}

TEST(Launch, what_is_left_is_killed_after_the_time_that_was_given) {
  Program launcher = start(as("catches_the_request_to_end", {"-n", "2", "--kill-after", "1"}));
  launcher.read_bytes(2);
  const auto before = Clock::now();
  launcher.signal(SIGTERM);
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_GE(Clock::now() - before, 1s);
  EXPECT_TRUE(contains(result.err, "killed rank 0, rank 1: still running 1 s after SIGTERM (--kill-after)"))
      << result.err;
}

TEST(Launch, ranks_that_ignore_the_request_to_end_are_killed_after_5_s) {
  Program launcher = start(as("ignores_the_request_to_end", {"-n", "1"}));
  launcher.read_bytes(1);
  const auto before = Clock::now();
  launcher.signal(SIGTERM);
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_GE(Clock::now() - before, 5s);
  EXPECT_EQ(result.err, "sluice-run: killed rank 0, which ignores SIGTERM\n");
}

char state_of(pid_t process) {
  std::string line;
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::getline(stat, line);
  const std::size_t end = line.rfind(") ");
  return end == std::string::npos ? '-' : line[end + 2];
}

std::vector<std::string> in_a_shell(const std::string& what, const std::string& script,
                                    std::vector<std::string> flags) {
  flags.insert(flags.end(), {"sh", "-c", script, std::filesystem::read_symlink("/proc/self/exe"), what});
  return flags;
}

void expect_to_stop_and_go_on(const std::vector<std::string>& arguments) {
  Program launcher = start(arguments);
  const pid_t rank = std::stoi(launcher.read_line());
  launcher.signal(SIGTSTP);
  const auto stopped = [&] { return state_of(rank) == 'T' && state_of(launcher.pid()) == 'T'; };
  const auto deadline = Clock::now() + 20s;
  while (!stopped() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(stopped());
  launcher.signal(SIGCONT);
  launcher.read_bytes(1);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.result().code, 128 + SIGTERM);
}

TEST(Launch, ranks_stop_and_go_on_with_the_launcher) {
  expect_to_stop_and_go_on(as("says_when_it_goes_on", {"-n", "1"}));
  expect_to_stop_and_go_on(in_a_shell("says_when_it_goes_on", "\"$0\" --as \"$1\"; :", {"-n", "1"}));
}

TEST(Launch, rank_0_alone_reads_the_input) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> readers = {
      {"", {"hello", ""}}, {"first", {"hello", ""}}, {"none", {"", ""}}};
  for (const auto& [who, reads] : readers) {
    Program launcher([who = who] {
      std::array<int, 2> ends{};
      if (::pipe(ends.data()) != 0 || ::write(ends[1], "hello", 5) != 5) return 98;
      ::close(ends[1]);
      ::dup2(ends[0], STDIN_FILENO);
      return launch_here(as("says_what_it_reads", who.empty() ? std::vector<std::string>{"-n", "2"}
                                                              : std::vector<std::string>{"-n", "2", "--stdin=" + who}));
    });
    const Result result = launcher.result();
    EXPECT_EQ(result.code, 0) << result.err;
    for (std::size_t rank = 0; rank < reads.size(); ++rank)
      EXPECT_TRUE(contains(result.out, "rank " + std::to_string(rank) + " reads " + reads[rank] + "\n")) << result.out;
  }
}

// The pipes of the output end when nothing is left that could write there.
TEST(Launch, nothing_outlives_a_launcher_that_returns) {
  const std::string script = "\"$0\" --as \"$1\"; exit $?";
  Program failed = start(in_a_shell("rank_one_fails_and_others_hang", script, {"-n", "3"}));
  Program slow = start(in_a_shell("says_who_it_is", "trap '' TERM; sleep 30 & exec \"$0\" --as \"$1\"", {"-n", "1"}));
  Program told = start(in_a_shell("waits_for_a_signal", script, {"-n", "2"}));
  told.read_bytes(2);
  told.signal(SIGTERM);
  const Result of_told = told.result();
  EXPECT_EQ(of_told.code, 128 + SIGTERM);
  EXPECT_FALSE(contains(of_told.err, "sluice-run is gone")) << of_told.err;

  const Result of_failed = failed.result();
  EXPECT_EQ(of_failed.code, 3) << of_failed.err;

  const auto before = Clock::now();
  const Result left = launch(in_a_shell("says_who_it_is", "sleep 30 & exec \"$0\" --as \"$1\"", {"-n", "2"}));
  EXPECT_EQ(left.code, 0) << left.err;
  EXPECT_LT(Clock::now() - before, 30s);

  const Result of_slow = slow.result();
  EXPECT_EQ(of_slow.code, 0);
  EXPECT_TRUE(contains(of_slow.err, "still running 5 s after the last rank has ended")) << of_slow.err;
}

TEST(Launch, children_that_ranks_leave_behind_are_waited_for) {
  Program launcher = start(as("leaves_children_behind", {"-n", "1"}));
  launcher.read_bytes(1);
  const auto zombies = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream stat(entry.path() / "stat");
      std::string line;
      std::getline(stat, line);
      const std::size_t end = line.rfind(") ");
      count += end != std::string::npos && line.substr(end + 2).starts_with("Z " + std::to_string(launcher.pid()) + " ")
                   ? 1
                   : 0;
    }
    return count;
  };
  const auto deadline = Clock::now() + 20s;
  int left = zombies();  // the number that is compared: ranks make more at any time
  for (; left > 0 && Clock::now() < deadline; left = zombies()) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(left, 0);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.result().code, 128 + SIGTERM);
}

TEST(Launch, a_rank_may_be_a_launcher) {
  for (const auto& [what, code] : {std::pair{"says_who_it_is", 0}, {"rank_one_fails", 3}}) {
    std::vector<std::string> outer = {"-n",   "2", "/proc/self/exe", "--launch", "-n", "2", "/proc/self/exe",
                                      "--as", what};
    EXPECT_EQ(launch(outer).code, code);
  }
}

TEST(Launch, a_file_with_the_number_of_a_descriptor_of_the_launcher_is_left_alone) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("sluice-report-" + std::to_string(::getpid()));
  for (const std::string variable : {"SLUICE_REPORT_FD", "SLUICE_LAUNCHER_FD"}) {
    const std::string script = "eval \"exec $" + variable + ">" + file.string() + "\"; exec \"$0\" --as \"$1\"";
    std::vector<std::string> arguments = in_a_shell("says_who_it_is", script, {"-n", "1"});
    arguments[2] = "bash";  // others do not know numbers above 9
    const Result result = launch(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(contains(result.err, variable + "=") && contains(result.err, "is not what sluice-run gave"))
        << result.err;
    EXPECT_EQ(std::filesystem::file_size(file), 0);
    std::filesystem::remove(file);
  }
}

TEST(Launch, another_pipe_with_the_number_of_the_launchers_is_refused) {
  const std::string script = "eval \"exec $SLUICE_LAUNCHER_FD> >(cat)\"; exec \"$0\" --as \"$1\"";
  std::vector<std::string> arguments = in_a_shell("says_who_it_is", script, {"-n", "1"});
  arguments[2] = "bash";
  const Result result = launch(arguments);
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "is not what sluice-run gave")) << result.err;
}

TEST(Launch, a_rank_that_exits_too_early_has_failed) {
  Program alone = start(as("rank_one_exits", {"-n", "2", "--threads"}));
  Program hanging = start(as("rank_one_exits_with_a_channel", {"-n", "2"}));
  Program threads = start(as("rank_one_exits_with_a_channel", {"-n", "2", "--threads"}));
  Program left = start(as("rank_one_leaves_with_a_channel", {"-n", "2"}));
  Program seven = start(as("rank_one_exits_with_7", {"-n", "2"}));

  const Result of_threads = threads.result();
  EXPECT_EQ(of_threads.code, 1);
  EXPECT_EQ(of_threads.err.substr(0, of_threads.err.find(", with ")), "sluice: rank 1 called exit inside sluice::run");
  const Result of_left = left.result();
  ASSERT_EQ(of_left.code, 1);
  EXPECT_TRUE(contains(of_left.err, "sluice-run: rank 1 ended inside sluice::run")) << of_left.err;
  EXPECT_EQ(seven.result().code, 7);

  const Result of_hanging = hanging.result();
  EXPECT_EQ(of_hanging.code, 1);
  EXPECT_TRUE(contains(of_hanging.err, "sluice: rank 1 called exit inside sluice::run, with 2 ends of channels open\n"))
      << of_hanging.err;
  EXPECT_TRUE(contains(of_hanging.err, "killed rank 0: still running 5 s after the failure of rank 1"))
      << of_hanging.err;

  const Result of_alone = alone.result();
  EXPECT_EQ(of_alone.code, 1);
  EXPECT_EQ(of_alone.err,
            "sluice: rank 1 called exit inside sluice::run, with 1 rank of this process not at its end\n");
}

TEST(Launch, ranks_that_all_exit_with_nothing_open_have_succeeded) {
  for (const auto& flags : {std::vector<std::string>{"-n", "3"}, {"-n", "3", "--threads"}}) {
    const Result result = launch(as("every_rank_exits", flags));
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(lines(result.out), 3);
  }
}

// Behind a wrapper, which alone is the launcher's child.
TEST(Launch, ranks_behind_wrappers_end_with_a_launcher_that_is_killed) {
  const std::string script = "\"$0\" --as \"$1\"; exit $?";
  Program launcher = start(in_a_shell("waits_in_a_channel", script, {"-n", "2", "--keep-going"}));
  launcher.read_bytes(2);
  const auto before = Clock::now();
  launcher.signal(SIGKILL);
  const Result result = launcher.result();
  EXPECT_GE(Clock::now() - before, 5s);
  EXPECT_LT(Clock::now() - before, 20s);
  EXPECT_TRUE(contains(result.out, "sluice-run is gone")) << result.out;
  for (const char* const rank : {"rank 0", "rank 1"})
    EXPECT_TRUE(contains(result.err, rank + std::string(": sluice-run is gone"))) << result.err;
}

TEST(Launch, a_launcher_behind_a_wrapper_ends_with_one_that_is_killed) {
  const std::string script = "\"$0\" --launch -n 2 \"$0\" --as \"$1\"; exit $?";
  Program launcher = start(in_a_shell("waits_for_a_signal", script, {"-n", "1"}));
  launcher.read_bytes(2);
  launcher.signal(SIGKILL);
  EXPECT_TRUE(contains(launcher.result().err, "killed rank 0, rank 1: the sluice-run that started this one is gone"));
}

TEST(Launch, one_process_is_a_rank) {
  const std::string at_once = "\"$0\" --as \"$1\" & \"$0\" --as \"$1\"; wait";
  const std::string in_turn = "\"$0\" --as \"$1\"; sleep 0.3; \"$0\" --as \"$1\"";
  for (const std::string& script : {at_once, in_turn}) {
    const Result result = launch(in_a_shell("a_ring_turns", script, {"-n", "2"}));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_EQ(lines(result.err), 2) << result.err;
    for (const char* const line : {"sluice: rank 0 runs already", "sluice: rank 1 runs already"})
      EXPECT_TRUE(contains(result.err, line)) << result.err;
  }
}

TEST(Launch, a_container_may_forbid_to_watch_processes) {
  Program launcher([] {
    forbid(SYS_pidfd_open, EPERM);
    return launch_here(as("a_ring_turns"));
  });
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(Launch, a_container_may_forbid_clone3) {
  for (const auto& flags : {std::vector<std::string>{"-n", "2"}, {"-n", "2", "--threads"}}) {
    const auto without_clone3 = [&](int error) {
      Program launcher([&] {
        forbid(SYS_clone3, error);
        return launch_here(as("says_who_it_is", flags));
      });
      return launcher.result();
    };
    const Result unknown = without_clone3(ENOSYS);
    EXPECT_EQ(unknown.code, 0) << unknown.err;
    const Result denied = without_clone3(EPERM);
    EXPECT_EQ(denied.code, 1);
    EXPECT_TRUE(contains(denied.err, "denies clone3")) << denied.err;
  }
}

/// Runs `main` as the first process of a name space of processes, whose number for itself is 1.
int as_first_process(int (*main)()) {
  if (::unshare(CLONE_NEWPID) != 0) return 96;
  const pid_t first = ::fork();
  if (first == 0) ::_exit(main());
  int status = 0;
  ::waitpid(first, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Here /proc is that of the outer name space: nothing there is taken for a descendant.
TEST(Launch, a_launcher_may_be_the_first_process_of_a_container) {
  if (Program([] { return as_first_process([] { return 0; }); }).result().code != 0) {
    std::printf(
        "SKIPPED-HERE: Launch.a_launcher_may_be_the_first_process_of_a_container: this process may make none\n");
    GTEST_SKIP() << "this process may make no container";
  }
  Program zombies([] { return as_first_process([] { return launch_here(as("leaves_children_behind_and_ends")); }); });
  Program left([] {
    return as_first_process([] {
      return launch_here({"-n", "1", "sh", "-c", "sleep 600 & exec \"$0\" --as says_who_it_is", "/proc/self/exe"});
    });
  });
  EXPECT_EQ(zombies.result().code, 0);
  const Result result = left.result();
  EXPECT_TRUE(contains(result.err, "/proc does not show them")) << result.err;
}

TEST(Launch, flags_are_understood_as_other_launchers_have_them) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"-np", "3"},
                                                                                     {"-n3"},
                                                                                     {"-n=3"},
                                                                                     {"-np=3"},
                                                                                     {"-n", "3", "--"},
                                                                                     {"-n", "3", "--stdin=all"},
                                                                                     {"--kill-after=3", "-n", "3"}}) {
    const Result result = launch(as("says_who_it_is", flags));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(lines(result.out), 3) << flags.front();
  }
  const Result version = launch({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("sluice-run ")) << version.out;
}

/// The launcher has these cores, and OMP_NUM_THREADS is not set.
Result launch_on(const std::vector<int>& cores, const std::vector<std::string>& arguments) {
  return Program([&] {
           ::unsetenv("OMP_NUM_THREADS");
           if (!sluice::base::bind_to(sluice::base::mask_of(cores))) return 98;
           return launch_here(arguments);
         })
      .result();
}

TEST(Launch, several_ranks_share_the_cores_and_none_is_bound) {
  const std::string core = std::to_string(sluice::base::cores_here().mask.front());
  const std::vector<int> one = {sluice::base::cores_here().mask.front()};
  for (const std::vector<std::string>& how :
       std::vector<std::vector<std::string>>{{"-n", "2"}, {"-n", "2", "--threads"}}) {
    const Result result = launch_on(one, as("says_its_cores", how));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const std::string shares = ": threads 1, cores " + core;
    for (const char* const rank : {"0", "1"}) EXPECT_TRUE(contains(result.out, rank + shares + "\n")) << result.out;
  }
  EXPECT_EQ(launch_on(one, as("says_its_cores", {"-n", "1"})).out, "0: threads unset, cores " + core + "\n");
  const Result verbose = launch_on(one, as("says_its_cores", {"-v", "-n", "2"}));
  EXPECT_TRUE(contains(verbose.err, "sluice-run: OMP_NUM_THREADS=1 for each of 2 ranks: the affinity mask has 1 core"))
      << verbose.err;
  const std::vector<int> all = sluice::base::cores_here().mask;
  std::string list;
  for (const int each : all) list += " " + std::to_string(each);
  EXPECT_EQ(lines(launch_on(all, as("says_its_cores", {"-n", "2"})).out), 2);
  EXPECT_TRUE(contains(launch_on(all, as("says_its_cores", {"-n", "2"})).out, ", cores" + list + "\n"));
}

TEST(Launch, ranks_are_bound_to_cores_of_their_own_if_there_are_enough) {
  const std::vector<int> cores = sluice::base::cores_here().mask;
  const Result few = launch_on({cores.front()}, as("says_its_cores", {"-n", "2", "--bind", "core"}));
  EXPECT_EQ(few.code, 0) << few.err;
  EXPECT_EQ(few.err, "sluice-run: --bind core binds no rank: the affinity mask has 1 core for 2 ranks\n");
  if (cores.size() < 2) return;
  const std::vector<int> two = {cores[0], cores[1]};
  const Result bound = launch_on(two, as("says_its_cores", {"-n", "2", "--bind=core"}));
  EXPECT_EQ(bound.code, 0) << bound.err;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string line = std::to_string(rank) + ": threads 1, cores " + std::to_string(two[rank]) + "\n";
    EXPECT_TRUE(contains(bound.out, line)) << bound.out;
  }
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

// Text written to a closed descriptor must not land in a channel. The job has no output, only an exit code.
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

// With what a rank leaves behind in the middle a provider of libfabric's may spin for ever: the launcher ends that.
TEST(Exit, in_the_middle_of_a_ring_ends_the_job) {
  const auto before = Clock::now();
  std::vector<Program> jobs;
#ifdef SLUICE_TESTS_OFI
  const std::vector<const char*> backends = {"shm", "ofi:shm", "ofi:shm", "ofi:shm"};
#else
  const std::vector<const char*> backends = {"shm"};
#endif
  for (const char* const backend : backends) {
    ::setenv("SLUICE_BACKENDS", backend, 1);
    jobs.push_back(start(as("rank_one_exits_while_a_ring_turns")));
  }
  ::unsetenv("SLUICE_BACKENDS");
  for (Program& job : jobs) {
    const Result result = job.result();
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(contains(result.err, "sluice: rank 1 called exit inside sluice::run, with 2 ends")) << result.err;
  }
  EXPECT_LT(Clock::now() - before, 60s);
}

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

/// The exit code of a rank is known before it writes what it has recorded last.
TEST(Launch, a_timeline_that_a_rank_could_not_write_at_its_exit_is_exit_code_1) {
  const std::string folder = testing::TempDir() + "sluice_launch_" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const Result result = launch(as("loses_events_at_its_exit", {"-n", "2", "--trace", folder + "/timeline.json"}));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(contains(result.err, "sluice-run: the timeline " + folder + "/timeline.json lacks events: "))
      << result.err;
  std::filesystem::remove_all(folder);
}

/// A timeline in a folder of its own.
class Timeline : public testing::Test {
 public:
  Timeline() { std::filesystem::create_directory(folder_); }
  ~Timeline() override { std::filesystem::remove_all(folder_); }

 protected:
  std::vector<std::string> traced(const std::string& what, std::vector<std::string> flags = {"-n", "2"}) const {
    flags.insert(flags.end(), {"--trace", file_});
    return as(what, std::move(flags));
  }

  /// The file is valid JSON, has the slices that each of so many ranks has recorded, and nothing lies beside it.
  void expect_slices_of(int ranks) const {
    std::ifstream in(file_);
    std::map<int, std::size_t> slices;
    std::map<int, std::string> processes;
    const nlohmann::json timeline = nlohmann::json::parse(in);
    for (const auto& event : timeline.at("traceEvents")) {
      const int rank = event.at("pid");
      if (event.at("ph") == "X" && event.at("name") == "work") ++slices[rank];
      if (event.at("name") == "process_name") processes[rank] = event.at("args").at("name");
    }
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(slices[rank], kSlices) << "rank " << rank;
      EXPECT_EQ(processes[rank], "rank " + std::to_string(rank));
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "files in " << folder_;
  }

  const std::string folder_ = testing::TempDir() + "sluice_timeline_" + std::to_string(::getpid());
  const std::string file_ = folder_ + "/timeline.json";
};

TEST_F(Timeline, of_a_run_of_which_a_rank_is_killed_has_the_slices_before) {
  const Result result = launch(traced("records_and_rank_one_is_killed", {"-n", "3"}));
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
  EXPECT_FALSE(contains(result.err, "timeline")) << result.err;
  expect_slices_of(3);
}

TEST_F(Timeline, of_a_process_of_several_ranks_that_is_killed_has_the_slices_before) {
  const Result result = launch(traced("records_and_kills_all", {"-n", "2", "--threads"}));
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
  expect_slices_of(2);
}

TEST_F(Timeline, of_a_run_that_is_interrupted_has_the_slices_before) {
  Program launcher = start(traced("records_and_sleeps"));
  launcher.read_bytes(2);
  launcher.signal(SIGINT);
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 128 + SIGINT) << result.err;
  expect_slices_of(2);
}

TEST_F(Timeline, of_a_run_that_hangs_until_it_is_killed_has_the_slices_before) {
  Program launcher = start(traced("records_and_hangs", {"-n", "2", "--kill-after", "0"}));
  launcher.read_bytes(2);
  launcher.signal(SIGTERM);
  const Result result = launcher.result();
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
  expect_slices_of(2);
}

/// As under another launcher, of which nothing of Sluice is left.
TEST_F(Timeline, of_ranks_that_another_launcher_has_started_can_be_finished) {
  ::setenv("SLUICE_TRACE", file_.c_str(), 1);
  Program ranks([] { return sluice::run_threads(2, records_and_sleeps); });
  ::unsetenv("SLUICE_TRACE");
  ranks.read_bytes(2);
  ranks.signal(SIGKILL);
  EXPECT_EQ(ranks.result().code, 128 + SIGKILL);
  const Result finish = launch({"--finish", file_});
  EXPECT_EQ(finish.code, 0) << finish.err;
  expect_slices_of(2);
  const Result again = launch({"--finish", file_});
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(contains(again.err, "no process has left parts of the timeline " + file_)) << again.err;
}

TEST(Launch, bad_usage_is_one_line_and_exit_code_2) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "-n N is missing"},
      {{"-n"}, "-n takes the number of ranks"},
      {{"-n", "0", "true"}, "not \"0\""},
      {{"-n", "2", "-n", "3", "true"}, "-n is given twice"},
      {{"-n2", "-np", "3", "true"}, "-n is given twice"},
      {{"-n", "2", "--threads=yes", "true"}, "--threads takes no value"},
      {{"-n", "2", "--bind=socket", "true"}, "--bind takes core or none"},
      {{"-n", "2", "--bind", "core", "--threads", "true"}, "--bind is for ranks that are processes"},
      {{"--status", "0"}, "--status takes the process number of a sluice-run, 1 or more"},
      {{"-n", "2", "--stdin=second", "true"}, "--stdin takes first, all or none"},
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
  if (argc > 1 && std::string_view(argv[1]) == "--launch") return sluice::launch(argc - 1, argv + 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
