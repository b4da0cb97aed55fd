// SPDX-License-Identifier: Apache-2.0
// Programs that hang: the table of waits names the end that owes something. This program starts itself as their ranks.
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using sluice::tests::contains;
using sluice::tests::Program;
using sluice::tests::Result;

constexpr sluice::Tag kTag = 7;
constexpr std::size_t kBytes = 64;

[[noreturn]] void hang() {
  for (;;) ::pause();
}

// ---- the programs

/// A channel from rank 0 to rank 1, in program order.
struct OneWay {
  explicit OneWay(sluice::Context& context) : memory(context.allocate(kBytes)) {
    if (context.rank() == 0) sender = context.sender(1, kTag, memory.slice(0, kBytes));
    if (context.rank() == 1) receiver = context.receiver(0, kTag, memory.slice(0, kBytes));
  }
  sluice::Memory memory;
  sluice::Sender sender;
  sluice::Receiver receiver;
};

void waits_twice_without_a_release(sluice::Context& context) {
  OneWay way(context);
  for (int epoch = 1; epoch <= 2; ++epoch) context.rank() == 0 ? way.sender.put({}) : (void)way.receiver.wait({});
}

void releases_all_senders_but_one(sluice::Context& context) {
  const auto ranks = static_cast<std::size_t>(context.size());
  const sluice::Memory memory = context.allocate(ranks * kBytes);
  if (context.rank() > 0) {
    sluice::Sender sender = context.sender(0, kTag, memory.slice(0, kBytes));
    for (int step = 0; step < 3; ++step) sender.put({});
    return hang();
  }
  std::vector<sluice::Receiver> receivers;
  for (std::size_t rank = 1; rank < ranks; ++rank)
    receivers.push_back(context.receiver(static_cast<sluice::Rank>(rank), kTag, memory.slice(rank * kBytes, kBytes)));
  for (int step = 0; step < 3; ++step) {
    for (auto& receiver : receivers) {
      receiver.wait({});
      if (receiver.peer() != 2 || step == 0) receiver.release({});
    }
  }
}

void puts_less_often_than_it_is_waited_for(sluice::Context& context) {
  OneWay way(context);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    if (context.rank() == 0 && epoch == 3) hang();
    if (context.rank() == 0) {
      way.sender.put({});
    } else {
      way.receiver.wait({});
      way.receiver.release({});
    }
  }
}

void names_another_tag_on_one_side(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(kBytes);
  if (context.rank() == 0) {
    context.sender(1, kTag, memory.slice(0, kBytes)).put({});
  } else {
    context.receiver(0, kTag + 1, memory.slice(0, kBytes)).wait({});
  }
}

void puts_before_the_other_direction_is_open(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(2 * kBytes);
  sluice::Sender sender = context.sender(1 - context.rank(), kTag, memory.slice(0, kBytes));
  sluice::HostStream host;
  sender.put({});
  sluice::Receiver receiver = context.receiver(1 - context.rank(), kTag, memory.slice(kBytes, kBytes));
  receiver.wait({});
}

