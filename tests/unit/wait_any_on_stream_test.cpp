// SPDX-License-Identifier: Apache-2.0
// Waits for any of several receivers in the order of a HostStream, within one process.
#include <sluice/sluice.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/code_of.hpp"

namespace {

using namespace std::chrono_literals;
using sluice::Stream;
using sluice::tests::code_of;

constexpr std::size_t kAnyBytes = 64;

/// Channels of a rank to itself, which a WaitAny has.
struct AnyRing {
  AnyRing(sluice::Context& in, std::size_t channels, int depth = 1)
      : context(in), memory(in.allocate(2 * channels * static_cast<std::size_t>(depth) * kAnyBytes)) {
    const std::size_t bytes = static_cast<std::size_t>(depth) * kAnyBytes;
    for (std::size_t i = 0; i < channels; ++i) {
      const auto tag = static_cast<sluice::Tag>(i);
      receivers.push_back(in.receiver(0, tag, memory.slice(2 * i * bytes, bytes), {.depth = depth}));
      senders.push_back(in.sender(0, tag, memory.slice((2 * i + 1) * bytes, bytes), {.depth = depth}));
    }
    for (sluice::Sender& sender : senders) sender.wait_connected(10s);
    any.emplace(receivers);
  }
  Stream stream() { return Stream::host(host); }

  sluice::Context& context;
  sluice::HostStream host;  // destroyed after all that it uses
  sluice::Memory memory;
  std::vector<sluice::Receiver> receivers;
  std::vector<sluice::Sender> senders;
  std::optional<sluice::WaitAny> any;
};

/// Calls `body(context)` in the only rank of a job; the exit code of it.
template <class F>
int alone(F body) {
  return sluice::run_threads(1, body);
}

TEST(WaitAnyOnStream, receivers_have_their_turn) {
  constexpr std::size_t kChannels = 3;
  constexpr int kDepth = 4;
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, kChannels, kDepth);
              for (sluice::Sender& sender : ring.senders) {
                for (int put = 0; put < kDepth; ++put) sender.put({});
              }
              std::vector<sluice::WaitAny::Ticket> tickets;
              for (std::size_t i = 0; i < kChannels * kDepth; ++i) tickets.push_back(ring.any->wait(ring.stream()));
              ring.host.synchronize();
              for (std::size_t i = 0; i < tickets.size(); ++i) {
                ASSERT_TRUE(tickets[i].arrival());
                EXPECT_EQ(tickets[i].arrival()->index, i % kChannels);
              }
            }),
            0);
}

TEST(WaitAnyOnStream, work_behind_runs_once_one_has_come_and_knows_which) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 3);
              std::vector<std::size_t> seen;
              std::atomic<std::size_t> ran{0};
              for (int i = 0; i < 9; ++i) {
                const auto ticket = ring.any->wait(ring.stream());
                ring.host.run([&, ticket] {
                  seen.push_back(ticket.arrival()->index);
                  EXPECT_EQ(*ticket.arrival()->slot->data(), static_cast<std::byte>(seen.size()));
                  ++ran;
                });
                ring.any->release(ring.stream(), ticket);
              }
              EXPECT_EQ(code_of([&] { ring.host.synchronize(5ms); }), "timeout");
              const std::vector<std::size_t> order = {2, 0, 0, 1, 2, 2, 2, 1, 0};
              for (std::size_t i = 0; i < order.size(); ++i) {
                *ring.senders[order[i]].acquire({}).data() = static_cast<std::byte>(i + 1);
                ring.senders[order[i]].put({});
                while (ran <= i) std::this_thread::yield();
                if (i != 3) continue;
                EXPECT_EQ(code_of([&] { ring.host.synchronize(5ms); }), "timeout");  // it sleeps again
              }
              ring.host.synchronize();
              EXPECT_EQ(seen, order);
            }),
            0);
}

