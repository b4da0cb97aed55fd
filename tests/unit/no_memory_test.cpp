// SPDX-License-Identifier: Apache-2.0
// Calls that find no memory, or that another thread overtakes between two allocations.
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "tests/unit/at_allocation.hpp"
#include "tests/unit/code_of.hpp"

namespace {

using namespace std::chrono_literals;
using sluice::Stream;
using sluice::tests::AtAllocation;
using sluice::tests::code_of;

constexpr std::size_t kOwnBytes = 64;

/// A window of a rank, and its own target of it, which it has used on a HostStream.
struct OwnWindow {
  explicit OwnWindow(sluice::Context& context, sluice::HostStream::Options options = {})
      : host(options), memory(context.allocate(kOwnBytes)), window(context.window("own", memory.all(), 1)),
        local(context.allocate(kOwnBytes)), target(context.target(0, "own")) {
    target.wait_connected(10s);
    access_all();
    host.synchronize();
  }
  Stream stream() { return Stream::host(host); }
  void access_all() {
    target.put(stream(), local.all(), 0);
    target.get(stream(), local.all(), 0);
    target.put_notify(stream(), local.all(), 0, 0);
    target.accumulate(stream(), sluice::Op::sum, sluice::Number::int32, local.slice(0, 8), 0);
    target.fetch_add(stream(), 0, 1, local.slice(0, 8));
    target.compare_swap(stream(), 0, 1, 2, local.slice(0, 8));
    target.flush(stream());
  }

  sluice::HostStream host;  // destroyed after all that it uses
  sluice::Memory memory;
  sluice::Window window;
  sluice::Memory local;
  sluice::Target target;
};

template <class Body>
void run_alone(Body body) {
  sluice::Options options;
  options.connect_timeout = 5s;  // of closing, where a test fails
  EXPECT_EQ(sluice::run_threads(1, body, options), 0);
}

TEST(NoMemory, is_needed_for_no_access_on_a_host_stream) {
  run_alone([](sluice::Context& context) {
    OwnWindow own(context);
    {
      const AtAllocation none(sluice::tests::no_memory);
      EXPECT_NO_THROW(own.access_all());
    }
    own.host.synchronize();
    own.target.drain(10s);
  });
}

TEST(NoMemory, for_an_access_leaves_the_target_as_it_was) {
  run_alone([](sluice::Context& context) {
    OwnWindow own(context, {.capacity = 2});
    const std::uint64_t before = own.target.epoch();
    std::uint64_t enqueued = 0;
    own.host.run([&] {  // whose queue grows where it is full
      const AtAllocation none(sluice::tests::no_memory);
      const auto put = [&] { own.target.put(own.stream(), own.local.all(), 0); };
      EXPECT_THROW(for (;; ++enqueued) put(), std::bad_alloc);
    });
    own.host.synchronize();
    EXPECT_EQ(own.target.epoch(), before + enqueued);
    EXPECT_NO_THROW(own.target.drain(10s));
  });
}

TEST(NoMemory, for_an_end_that_is_opened_leaves_none_behind) {
  run_alone([](sluice::Context& context) {
    const sluice::Memory memory = context.allocate(2 * kOwnBytes);
    const auto open_receiver = [&] { return context.receiver(0, 7, memory.slice(kOwnBytes, kOwnBytes)); };
    const auto open_sender = [&](int allocations, sluice::Tag tag = 7) {
      const AtAllocation one_fails([&] {
        if (allocations-- == 0) throw std::bad_alloc();
      });
      return context.sender(0, tag, memory.slice(0, kOwnBytes));
    };
    const auto refused = sluice::name(sluice::Code::out_of_resources);
    static_cast<void>(open_sender(-1, 6));  // makes what only the first end makes
    std::optional<sluice::Sender> sender;
    for (int allocations = 0; !sender; ++allocations) {
      try {
        sender = open_sender(allocations);
      } catch (const sluice::Error& reason) {
        ASSERT_EQ(sluice::name(reason.code()), refused) << reason.what();
      }
    }
    {  // The peer knows of it already.
      sluice::Receiver receiver = open_receiver();
      EXPECT_EQ(code_of([&] { receiver.wait({}); }), refused);
      EXPECT_EQ(code_of([&] { sender->put({}); }), refused);
      sender.reset();
    }
    sender = open_sender(-1);
    sluice::Receiver receiver = open_receiver();
    sender->put({});
    receiver.wait({});
    receiver.release({});
  });
}

/// As threads of a program with MPI's windows may.
TEST(Counters, that_two_threads_use_first_are_one) {
  run_alone([](sluice::Context& context) {
    OwnWindow own(context);
    std::uint64_t other = 0;
    std::uint64_t here = 0;
    {
      const AtAllocation use_it([&, used = false]() mutable {
        if (!std::exchange(used, true)) std::thread([&] { other = own.window.fetch_and_zero(0); }).join();
      });
      here = own.window.fetch_and_zero(0);
    }
    EXPECT_EQ(other, 1U);
    EXPECT_EQ(here, 0U);
  });
}

}  // namespace