void enqueues_more_than_a_queue_holds(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(2 * kBytes);
  sluice::HostStream host;
  const auto stream = sluice::Stream::host(host);
  sluice::Sender sender = context.sender(1 - context.rank(), kTag, memory.slice(0, kBytes));
  sluice::Receiver receiver = context.receiver(1 - context.rank(), kTag, memory.slice(kBytes, kBytes));
  for (int epoch = 1; epoch <= 100'000; ++epoch) sender.put(stream);
  receiver.wait(stream);
}

void uses_up_the_depth_round_a_ring(sluice::Context& context) {
  const sluice::Rank right = (context.rank() + 1) % context.size();
  const sluice::Rank left = (context.rank() + context.size() - 1) % context.size();
  const sluice::Memory memory = context.allocate(3 * kBytes);
  sluice::Sender sender = context.sender(right, kTag, memory.slice(0, kBytes));
  sluice::Receiver receiver = context.receiver(left, kTag, memory.slice(kBytes, 2 * kBytes), {.depth = 2});
  for (int epoch = 1; epoch <= 3; ++epoch) sender.put({});
  for (int epoch = 1; epoch <= 3; ++epoch) {
    receiver.wait({});
    receiver.release({});
  }
}

void waits_for_any_of_two_that_put_nothing(sluice::Context& context) {
  const sluice::Memory memory = context.allocate(2 * kBytes);
  if (context.rank() > 0) {
    const sluice::Sender sender = context.sender(0, kTag, memory.slice(0, kBytes));
    return hang();
  }
  std::vector<sluice::Receiver> receivers;
  receivers.push_back(context.receiver(1, kTag, memory.slice(0, kBytes)));
  receivers.push_back(context.receiver(2, kTag, memory.slice(kBytes, kBytes)));
  sluice::WaitAny(receivers).wait();
}

void waits_for_any_on_a_stream(sluice::Context& context) {
  if (context.rank() > 0) {
    const sluice::Sender sender = context.sender(0, kTag, {});
    return hang();
  }
  sluice::HostStream host({.name = "results"});
  std::vector<sluice::Receiver> receivers;
  for (sluice::Rank rank = 1; rank <= 2; ++rank) receivers.push_back(context.receiver(rank, kTag, {}));
  sluice::WaitAny any(receivers);
  any.wait(sluice::Stream::host(host));
  hang();
}

void unlocks_nothing(sluice::Context& context) {
  sluice::CollectiveWindow window(context, "faces", {});
  window.lock(1, sluice::CollectiveWindow::Lock::exclusive);
  hang();
}

void starts_towards_who_has_not_posted(sluice::Context& context) {
  sluice::CollectiveWindow window(context, "faces", {});
  if (context.rank() == 0) window.start(std::array{sluice::Rank{1}});
  hang();
}

void loses_a_rank_while_others_wait(sluice::Context& context) {
  constexpr sluice::Tag kBegun = 9;
  if (context.rank() == 2) {
    for (const sluice::Rank other : {0, 1}) context.receiver(other, kBegun, {}).wait({});
    std::this_thread::sleep_for(4s);  // others have then waited for more than the second that the table needs
    ::_exit(3);
  }
  context.sender(2, kBegun, {}).put({});
  waits_twice_without_a_release(context);
}

const std::map<std::string_view, void (*)(sluice::Context&)> kPrograms = {
    {"waits_twice_without_a_release", waits_twice_without_a_release},
    {"releases_all_senders_but_one", releases_all_senders_but_one},
    {"puts_less_often_than_it_is_waited_for", puts_less_often_than_it_is_waited_for},
    {"names_another_tag_on_one_side", names_another_tag_on_one_side},
    {"puts_before_the_other_direction_is_open", puts_before_the_other_direction_is_open},
    {"enqueues_more_than_a_queue_holds", enqueues_more_than_a_queue_holds},
    {"uses_up_the_depth_round_a_ring", uses_up_the_depth_round_a_ring},
    {"waits_for_any_of_two_that_put_nothing", waits_for_any_of_two_that_put_nothing},
    {"waits_for_any_on_a_stream", waits_for_any_on_a_stream},
    {"unlocks_nothing", unlocks_nothing},
    {"starts_towards_who_has_not_posted", starts_towards_who_has_not_posted},
    {"loses_a_rank_while_others_wait", loses_a_rank_while_others_wait}};

// ---- the tests

constexpr const char* kOften = "300ms";  // SLUICE_WARN

int launch_with(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sluice-run");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return sluice::launch(static_cast<int>(pointers.size()), pointers.data());
}

/// A way to run the ranks, and their backend.
struct Way {
  enum class Ranks : std::uint8_t { processes, threads, threads_of_launcher } ranks;
  const char* backend;
};

const std::vector<Way> kWays = {{Way::Ranks::processes, "shm"},
                                {Way::Ranks::threads, "threads"},
#if defined(SLUICE_TESTS_OFI)
                                {Way::Ranks::processes, "ofi:tcp"},
                                {Way::Ranks::threads, "ofi:tcp"},
#endif
                                {Way::Ranks::threads_of_launcher, "threads"}};

Program start_hanging(const std::string& what, int ranks, Way way, const char* warn = kOften) {
  return Program([=] {
    ::setenv("SLUICE_WARN", warn, 1);
    ::setenv("SLUICE_BACKENDS", way.backend, 1);
    if (way.ranks == Way::Ranks::threads) return sluice::run_threads(ranks, kPrograms.at(what));
    std::vector<std::string> arguments = {"-n", std::to_string(ranks)};
    if (way.ranks == Way::Ranks::threads_of_launcher) arguments.emplace_back("--threads");
    arguments.insert(arguments.end(), {"/proc/self/exe", "--as", what});
    return launch_with(arguments);
  });
}

int lines_of_first_table(const std::string& text) {
  const std::string_view head = "who waits for whom";
  const std::size_t begin = text.find(head);
  return begin == std::string::npos ? 0 : sluice::tests::lines(text.substr(begin, text.find(head, begin + 1) - begin));
}

/// Runs the program in all ways at once, and ends each as soon as its table has all of `lines`.
void expect_table(const std::string& what, int ranks, const std::vector<std::string>& lines,
                  const std::vector<Way>& ways = kWays) {
  std::list<Program> programs;
  for (const Way way : ways) programs.push_back(start_hanging(what, ranks, way));
  const auto deadline = Clock::now() + 40s;
  auto way = ways.begin();
  for (Program& program : programs) {
    const std::string text = program.read_errors_until(lines, deadline);
    program.signal(SIGKILL);
    for (const std::string& line : lines) {
      EXPECT_TRUE(contains(text, line)) << line << " is not in the table of " << way->backend << ", way "
                                        << way - ways.begin() << ":\n"
                                        << text;
    }
    EXPECT_FALSE(contains(text, "still waiting")) << text;
    EXPECT_LE(lines_of_first_table(text), 24) << text;
    program.result();
    ++way;
  }
}

TEST(Hangs, a_second_wait_without_a_release_is_named) {
  expect_table("waits_twice_without_a_release", 2, {"rank 1 holds epoch 1 of tag 7 and has not released it"});
}

TEST(Hangs, the_one_release_that_is_forgotten_is_named) {
  expect_table("releases_all_senders_but_one", 4,
               {"rank 2 puts to rank 0, tag 7", "rank 0 holds epoch 2 of tag 7 and has not released it"});
}

TEST(Hangs, a_put_that_lacks_is_named) {
  expect_table("puts_less_often_than_it_is_waited_for", 2,
               {"rank 0 has not put epoch 3 of tag 7 (its last put is 2)",
                "rank 0 waits for nothing in Sluice, and others wait for it"});
}

TEST(Hangs, another_tag_on_one_side_is_named) {
  expect_table("names_another_tag_on_one_side", 2,
               {"rank 1 has not opened its receiver of tag 7; unmatched ends that it has opened towards rank 0: a "
                "receiver of tag 8",
                "rank 0 has not opened its sender of tag 8; unmatched ends that it has opened towards rank 1: a sender "
                "of tag 7"});
}

TEST(Hangs, a_put_before_the_other_end_is_open_on_both_sides_is_named) {
  expect_table("puts_before_the_other_direction_is_open", 2,
               {"rank 1 has not opened its receiver of tag 7; unmatched ends that it has opened towards rank 0: a "
                "sender of tag 7",
                "a cycle: rank 0 waits for rank 1 waits for rank 0"});
}

TEST(Hangs, a_full_queue_is_named_and_what_fills_it) {
  expect_table("enqueues_more_than_a_queue_holds", 2,
               {"is full (65536 items)", "rank 1 has not waited for epoch 1 of tag 7",
                "a cycle: rank 0 waits for rank 1 waits for rank 0"});
}

TEST(Hangs, a_cycle_round_a_ring_is_named) {
  expect_table("uses_up_the_depth_round_a_ring", 4,
               {"rank 3 puts to rank 0, tag 7", "rank 0 has not waited for epoch 1 of tag 7",
                "a cycle: rank 0 waits for rank 1 waits for rank 2 waits for rank 3 waits for rank 0"});
}

TEST(Hangs, a_wait_for_any_names_all) {
  expect_table("waits_for_any_of_two_that_put_nothing", 3,
               {"rank 1 has not put epoch 1 of tag 7", "rank 2 has not put epoch 1 of tag 7"});
}

TEST(Hangs, a_wait_for_any_on_a_stream_names_all_and_the_stream) {
  expect_table("waits_for_any_on_a_stream", 3,
               {"rank 1 has not put epoch 1 of tag 7", "rank 2 has not put epoch 1 of tag 7", "stream 'results'"});
}

/// The ways that sluice-run watches. In the others, only waits of channels print a table.
std::vector<Way> watched_ways() {
  std::vector<Way> ways = kWays;
  std::erase_if(ways, [](const Way& way) { return way.ranks == Way::Ranks::threads; });
  return ways;
}

TEST(Hangs, a_lock_that_is_not_given_back_is_named) {
  expect_table("unlocks_nothing", 2, {"waits 'faces'", "a lock there is held by others (rank 1 of the window)"},
               watched_ways());
}

TEST(Hangs, a_post_that_lacks_is_named) {
  expect_table("starts_towards_who_has_not_posted", 2,
               {"rank 0 waits 'faces'", "a target has not called post (rank 1 of the window)"}, watched_ways());
}

TEST(Hangs, the_death_of_a_rank_shows_who_waits) {
  // Else the table would be printed in any case, 5 s later, before the others are killed.
  const std::vector<std::string> command = {"--keep-going",   "-n",   "3",
                                            "/proc/self/exe", "--as", "loses_a_rank_while_others_wait"};
  Program program([&] { return launch_with(command); });
  const std::string line = "rank 1 holds epoch 1 of tag 7 and has not released it";
  const std::string text = program.read_errors_until({line}, Clock::now() + 40s);
  program.signal(SIGKILL);
  EXPECT_TRUE(contains(text, line)) << text;
  program.result();
}

TEST(Hangs, status_and_an_interrupt_print_the_table) {
  const std::string line = "rank 1 holds epoch 1 of tag 7 and has not released it";
  Program program = start_hanging("waits_twice_without_a_release", 2, {Way::Ranks::processes, "shm"}, "60s");
  std::string status;
  const auto deadline = Clock::now() + 40s;
  while (!contains(status, line) && Clock::now() < deadline) {
    status = Program([&] { return launch_with({"--status", std::to_string(program.pid())}); }).result().out;
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(contains(status, line)) << status;
  std::this_thread::sleep_for(1100ms);  // a wait of less than a second says nothing
  program.signal(SIGINT);
  const Result result = program.result();
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_TRUE(contains(result.err, line)) << result.err;
}

TEST(Hangs, status_of_another_process_is_refused) {
  const Result result = Program([] { return launch_with({"--status", std::to_string(::getppid())}); }).result();
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(contains(result.err, "is no sluice-run on this host")) << result.err;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return sluice::run(argc, argv, kPrograms.at(argv[2]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