TEST(WaitAnyOnStream, callables_take_and_release_in_program_order) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              for (int round = 0; round < 3; ++round) {
                const auto ticket = ring.any->wait(ring.stream());
                ring.host.run([&, ticket] {
                  ring.receivers[ticket.arrival()->index].release({});
                  const auto more = ring.any->wait(10s);  // the host form, in the stream
                  ASSERT_TRUE(more);
                  EXPECT_EQ(ticket.arrival()->index + more->index, 1U);
                  ring.receivers[more->index].release({});
                });
                for (sluice::Sender& sender : ring.senders) sender.put({});
              }
              EXPECT_EQ(code_of([&] { ring.host.synchronize(10s); }), "nothing");
            }),
            0);
}

TEST(WaitAnyOnStream, wait_some_takes_all_that_have_come) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              constexpr std::size_t kChannels = 3;
              AnyRing ring(context, kChannels);
              for (int round = 0; round < 3; ++round) {
                for (sluice::Sender& sender : ring.senders) sender.put({});
                const auto ticket = ring.any->wait_some(ring.stream());
                ring.any->release(ring.stream(), ticket);
                ring.host.synchronize();
                ASSERT_EQ(ticket.arrivals().size(), kChannels);
                for (std::size_t i = 0; i < kChannels; ++i) EXPECT_EQ(ticket.arrivals()[i].index, i);
              }
            }),
            0);
}

TEST(WaitAnyOnStream, in_program_order_the_ticket_is_done) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              for (int round = 0; round < 2; ++round) {
                ring.senders[1].put({});
                const auto ticket = ring.any->wait(Stream{});
                ASSERT_TRUE(ticket.done());
                EXPECT_EQ(ticket.arrival()->index, 1U);
                ring.any->release({}, ticket);
              }
            }),
            0);
}

TEST(WaitAnyOnStream, of_none_ends_at_once) {
  EXPECT_EQ(alone([](sluice::Context&) {
              sluice::HostStream host;
              sluice::WaitAny any;
              const auto one = any.wait(Stream::host(host));
              const auto some = any.wait_some(Stream::host(host));
              any.release(Stream::host(host), one);
              host.synchronize();
              EXPECT_FALSE(one.arrival());
              EXPECT_TRUE(some.arrivals().empty());
            }),
            0);
}

TEST(WaitAnyOnStream, a_limit_of_the_stream_ends_the_wait_and_fails_no_receiver) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              sluice::HostStream hasty({.timeout = 20ms});
              bool ran = false;
              const auto ticket = ring.any->wait(Stream::host(hasty));
              hasty.run([&] { ran = true; });
              EXPECT_EQ(code_of([&] { hasty.synchronize(); }), "timeout");
              EXPECT_FALSE(ran);
              EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "timeout");
              ring.senders[0].put({});
              const auto next = ring.any->wait(Stream::host(hasty));
              hasty.synchronize();
              EXPECT_EQ(next.arrival()->index, 0U);
              context.check();
            }),
            0);
}

TEST(WaitAnyOnStream, a_stopped_stream_takes_nothing) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              ring.senders[0].put({});
              ring.host.run([] { throw std::runtime_error("on purpose"); });
              const auto ticket = ring.any->wait(ring.stream());
              EXPECT_THROW(ring.host.synchronize(), std::runtime_error);
              EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "aborted");
              EXPECT_EQ(ring.any->wait(10s)->index, 0U);
              context.check();
            }),
            0);
}

/// Both while it runs, and while others stand behind it.
TEST(WaitAnyOnStream, destroying_it_ends_its_waits_and_the_receivers_live_on) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              const auto runs = ring.any->wait(ring.stream());
              const auto stands = ring.any->wait(ring.stream());
              bool ran = false;
              ring.host.run([&] { ran = true; });
              EXPECT_EQ(code_of([&] { ring.host.synchronize(20ms); }), "timeout");
              ring.any.reset();
              EXPECT_EQ(code_of([&] { ring.host.synchronize(10s); }), "aborted");
              EXPECT_FALSE(ran);
              for (const auto& ticket : {runs, stands}) EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "aborted");
              ring.senders[1].put({});
              ring.receivers[1].wait(ring.stream());
              ring.host.synchronize(10s);
              context.check();
            }),
            0);
}

