// SPDX-License-Identifier: Apache-2.0
// The kernels' bodies, run by threads of this process instead of a GPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/words.hpp"
#include "device/kernels.hpp"

namespace sluice::device {
namespace {

/// What a GPU's block is to a kernel: here, some threads.
class Threads {
 public:
  Threads(std::uint32_t index, std::uint32_t size, std::barrier<>& all) : index_(index), size_(size), all_(&all) {}
  std::uint32_t index() const { return index_; }
  std::uint32_t size() const { return size_; }
  void sync() const { all_->arrive_and_wait(); }

 private:
  std::uint32_t index_;
  std::uint32_t size_;
  std::barrier<>* all_;
};

/// Runs the kernel as a block of so many threads.
void run_put(std::uint32_t threads, const PutArgs& args) {
  std::barrier<> all(threads);
  std::vector<std::jthread> others;
  for (std::uint32_t i = 1; i < threads; ++i) {
    others.emplace_back([i, threads, &all, &args] { kernel::put(Threads(i, threads, all), args); });
  }
  kernel::put(Threads(0, threads, all), args);
}

/// The same copy by a block of any size, one thread after the other: what a thread copies does not depend on others.
void run_copy(std::uint32_t threads, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::barrier<> unused(1);
  for (std::uint32_t i = 0; i < threads; ++i) kernel::copy(Threads(i, threads, unused), to, from, bytes);
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

TEST(Kernels, put_raises_its_signal_after_the_data_and_done_after_the_signal) {
  constexpr std::size_t kWords = 20'000;
  constexpr std::uint64_t kEpochs = 100;
  std::vector<std::uint64_t> from(kWords);
  std::vector<std::uint64_t> to(kWords, ~std::uint64_t{0});
  alignas(64) std::uint64_t signal = 0;
  alignas(64) std::uint64_t done = 0;
  alignas(64) std::uint64_t taken = 0;
  std::size_t wrong = 0;  // words of data that were not there when the signal was
  std::size_t early = 0;  // done words that were there before the signal
  std::jthread receiver([&] {
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      kernel::wait({&signal, epoch, nullptr, 0, nullptr, 0});
      for (std::size_t i = 0; i < kWords; ++i) wrong += to[i] != epoch * 1000 + i;
      kernel::store_release(taken, epoch);
    }
  });
  std::jthread watcher([&] {
    for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
      kernel::wait({&done, epoch, nullptr, 0, nullptr, 0});
      early += kernel::load_acquire(signal) < epoch;
    }
  });
  for (std::uint64_t epoch = 1; epoch <= kEpochs; ++epoch) {
    for (std::size_t i = 0; i < kWords; ++i) from[i] = epoch * 1000 + i;
    run_put(3, {reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                kWords * sizeof(std::uint64_t), &signal, epoch, &done, epoch});
    kernel::wait({&taken, epoch, nullptr, 0, nullptr, 0});
  }
  receiver.join();
  watcher.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(early, 0U);
}

/// The last thread of a block to come to the barrier, when all others have: what is there then, and what is not yet?
struct AtBarrier {
  std::uint32_t index() const { return 0; }
  std::uint32_t size() const { return 1; }
  void sync() const {
    EXPECT_EQ(*signal, 0U);
    EXPECT_EQ(*done, 0U);
    EXPECT_TRUE(std::ranges::equal(*from, *to));
  }
  const std::uint64_t* signal;
  const std::uint64_t* done;
  const std::vector<std::byte>* from;
  const std::vector<std::byte>* to;
};

TEST(Kernels, put_raises_nothing_before_the_whole_block_has_copied) {
  const auto from = stamped(300);
  std::vector<std::byte> to(300);
  std::uint64_t signal = 0;
  std::uint64_t done = 0;
  kernel::put(AtBarrier{&signal, &done, &from, &to}, {to.data(), from.data(), 300, &signal, 1, &done, 2});
  EXPECT_EQ(signal, 1U);
  EXPECT_EQ(done, 2U);
}

TEST(Kernels, put_without_a_done_word_raises_its_signal_only) {
  std::uint64_t signal = 0;
  run_put(1, {nullptr, nullptr, 0, &signal, 5, nullptr, 9});
  EXPECT_EQ(signal, 5U);
}

TEST(Kernels, wait_passes_what_was_reached_already_and_says_so) {
  const std::uint64_t word = 7;
  std::uint64_t passed = 0;
  kernel::wait({&word, 7, nullptr, 0, &passed, 3});
  EXPECT_EQ(passed, 3U);
  kernel::wait({&word, 0, nullptr, 0, nullptr, 0});
}

/// What a wait needs to be over must reach it while it polls.
template <class Release>
void expect_released_by(Release release) {
  std::uint64_t word = 1;
  std::uint64_t stop = 0;
  std::uint64_t passed = 0;
  {
    std::jthread waiting([&] { kernel::wait({&word, 2, &stop, 4, &passed, 1}); });
    kernel::store_release(stop, 3);  // not enough
    std::this_thread::yield();
    EXPECT_EQ(kernel::load_acquire(passed), 0U);
    release(word, stop);
  }
  EXPECT_EQ(passed, 1U);
}

TEST(Kernels, wait_ends_when_the_word_is_reached) {
  expect_released_by([](std::uint64_t& word, std::uint64_t&) { kernel::write({&word, 2}); });
}

TEST(Kernels, wait_ends_by_the_poison_that_a_failure_stores) {
  expect_released_by([](std::uint64_t& word, std::uint64_t&) { kernel::write({&word, base::kPoison}); });
}

TEST(Kernels, wait_ends_when_it_is_stopped) {
  expect_released_by([](std::uint64_t&, std::uint64_t& stop) { kernel::write({&stop, 4}); });
}

}  // namespace
}  // namespace sluice::device
