// SPDX-License-Identifier: Apache-2.0
// The kernels' bodies, run by threads of this process instead of a GPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/words.hpp"
#include "device/kernels.hpp"
#include "tests/host_block.hpp"

namespace sluice::device {
namespace {

using test::HostBlock;
using test::run_block;

/// A copy by a block of any size, one thread after the other: the copy of a thread does not depend on the others.
void run_copy(std::uint32_t threads, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  HostBlock::Shared unused(1);
  for (std::uint32_t i = 0; i < threads; ++i) kernel::copy(HostBlock(i, threads, unused), to, from, bytes);
}

std::byte stamp(std::size_t i) { return static_cast<std::byte>(i * 31 + i / 256 * 7 + 1); }
constexpr auto kUntouched = std::byte{0xee};

std::vector<std::byte> stamped(std::size_t bytes) {
  std::vector<std::byte> memory(bytes);
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = stamp(i);
  return memory;
}

/// Copies `bytes` from and to places so far from an aligned one, and looks at every byte, and at those around.
void expect_exact_copy(std::uint32_t threads, std::size_t to_offset, std::size_t from_offset, std::size_t bytes) {
  constexpr std::size_t kMargin = 32;
  alignas(16) static std::array<std::byte, 70'000> to_memory;
  alignas(16) static const std::vector<std::byte> from_memory = stamped(70'000);
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(from_memory.data()) % 16, 0U);
  std::byte* const begin = to_memory.data() + kMargin + to_offset;
  const std::byte* const from = from_memory.data() + from_offset;
  std::fill(begin - kMargin, begin + bytes + kMargin, kUntouched);
  run_copy(threads, begin, from, bytes);
  ASSERT_TRUE(std::equal(begin, begin + bytes, from));
  for (std::size_t i = 0; i < kMargin; ++i) {
    ASSERT_EQ(begin[-1 - static_cast<std::ptrdiff_t>(i)], kUntouched);
    ASSERT_EQ(begin[bytes + i], kUntouched);
  }
}

TEST(Kernels, put_copies_every_byte_and_no_other_at_every_alignment) {
  for (const std::uint32_t threads : {1U, 3U, 32U}) {
    for (std::size_t to = 0; to < 16; ++to) {
      for (std::size_t from = 0; from < 16; ++from) {
        for (std::size_t bytes = 0; bytes <= 200; ++bytes) {
          expect_exact_copy(threads, to, from, bytes);
          if (HasFatalFailure()) FAIL() << threads << " threads, to +" << to << ", from +" << from << ": " << bytes;
        }
      }
    }
  }
}

TEST(Kernels, put_copies_large_messages_by_large_blocks) {
  for (const std::uint32_t threads : {32U, 1000U, 1024U}) {
    for (const std::size_t bytes : {4095U, 4096U, 16'384U, 65'519U, 65'536U}) {
      for (const std::size_t from : {0U, 1U, 4U, 8U, 13U}) {
        expect_exact_copy(threads, 0, from, bytes);
        expect_exact_copy(threads, 13, from, bytes);
        if (HasFatalFailure()) FAIL() << threads << " threads, from +" << from << ": " << bytes;
      }
    }
  }
}

/// Both ends of a channel of one slot, in the memory of this test.
struct Channel {
  explicit Channel(std::size_t bytes) : from(bytes), to(bytes) {
    out.count = &puts;
    out.credit = &credit;
    out.target_slots = out.source_slots = 1;
    out.slot_bytes = out.target_stride = bytes;
    out.source = from.data();
    out.target = to.data();
    out.raised = &signal;
    out.done = &done;
    out.fault = &fault;
    in.waits = &waits;
    in.releases = &releases;
    in.signals[0] = &signal;
    in.rails = 1;
    in.passed = &passed;
    in.target = to.data();
    in.slots = 1;
    in.slot_bytes = bytes;
    in.raised = &credit;
    in.done = &released;
    in.fault = &fault;
  }
  OutArgs put(std::uint64_t step) const { return {&out, 1, step, 1}; }
  InArgs wait(std::uint64_t step) const { return {&in, 1, step, 1}; }
  InArgs release() const { return {&in, 1, 0, 1}; }

  std::vector<std::byte> from, to;
  alignas(64) std::uint64_t signal = 0;
  alignas(64) std::uint64_t credit = 0;
  alignas(64) std::uint64_t done = 0;
  std::uint64_t passed = 0;
  std::uint64_t released = 0;
  std::uint64_t fault = 0;
  kernel::Count puts{}, waits{}, releases{};
  kernel::Out out{};
  kernel::In in{};
};

constexpr kernel::Thread kThread;

TEST(Kernels, put_raises_its_signal_after_the_data_and_done_after_the_signal) {
  constexpr std::uint64_t kEpochs = 100;
  Channel channel(160'000);
  std::size_t wrong = 0;  // bytes that were not there when the signal was
  std::size_t early = 0;  // done words that were there before the signal
  std::jthread receiver([&] {
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      kernel::wait(kThread, channel.wait(epoch));
      wrong += channel.to != std::vector(channel.to.size(), static_cast<std::byte>(epoch));
      kernel::release(kThread, channel.release());
    }
  });
  std::jthread watcher([&] {
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      while (kernel::load_acquire(channel.done) < epoch) std::this_thread::yield();
      early += kernel::load_acquire(channel.signal) < epoch;
    }
  });
  for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    while (kernel::load_acquire(channel.credit) + 1 < epoch) std::this_thread::yield();
    std::ranges::fill(channel.from, static_cast<std::byte>(epoch));
    run_block(3, [&](const auto& block) { kernel::put(block, channel.put(epoch), 0); });
  }
  receiver.join();
  watcher.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(early, 0U);
  EXPECT_EQ(channel.passed, kEpochs);
  EXPECT_EQ(channel.released, kEpochs);
  EXPECT_EQ(channel.puts.eager, kEpochs);
  EXPECT_EQ(channel.fault, 0U);
}

/// The last thread of a block to come to the barrier, when all others have: what is there then, and what is not yet?
struct AtBarrier {
  std::uint32_t index() const { return 0; }
  std::uint32_t size() const { return 1; }
  void sync() const {
    EXPECT_EQ(channel->signal, 0U);
    EXPECT_EQ(channel->done, 0U);
    EXPECT_EQ(channel->from, channel->to);
  }
  std::uint64_t from_first(std::uint64_t value) const { return value; }
  const Channel* channel;
};

TEST(Kernels, put_raises_nothing_before_the_whole_block_has_copied) {
  Channel channel(300);
  channel.from = stamped(300);
  channel.out.source = channel.from.data();
  kernel::put(AtBarrier{&channel}, channel.put(1), 0);
  EXPECT_EQ(channel.signal, 1U);
  EXPECT_EQ(channel.done, 1U);
}

/// Several small puts of one launch: sizes, alignments and numbers of words differ.
struct SmallPuts {
  static constexpr std::array<std::size_t, 4> kBytes = {1, 300, 64, 16'000};

  SmallPuts() {
    std::size_t word = 0;
    for (std::size_t i = 0; i < kBytes.size(); ++i) {
      from.push_back(stamped(kBytes[i] + i));
      to.emplace_back(kBytes[i], kUntouched);
      word += i;  // the first has none
      args.puts[i] = {to[i].data(), from[i].data() + i, kBytes[i], word};
    }
    for (std::size_t i = 0; i < words.size(); ++i) args.words[i] = {&words[i], i + 1};
  }
  bool copied(std::size_t i) const {
    return std::equal(to[i].begin(), to[i].end(), from[i].begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<std::vector<std::byte>> from, to;
  std::array<std::uint64_t, 6> words{};
  SmallPutsArgs args{};
};

TEST(Kernels, small_puts_copy_their_bytes_and_write_their_words) {
  for (const std::uint32_t threads : {1U, 3U}) {
    SmallPuts small;
    for (std::uint32_t which = 0; which < small.to.size(); ++which)
      run_block(threads, [&](const auto& block) { kernel::small_put(block, small.args, which); });
    for (std::size_t i = 0; i < small.to.size(); ++i) EXPECT_TRUE(small.copied(i)) << i;
    EXPECT_EQ(small.words, (std::array<std::uint64_t, 6>{1, 2, 3, 4, 5, 6}));
  }
}

/// When the last thread reaches the barrier all is copied, and no word is written.
struct AtBarrierOfSmall {
  std::uint32_t index() const { return 0; }
  std::uint32_t size() const { return 1; }
  void sync() const {
    EXPECT_TRUE(small->copied(3));
    EXPECT_EQ(small->words, (std::array<std::uint64_t, 6>{}));
    ++*barriers;
  }
  const SmallPuts* small;
  int* barriers;
};

TEST(Kernels, small_puts_write_their_words_once_the_whole_block_has_copied) {
  SmallPuts small;
  int barriers = 0;
  kernel::small_put(AtBarrierOfSmall{&small, &barriers}, small.args, 3);
  EXPECT_EQ(barriers, 1);
  EXPECT_EQ(small.words, (std::array<std::uint64_t, 6>{0, 0, 0, 4, 5, 6}));
}

/// Done are those before a wait whose word is not there yet, and no other.
TEST(Kernels, operate_on_words_in_their_order_and_wait_until_they_are_poisoned) {
  std::array<std::uint64_t, 4> words{};
  OperateArgs args{};
  args.words[0] = {&words[0], 7};
  args.words[1] = {&words[1], 2};
  args.words[2] = {&words[2], 8};
  args.words[3] = {&words[3], 1};
  args.count = 4;
  args.waits = 0b1010;
  std::atomic<bool> over{false};
  std::jthread operating([&] {
    kernel::operate(args);
    over = true;
  });
  const auto await = [](const auto& reached) {
    while (!reached()) std::this_thread::yield();
  };
  await([&] { return kernel::load_acquire(words[0]) == 7; });
  kernel::write({&words[1], 1});
  EXPECT_EQ(kernel::load_acquire(words[2]), 0U);
  kernel::write({&words[1], 3});
  await([&] { return kernel::load_acquire(words[2]) == 8; });
  EXPECT_FALSE(over);
  kernel::write({&words[3], base::kPoison});
  await([&] { return over.load(); });
}

TEST(Kernels, a_put_in_three_copies_every_byte_by_any_number_of_blocks) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{127}, std::size_t{70'001}}) {
    for (const std::uint32_t blocks : {1U, 2U, 7U, 300U}) {
      Channel channel(bytes);
      channel.from = stamped(bytes);
      channel.out.source = channel.from.data();
      const OutArgs ends = channel.put(1);
      kernel::begin_put(kThread, ends);
      for (std::uint32_t share = 0; share < blocks; ++share) kernel::copy(kThread, ends, 0, share, blocks);
      EXPECT_EQ(channel.signal, 0U);
      kernel::end_put(kThread, ends);
      EXPECT_EQ(channel.signal, 1U);
      EXPECT_EQ(channel.to, channel.from) << bytes << " bytes, " << blocks << " blocks";
    }
  }
}

/// Puts, waits and releases of a failed channel end, and move nothing.
TEST(Kernels, a_failure_releases_what_waits_and_nothing_is_moved) {
  Channel channel(64);
  channel.from = stamped(64);
  channel.out.source = channel.from.data();
  kernel::put(kThread, channel.put(1), 0);
  std::ranges::fill(channel.from, std::byte{7});
  {
    std::jthread putting([&] { kernel::put(kThread, channel.put(2), 0); });
    kernel::write({&channel.puts.held, kernel::kHeldByFailure});
    kernel::write({&channel.credit, base::kPoison});
  }
  EXPECT_EQ(channel.to, stamped(64));
  EXPECT_EQ(channel.signal, 1U);
  EXPECT_EQ(channel.puts.begun, 2U);
  EXPECT_EQ(channel.done, 2U);
  kernel::wait(kThread, channel.wait(1));
  {
    std::jthread waiting([&] { kernel::wait(kThread, channel.wait(2)); });
    kernel::write({&channel.signal, base::kPoison});
  }
  EXPECT_EQ(channel.passed, 2U);
  kernel::write({&channel.releases.held, kernel::kHeldByFailure});
  kernel::release(kThread, channel.release());
  EXPECT_EQ(channel.credit, base::kPoison);
  EXPECT_EQ(channel.released, 1U);
}

TEST(Kernels, change_a_word_once_and_each_number_once) {
  constexpr std::uint32_t kThreads = 32, kBlocks = 2;
  const auto run = [](const ChangeArgs& args) {
    for (std::uint32_t which = 0; which < kBlocks; ++which)
      run_block(kThreads, [&](const auto& block) { kernel::change(block, args, which, kBlocks); });
  };
  ChangeArgs args{};
  std::uint64_t word = 5, before = 0;
  args.there = reinterpret_cast<std::byte*>(&word);
  args.local = reinterpret_cast<std::byte*>(&before);
  args.what = ChangeArgs::What::fetch_add;
  args.operand = 3;
  args.count = 1;
  run(args);
  EXPECT_EQ(word, 8U);
  EXPECT_EQ(before, 5U);

  std::vector<std::uint32_t> numbers(kThreads * kBlocks * 5 / 2, 7), expected(numbers.size());
  std::vector<std::byte> operands(numbers.size() * sizeof(std::uint32_t) + 1);
  for (const std::size_t shift : {0U, 1U}) {  // aligned, and not
    std::ranges::fill(numbers, 7);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) {
      expected[i] = 7 + i;
      std::memcpy(operands.data() + shift + i * sizeof i, &i, sizeof i);
    }
    args.there = reinterpret_cast<std::byte*>(numbers.data());
    args.local = operands.data() + shift;
    args.what = ChangeArgs::What::accumulate;
    args.op = Op::sum;
    args.number = Number::uint32;
    args.count = numbers.size();
    run(args);
    EXPECT_EQ(numbers, expected) << "shift " << shift;
  }
}

/// The host holds kernels first, and then poisons; and a late credit or signal covers the poison.
TEST(Kernels, that_are_held_say_why_whether_or_not_there_is_poison) {
  for (const auto& [held, result] : {std::pair(kernel::kHeldByClosing, DeviceResult::closed),
                                     std::pair(kernel::kHeldByFailure, DeviceResult::failed)}) {
    Channel channel(64);
    channel.puts.held = channel.releases.held = held;
    channel.signal = 1;
    EXPECT_EQ(DeviceSender(channel.out).put(kThread), result);
    EXPECT_EQ(channel.signal, 1U);
    EXPECT_EQ(channel.done, 1U);
    const DeviceReceiver receiver(channel.in);
    const std::byte* slot = nullptr;
    EXPECT_EQ(receiver.wait(kThread, slot), DeviceResult::ok);
    EXPECT_EQ(receiver.release(kThread), result);
    EXPECT_EQ(channel.credit, 0U);
    EXPECT_EQ(channel.released, 1U);
  }
}

/// It has armed what it fires: it looks at nothing, and each store to its counter is a ring.
TEST(Kernels, ring_a_nic_once_an_epoch_and_not_after_a_failure) {
  Channel channel(64);
  alignas(64) std::uint64_t counter = 0;
  alignas(64) std::uint64_t bell = 0;
  channel.out.rings = channel.out.armed = true;
  channel.out.counter = &counter;
  channel.out.raised = &bell;
  channel.out.ahead = 5;
  const auto expect_rung = [&](std::uint64_t by, std::uint64_t count) {
    EXPECT_EQ(std::exchange(counter, 0), by);
    EXPECT_EQ(bell, count);
  };
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    channel.credit = epoch - 1;
    kernel::put(kThread, channel.put(epoch), 0);
    expect_rung(1, epoch + 5);
  }
  const DeviceSender sender(channel.out);
  EXPECT_EQ(sender.put(kThread, 0, 63), DeviceResult::refused);
  EXPECT_EQ(channel.puts.begun, 3U);
  channel.puts.held = kernel::kHeldByFailure;
  channel.credit = 3;
  kernel::put(kThread, channel.put(4), 0);
  expect_rung(0, 8);
  EXPECT_EQ(channel.puts.refused, 4U);
  EXPECT_EQ(channel.done, 0U);  // the engine's to raise

