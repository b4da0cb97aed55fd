// SPDX-License-Identifier: Apache-2.0
#include "tests/emucuda/queue.hpp"

#include <chrono>
#include <thread>

#include "tests/emucuda/backoff.hpp"
#include "tests/emucuda/context.hpp"

namespace emucuda {

void Queue::push(Item item) {
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  // Queues live as long as the process, and so do their threads.
  if (!started_) std::thread([this] { run(); }).detach();
  started_ = true;
  filled_.notify_one();
}

void Queue::dawdle() {
  if (slow_us_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % (slow_us_ + 1)));
}

Item Queue::next() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return !items_.empty(); });
  Item item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void Queue::run() {
  for (;;) {
    Item item = next();
    perform(item);
  }
}

void Queue::perform(Item& item) {
  Stream& stream = *item.stream;
  Turn turn(stream, *this);
  for (const Mark& mark : item.after) turn.wait([&] { return mark.reached(); });
  turn.dawdle();
  if (stream.context.error() == CUDA_SUCCESS) stream.context.fail(item.work(turn));
  // What it holds is gone before those who wait for it go on.
  item.work = nullptr;
  stream.completed.store(item.ticket);
}

Context& Turn::context() const { return stream_.context; }

void Turn::dawdle() { queue_.dawdle(); }

bool Turn::park(const Piece& word, std::uintptr_t address, std::uint64_t value, const std::function<bool()>& ready) {
  Backoff backoff;
  while (!ready()) {
    if (!word.range->live || context().error() != CUDA_SUCCESS) break;
    stream_.parked_for.store(value);
    stream_.parked_at.store(address);
    backoff.pause();
  }
  stream_.parked_at.store(0);
  return word.range->live && context().error() == CUDA_SUCCESS;
}

void Turn::wait(const std::function<bool()>& ready) const {
  Backoff backoff;
  while (!ready()) backoff.pause();
}

}  // namespace emucuda
