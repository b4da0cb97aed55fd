// SPDX-License-Identifier: Apache-2.0
// sluice-run --hosts: launchers that meet on this machine, which is one host to their ranks. tests/hosts.py has
// several.
#include "base/network.hpp"
#include "peers/wire.hpp"
#include "tests/unit/program.hpp"

#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
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

void say(const std::string& text) { ASSERT_EQ(::write(STDOUT_FILENO, text.data(), text.size()), ssize_t(text.size())); }

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

void says_who_it_is(sluice::Context& context) {
  say("rank " + std::to_string(context.rank()) + " of " + std::to_string(context.size()) + ", " +
      std::to_string(context.node_rank()) + " of " + std::to_string(context.node_size()) + " here\n");
}

// Sends its rank to the right, and checks what comes from the left.
void passes_on(sluice::Context& context) {
  const int size = context.size();
  const auto stream = sluice::Stream::program_order();
  const sluice::Memory memory = context.allocate(2 * sizeof(int));
  sluice::Sender east = context.sender((context.rank() + 1) % size, 1, memory.slice(0, sizeof(int)));
  sluice::Receiver west =
      context.receiver((context.rank() + size - 1) % size, 1, memory.slice(sizeof(int), sizeof(int)));
  const sluice::Slice source = east.acquire(stream);
  source.as<int>()[0] = context.rank();
  east.put(stream);
  const sluice::Slice target = west.wait(stream);
  if (target.as<int>()[0] != (context.rank() + size - 1) % size) g_exit_code = 4;
  west.release(stream);
}

void last_rank_fails_and_others_hang(sluice::Context& context) {
  if (context.rank() == context.size() - 1) ::_exit(7);
  sleep_for_ever();
}

void waits_for_a_signal(sluice::Context&) {
  say("r");
  sleep_for_ever();
}

const std::map<std::string, void (*)(sluice::Context&)> kBodies = {
    {"says_who_it_is", says_who_it_is},
    {"passes_on", passes_on},
    {"last_rank_fails_and_others_hang", last_rank_fails_and_others_hang},
    {"waits_for_a_signal", waits_for_a_signal}};

// ---- the launchers ----

/// A port of the loopback that the kernel gives to no other socket: one that does not listen is bound to it.
class OwnPort {
 public:
  OwnPort() {
    constexpr int kOn = 1;
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn), 0);  // the launcher sets it too
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback), 0);
  }
  std::string number() const { return std::to_string(sluice::base::own_end(socket_).port); }

 private:
  sluice::base::Fd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

/// A network in front of host 0 that carries the first bytes at once, and for a while nothing more.
class SlowNetwork {
 public:
  static constexpr std::size_t kAtOnce = sizeof(sluice::runtime::Secret);  // the password
  static constexpr auto kPause = 7s;                                       // longer than host 0 waits for that

  SlowNetwork(const std::string& from, const std::string& to)
      : door_(sluice::base::listen_on(endpoint(from))), to_(endpoint(to)) {}

  /// Carries one connection until both ends have closed it.
  void carry() const {
    await(door_, POLLIN);
    const sluice::base::Fd caller = sluice::base::accept_one(door_);
    const sluice::base::Fd called = connect();
    const std::jthread back([&] { pass(called, caller, 0); });
    pass(caller, called, kAtOnce);
  }

