// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bench {
namespace {

constexpr double kBetweenNs = 900;
constexpr long kItems = 40;
constexpr long kLeadIn = Queue::kLeadIn;

/// Does what it is given when it is synchronised with, and remembers its graph.
class Pretended final : public Queue {
 public:
  Pretended() : Queue(kItems, 1, kItems, [this](sluice::Stream) { catch_up(); }) {}
  sluice::Stream stream() override { return {}; }
  void run(std::function<void()> work) override { work_.push_back(std::move(work)); }

  long captured = 0;  ///< graphs
  long launched = 0;

 private:
  void catch_up() {
    for (const auto& work : std::exchange(work_, {})) work();
  }
  void begin() override {}
  void end() override {}
  double between_ns() override { return kBetweenNs; }
  void capture(const std::function<void()>& work) override {
    ++captured;
    work();
  }
  void launch_graph() override { ++launched; }

  std::vector<std::function<void()>> work_;
};

TEST(Queue, replays_a_graph_of_as_many_steps_as_come_around) {
  Pretended queue;
  long steps = 0;
  const auto step = [&] { ++steps; };
  queue.prepare(Drive::replayed, step, 3);
  EXPECT_EQ(queue.captured, 1);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(queue.launched, 0);
  EXPECT_DOUBLE_EQ(queue.drive(Drive::replayed, 7, step), kBetweenNs * 7 / 9);
  EXPECT_EQ(queue.launched, 1 + kLeadIn + 3);  // the first by itself
  EXPECT_DOUBLE_EQ(queue.drive(Drive::replayed, 6, step), kBetweenNs);
  EXPECT_EQ(queue.launched, 1 + 2 * kLeadIn + 3 + 2);
  EXPECT_EQ(queue.captured, 1);
  EXPECT_EQ(steps, 3);
}

TEST(Queue, enqueues_replays_without_a_lead_in) {
  Pretended queue;
  const auto step = [] {};
  queue.prepare(Drive::enqueue_replay, step, 2);
  EXPECT_GT(queue.drive(Drive::enqueue_replay, 5, step), 0);
  EXPECT_EQ(queue.launched, 1 + 3);
}

TEST(Queue, captures_nothing_where_nothing_is_replayed) {
  Pretended queue;
  queue.prepare(
      Drive::ahead, [] {}, 2);
  EXPECT_EQ(queue.captured, 0);
}

TEST(Queue, runs_a_pipeline_without_a_gate_or_a_lead_in) {
  Pretended queue;
  long steps = 0;
  long ran = 0;
  const auto step = [&] {
    ++steps;
    queue.run([&] { ++ran; });
  };
  EXPECT_GT(queue.drive(Drive::pipelined, 3 * kItems, step), 0);
  EXPECT_EQ(steps, 3 * kItems);
  EXPECT_EQ(ran, 3 * kItems);
}

TEST(Queue, does_as_much_at_once_as_it_holds) {
  Pretended queue;
  long steps = 0;
  EXPECT_DOUBLE_EQ(queue.drive(Drive::ahead, 2 * (kItems - kLeadIn), [&] { ++steps; }), 2 * kBetweenNs);
  EXPECT_EQ(steps, 2 * kItems);
}

}  // namespace
}  // namespace bench
