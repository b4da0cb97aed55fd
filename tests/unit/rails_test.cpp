// SPDX-License-Identifier: Apache-2.0
// Rails whose peer is killed.
#include "backends/ofi/rail.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "backends/ofi/address.hpp"
#include "backends/ofi/provider.hpp"
#include "base/fd.hpp"
#include "base/words.hpp"

namespace sluice::backends::ofi {
namespace {

using namespace std::chrono_literals;

Rail open(const std::string& name) {
  const auto provider = std::ranges::find(providers(), name, &Provider::name);
  if (provider == providers().end()) throw std::runtime_error("no provider " + name);
  return {*provider->devices.front(), false, false};
}

class Writes final : public Owner {
 public:
  void ended(Operation&, const std::string& why_not) override { over += why_not.empty() ? 1 : 0; }

  int over = 0;
};

/// A peer that can be written to, until it is killed.
class Peer {
 public:
  explicit Peer(const std::string& provider) {
    int ends[2] = {};
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    const base::Fd from(ends[0]);
    const base::Fd to(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) serve(provider, to.get());
    Blob word(4096);
    const ssize_t bytes = ::read(from.get(), word.data(), word.size());
    if (bytes <= 0) throw std::runtime_error("the peer says nothing");
    word.resize(static_cast<std::size_t>(bytes));
    address = unpack(word).endpoints.at(0);
  }
  Peer(const Peer&) = delete;
  ~Peer() { end(); }

  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

  EndpointAddress address;

 private:
  [[noreturn]] static void serve(const std::string& provider, int to) {
    Rail rail = open(provider);
    const Registration& memory = rail.flushes();
    EndpointAddress endpoint;
    endpoint.name = rail.name(rail.endpoint());
    endpoint.flushes = memory.spot(memory.data);
    const Blob word = pack({provider, {endpoint}});
    if (::write(to, word.data(), word.size()) != static_cast<ssize_t>(word.size())) ::_exit(1);
    for (;;) rail.poll([](std::uint64_t) {});
  }

  pid_t pid_ = 0;
};

class Rails : public testing::TestWithParam<const char*> {};

/// The first write breaks the connection; those behind it fail inside the provider.
TEST_P(Rails, survive_small_writes_to_a_peer_that_is_killed) {
  Peer peer(GetParam());
  Rail rail = open(GetParam());
  Writes writes;
  const Remote there{rail.endpoint(), rail.add(peer.address.name), peer.address.flushes};
  const Registration& from = rail.flushes();
  const auto poll_for = [&](auto time) {
    const auto until = base::Clock::now() + time;
    while (base::Clock::now() < until) rail.poll([](std::uint64_t) {});
  };
  std::array<Operation, 9> operations;
  for (Operation& one : operations) rail.know(one, writes);
  const auto write = [&](Operation& one, bool delivered) {
    while (rail.write({from.data, from.bytes, from.desc()}, there, {}, delivered, one) == Posted::busy) poll_for(1ms);
  };
  write(operations[0], true);
  while (writes.over == 0) poll_for(1ms);
  peer.end();
  try {
    for (std::size_t i = 1; i < operations.size(); ++i) write(operations[i], false);
  } catch (const std::runtime_error& refused) {
    EXPECT_STREQ(GetParam(), "sockets") << refused.what();
  }
  poll_for(200ms);
  rail.forget(writes);
}

INSTANTIATE_TEST_SUITE_P(Providers, Rails, testing::Values("tcp", "sockets"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace sluice::backends::ofi
