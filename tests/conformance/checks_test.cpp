// SPDX-License-Identifier: Apache-2.0
// SLUICE_CHECK=1: what each check finds, and what it leaves alone.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <regex>
#include <span>
#include <thread>
#include <vector>

#include "tests/conformance/cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class Checks : public testing::TestWithParam<Case> {};

Peers checked_peers(const Case& one) {
  Peers peers = one.peers();
  peers.environment.emplace_back("SLUICE_CHECK=1");
  return peers;
}

/// "VERB at PLACE". A place is a line of this file, which has debug information, or a program and an offset.
std::string at(const std::string& verb) {
  static const bool has_lines = std::system("command -v addr2line > /dev/null") == 0;
  return verb + (has_lines ? R"( at checks_test\.cpp:\d+)" : R"( at \S+\+0x[0-9a-f]+)");
}

/// Asserts that the text of the error has a part like this.
void expect_says(const std::optional<Error>& error, const std::string& pattern) {
  if (!error) return;
  EXPECT_EQ(name(error->code()), std::string("misuse")) << error->what();
  static std::mutex one_at_a_time;  // std::regex fills a table of the locale
  const std::lock_guard lock(one_at_a_time);
  EXPECT_TRUE(std::regex_search(error->what(), std::regex(pattern))) << error->what() << "\nlacks: " << pattern;
}

/// The end of rank 1, with the failure that rank 0 reports.
void expect_reported_misuse(Receiver& receiver, const std::string& pattern) {
  const auto error = error_of([&] {
    for (;;) receiver.wait_for(std::chrono::seconds(10));
  });
  expect_says(error, "rank 0 reports: .*" + pattern);
}

/// Calls `call` in two threads, until it throws in one of them. Returns that error.
template <class F>
std::optional<Error> error_of_two_threads(F call) {
  std::atomic<bool> found{false};
  std::optional<Error> error;
  const auto until = Clock::now() + std::chrono::seconds(10);
  const auto body = [&] {
    try {
      while (!found && Clock::now() < until) call();
    } catch (const Error& thrown) {
      if (!found.exchange(true)) error = thrown;
    }
  };
  std::thread other(body);
  body();
  other.join();
  EXPECT_TRUE(found) << "no thread has thrown";
  return error;
}

TEST_P(Checks, a_channel_used_by_two_threads_at_once) {
  run_peers(checked_peers(GetParam()), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (!end.first) {
      const auto error = error_of_two_threads([&] { static_cast<void>(end.receiver.test()); });
      expect_says(error, "used by two threads at once: " + at("test") + ", while another thread is in " + at("test"));
      EXPECT_EQ(error ? error->tag() : 0, kTag);
      board().set(kGo, 1);
      end.receiver.wait({});  // nothing has changed
    } else {
      board().await(kGo, 1);
      end.sender.put({});
    }
  });
}

TEST_P(Checks, a_receiver_waited_for_by_two_threads_at_once) {
  run_peers(checked_peers(GetParam()), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (end.first) {
      end.sender.put({});
      end.sender.close();
      return board().await(kGo, 1);
    }
    end.receiver.wait({});
    const std::span<Receiver> receivers(&end.receiver, 1);
    const auto error = error_of_two_threads([&] { static_cast<void>(WaitAny(receivers).wait_for(Timeout::zero())); });
    expect_says(error, "used by two threads at once: " + at("wait_any") + ", while .* in " + at("wait_any"));
    board().set(kGo, 1);
  });
}

TEST_P(Checks, a_plan_used_by_two_threads_at_once) {
  run_peers(checked_peers(GetParam()), [](Context& context) {
    ChannelEnd end(context, GetParam());
    Plan plan = context.plan();
    if (end.first) {
      plan.add(end.sender);
      plan.commit({});
      const auto error = error_of_two_threads([&] { plan.acquire({}); });
      expect_says(error, "plan is used by two threads at once: " + at("acquire") + ", while .* in " + at("acquire"));
      plan.start({});
    } else {
      plan.add(end.receiver);
      plan.commit({});
      plan.wait({});
      plan.release({});
    }
  });
}

/// Stream "first" stands still until kGo.
struct TwoStreams {
  TwoStreams() {
    first.run([] { board().await(kGo, 1); });
  }
  HostStream first{{.name = "first"}};
  HostStream second{{.name = "second"}};
};