/// Each round at another instant of what the stream does.
TEST(WaitAnyOnStream, destroying_it_at_any_instant_leaves_no_use_of_the_receivers) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              for (int round = 0; round < 40; ++round) {
                AnyRing ring(context, 3);
                std::vector<sluice::WaitAny::Ticket> tickets;
                for (int i = 0; i < 3; ++i) {
                  tickets.push_back(ring.any->wait(ring.stream()));
                  ring.any->release(ring.stream(), tickets.back());
                }
                ring.senders[static_cast<std::size_t>(round) % 3].put({});
                const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round * round * 4);
                while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
                ring.any.reset();
                for (sluice::Receiver& receiver : ring.receivers) receiver.close(10s);
                EXPECT_EQ(code_of([&] { ring.host.synchronize(10s); }), "aborted");
                for (const auto& ticket : tickets) EXPECT_TRUE(ticket.done());
              }
            }),
            0);
}

TEST(WaitAnyOnStream, an_exception_that_leaves_a_wait_behind_ends_it) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              ring.any->wait(ring.stream());
              EXPECT_EQ(code_of([&] { ring.host.synchronize(5ms); }), "timeout");
              throw std::runtime_error("on purpose");
            }),
            1);
}

/// Else the put behind the wait would hold the exception up for seconds.
TEST(WaitAnyOnStream, an_exception_that_destroys_work_behind_a_wait_fails_what_it_waits_for) {
  sluice::WaitAny::Ticket ticket;
  const int code = sluice::run_threads(2, [&](sluice::Context& context) {
    const sluice::Memory memory = context.allocate(kAnyBytes);
    if (context.rank() == 1) {
      const sluice::Sender none = context.sender(0, 1, {});
      sluice::Receiver in = context.receiver(0, 2, memory.all());
      EXPECT_EQ(code_of([&] { in.wait({}); }), "peer_lost");
      return;
    }
    sluice::HostStream host;
    sluice::Receiver in = context.receiver(1, 1, {});
    sluice::WaitAny any;
    any.add(in);
    ticket = any.wait(Stream::host(host));
    sluice::Sender out = context.sender(1, 2, memory.all());
    out.wait_connected(10s);
    out.put(Stream::host(host));
    EXPECT_EQ(code_of([&] { host.synchronize(5ms); }), "timeout");
    throw std::runtime_error("on purpose");
  });
  EXPECT_EQ(code, 1);
  EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "peer_lost");
}

/// Nothing has told the program, so its exit code does.
TEST(WaitAnyOnStream, destroying_the_stream_ends_the_wait) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              auto stream = std::make_unique<sluice::HostStream>();
              const auto ticket = ring.any->wait(Stream::host(*stream));
              EXPECT_EQ(code_of([&] { stream->synchronize(20ms); }), "timeout");
              stream.reset();
              EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "aborted");
              ring.senders[0].put({});
              EXPECT_EQ(ring.any->wait(10s)->index, 0U);
            }),
            1);
}

TEST(WaitAnyOnStream, the_failure_of_one_is_thrown_once_and_the_others_go_on) {
  EXPECT_EQ(sluice::run_threads(3,
                                [](sluice::Context& context) {
                                  sluice::Memory memory = context.allocate(2 * kAnyBytes);
                                  if (context.rank() == 1) {
                                    const auto fails = [&] {
                                      sluice::Sender lost = context.sender(0, 1, memory.slice(0, kAnyBytes));
                                      lost.wait_connected(10s);
                                      throw std::runtime_error("on purpose");
                                    };
                                    EXPECT_THROW(fails(), std::runtime_error);
                                    return;
                                  }
                                  if (context.rank() == 2) {
                                    sluice::Sender out = context.sender(0, 1, memory.slice(0, kAnyBytes));
                                    sluice::Receiver go = context.receiver(0, 2, {});
                                    go.wait({});
                                    out.put({});
                                    return;
                                  }
                                  sluice::HostStream host;
                                  std::vector<sluice::Receiver> in;
                                  in.push_back(context.receiver(1, 1, memory.slice(0, kAnyBytes)));
                                  in.push_back(context.receiver(2, 1, memory.slice(kAnyBytes, kAnyBytes)));
                                  sluice::Sender go = context.sender(2, 2, {});
                                  sluice::WaitAny any(in);
                                  const auto failed = any.wait(Stream::host(host));
                                  EXPECT_EQ(code_of([&] { host.synchronize(); }), "peer_lost");
                                  EXPECT_EQ(code_of([&] { (void)failed.arrivals(); }), "peer_lost");
                                  EXPECT_EQ(any.left(), 1U);
                                  const auto next = any.wait(Stream::host(host));
                                  go.put({});
                                  host.synchronize();
                                  EXPECT_EQ(next.arrival()->index, 1U);
                                  const auto closed = any.wait(Stream::host(host));
                                  host.synchronize();
                                  EXPECT_TRUE(closed.arrival()->closed());
                                  EXPECT_EQ(any.left(), 0U);
                                }),
            0);
}

