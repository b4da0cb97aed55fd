// SPDX-License-Identifier: Apache-2.0
// How many descriptors ranks take, and what happens where there are fewer.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <vector>

#include "backends/transport.hpp"
#include "tests/conformance/cases.hpp"
#include "tests/faults/limit.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

rlim_t limit_on_files() {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  return now.rlim_cur;
}

/// Channels to and from every other rank.
struct AllToAll {
  explicit AllToAll(Context& context) : memory(context.allocate(16 * static_cast<std::size_t>(context.size()))) {
    for (Rank peer = 0; peer < context.size(); ++peer) {
      if (peer == context.rank()) continue;
      const std::size_t at = 16 * static_cast<std::size_t>(peer);
      senders.push_back(context.sender(peer, kTag, memory.slice(at, 8)));
      receivers.push_back(context.receiver(peer, kTag, memory.slice(at + 8, 8)));
    }
  }
  void exchange() {
    for (Sender& sender : senders) sender.put({});
    for (Receiver& receiver : receivers) receiver.wait({});
  }
  Memory memory;
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
};

/// A job under a limit of its own, the soft one.
Ended under(rlim_t soft, Peers peers, const Body& body) {
  peers.environment = {"SLUICE_LOG=info"};
  const Limit limit(RLIMIT_NOFILE, soft);
  return end_of_peers(peers, body);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

constexpr const char* kRaised = "raised the limit on open files";

TEST(Descriptors, are_few_of_many_ranks_in_one_process) {
  const Ended ended = under(1024, {.ranks = 32, .limit = 60s}, [](Context& context) {
    board().meet(context);
    const std::ptrdiff_t before = open_files();
    board().meet(context);
    AllToAll channels(context);
    channels.exchange();
    board().meet(context);
    constexpr std::ptrdiff_t kMemory = 3;  // of all channels, which is 2 MiB of words, and what this looks with
    if (context.rank() == 0) {
      EXPECT_LE(open_files(), before + kMemory) << "a pair of threads takes descriptors";
    }
    board().meet(context);
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(count_of(ended.text, kRaised), 0U) << ended.text;
}

/// In a job that may open too few at first. The limit may be raised to little more than so many times what is open in
/// the end.
void expect_raised(const Peers& peers, rlim_t times_open, std::size_t most_raises) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  const rlim_t few = next_descriptor() + 16;
  const Ended ended = under(few, peers, [&](Context& context) {
    AllToAll channels(context);
    channels.exchange();
    board().meet(context);
    EXPECT_GT(limit_on_files(), few);
    EXPECT_LT(limit_on_files(), times_open * static_cast<rlim_t>(open_files()) + 64);
    board().meet(context);
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_GE(count_of(ended.text, kRaised), 1U) << ended.text;
  EXPECT_LE(count_of(ended.text, kRaised), most_raises) << ended.text;
}

TEST(Descriptors, that_threads_need_raise_the_limit_so_far_and_no_further) { expect_raised({.ranks = 24}, 1, 1); }

TEST(Descriptors, that_processes_need_raise_the_limit_so_far_and_no_further) {
  expect_raised({.ranks = 12, .processes = true}, 1, 24);  // as its peers become known
}

TEST(Descriptors, that_a_network_needs_are_there) {
  if (const std::string why_not = why_unusable("ofi:tcp"); !why_not.empty()) return skipped_here(why_not);
  expect_raised({.ranks = 6, .processes = true, .backend = "ofi:tcp", .limit = 60s}, 3, 18);
}

TEST(Descriptors, that_cannot_be_had_are_one_error_within_seconds) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  run_peers({.processes = true}, [](Context& context) {
    const Memory memory = context.allocate(64);
    if (context.rank() == 1) return board().await(kGo, 1);
    const NoDescriptors none;
    Receiver receiver = context.receiver(1, kTag, memory.all());
    const auto began = Clock::now();
    const auto error = expect_code(Code::out_of_resources, [&] { receiver.wait({}); });
    EXPECT_LT(Clock::now() - began, 10s);
    const std::string why = error ? error->what() : "";
    EXPECT_NE(why.find("this process needs "), std::string::npos) << why;
    EXPECT_NE(why.find("no more than " + std::to_string(limit_on_files()) + " (ulimit -Hn)"), std::string::npos) << why;
    board().set(kGo, 1);
  });
}

}  // namespace