TEST_P(Checks, a_verb_that_runs_before_one_that_was_enqueued_earlier) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    const std::string wrong =
        at("put") + " .epoch 2, on stream 'second'. runs before " + at("put") + " .epoch 1, on stream 'first'. has";
    if (context.rank() == 0) {
      TwoStreams streams;
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      std::atomic<bool> enqueued{false};
      streams.second.run([&] {
        while (!enqueued) std::this_thread::yield();
      });
      sender.put(Stream::host(streams.first));
      sender.put(Stream::host(streams.second));
      sender.put(Stream::host(streams.second));
      enqueued = true;
      const auto error = expect_code(Code::misuse, [&] { context.synchronize(Stream::host(streams.second)); });
      expect_says(error, wrong);
      EXPECT_EQ(error ? error->epoch() : 0, 2U);
      board().set(kGo, 1);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      expect_reported_misuse(receiver, wrong);
    }
    board().meet(context);
  });
}

TEST_P(Checks, a_release_that_runs_before_its_wait) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      TwoStreams streams;
      Receiver receiver = context.receiver(1, kTag, buffer.all());
      receiver.wait_connected();
      receiver.wait(Stream::host(streams.first));
      receiver.release(Stream::host(streams.second));
      expect_says(expect_code(Code::misuse, [&] { context.synchronize(Stream::host(streams.second)); }),
                  at("release") + " .epoch 1, on stream 'second'. runs before " + at("wait") + " .epoch 1,");
      board().set(kGo, 1);
    } else {
      Sender sender = context.sender(0, kTag, buffer.all());
      board().await(kGo, 1);
    }
    board().meet(context);
  });
}

TEST_P(Checks, a_put_that_runs_before_its_acquire) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    const std::string wrong = at("put") + ".*runs before " + at("acquire") + " .epoch 1, on stream 'first'. has";
    if (context.rank() == 0) {
      TwoStreams streams;
      Sender sender = context.sender(1, kTag, buffer.all());
      sender.wait_connected();
      sender.acquire(Stream::host(streams.first));
      sender.put(Stream::host(streams.second));
      expect_says(expect_code(Code::misuse, [&] { context.synchronize(Stream::host(streams.second)); }), wrong);
      board().set(kGo, 1);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      expect_reported_misuse(receiver, wrong);
    }
    board().meet(context);
  });
}

/// The release needs the first epoch of the wait alone.
TEST_P(Checks, a_release_that_runs_before_the_wait_of_a_batch) {
  Case two_slots = GetParam();
  two_slots.depth = 2;
  run_peers(with_untold(checked_peers(two_slots)), [two_slots](Context& context) {
    const Buffer buffer(context, two_slots);
    if (context.rank() == 0) {
      TwoStreams streams;
      Receiver receiver = context.receiver(1, kTag, buffer.all(), {.depth = 2});
      receiver.wait_connected();
      receiver.wait(Stream::host(streams.first), 2);
      receiver.release(Stream::host(streams.second));
      expect_says(expect_code(Code::misuse, [&] { context.synchronize(Stream::host(streams.second)); }),
                  at("release") + " .epoch 1, on stream 'second'. runs before " + at("wait") + " .epoch 1,");
      board().set(kGo, 1);
    } else {
      Sender sender = context.sender(0, kTag, buffer.all(), {.depth = 2});
      board().await(kGo, 1);
    }
    board().meet(context);
  });
}

TEST_P(Checks, a_verb_of_a_plan_that_runs_before_one_that_was_enqueued_earlier) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    const std::string wrong = at("start") + ".*'second'. runs before " + at("acquire") + ".*'first'. has";
    if (context.rank() == 0) {
      TwoStreams streams;
      Sender sender = context.sender(1, kTag, buffer.all());
      Plan plan = context.plan();
      plan.add(sender).commit(Stream::host(streams.first));
      plan.acquire(Stream::host(streams.first));
      plan.start(Stream::host(streams.second));
      expect_says(expect_code(Code::misuse, [&] { context.synchronize(Stream::host(streams.second)); }), wrong);
      board().set(kGo, 1);
    } else {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      expect_reported_misuse(receiver, wrong);
    }
    board().meet(context);
  });
}