 private:
  static sluice::base::Endpoint endpoint(const std::string& port) {
    return sluice::base::resolve("127.0.0.1", static_cast<std::uint16_t>(std::stoi(port))).front();
  }
  /// Host 0 may still be starting.
  sluice::base::Fd connect() const {
    for (;;) {
      sluice::base::Fd socket = sluice::base::begin_connect(to_);
      await(socket, POLLOUT);
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return socket;
    }
  }
  static void await(const sluice::base::Fd& socket, short what) {
    pollfd one{socket.get(), what, 0};
    ASSERT_EQ(::poll(&one, 1, 60'000), 1);
  }
  static void pass(const sluice::base::Fd& from, const sluice::base::Fd& to, std::size_t at_once) {
    std::array<char, 4096> bytes{};
    for (;;) {
      await(from, POLLIN);
      const auto count = ::recv(from.get(), bytes.data(), at_once > 0 ? at_once : bytes.size(), 0);
      if (count <= 0) break;
      EXPECT_EQ(::send(to.get(), bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL), count);
      if (at_once == 0) continue;
      at_once -= static_cast<std::size_t>(count);
      if (at_once == 0) std::this_thread::sleep_for(kPause);
    }
    ::shutdown(to.get(), SHUT_WR);
  }

  sluice::base::Fd door_;
  sluice::base::Endpoint to_;
};

class Meeting {
 public:
  std::string port() const { return port_.number(); }

  Program start(int ranks, int hosts, int host, const std::string& what) const {
    return Program([&] {
      std::vector<std::string> words = {"sluice-run",
                                        "-n",
                                        std::to_string(ranks),
                                        "--hosts",
                                        std::to_string(hosts),
                                        "--host",
                                        std::to_string(host),
                                        "--meet",
                                        "127.0.0.1:" + port(),
                                        "/proc/self/exe",
                                        "--as",
                                        what};
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      return sluice::launch(static_cast<int>(pointers.size()), pointers.data());
    });
  }

 private:
  OwnPort port_;
};

/// SLUICE_CONNECT_TIMEOUT for the length of a test.
struct Hurry {
  explicit Hurry(const char* limit) { ::setenv("SLUICE_CONNECT_TIMEOUT", limit, 1); }
  Hurry(const Hurry&) = delete;
  Hurry& operator=(const Hurry&) = delete;
  ~Hurry() { ::unsetenv("SLUICE_CONNECT_TIMEOUT"); }
};

void expect_refusal(const Result& result, const std::string& expected) {
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_TRUE(contains(result.err, expected)) << result.err;
  EXPECT_EQ(lines(result.err), 1) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(Meeting, ranks_are_numbered_host_by_host) {
  const Meeting meeting;
  Program last = meeting.start(1, 3, 2, "says_who_it_is");
  Program middle = meeting.start(3, 3, 1, "says_who_it_is");
  Program first = meeting.start(2, 3, 0, "says_who_it_is");
  const Result results[] = {first.result(), middle.result(), last.result()};
  for (const Result& result : results) EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines(results[0].out), 2);
  EXPECT_TRUE(contains(results[0].out, "rank 0 of 6, 0 of 6 here\n")) << results[0].out;
  EXPECT_EQ(lines(results[1].out), 3);
  EXPECT_TRUE(contains(results[1].out, "rank 4 of 6, 4 of 6 here\n")) << results[1].out;
  EXPECT_EQ(results[2].out, "rank 5 of 6, 5 of 6 here\n");
}

TEST(Meeting, two_launchers_on_one_machine_are_one_host) {
  const Meeting meeting;
  Program first = meeting.start(2, 2, 0, "passes_on");
  Program second = meeting.start(2, 2, 1, "passes_on");
  EXPECT_EQ(first.result().code, 0);
  EXPECT_EQ(second.result().code, 0);
}

TEST(Meeting, a_failure_on_one_host_ends_the_others_with_the_same_code) {
  const Meeting meeting;
  const auto before = Clock::now();
  Program first = meeting.start(2, 2, 0, "last_rank_fails_and_others_hang");
  Program second = meeting.start(2, 2, 1, "last_rank_fails_and_others_hang");
  const Result there = second.result();
  const Result here = first.result();
  EXPECT_EQ(here.code, 7) << here.err;
  EXPECT_EQ(there.code, 7) << there.err;
  EXPECT_GE(Clock::now() - before, 5s);
  EXPECT_TRUE(contains(here.err, "killed rank 0, rank 1: still running 5 s after the failure of rank 3")) << here.err;
}

TEST(Meeting, a_launcher_that_dies_is_a_failure_for_the_others) {
  for (const int victim : {0, 1}) {
    const Meeting meeting;
    Program launchers[] = {meeting.start(1, 2, 0, "waits_for_a_signal"), meeting.start(1, 2, 1, "waits_for_a_signal")};
    for (const Program& launcher : launchers) launcher.read_bytes(1);
    launchers[victim].signal(SIGKILL);
    const Result left = launchers[1 - victim].result();
    EXPECT_EQ(left.code, 1);
    EXPECT_TRUE(contains(left.err, "the sluice-run of host " + std::to_string(victim) + " has ended")) << left.err;
    launchers[victim].result();
  }
}

TEST(Meeting, a_host_that_is_missing_is_named_everywhere) {
  const Hurry hurry("2s");
  const Meeting meeting;
  Program first = meeting.start(1, 3, 0, "says_who_it_is");
  Program second = meeting.start(1, 3, 1, "says_who_it_is");
  expect_refusal(first.result(), "host 2 has not come to meet at 127.0.0.1:");
  expect_refusal(second.result(), "host 2 has not come to meet at 127.0.0.1:");
}

TEST(Meeting, host_0_that_is_missing_is_named) {
  const Hurry hurry("1s");
  const Meeting meeting;
  expect_refusal(meeting.start(1, 2, 1, "says_who_it_is").result(), "cannot meet host 0 at 127.0.0.1:");
}

TEST(Meeting, two_of_one_index_are_named_everywhere) {
  const Meeting meeting;
  Program first = meeting.start(1, 3, 0, "says_who_it_is");
  Program second = meeting.start(1, 3, 1, "says_who_it_is");
  Program third = meeting.start(1, 3, 1, "says_who_it_is");
  expect_refusal(first.result(), "two were started with --host 1");
  expect_refusal(second.result(), "two were started with --host 1");
  expect_refusal(third.result(), "two were started with --host 1");
}

TEST(Meeting, different_numbers_of_hosts_are_named_everywhere) {
  const Meeting meeting;
  Program first = meeting.start(1, 2, 0, "says_who_it_is");
  Program second = meeting.start(1, 3, 1, "says_who_it_is");
  const std::string expected = "host 1 was started with --hosts 3, host 0 with --hosts 2";
  expect_refusal(first.result(), expected);
  expect_refusal(second.result(), expected);
}

TEST(Meeting, a_slow_network_is_waited_for) {
  const Meeting there;
  const Meeting here;
  Program first = there.start(1, 2, 0, "says_who_it_is");
  Program second = here.start(1, 2, 1, "says_who_it_is");
  SlowNetwork(here.port(), there.port()).carry();
  for (Program* launcher : {&first, &second}) {
    const Result result = launcher->result();
    EXPECT_EQ(result.code, 0) << result.err;
  }
}

TEST(Meeting, one_host_needs_nobody) {
  const Meeting meeting;
  const Result result = meeting.start(2, 1, 0, "passes_on").result();
  EXPECT_EQ(result.code, 0) << result.err;
}

int act_as(const std::string& what) {
  const int code = sluice::run(0, nullptr, kBodies.at(what));
  return code != 0 ? code : g_exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--as") return act_as(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
