// SPDX-License-Identifier: Apache-2.0
// A hardware queue: one thread, which does the operations of its streams in the order of submission. Streams that share
// a queue wait for each other, as those of a GPU do: a wait that parks one of them parks them all.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>

#include "tests/emucuda/stream.hpp"

namespace emucuda {

class Queue {
 public:
  /// Dawdles up to `slow_us` before each operation.
  Queue(std::uint64_t slow_us, std::uint64_t seed) : slow_us_(slow_us), random_(seed) {}

  void push(Item item);
  void dawdle();
  /// True if operations of other streams are behind this one.
  bool holds_up(const Stream& stream);

 private:
  void run();
  Item next();
  void perform(Item& item);
  static void wait_for(const Mark& mark, const Item& item);

  const std::uint64_t slow_us_;
  std::mt19937_64 random_;  // of the thread
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Item> items_;
  bool started_ = false;
};

}  // namespace emucuda
