// SPDX-License-Identifier: Apache-2.0
// Requests to an owner that looks at its mailbox, late, or not at all.
#include "rma/mpi/mailbox.hpp"
#include "tests/conformance/random_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using sluice::mpi_rma::Mailbox;
using sluice::mpi_rma::RemoteMailbox;
using MailBytes = std::array<std::byte, 64>;

void mail_alive() {}

std::uint64_t mail_address(std::byte* at) { return reinterpret_cast<std::uint64_t>(at); }

MailBytes mail_stamped(unsigned stamp) {
  MailBytes bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(stamp + i);
  return bytes;
}

/// While it exists, threads that wait serve the mailbox.
class ServedMailbox {
 public:
  explicit ServedMailbox(Mailbox& box) : box_(box) { sluice::mpi_rma::add_mailbox(box_); }
  ServedMailbox(const ServedMailbox&) = delete;
  ServedMailbox& operator=(const ServedMailbox&) = delete;
  ~ServedMailbox() { sluice::mpi_rma::remove_mailbox(box_); }

 private:
  Mailbox& box_;
};

TEST(MpiMailbox, a_request_that_was_taken_back_is_not_carried_out) {
  Mailbox box;
  RemoteMailbox remote(&box);
  MailBytes memory = mail_stamped(1);
  MailBytes bytes = mail_stamped(100);
  EXPECT_FALSE(remote.request({Mailbox::Kind::put, mail_address(memory.data()), bytes.data(), 8}, mail_alive));
  box.serve();
  EXPECT_EQ(memory, mail_stamped(1));
  EXPECT_FALSE(remote.request({Mailbox::Kind::get, mail_address(memory.data()), bytes.data(), 41}, mail_alive))
      << "too long";
  EXPECT_FALSE(RemoteMailbox().request({Mailbox::Kind::put, 0, bytes.data(), 8}, mail_alive)) << "there is none";
}

TEST(MpiMailbox, an_owner_that_looks_carries_requests_out) {
  Mailbox box;
  const ServedMailbox served(box);
  RemoteMailbox remote(&box);
  MailBytes memory = mail_stamped(1);
  MailBytes bytes = mail_stamped(100);
  EXPECT_TRUE(
      remote.request({Mailbox::Kind::put, mail_address(memory.data() + 8), bytes.data(), Mailbox::kMost}, mail_alive));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + Mailbox::kMost, memory.begin() + 8));
  EXPECT_TRUE(remote.request({Mailbox::Kind::get, mail_address(memory.data()), bytes.data(), 8}, mail_alive));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 8, mail_stamped(1).begin()));
}

TEST(MpiMailbox, any_number_of_them_is_served) {
  std::vector<Mailbox> boxes(30);
  std::vector<std::unique_ptr<ServedMailbox>> served;
  for (Mailbox& box : boxes) served.push_back(std::make_unique<ServedMailbox>(box));
  MailBytes bytes = mail_stamped(100);
  for (Mailbox& box : boxes) {
    MailBytes memory = mail_stamped(1);
    RemoteMailbox remote(&box);
    EXPECT_TRUE(remote.request({Mailbox::Kind::put, mail_address(memory.data()), bytes.data(), 8}, mail_alive));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 8, memory.begin()));
  }
}

/// An origin with bytes of its own, which it accesses by itself where the owner is late, as the kernel does.
class MailOrigin {
 public:
  MailOrigin(Mailbox& box, unsigned seed) : box_(box), random_(seed) {}
  void run() {
    for (int step = 0; step < kMailSteps && !testing::Test::HasFailure(); ++step) {
      RemoteMailbox remote(&box_);  // which leaves no request out
      const std::size_t bytes = 1 + random_() % Mailbox::kMost;
      const std::size_t at = random_() % (memory_.size() - bytes + 1);
      MailBytes data = mail_stamped(static_cast<unsigned>(random_()));
      const bool puts = random_() % 2 == 0;
      const auto kind = puts ? Mailbox::Kind::put : Mailbox::Kind::get;
      const bool done = remote.request({kind, mail_address(memory_.data() + at), data.data(), bytes}, mail_alive);
      if (puts && !done) std::memcpy(memory_.data() + at, data.data(), bytes);
      if (puts) std::memcpy(model_.data() + at, data.data(), bytes);
      const bool got_wrong = !puts && done && std::memcmp(data.data(), model_.data() + at, bytes) != 0;
      EXPECT_FALSE(got_wrong) << "step " << step;
      EXPECT_EQ(memory_, model_) << "step " << step;
    }
  }

 private:
  static constexpr int kMailSteps = 30000;
  Mailbox& box_;
  std::minstd_rand random_;
  MailBytes memory_ = mail_stamped(0);
  MailBytes model_ = memory_;
};

TEST(MpiMailbox, requests_are_carried_out_once_whenever_the_owner_looks) {
  const auto seed = static_cast<unsigned>(sluice::test::random_seed());
  Mailbox box;
  std::atomic<int> at_work{3};
  std::vector<std::thread> origins;
  for (unsigned origin = 1; origin <= 3; ++origin) {
    origins.emplace_back([&box, &at_work, seed, origin] {
      MailOrigin(box, seed + origin).run();
      --at_work;
    });
  }
  std::minstd_rand random(seed);
  while (at_work > 0) {
    const ServedMailbox served(box);  // by the origins too, each for all of them
    for (auto looks = random() % 100; looks > 0; --looks) box.serve();
    std::this_thread::yield();
  }
  for (std::thread& origin : origins) origin.join();
}

/// The words of a mailbox with a request, as they lie in memory.
struct MailWords {
  std::uint64_t state;
  std::uint64_t at;
  std::uint32_t kind;
  std::uint32_t bytes;
  std::uint64_t data;
};
constexpr std::uint64_t kMailReady = 2;
constexpr std::uint64_t kMailTaken = 3;
constexpr std::uint64_t kMailDone = 4;

/// An owner that takes the request and does not finish it: the request of another mailbox sets the state.
TEST(MpiMailbox, the_death_of_an_owner_ends_the_wait) {
  Mailbox box;
  MailBytes bytes = mail_stamped(1);
  int checks = 0;
  const auto request_taken = [&](const std::function<void()>& check) {
    Mailbox taker;
    const MailWords words{kMailReady, reinterpret_cast<std::uint64_t>(&box), 0, sizeof kMailTaken, kMailTaken};
    std::memcpy(static_cast<void*>(&taker), &words, sizeof words);
    const ServedMailbox served(taker);
    return RemoteMailbox(&box).request({Mailbox::Kind::get, mail_address(bytes.data()), bytes.data(), 8}, check);
  };
  EXPECT_TRUE(request_taken([&] {
    if (++checks == 3) std::memcpy(static_cast<void*>(&box), &kMailDone, sizeof kMailDone);
  })) << "it was late";
  EXPECT_EQ(checks, 3);
  EXPECT_THROW(request_taken([] { throw std::runtime_error("the owner has died"); }), std::runtime_error);
  const ServedMailbox served(box);
  EXPECT_FALSE(
      RemoteMailbox(&box).request({Mailbox::Kind::get, mail_address(bytes.data()), bytes.data(), 8}, mail_alive))
      << "it stays with the request that nobody finishes";
}

}  // namespace