  channel.in.rings = channel.in.armed = true;
  channel.in.counter = &counter;
  channel.in.raised = &bell;
  channel.in.ahead = 10;
  channel.signal = 2;
  for (std::uint64_t epoch = 1; epoch <= 2; ++epoch) kernel::wait(kThread, channel.wait(epoch));
  kernel::release(kThread, channel.release());
  expect_rung(1, 11);
  channel.releases.held = kernel::kHeldByFailure;
  kernel::release(kThread, channel.release());
  expect_rung(0, 11);
  EXPECT_EQ(channel.releases.refused, 2U);
  EXPECT_EQ(channel.released, 0U);
}

/// The host closes the end while a kernel begins one epoch after the other, and goes on trying.
TEST(Kernels, begin_no_epoch_that_who_closes_the_end_has_not_heard_of) {
  constexpr int kTimes = 2000;
  for (int time = 0; time < kTimes; ++time) {
    kernel::Count count{};
    std::uint64_t begun = 0;
    std::jthread beginning([&] {
      while (kernel::begin(count, begun + 1)) ++begun;
      for (int i = 0; i < 100; ++i) begun += kernel::begin(count, begun + 1) ? 1 : 0;
    });
    while (kernel::load_acquire(count.entered) < static_cast<std::uint64_t>(time)) std::this_thread::yield();
    std::atomic_ref(count.closed).store(1);
    while (!kernel::is_decided(count)) std::this_thread::yield();
    const std::uint64_t told = kernel::load_acquire(count.entered);
    beginning.join();
    ASSERT_EQ(begun, told);
    ASSERT_EQ(count.begun, told);
  }
}

TEST(Kernels, that_wait_for_a_source_end_when_it_is_closed) {
  kernel::Count count{};
  std::uint64_t done = 0, credit = 0;
  count.begun = 1;
  kernel::Out out{};
  out.count = &count;
  out.done = &done;
  out.credit = &credit;
  out.rings = true;
  out.source_slots = 1;
  EXPECT_EQ(kernel::await_source(out, 100), kernel::kTimedOut);
  std::jthread closing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic_ref(count.closed).store(1);
  });
  EXPECT_EQ(kernel::await_source(out, kernel::kUntilFailed), kernel::kClosed);
}

TEST(Kernels, that_find_another_slot_say_so_and_wait_for_the_failure) {
  Channel channel(64);
  channel.out.source_slots = 2;
  {
    std::jthread putting([&] { kernel::put(kThread, channel.put(2), 0); });  // its first epoch is of the other slot
    while (kernel::load_acquire(channel.fault) == 0) std::this_thread::yield();
    EXPECT_EQ(kernel::load_acquire(channel.puts.eager), 0U);
    kernel::write({&channel.credit, base::kPoison});
  }
  EXPECT_EQ(channel.signal, 0U);
  EXPECT_EQ(channel.puts.begun, 0U);
  EXPECT_EQ(channel.puts.eager, 1U);
}

}  // namespace
}  // namespace sluice::device