/// It is found behind an arrival, which the program gets first.
TEST(WaitAnyOnStream, a_failure_that_wait_some_finds_is_of_the_next_wait) {
  const int code = sluice::run_threads(2, [](sluice::Context& context) {
    if (context.rank() == 1) {
      sluice::Sender closes = context.sender(0, 1, {});
      closes.close();
      const auto fails = [&] {
        sluice::Sender lost = context.sender(0, 2, {});
        lost.wait_connected(10s);
        throw std::runtime_error("on purpose");
      };
      EXPECT_THROW(fails(), std::runtime_error);
      return;
    }
    sluice::HostStream host;
    sluice::Receiver closed = context.receiver(1, 1, {});
    sluice::Receiver failed = context.receiver(1, 2, {});
    EXPECT_EQ(code_of([&] { failed.wait_for(10s); }), "peer_lost");
    EXPECT_EQ(code_of([&] { context.check(); }), "peer_lost");
    EXPECT_FALSE(closed.wait_for(10s));
    sluice::WaitAny any;
    any.add(closed);
    any.add(failed);
    const auto first = any.wait_some(Stream::host(host));
    host.synchronize();
    ASSERT_EQ(first.arrivals().size(), 1U);
    EXPECT_TRUE(first.arrival()->closed());
    EXPECT_FALSE(host.failed());
    EXPECT_EQ(any.left(), 1U);
    const auto second = any.wait_some(Stream::host(host));
    bool seen = false;
    host.run([&] { seen = host.failed(); });
    host.synchronize();  // `check` has thrown it
    EXPECT_TRUE(seen);
    EXPECT_EQ(code_of([&] { (void)second.arrivals(); }), "peer_lost");
    EXPECT_EQ(any.left(), 0U);
  });
  EXPECT_EQ(code, 0);
}

TEST(WaitAnyOnStream, mistakes_are_refused) {
  EXPECT_EQ(alone([](sluice::Context& context) {
              AnyRing ring(context, 2);
              sluice::HostStream other;
              const auto ticket = ring.any->wait(ring.stream());
              EXPECT_EQ(code_of([&] { (void)ticket.arrivals(); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->wait(Stream::host(other)); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->wait_for(0ns); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->wait_some(1ms); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->add(ring.receivers[0]); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->release({}, ticket); }), "misuse");
              ring.senders[0].put({});
              ring.any->release(ring.stream(), ticket);
              EXPECT_EQ(code_of([&] { ring.any->release(ring.stream(), ticket); }), "misuse");
              ring.host.synchronize();
              EXPECT_EQ(code_of([&] { sluice::WaitAny(ring.receivers).release({}, ticket); }), "misuse");
              EXPECT_EQ(code_of([&] { ring.any->release({}, {}); }), "misuse");
              EXPECT_EQ(code_of([&] { (void)sluice::WaitAny::Ticket().arrival(); }), "misuse");
              EXPECT_FALSE(ring.any->wait(Stream::host(other)).done());
              ring.senders[1].put({});
              other.synchronize();
            }),
            0);
}

}  // namespace