TEST_P(Checks, target_slots_of_two_open_receivers_that_overlap) {
  run_peers(checked_peers(GetParam()), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one, 3 * one.bytes);
    const Slice first = buffer.all().slice(0, 2 * one.bytes);
    const Slice second = buffer.all().slice(one.bytes, 2 * one.bytes);
    const Slice apart = buffer.all().slice(2 * one.bytes, one.bytes);
    const Rank other = 1 - context.rank();
    const auto open = [&](Tag tag, const Slice& memory) { return context.receiver(other, tag, memory); };
    {
      const Receiver receiver = open(kTag, first);
      const Receiver beside = open(kTag + 1, apart);
      const auto error = expect_code(Code::misuse, [&] { open(kTag + 2, second); });
      expect_says(error, at("receiver opened") + " overlap those of the one from rank " + std::to_string(other) +
                             ", tag [0-9]+, opened" + at(""));
      EXPECT_EQ(error ? error->tag() : 0, kTag + 2);
      const Sender sender = context.sender(other, kTag, first);  // forwards in place
      const Sender again = context.sender(other, kTag + 2, second);
    }
    const Receiver receiver = open(kTag + 2, second);  // the others are closed
    board().meet(context);
  });
}

TEST_P(Checks, data_of_a_released_slot_in_program_order) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    ChannelEnd end(context, GetParam());
    if (end.first) {
      for (std::uint64_t epoch = 1; epoch <= 2; ++epoch) {
        fill(bytes_of(end.sender.acquire({})), {0, kTag, epoch});
        end.sender.put({});
      }
    } else {
      const Slice slot = end.receiver.wait({});
      EXPECT_EQ(difference(bytes_of(slot), {0, kTag, 1}), "");
      const Slice piece = slot.slice(1, 3);
      EXPECT_EQ(piece.data(), slot.data() + 1);
      end.receiver.release({});
      const Slice next = end.receiver.wait({});
      EXPECT_EQ(difference(bytes_of(next), {0, kTag, 2}), "");
      end.receiver.release({});
      EXPECT_NO_THROW(context.check());
      EXPECT_EQ(piece.data(), slot.data() + 1);
      const auto error = expect_code(Code::misuse, [&] { static_cast<void>(end.receiver.test()); });
      expect_says(error, R"(data\(\) of the slot of epoch 1)" + at("") + ", after its " + at("release"));
    }
    board().meet(context);
  });
}

/// Each slot of a batch has its own epoch: of two, the first is released.
TEST_P(Checks, data_of_a_released_slot_of_a_batch) {
  Case two_slots = GetParam();
  two_slots.depth = 2;
  run_peers(with_untold(checked_peers(two_slots)), [two_slots](Context& context) {
    ChannelEnd end(context, two_slots);
    if (end.first) {
      end.sender.put({}, end.sender.acquire({}, 2).size());
    } else {
      const Batch slots = end.receiver.wait({}, 2);
      EXPECT_EQ(slots[1].data(), slots[0].data() - two_slots.bytes);
      end.receiver.release({}, 1);
      EXPECT_NE(slots[1].data(), nullptr);
      EXPECT_NO_THROW(context.check());
      EXPECT_NE(slots[0].data(), nullptr);
      const auto error = expect_code(Code::misuse, [&] { static_cast<void>(end.receiver.test_some()); });
      expect_says(error, R"(data\(\) of the slot of epoch 1)" + at("") + ", after its " + at("release"));
    }
    board().meet(context);
  });
}

TEST_P(Checks, data_of_a_released_slot_on_a_stream) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    ChannelEnd end(context, on_host(GetParam()));
    if (end.first) {
      for (int epoch = 1; epoch <= 2; ++epoch) end.sender.put(end.stream());
    } else {
      for (int epoch = 1; epoch <= 2; ++epoch) {
        const Slice slot = end.receiver.wait(end.stream());
        end.order.run([slot] { EXPECT_NE(slot.data(), nullptr); });  // runs before the release does
        end.receiver.release(end.stream());
        if (epoch == 1) continue;
        EXPECT_NO_THROW(context.synchronize(end.stream()));
        end.order.run([slot] { EXPECT_NE(slot.data(), nullptr); });
      }
      end.receiver.wait(end.stream());
      const auto error = expect_code(Code::misuse, [&] { context.synchronize(end.stream()); });
      expect_says(error, R"(data\(\) of the slot of epoch 2)" + at("") + ", after its " + at("release"));
    }
    board().meet(context);
  });
}

/// Opens an end in memory that then goes, and calls a verb.
void with_memory_that_goes(Context& context, void* memory, std::size_t bytes, void (*take_away)(void*, std::size_t),
                           const std::string& what) {
  const Region region = context.region(memory, bytes);
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, region.all());
    sender.put({});
    sender.drain();
    take_away(memory, bytes);
    const auto error = expect_code(Code::misuse, [&] { sender.put({}); });
    expect_says(error, "memory of its slots was " + what + " while the channel, opened" + at("") +
                           ", is open; found by " + at("put"));
  } else {
    Receiver receiver = context.receiver(0, kTag, region.all());
    receiver.wait({});
    expect_reported_misuse(receiver, "memory of its slots");
  }
  board().meet(context);
}

