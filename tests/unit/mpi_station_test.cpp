// SPDX-License-Identifier: Apache-2.0
// The backend of MPI's messages over messages that a test holds back and refuses.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/mpi/transport.hpp"
#include "backends/put.hpp"

namespace {

using namespace sluice;
using namespace sluice::backends;
using mpi::Messages;

/// The messages under way between two stations, of ranks 0 and 1.
struct Wire {
  struct Body {
    std::span<const std::byte> from;
    bool moved = false;
  };
  std::array<std::deque<std::vector<std::byte>>, 2> heads;  // by receiver
  std::array<std::deque<std::size_t>, 2> bodies;
  std::vector<Body> all;
  bool heads_arrive = true;
  bool bodies_arrive = true;
  bool refuses = false;
};

class WireMessages final : public Messages {
 public:
  WireMessages(Wire& wire, int rank) : Messages({{1, 2}, rank, 0}), wire_(wire) {}

  void send(const mpi::Address& to, std::span<const std::byte> head, Operation&, std::span<const std::byte> body,
            Operation& of_body) override {
    if (wire_.refuses) throw std::runtime_error("by the test");
    const auto receiver = static_cast<std::size_t>(to.rank);
    wire_.heads.at(receiver).emplace_back(head.begin(), head.end());
    if (body.empty()) return;
    wire_.bodies.at(receiver).push_back(wire_.all.size());
    of_body.push_back(wire_.all.size());
    wire_.all.push_back({body});
  }
  Arrived next() override {
    auto& queue = wire_.heads.at(here());
    if (!wire_.heads_arrive || queue.empty()) return {};
    arrived_ = std::move(queue.front());
    queue.pop_front();
    return {arrived_, 1 - address().rank};
  }
  void receive(int, std::span<std::byte> body, Operation& operation) override {
    const std::size_t number = wire_.bodies.at(here()).front();
    wire_.bodies.at(here()).pop_front();
    to_.emplace_back(number, body);
    operation.push_back(number);
  }
  bool ended(Operation& operation) override {
    if (operation.empty()) return true;
    Wire::Body& one = wire_.all.at(operation.back());
    for (const auto& [number, to] : to_) {
      if (number != operation.back() || one.moved || !wire_.bodies_arrive) continue;
      std::memcpy(to.data(), one.from.data(), to.size());
      one.moved = true;
    }
    if (one.moved) operation.clear();
    return one.moved;
  }
  void abandon(Operation& operation, bool) noexcept override { operation.clear(); }

 private:
  std::size_t here() const { return static_cast<std::size_t>(address().rank); }

  Wire& wire_;
  std::vector<std::byte> arrived_;
  std::vector<std::pair<std::size_t, std::span<std::byte>>> to_;  // by number of the body
};

class StationWatch final : public device::Watch {
 public:
  void fail(Code code, const std::string& what) noexcept override {
    if (failure.empty()) failure = std::string(name(code)) + ": " + what;
    set_failed();
  }
  base::Clock::duration waited(const device::Wait&, base::Clock::duration, Timeout, base::WaitNote&) noexcept override {
    return std::chrono::seconds(60);
  }
  std::uint64_t completed() const { return done.value.load(); }

  std::string failure;
};

constexpr std::size_t kSlotBytes = 10'000;

/// A channel of two slots from rank 0 to rank 1, without an engine.
class MpiStation : public testing::Test {
 public:
  MpiStation() {
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + 1);
    Landed landed = to_first_->land({{target_.data(), target_.size()}, kSlotBytes, 2},
                                    std::array{Signal{&signal_.word, &signal_.parking, {}}});
    landing_ = std::move(landed.landing);
    put_ = to_second_->prepare({{source_.data(), source_.size()}, kSlotBytes, 2}, watch_, std::move(landed.key));
  }
  ~MpiStation() override { base::give_back(signal_); }

