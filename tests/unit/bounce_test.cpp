// SPDX-License-Identifier: Apache-2.0
// Puts into memory that cannot be mapped, by the sender's side alone.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/shm/bounce.hpp"

namespace {

using namespace sluice::backends;
using shm::BouncePut;
using shm::CrossMemory;
using shm::FasterWay;
using shm::Way;

constexpr std::size_t kBounceSlot = std::size_t{8} * 1024;
constexpr int kBounceDepth = 4;
constexpr std::size_t kStride = 64 * 1024;  // whole pages, and more than a bounce slot takes
constexpr std::size_t kBounceBytes = kBounceDepth * kStride;

class EndOfBounce : public sluice::device::Watch {
 public:
  void fail(sluice::Code, const std::string& what) noexcept override {
    set_failed();
    ADD_FAILURE() << what;
  }
  sluice::base::Clock::duration waited(const sluice::device::Wait&, sluice::base::Clock::duration, sluice::Timeout,
                                       sluice::base::WaitNote&) noexcept override {
    return std::chrono::seconds(1);
  }
};

/// Bounce memory. The first access to a slot that is set notes the value of a word.
class Trap {
 public:
  explicit Trap(const sluice::base::Word& word) : word_(word) {
    memory_ = static_cast<std::byte*>(
        ::mmap(nullptr, kBounceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    only_ = this;
    struct sigaction action {};
    action.sa_sigaction = &spring;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;
  ~Trap() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(memory_, kBounceBytes);
  }

  std::byte* memory() const { return memory_; }
  void set(std::uint64_t epoch) {
    armed_ = memory_ + epoch % kBounceDepth * kStride;
    if (::mprotect(armed_, kStride, PROT_NONE) != 0) throw std::runtime_error("mprotect failed");
  }
  std::optional<std::uint64_t> seen;

 private:
  static void spring(int signal, siginfo_t* info, void*) {
    const auto* const at = static_cast<const std::byte*>(info->si_addr);
    if (at < only_->armed_ || at >= only_->armed_ + kStride) {
      ::sigaction(signal, &only_->before_, nullptr);  // the access is made again, and is a crash
      return;
    }
    only_->seen = only_->word_.value.load();
    ::mprotect(only_->armed_, kStride, PROT_READ | PROT_WRITE);
  }

  static inline Trap* only_ = nullptr;
  const sluice::base::Word& word_;
  std::byte* memory_ = nullptr;
  std::byte* armed_ = nullptr;
  struct sigaction before_ {};
};

/// Both sides are this process.
class BouncePuts : public testing::Test {
 protected:
  std::unique_ptr<BouncePut> make(pid_t kernel, std::size_t slot_bytes = kBounceSlot, std::size_t room = kBounceSlot) {
    Slots source{{}, slot_bytes, kBounceDepth};
    source.memory.data = source_.data();
    Slots bounce{{}, kStride, kBounceDepth};
    bounce.memory.data = trap.memory();
    return std::make_unique<BouncePut>(source, bounce, slot_bytes, Signal{&signal, &parking, {}}, watch, Mapped{},
                                       CrossMemory{kernel, reinterpret_cast<std::uintptr_t>(target_.data())}, room,
                                       ways, std::nullopt);
  }
  /// The signal while the last of a batch is copied.
  std::uint64_t signal_before_the_last(BouncePut& put, std::uint64_t first, std::uint64_t last) {
    trap.seen.reset();
    trap.set(last);
    put.enqueue_all({}, first, last);
    EXPECT_EQ(signal.value.load(), last);
    return trap.seen.value();
  }

  sluice::base::Word signal;
  sluice::base::Parking parking;
  EndOfBounce watch;
  std::shared_ptr<FasterWay> ways = std::make_shared<FasterWay>();
  Trap trap{signal};

 private:
  std::vector<std::byte> source_ = std::vector<std::byte>(kBounceDepth * kBounceSlot);
  std::vector<std::byte> target_ = std::vector<std::byte>(kBounceDepth * kBounceSlot);
};

TEST_F(BouncePuts, a_batch_that_the_sender_copies_alone_raises_one_signal) {
  for (int i = 0; i < 4; ++i)
    for (const Way way : {Way::cached, Way::past_cache}) ways->took(way, kBounceSlot, std::chrono::nanoseconds(100));
  const auto forbidden = make(0);
  EXPECT_EQ(signal_before_the_last(*forbidden, 1, 4), 0U);
  EXPECT_EQ(signal_before_the_last(*forbidden, 5, 7), 4U);
}

/// The bounce memory was faster. Now and then a channel tries the kernel, and times its puts, which both then copy.
TEST_F(BouncePuts, before_a_slot_that_both_copy_the_signals_have_risen) {
  constexpr std::uint64_t kPuts = 6000;
  for (int i = 0; i < 4; ++i) {
    ways->took(Way::kernel, kBounceSlot, std::chrono::hours(1));
    ways->took(Way::past_cache, kBounceSlot, std::chrono::hours(1));
    ways->took(Way::cached, kBounceSlot, std::chrono::nanoseconds(100));
  }
  const auto is_shared = [&](std::uint64_t epoch) {
    const auto turn = FasterWay::kFirstTurn + static_cast<std::uint32_t>(epoch - 1);
    return ways->choose(kBounceSlot, turn, true) == Way::kernel || ways->wants_time(kBounceSlot, turn, true);
  };
  const auto put = make(::getpid());
  int shared_behind_others = 0;
  for (std::uint64_t first = 1; first < kPuts; first += 3) {
    std::uint64_t expected = first - 1;
    if (is_shared(first)) expected = first;
    if (is_shared(first + 1) || is_shared(first + 2)) expected = first + 1;
    if (!is_shared(first + 1) && is_shared(first + 2)) ++shared_behind_others;
    ASSERT_EQ(signal_before_the_last(*put, first, first + 2), expected);
  }
  EXPECT_GT(shared_behind_others, 0);
}

TEST_F(BouncePuts, tell_which_parts_the_kernel_may_copy) {
  const std::string some =
      "parts up to 4096 bytes go through a bounce buffer, those up to 8192 bytes too or by the kernel";
  EXPECT_NE(make(::getpid(), 2 * kBounceSlot)->describe().find(some), std::string::npos);
  const std::string few = "parts up to 4096 bytes go through a bounce buffer, and larger ones by the kernel's";
  EXPECT_NE(make(::getpid(), 2 * kBounceSlot, 4096)->describe().find(few), std::string::npos);
  const std::string all = "parts up to 4096 bytes go through a bounce buffer, and larger ones too or by the kernel's";
  EXPECT_NE(make(::getpid())->describe().find(all), std::string::npos);
}

}  // namespace