TEST_P(Checks, memory_that_was_unmapped_under_an_open_channel) {
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    constexpr std::size_t kBytes = 16384;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    with_memory_that_goes(
        context, memory, kBytes, [](void* gone, std::size_t bytes) { ::munmap(gone, bytes); },
        R"((freed|unmapped)( at \S+)?)");
  });
}

TEST_P(Checks, memory_that_was_freed_under_a_plan) {
  if (kSanitized) return;
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    const std::size_t bytes = GetParam().bytes;
    auto users = std::make_unique<std::vector<std::byte>>(bytes);
    const Region region = context.region(users->data(), bytes);
    HostStream host;
    Plan plan = context.plan();
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, region.all());
      plan.add(sender).commit(Stream::host(host));
      users.reset();
      const auto error = expect_code(Code::misuse, [&] { plan.start(Stream::host(host)); });
      expect_says(error,
                  "was freed" + at("") + " while the channel, opened" + at("") + ", is open; found by " + at("start"));
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, region.all());
      board().meet(context);
      expect_reported_misuse(receiver, "memory of its slots");
    }
  });
}

TEST_P(Checks, memory_that_was_freed_under_an_open_channel) {
  if (kSanitized) {
    skipped_here("a sanitizer's allocator does not tell where memory was freed");
    return;
  }
  run_peers(with_untold(checked_peers(GetParam())), [](Context& context) {
    static thread_local std::vector<std::byte> users;
    users.resize(GetParam().bytes);
    with_memory_that_goes(
        context, users.data(), users.size(), [](void*, std::size_t) { users = std::vector<std::byte>(); },
        "freed" + at(""));
  });
}

TEST_P(Checks, memory_that_was_freed_before_its_channel_was_closed) {
  if (kSanitized) return;
  const Case& one = GetParam();
  Peers peers = checked_peers(GetParam());
  const Ended ended = end_of_peers(peers, [one](Context& context) {
    const Buffer buffer(context, one);
    if (context.rank() == 0) {
      Receiver receiver = context.receiver(1, kTag, buffer.all());
      receiver.wait({});
    } else {
      Sender sender;
      const std::vector<std::byte> users(one.bytes);  // freed first
      Region region = context.region(const_cast<std::byte*>(users.data()), one.bytes);
      sender = context.sender(0, kTag, region.all());
      sender.put({});
      sender.drain();
    }
  });
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_TRUE(std::regex_search(ended.text, std::regex("no call has thrown this: .*was freed" + at("")))) << ended.text;
}

/// Right programs that look like mistakes: verbs of many threads, one after another; acquires that are missing or
/// repeated; a row that two senders send; a target that is the source of the next.
void do_what_is_right(Context& context, const Case& one) {
  const Buffer rows(context, one, 2 * one.bytes);
  const Slice row = rows.all().slice(0, one.bytes);
  const Slice back = rows.all().slice(one.bytes, one.bytes);
  HostStream host;
  HostStream behind;
  const Stream stream = one.host ? Stream::host(host) : Stream();
  const auto in_a_thread = [](auto work) { std::thread(work).join(); };
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, row);
    Sender same_row = context.sender(1, kTag + 1, row);
    Receiver receiver = context.receiver(1, kTag + 2, back);
    fill(bytes_of(row), {0, kTag, 1});
    for (int n = 0; n < 3; ++n) in_a_thread([&] { sender.acquire(stream); });
    in_a_thread([&] { sender.put(stream); });
    same_row.put(stream);
    const Slice slot = receiver.wait(stream);
    context.synchronize(stream);
    EXPECT_EQ(difference(bytes_of(slot), {0, kTag, 1}), "");
    behind.wait(host.record());  // orders the two streams
    receiver.release(one.host ? Stream::host(behind) : stream);
    context.synchronize(Stream::host(behind));
  } else {
    Receiver receiver = context.receiver(0, kTag, row);
    Receiver same_row = context.receiver(0, kTag + 1, back);
    Sender sender = context.sender(0, kTag + 2, row);
    in_a_thread([&] { receiver.wait(stream); });
    same_row.wait(stream);
    sender.put(stream);
    sender.acquire(stream);
    receiver.release(stream);
    context.synchronize(stream);
  }
  board().meet(context);
}

