// SPDX-License-Identifier: Apache-2.0
// The engine's turns, with a transport that takes its time.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

using std::chrono::milliseconds;

/// No sockets.
class EmptyDesk final : public Engine::Desk {
 public:
  int prepare(std::vector<pollfd>&) override { return -1; }
  void serve() override {}
};

/// Its first poll takes until it may end, and finds nothing; the next finds what has arrived meanwhile.
class SlowTransport final : public backends::Transport {
 public:
  void await_first_poll() { polls_.acquire(); }
  void end_first_poll() { may_end_.release(); }
  bool found() const { return found_; }

  bool poll() override {
    if (std::exchange(first_, false)) {
      polls_.release();
      may_end_.acquire();
    } else {
      found_ = true;
    }
    return false;
  }
  int rest(std::vector<pollfd>&) override { return kNoLimit; }

  backends::Blob address() const override { return {}; }
  bool reaches(const backends::Blob&) const override { return false; }
  std::unique_ptr<backends::Pin> pin(const device::Extent&) override { return nullptr; }
  std::unique_ptr<backends::Link> connect(Rank, const backends::Blob&) override { return nullptr; }
  void try_out(device::Driver&) override {}

 private:
  std::binary_semaphore polls_{0};
  std::binary_semaphore may_end_{0};
  bool first_ = true;
  bool found_ = false;
};

TEST(Engine, a_look_waits_for_the_turn_of_another_and_takes_one_of_its_own) {
  EmptyDesk desk;
  SlowTransport transport;
  Engine engine(desk, {});
  engine.add(transport);
  std::thread other([&] { engine.help(); });
  transport.await_first_poll();
  std::binary_semaphore begun(0);
  auto look = std::async(std::launch::async, [&] {
    begun.release();
    engine.look();
    return transport.found();
  });
  begun.acquire();
  EXPECT_EQ(look.wait_for(milliseconds(200)), std::future_status::timeout);
  transport.end_first_poll();
  EXPECT_TRUE(look.get());
  other.join();
}

}  // namespace
}  // namespace sluice::runtime
