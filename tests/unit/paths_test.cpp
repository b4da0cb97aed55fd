// SPDX-License-Identifier: Apache-2.0
// Two links over loopback, whose words the test carries: what becomes of a path that works, leads nowhere, or ends.
#include "backends/transport.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/ofi/address.hpp"

namespace sluice::backends {
namespace {

using base::Clock;
using namespace std::chrono_literals;

constexpr auto kPatience = 2s;

class FailingWatch final : public device::Watch {
 public:
  void fail(Code code, const std::string& what) noexcept override {
    failure = std::string(name(code)) + ": " + what;
    set_failed();
  }
  Clock::duration waited(const device::Wait&, Clock::duration, Timeout, base::WaitNote&) noexcept override {
    return 1s;
  }

  std::string failure;
};

/// One end: a transport, and a link to the other end.
struct End {
  explicit End(const char* backend) {
    Settings settings;
    settings.patience = kPatience;
    transport = find_backend(backend)->open(settings);
  }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Link> link;
};

class TwoEnds {
 public:
  /// `forge` changes the address of the second end, as the first gets to know it.
  explicit TwoEnds(Blob (*forge)(const Blob&), const char* backend = "ofi:tcp") : one(backend), two(backend) {
    one.link = one.transport->connect(1, forge(two.transport->address()), true);
    two.link = two.transport->connect(0, one.transport->address(), true);
  }

  template <class Until>
  bool run(Clock::duration limit, Until until) {
    const auto deadline = Clock::now() + limit;
    while (!until()) {
      if (Clock::now() >= deadline) return false;
      tend(*one.link, *two.link, words_to_two);
      if (!two_is_stopped && Clock::now() >= turn_of_two_) {
        turn_of_two_ = Clock::now() + pause_of_two;
        tend(*two.link, *one.link, words_to_one);
      }
      one.transport->poll();
      if (!two_is_stopped && !two_is_not_polled) two.transport->poll();
    }
    return true;
  }
  bool both_ready() const { return one.link->ready() && two.link->ready(); }

  End one;
  End two;
  bool two_is_stopped = false;
  bool two_is_not_polled = false;
  std::size_t words_to_one = SIZE_MAX;  // so many get there
  std::size_t words_to_two = SIZE_MAX;
  Clock::duration pause_of_two{};  // between two calls of its `tend`

 private:
  static void tend(Link& link, Link& other, std::size_t& heard_at_most) {
    std::vector<Blob> words;
    link.paths->tend(Clock::now(), words);
    for (const Blob& word : words) {
      if (heard_at_most == 0) return;
      --heard_at_most;
      other.paths->heard(word);
    }
  }

  Clock::time_point turn_of_two_;
};

Blob as_it_is(const Blob& address) { return address; }

/// To a port without a listener.
Blob to_nowhere(const Blob& blob) {
  ofi::Address address = ofi::unpack(blob);
  for (auto& endpoint : address.endpoints) {
    endpoint.name.at(2) = std::byte{0};
    endpoint.name.at(3) = std::byte{9};
  }
  return ofi::pack(address);
}

TEST(Paths, that_work_are_ready_at_once) {
  TwoEnds ends(as_it_is);
  EXPECT_FALSE(ends.one.link->ready());
  ASSERT_TRUE(ends.run(30s, [&] { return ends.both_ready(); }));
  EXPECT_EQ(ends.one.link->obstacle(), "");
  EXPECT_EQ(ends.two.link->obstacle(), "");
}

/// Both ends agree on it, though it is one way alone that leads nowhere.
TEST(Paths, that_lead_nowhere_are_named_in_time) {
  TwoEnds ends(to_nowhere);
  const auto began = Clock::now();
  ASSERT_TRUE(ends.run(30s, [&] { return ends.both_ready(); }));
  EXPECT_LT(Clock::now() - began, 4 * kPatience);
  for (const Link* link : {ends.one.link.get(), ends.two.link.get()}) {
    EXPECT_NE(link->obstacle().find("lo (127.0.0.1) to lo (127.0.0.1)"), std::string::npos) << link->obstacle();
    EXPECT_NE(link->obstacle().find("SLUICE_NICS"), std::string::npos) << link->obstacle();
  }
}

TEST(Paths, are_not_given_up_while_the_peer_is_stopped) {
  TwoEnds ends(as_it_is);
  ASSERT_TRUE(ends.run(30s, [&, calls = 0]() mutable { return ++calls > 1; }));  // each knows the grades of the other
  ends.two_is_stopped = true;
  EXPECT_FALSE(ends.run(kPatience, [&] { return ends.one.link->ready(); }));
  ends.two_is_stopped = false;
  ASSERT_TRUE(ends.run(30s, [&] { return ends.both_ready(); }));
  EXPECT_EQ(ends.one.link->obstacle(), "");
}

TEST(Paths, are_given_up_though_each_answer_is_late) {
  TwoEnds ends(to_nowhere);
  ends.pause_of_two = 500ms;
  EXPECT_TRUE(ends.run(15 * kPatience, [&] { return ends.both_ready(); }));
  EXPECT_NE(ends.one.link->obstacle(), "");
}

TEST(Paths, that_end_fail_their_puts_in_time) {
  TwoEnds ends(as_it_is);
  ASSERT_TRUE(ends.run(30s, [&] { return ends.both_ready(); }));
  base::Progress& progress = base::take_progress();
  const Signal signal{
      &progress.word, &progress.parking, {reinterpret_cast<std::byte*>(&progress.word), sizeof(base::Word), nullptr}};
  auto landed = ends.two.link->land({}, std::array{signal});
  FailingWatch watch;
  auto put = ends.one.link->prepare({}, watch, std::move(landed.key));
  EXPECT_FALSE(ends.run(kPatience, [&] { return watch.failed(); })) << watch.failure;
  ends.two_is_not_polled = true;
  const auto began = Clock::now();
  ASSERT_TRUE(ends.run(30s, [&] { return watch.failed(); }));
  EXPECT_LT(Clock::now() - began, 4 * kPatience);
  EXPECT_NE(watch.failure.find("transport: the network path from lo (127.0.0.1)"), std::string::npos) << watch.failure;
  EXPECT_NE(watch.failure.find("SLUICE_NICS"), std::string::npos) << watch.failure;
  EXPECT_NE(ends.one.link->obstacle(), "");
  put.reset();
  base::give_back(progress);
}

/// libfabric's shm opens the file of an endpoint that wrote to it, and crashes if the file has gone.
TEST(Paths, write_nothing_to_an_end_that_does_not_know_them) {
  TwoEnds ends(as_it_is, "ofi:shm");
  ends.words_to_two = 1;  // the grades
  EXPECT_FALSE(ends.run(200ms, [&] { return ends.one.link->ready(); }));
  ends.one.link.reset();
  ends.one.transport.reset();
  ends.two.transport->poll();
}

TEST(Paths, begin_at_the_interface_that_is_chosen) {
  const auto backend = find_backend("ofi:tcp");
  Settings settings;
  settings.one_host = false;
  settings.interface = "lo";
  const auto at_lo = ofi::unpack(backend->open(settings)->address());
  ASSERT_EQ(at_lo.endpoints.size(), 1U);
  EXPECT_EQ(at_lo.endpoints[0].device, "lo");
  settings.interface = "no_such";
  try {
    backend->open(settings);
    FAIL() << "opened";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("SLUICE_INTERFACE=no_such"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::backends