/// Verbs of one channel on two streams, each enqueued when the word of the last one is seen, by `drain` or in an answer
/// of the peer. A stream may then still be in the verb that has raised the word. ThreadSanitizer does not see an order
/// by the answer of another process.
void do_what_words_order(Context& context, const Case& one) {
  const std::uint64_t epochs = one.times(200);
  const Buffer rows(context, one, 2 * one.bytes);
  HostStream even;
  HostStream odd;
  const auto stream = [&](std::uint64_t n) { return Stream::host(n % 2 == 0 ? even : odd); };
  const Rank other = 1 - context.rank();
  Sender sender = context.sender(other, kTag, rows.all().slice(0, one.bytes));
  Receiver receiver = context.receiver(other, kTag, rows.all().slice(one.bytes, one.bytes));
  const auto take = [&] {
    receiver.wait({});
    receiver.release({});
  };
  for (std::uint64_t n = 0; n < epochs; ++n) {
    if (context.rank() == 1) take();
    sender.put(stream(n));
    if ((context.rank() == 0 && n % 2 == 0) || kSanitized) sender.drain();
    if (context.rank() == 0) take();
  }
  context.synchronize(stream(0));
  context.synchronize(stream(1));
  board().meet(context);
}

/// One stream waits, and another one releases: with two slots, the next wait runs before the release.
void do_two_steps_at_once(Context& context, const Case& one) {
  const Buffer buffer(context, one, 2 * one.bytes);
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, buffer.all(), {.depth = 2});
    for (int n = 0; n < 4; ++n) sender.put({});
    board().meet(context);
  } else {
    HostStream waits;
    HostStream computes;
    Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 2});
    computes.run([] { board().await(kGo, 1); });
    for (int n = 0; n < 2; ++n) {
      receiver.wait(Stream::host(waits));
      computes.wait(waits.record());
      receiver.release(Stream::host(computes));
    }
    context.synchronize(Stream::host(waits));
    board().set(kGo, 1);
    context.synchronize(Stream::host(computes));
    for (int n = 0; n < 2; ++n) receiver.wait(Stream::host(waits));
    context.synchronize(Stream::host(waits));
    board().meet(context);
  }
}

/// A slice that the program keeps is of the slot that it has now.
void do_use_a_kept_slice(Context& context, const Case& one) {
  ChannelEnd end(context, one);
  Slice kept;
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    if (end.first) {
      fill(bytes_of(end.sender.acquire({})), {0, kTag, epoch});
      end.sender.put({});
    } else {
      const Slice slot = end.receiver.wait({});
      if (epoch == 1) kept = slot;
      EXPECT_EQ(difference(bytes_of(kept), {0, kTag, epoch}), "");
      end.receiver.release({});
    }
  }
  board().meet(context);
}

/// Memory that is freed once its channel is closed, and then used in vain; a block that shrinks in its place. It is so
/// long that malloc maps pages for it, which `free` unmaps.
void do_free_when_closed(Context& context, const Case& one) {
  constexpr std::size_t kLong = 1U << 20U;
  void* memory = std::malloc(kLong);
  const Region region = context.region(memory, one.bytes);
  if (context.rank() == 0) {
    Sender sender = context.sender(1, kTag, region.all());
    sender.put({});
    void* const shorter = std::realloc(memory, kLong / 2);
    EXPECT_EQ(shorter, memory);
    sender.put({});
    sender.close();
    std::free(shorter);
    const auto error = expect_code(Code::misuse, [&] { sender.put({}); });
    expect_says(error, "the channel is closed here");
  } else {
    Receiver receiver = context.receiver(0, kTag, region.all());
    for (int n = 0; n < 2; ++n) {
      receiver.wait({});
      receiver.release({});
    }
    receiver.close();
    std::free(memory);
  }
  board().meet(context);
}

TEST_P(Checks, what_is_right_stays_right) {
  run_peers(checked_peers(GetParam()), [](Context& context) {
    do_what_is_right(context, GetParam());
    do_what_is_right(context, on_host(GetParam()));
    do_what_words_order(context, GetParam());
    do_two_steps_at_once(context, GetParam());
    do_use_a_kept_slice(context, GetParam());
    if (!kSanitized) do_free_when_closed(context, GetParam());
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Checks, testing::ValuesIn(inline_only(stream_cases())), CaseName());

}  // namespace