 protected:
  void put(std::uint64_t epoch, std::size_t bytes) {
    put_->enqueue({}, epoch, {0, bytes});
    put_->by_bell->posting->post_rung();
  }
  void poll() {
    for (int i = 0; i < 3; ++i) {
      first_->poll();
      second_->poll();
    }
  }
  std::uint64_t signal() const { return signal_.word.value.load(); }

  Wire wire_;
  std::unique_ptr<Transport> first_ = mpi::open_over(std::make_unique<WireMessages>(wire_, 0), {});
  std::unique_ptr<Transport> second_ = mpi::open_over(std::make_unique<WireMessages>(wire_, 1), {});
  std::unique_ptr<Link> to_second_ = first_->connect(1, second_->address(), true);
  std::unique_ptr<Link> to_first_ = second_->connect(0, first_->address(), true);
  std::vector<std::byte> source_{2 * kSlotBytes};
  std::vector<std::byte> target_{2 * kSlotBytes};
  base::Progress& signal_ = base::take_progress();
  StationWatch watch_;
  std::unique_ptr<Landing> landing_;
  std::unique_ptr<Put> put_;
};

TEST_F(MpiStation, says_that_a_put_has_landed_when_the_peer_has_said_so) {
  wire_.heads_arrive = false;
  put(1, 8);
  poll();
  EXPECT_EQ(watch_.completed(), 1U) << "a short payload is copied";
  EXPECT_FALSE(put_->landed(1));
  EXPECT_FALSE(put_->settled());
  poll();
  EXPECT_FALSE(put_->landed(1));
  wire_.heads_arrive = true;
  poll();
  EXPECT_EQ(signal(), 1U);
  EXPECT_TRUE(put_->landed(1));
  EXPECT_TRUE(put_->settled());
}

TEST_F(MpiStation, raises_no_signal_beyond_a_body_that_is_on_its_way) {
  wire_.bodies_arrive = false;
  put(1, kSlotBytes);
  put(2, 8);
  poll();
  EXPECT_EQ(signal(), 0U);
  EXPECT_EQ(watch_.completed(), 0U) << "the body is still read";
  EXPECT_FALSE(put_->landed(2));
  wire_.bodies_arrive = true;
  poll();
  EXPECT_EQ(signal(), 2U);
  EXPECT_EQ(watch_.completed(), 2U);
  EXPECT_TRUE(put_->landed(2));
  EXPECT_EQ(std::memcmp(source_.data() + kSlotBytes, target_.data() + kSlotBytes, kSlotBytes), 0) << "epoch 1";
  EXPECT_EQ(std::memcmp(source_.data(), target_.data(), 8), 0) << "epoch 2";
}

TEST_F(MpiStation, ends_what_is_under_way_to_a_peer_that_is_lost) {
  wire_.bodies_arrive = false;
  put(1, kSlotBytes);
  poll();
  EXPECT_EQ(watch_.completed(), 0U);
  to_second_->lost();
  EXPECT_EQ(watch_.completed(), 0U) << "only a turn completes epochs";
  poll();
  EXPECT_EQ(watch_.completed(), 1U);
  EXPECT_TRUE(put_->settled());
}

TEST_F(MpiStation, fails_the_channel_a_moment_after_a_message_was_refused) {
  wire_.refuses = true;
  put(1, 8);
  poll();
  EXPECT_EQ(watch_.failure, "") << "the peer's death would be the better reason";
  const auto deadline = base::Clock::now() + std::chrono::seconds(20);
  while (watch_.failure.empty() && base::Clock::now() < deadline) {
    poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(watch_.failure, "transport: a message over mpi failed: by the test");
  put_->by_bell->posting->post_rung();
  EXPECT_EQ(watch_.completed(), 1U);
  EXPECT_TRUE(put_->settled());
  EXPECT_EQ(signal(), 0U);
}

TEST_F(MpiStation, takes_a_body_whose_landing_is_gone) {
  landing_.reset();
  put(1, kSlotBytes);
  poll();
  EXPECT_EQ(watch_.completed(), 1U);
  EXPECT_FALSE(put_->landed(1));
  poll();
  EXPECT_TRUE(put_->landed(1)) << "nothing more will change the memory";
}

}  // namespace
